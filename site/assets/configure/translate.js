/* Translate what the recommender says, by templates with {places}: pairs of an English one and its translation.
   A text is a row of pieces, each of one template; what fills a place is translated where a template fits it. */

import { make } from "./dom.js";

const PLACE = /\{[^}]+\}/;
const PLACES = /\{[^}]+\}/g;
const LETTERS = /[A-Za-z]{2}/;
const INSIDE = "(?:(?!\\. [A-Z]).)";  // a place holds no end of a sentence
const lists = new WeakMap();

/** Return a text for an element: translated, or marked as English; a node is in the page's language already. */
export function said(text, ...given) {
  if (typeof text !== "string") return text;
  const own = translated(text, ...given);
  return own === null && document.documentElement.lang !== "en" ? make("span", { lang: "en" }, text) : own ?? text;
}

/** Return a text in the page's language; null if a piece of it has no translation. */
export function translated(text, ...given) {
  const own = text ? row(text, { templates: given.filter(Boolean).flatMap(prepared), done: new Map() }) : null;
  return own && /^[A-Z]/.test(text) ? own[0].toUpperCase() + own.slice(1) : own;
}

/** Return the templates of a list, those with most text first. */
function prepared(list) {
  if (!lists.has(list)) {
    const made = list.map(template).sort((one, other) => other.size - one.size);
    lists.set(list, made);
  }
  return lists.get(list);
}

function template([english, own]) {
  const names = english.match(PLACES) ?? [];
  const parts = english.split(PLACE);
  const pattern = parts.map(part => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    .reduce((before, after, at) => `${before}(${filling(names[at - 1], before, after)})${after}`);
  return {
    names,
    own,
    size: parts.join("").length,
    whole: new RegExp(`^${pattern}$`, "s"),
  };
}

/** Return what may fill a place: {word} is one word, another place may be empty beside a letter. */
function filling(name, before, after) {
  if (name === "{word}") return "\\S+?";
  return INSIDE + (/(^|[\s(])$/.test(before) && !/^\w/.test(after) ? "+?" : "*?");
}

/** Translate a text, by one template or piece by piece: first without separators in a place, then with them. */
function row(text, known) {
  if (!known.done.has(text)) {
    known.done.set(text, null);
    known.done.set(text, piece(text, known, tight) ?? pieces(text, known) ?? piece(text, known, loose));
  }
  return known.done.get(text);
}

function exact(text, known, fits) {
  for (const each of known.templates) {
    const found = text.match(each.whole);
    if (found && fits(found)) return filled(each, found, known);
  }
  return null;
}

/** Translate a piece, also where it has the full stop of its template no more, or one besides it. */
function piece(text, known, fits) {
  const stopped = text.endsWith(".");
  const own = exact(text, known, fits) ?? exact(stopped ? text.slice(0, -1) : `${text}.`, known, fits);
  return own && own.replace(/\.$/, "") + (stopped ? "." : "");
}

/** Translate a text whose first piece ends at a separator, or at the end of a sentence. */
function pieces(text, known) {
  for (const fits of [tight, loose]) {
    for (const { 0: between, index } of text.matchAll(/(?<=[.?]) +|[,;:] +/g)) {
      const first = piece(text.slice(0, index), known, fits);
      const rest = first && row(text.slice(index + between.length), known);
      if (rest) return first + between + rest;
    }
  }
  return null;
}

const count = (text, sign) => text.split(sign).length;
const loose = found => found.slice(1).every(part => count(part, "(") === count(part, ")"));
const tight = found => loose(found) && !found.slice(1).some(part => /[,;:] /.test(part));

function filled({ own, names }, found, known) {
  return names.reduce((text, name, at) => text.replaceAll(name, () => value(found[at + 1], known)), own);
}

/** Translate what fills a place as far as it is text, or each part of a list. */
function value(text, known) {
  if (!LETTERS.test(text)) return text;
  const [, before, middle, after] = text.match(/^([\s,;:]*)(.*?)(\s*)$/s);
  const own = row(middle, known);
  if (own) return before + own + after;
  const parts = middle.split(/([,;:] )/);
  return parts.length > 1 ? before + parts.map(part => value(part, known)).join("") + after : text;
}
