/* The search of the site: loads its index with the first key, ranks in the page, and is used by keyboard as by hand. */

const SHOWN = 12;
const [TITLE, TAGS, ADDRESS, TEXT] = [6, 7, 4, 1];
const PREFIX = 0.6;
const button = document.querySelector("[data-search]");
const dialog = document.createElement("dialog");
dialog.id = "search";
dialog.innerHTML = `<form method="dialog">
    <input type="search" role="combobox" aria-expanded="false" aria-controls="search-hits" autocomplete="off" autocapitalize="off" spellcheck="false">
    <button type="submit">Esc</button>
  </form>
  <p role="status"></p>
  <ul id="search-hits" role="listbox"></ul>`;
const input = dialog.querySelector("input");
const list = dialog.querySelector("ul");
const status = dialog.querySelector("[role=status]");
const label = button.getAttribute("aria-label");
for (const each of [dialog, input, list]) each.setAttribute("aria-label", label);
input.placeholder = label;
dialog.querySelector("button").setAttribute("aria-label", button.dataset.reset);
button.after(dialog);
let index;

const plain = text => text.toLowerCase().normalize("NFD").replace(/\p{M}/gu, "").replaceAll("đ", "d");
const IDLE = new Set("a an and at do does for how i in is it my not of on or should the there to vs what when which with change changed changes did".split(" "));
const words = text => plain(text).split(/[^\p{L}\p{N}.]+/u).map(word => word.replace(/^\.+|\.+$/g, "")).filter(Boolean);

// Addresses are in English, and so finds a log line its page in another language.
const named = href => href.split("#")[1]?.replaceAll("-", " ") ?? "";

async function load() {
  const [answer, { Speller }] = await Promise.all([fetch(button.dataset.index), import("./spelling.js")]);
  const { kinds, synonyms, entries } = await answer.json();
  const docs = entries.map(([href, title, kind, text, more]) => ({
    href, title, text, kind: kinds[kind][0], weight: kinds[kind][1],
    fields: [[TITLE, words(title)], [TAGS, words(more)], [ADDRESS, words(named(href))], [TEXT, words(text)]], phrase: words(`${title} ${more}`).join(" "), said: words(text).join(" "),
  }));
  const speller = new Speller([...docs.flatMap(({ fields }) => fields.map(([, own]) => own)), ...Object.keys(synonyms).map(words)]);
  return { docs, synonyms: Object.entries(synonyms), speller };
}

/** Return how well a word matches a document: the best of its fields. */
function match(doc, word) {
  let best = 0;
  for (const [weight, own] of doc.fields) {
    if (weight <= best) continue;
    if (own.includes(word)) best = weight;
    else if (word.length > 1 && weight * PREFIX > best && own.some(each => each.startsWith(word))) best = weight * PREFIX;
  }
  return best;
}

/** Return how much more a document counts that has all that was typed in one piece: in its name, or in its text. */
const whole = (doc, phrase) => (doc.phrase.includes(phrase) ? 2.5 : phrase.includes(" ") && doc.said.includes(phrase) ? 1.4 : 1);

/** Return the words of a query, with those corrected that the site does not have. */
const understood = ({ speller }, query) => [...new Set(words(query).flatMap(word => speller.corrected(word)))];

/** Return the best entries for the words of a query; those that have all of them come first. */
function search({ docs, synonyms }, every) {
  const asked = every.every(word => IDLE.has(word)) ? every : every.filter(word => !IDLE.has(word));
  const phrase = every.join(" ");
  const spoken = ` ${phrase} | ${asked.join(" ")} `;
  const more = synonyms.filter(([name]) => spoken.includes(` ${name} `)).flatMap(([, other]) => words(other)).filter(word => !asked.includes(word));
  const scored = new Map(docs.map(doc => [doc, { score: 0, hits: 0 }]));
  for (const [word, share] of [...asked.map(each => [each, 1]), ...more.map(each => [each, 0.5])]) {
    const found = docs.map(doc => [doc, match(doc, word)]).filter(([, points]) => points);
    const rarity = Math.log(1 + docs.length / (found.length || 1));
    for (const [doc, points] of found) {
      const entry = scored.get(doc);
      entry.score += share * rarity * points;
      entry.hits += share === 1;
    }
  }
  return [...scored].filter(([, { score }]) => score)
    .map(([doc, { score, hits }]) => [score * doc.weight * (hits === asked.length ? 3 : 1) * whole(doc, phrase), doc])
    .sort((one, other) => other[0] - one[0]).slice(0, SHOWN).map(([, doc]) => doc);
}

function row(doc, place) {
  const link = document.createElement("a");
  link.href = new URL(doc.href, new URL(button.dataset.base, document.baseURI));
  link.id = `hit-${place}`;
  link.role = "option";
  link.tabIndex = -1;
  const kind = Object.assign(document.createElement("small"), { textContent: doc.kind });
  const title = Object.assign(document.createElement("b"), { textContent: doc.title });
  const text = Object.assign(document.createElement("span"), { textContent: doc.text.slice(0, 110) });
  link.append(title, kind, text);
  const item = document.createElement("li");
  item.role = "presentation";
  item.append(link);
  return item;
}

async function show() {
  const query = input.value.trim();
  if (query) index ??= load();
  const every = query ? understood(await index, query) : [];
  const found = query ? search(await index, every) : [];
  if (query !== input.value.trim()) return;
  list.replaceChildren(...found.map(row));
  const typed = new Set(words(query));
  const near = every.every(word => typed.has(word)) ? "" : `≈ ${every.join(" ")}`;
  status.textContent = query && !found.length ? button.dataset.none : near;
  dialog.dataset.shown = query;
  mark(found.length ? 0 : -1);
}

let active = -1;
function mark(place) {
  const links = [...list.querySelectorAll("a")];
  links[active]?.setAttribute("aria-selected", "false");
  active = links.length ? (place + links.length) % links.length : -1;
  links[active]?.setAttribute("aria-selected", "true");
  links[active]?.scrollIntoView({ block: "nearest" });
  if (active >= 0) input.setAttribute("aria-activedescendant", links[active].id);
  else input.removeAttribute("aria-activedescendant");
  input.setAttribute("aria-expanded", String(active >= 0));
}

button.addEventListener("click", () => dialog.showModal());
addEventListener("keydown", event => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if ((event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
    event.preventDefault();
    dialog.showModal();
    input.select();
  }
});
dialog.addEventListener("click", event => event.target === dialog && dialog.close());
input.addEventListener("input", show);
input.addEventListener("keydown", event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    mark(active + step);
  } else if (event.key === "Enter") {
    event.preventDefault();
    list.querySelector("[aria-selected=true]")?.click();
  }
});
list.addEventListener("click", () => dialog.close());
