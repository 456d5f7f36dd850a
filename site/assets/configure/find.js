/* Known issues and rules for a pasted log line: those whose message it holds, then those that share its rare words. */

import { make } from "./dom.js";

const SHOWN = 6;
const LEAST = 2.5;
const EXACT = 100;
const FEW = 3;  // of a line with more words, two are needed: one that happens to be rare says nothing
const form = document.getElementById("finder");
const { entries, none } = JSON.parse(document.getElementById("finder-data").textContent);
const plain = text => text.toLowerCase().replace(/[^a-z0-9_.-]+/g, " ").trim();
const words = text => new Set(plain(text).split(" ").filter(word => word.length > 2));
const known = entries.map(entry => ({ ...entry, message: plain(entry.error), has: words(`${entry.title} ${entry.error} ${entry.words}`) }));
const rarity = new Map();
for (const { has } of known) for (const word of has) rarity.set(word, (rarity.get(word) ?? 0) + 1);

export function find(line) {
  const text = plain(line);
  const asked = words(line);
  const score = ({ message, has }) => {
    const exact = message && text.includes(message) ? EXACT : 0;
    const shared = [...asked].filter(word => has.has(word));
    if (!exact && asked.size > FEW && shared.length < 2) return 0;
    return exact + shared.reduce((sum, word) => sum + Math.log(known.length / rarity.get(word)), 0);
  };
  const found = known.map(entry => [score(entry), entry]).filter(([points]) => points > LEAST).sort((one, other) => other[0] - one[0]);
  const exact = found.filter(([points]) => points >= EXACT).length;
  return found.slice(0, exact ? exact + 1 : SHOWN).map(([, entry]) => entry);
}

function show() {
  const line = form.querySelector("textarea").value;
  const found = line.trim() ? find(line) : [];
  const items = found.map(({ title, text, href }) => make("li", {}, make("a", { href }, title), ...(text ? [make("p", {}, text)] : [])));
  document.getElementById("found").replaceChildren(...(items.length || !line.trim() ? items : [make("li", {}, none)]));
}

form.hidden = false;
form.addEventListener("input", show);
form.addEventListener("submit", event => event.preventDefault());
