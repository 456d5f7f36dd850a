/* What changes between any two releases: the text of `recommend diff OLD NEW`, with links to the options; in another
   language, the same from its JSON. */

import { fill, make } from "./dom.js";
import { pageEngine } from "./engine.js";
import { lines } from "./release-text.js";

const root = document.getElementById("release-diff");
const [older, newer] = ["release-old", "release-new"].map(id => document.getElementById(id));
const status = document.getElementById("release-status");
const texts = JSON.parse(root.dataset.texts);
const spoken = JSON.parse(document.getElementById("release-words")?.textContent ?? "null");
const engine = pageEngine(({ progress, failed }) => {
  if (failed) say(fill(texts.failed, { why: failed }));
  else if (progress !== undefined) say(fill(progress < 1 ? texts.loading : texts.starting, { percent: Math.floor(100 * progress) }));
});
let asked = 0;

function say(text) {
  status.textContent = text;
}

const linked = text => text.split(/(--[a-z][a-z0-9-]*[a-z0-9])/).map((part, place) =>
  (place % 2 ? make("a", { href: `../flags/${part.slice(2)}.html` }, part) : part));

async function show() {
  const turn = ++asked;
  const words = ["diff", older.value, newer.value];
  document.getElementById("release-command").textContent = `recommend ${words.join(" ")}`;
  history.replaceState(history.state, "", `#${new URLSearchParams({ old: older.value, new: newer.value })}`);
  try {
    if (!engine.ready) say(fill(texts.loading, { percent: 0 }));
    const done = await engine.call("run", spoken ? [...words, "--json"] : words, {});
    if (turn !== asked) return;
    if (spoken && done.stdout) root.replaceChildren(...lines(JSON.parse(done.stdout), spoken).map(({ depth, text }) => make("span", { class: `depth-${depth}` }, ...linked(text))));
    else root.replaceChildren(...linked(done.stdout || done.stderr));
    say("");
  } catch (error) {
    if (turn === asked) say(fill(texts.failed, { why: error.message }));
  }
}

const values = new URLSearchParams(location.hash.slice(1));
for (const [select, name] of [[older, "old"], [newer, "new"]]) {
  if ([...select.options].some(each => each.value === values.get(name))) select.value = values.get(name);
  select.addEventListener("change", show);
}
document.querySelector("[data-show]").addEventListener("click", show);
document.querySelector("[data-swap]").addEventListener("click", () => {
  [older.value, newer.value] = [newer.value, older.value];
  show();
});
document.getElementById("releases-controls").hidden = false;
// A link to a pair is answered at once; else the eight megabytes wait until somebody chooses.
if (values.has("old")) show();
