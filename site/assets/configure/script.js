/* A file of the answer: highlighted, with comments to fold, and the reason of each setting on hover, tap or Enter. */

import { make } from "./dom.js";

const TOKEN = new RegExp([
  String.raw`(?<comment>(?<=^|\s)#.*$)`,
  String.raw`(?<string>"(?:\\.|[^"\\])*"|'[^']*')`,
  String.raw`(?<variable>\$\{?[A-Za-z_]\w*|^(?:export )?[A-Z][A-Z0-9_]*(?==))`,
  String.raw`(?<option>(?<![\w-])--?[a-z][a-z0-9-]*)`,
  String.raw`(?<key>^\s*(?:- )?[\w./-]+(?=:(?:\s|$))|^\[\w+\]$)`,
  String.raw`\b(?<word>if|then|else|elif|fi|for|do|done|while|case|esac|function|local|export|set|exec|trap|return|def|class|import|from|with|as|try|except|raise|None|True|False)\b`,
  String.raw`(?<number>\b\d[\d.]*\b)`,
].join("|"), "g");
const LONG_COMMENT = 2;
const REST = "# No settings below";

function highlighted(line) {
  const pieces = [];
  let end = 0;
  for (const found of line.matchAll(TOKEN)) {
    const [kind] = Object.entries(found.groups).find(([, text]) => text !== undefined);
    pieces.push(line.slice(end, found.index), make("span", { class: `t-${kind}` }, found[0]));
    end = found.index + found[0].length;
  }
  return [...pieces, line.slice(end)];
}

/** Return which option each line sets: the first line outside comments that names it. */
export function settings(lines, options) {
  const found = new Map();
  for (const option of options) {
    const names = option.names.map(name => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    const sets = new RegExp(`(?<![\\w-])(?:${names})(?![\\w-])`);
    const place = lines.findIndex((line, at) => !/^\s*#/.test(line) && !found.has(at) && sets.test(line));
    if (place >= 0) found.set(place, option);
  }
  return found;
}

/** Return the lines in groups: {kind: "line" | "note" | "fold", lines}. */
export function groups(lines, set) {
  const result = [];
  const rest = lines.findIndex(line => line.startsWith(REST));
  for (let at = 0; at < lines.length; at++) {
    if (at === rest) {
      result.push({ kind: "fold", at, lines: lines.slice(at) });
      break;
    }
    let end = at;
    while (end < lines.length && /^\s*#(?!!)/.test(lines[end])) end++;
    if (end === at) result.push({ kind: lines[at] === "" ? "blank" : "line", at, lines: [lines[at]] });
    else {
      const note = end - at <= LONG_COMMENT && set.has(end);
      result.push({ kind: note ? "note" : end - at > LONG_COMMENT ? "fold" : "line", at, lines: lines.slice(at, end) });
      at = end - 1;
    }
  }
  return result;
}

export function show(place, text, options, { texts, explain, form }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const set = settings(lines, form === "json" || form === "report" ? [] : options);
  place.replaceChildren(...groups(lines, set).map(group => {
    const rows = group.lines.map((line, more) => row(line, set.get(group.at + more), texts, explain));
    if (group.kind !== "fold") {
      for (const each of rows) each.classList.add(group.kind);
      return rows;
    }
    const count = texts.lines.replace("{0}", group.lines.length);
    const summary = make("summary", {}, ...highlighted(group.lines[0]), make("small", {}, count));
    return make("details", { class: "fold" }, summary, ...rows.slice(1));
  }).flat());
}

function row(line, option, texts, explain) {
  const code = make("code", {}, ...highlighted(line));
  if (!option) return make("div", { class: "row" }, code, "\n");
  const hint = make("button", { type: "button", class: "why", "aria-expanded": "false", lang: option.lang }, option.shown);
  hint.setAttribute("aria-label", `${option.name}: ${texts.why}`);
  const element = make("div", { class: "row set" }, code, hint, "\n");
  hint.addEventListener("click", event => {
    event.stopPropagation();
    toggle(element, hint, option, explain);
  });
  element.addEventListener("click", () => getSelection().isCollapsed && toggle(element, hint, option, explain));
  element.addEventListener("pointerenter", event => event.pointerType === "mouse" && hover(element, option, explain));
  element.addEventListener("pointerleave", () => element.querySelector(".hover")?.remove());
  return element;
}

function hover(element, option, explain) {
  if (element.nextElementSibling?.matches(".reason")) return;
  element.append(make("div", { class: "hover", "aria-hidden": "true", lang: document.documentElement.lang }, ...explain(option, true)));
}

function toggle(element, hint, option, explain) {
  element.querySelector(".hover")?.remove();
  const open = element.nextElementSibling?.matches(".reason") ? element.nextElementSibling : null;
  hint.setAttribute("aria-expanded", String(!open));
  if (open) open.remove();
  else element.after(make("div", { class: "reason", lang: document.documentElement.lang }, ...explain(option, false)));
}
