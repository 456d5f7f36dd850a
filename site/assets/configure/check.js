/* The check of a pasted script: findings at their lines, the repaired text and our values as differences. */

import { combobox, prepared } from "./combobox.js";
import { copy, fill, make } from "./dom.js";
import { pageEngine } from "./engine.js";
import { said as translated } from "./translate.js";

const FILE = "script";
const FOUND = 1;  // the exit code with findings; higher ones are failures
const root = document.getElementById("checker");
const at = selector => root.querySelector(selector);
const data = JSON.parse(document.getElementById("checker-data").textContent);
const { texts } = data;
const form = at("form");
const state = { part: "findings", parts: {}, asked: 0 };
const engine = pageEngine(({ progress, failed }) => {
  if (failed) say(fill(texts.failed, { why: failed }));
  else if (progress < 1) say(fill(texts.loading, { percent: Math.round(100 * progress) }));
  else say(progress === 1 ? texts.starting : texts.working);
});

const say = (...parts) => at("#check-status").replaceChildren(...parts);
/** Return what a rule, or any of them, says in the page's language. */
const said = (text, rule) => translated(text, data.findings[rule], data.findings[""], data.said, data.reasons);
/** Return what the form calls an input that rules need. */
const label = name => at(`label[for="c-${name}"]`)?.textContent ?? `--${name}`;
const fields = () => [...form.elements].filter(each => each.tagName === "INPUT" && each.value.trim());
const typed = () => Object.fromEntries(fields().map(each => [each.name, each.value.trim()]));
/** Return a link to the answer of what is known of a server; its GPUs are counted in the script. */
const configure = (asked, known = {}) => make("a", { class: "configure", href: `index.html?${new URLSearchParams({ ...asked, ...known })}` }, texts.configure);

async function check() {
  const turn = ++state.asked;
  const script = form.elements.script.value;
  at("#check-result").hidden = true;  // it is about the text before
  if (!script.trim()) return say(texts.nothing);
  const given = { [FILE]: script.endsWith("\n") ? script : `${script}\n` };
  const asked = typed();
  const words = ["review", FILE, ...Object.entries(asked).flatMap(([name, value]) => [`--${name}`, value])];
  const run = (...more) => engine.call("run", [...words, ...more], given);
  say(texts.working);
  try {
    const found = await run("--format", "json");
    if (turn !== state.asked) return;
    if (!found.stdout || found.code > FOUND) {
      const why = said(found.stderr.trim().replace(/^recommend( review)?: /, ""));
      say(why, " ", configure(asked));
      const offers = await offered(asked);
      return turn === state.asked && offers.length && say(why, make("br"), texts.offers, " ", ...offers, configure(asked));
    }
    const report = JSON.parse(found.stdout);
    const [repaired, optimized] = [await run("--diff", "--unsafe"), await run("--optimize", "--diff")];
    const servers = await engine.call("questions", given[FILE], asked);
    if (turn !== state.asked) return;
    const clean = report.launches ? texts.clean : texts["no-launch"];
    state.parts = {
      findings: findings(report, given[FILE], clean, line => answered(line, servers, asked)),
      repaired: difference(repaired, report["error"] + report.warning + report.info ? texts["no-fix"] : clean),
      optimized: [...difference(optimized, report.launches ? texts.same : clean), ...servers.map(([line]) => make("p", { class: "answer" }, answered(line, servers, asked)))],
    };
    state.texts = { findings: given[FILE], repaired: repaired.stdout, optimized: optimized.stdout };
    at("#check-result").hidden = false;
    const counts = ["error", "warning", "info"].map(kind => fill(texts[kind], { count: report[kind] }));
    const silent = report.silent.map(({ needs, rules }) =>
      fill(needs === "estimate" ? texts.unestimated : texts.silent, { count: rules.length, needs: label(needs) }));
    say([counts.join(", "), ...silent].join("; "));
    show();
  } catch (error) {
    if (turn === state.asked) say(fill(texts.failed, { why: error.message }));
  }
}

/** Return a button for each value that has an answer, in place of one that is not understood. */
async function offered(asked) {
  const words = Object.entries({ gpu: data.usual, ...asked }).flatMap(([name, value]) => [`--${name}`, value]);
  const { option, offers = [] } = await engine.call("answer", words, {});
  const known = offers.map(each => [...each.options.matchAll(/--(\S+) (\S+)/g)]).filter(pairs => option && pairs.every(([, name]) => form.elements[name]));
  return known.flatMap(pairs => {
    const button = make("button", { type: "button" }, pairs.map(([, , value]) => value).join(", "));
    button.addEventListener("click", () => {
      for (const [, name, value] of pairs) form.elements[name].value = value;
      check();
    });
    return [button, " "];
  });
}

/** Return the link of the server that a line belongs to: the last one that starts before it, or the first. */
function answered(line, servers, asked) {
  const [, known] = servers.findLast(([start]) => start <= line) ?? servers[0] ?? [];
  return configure(asked, known);
}

/** Return the script, each finding below the line that it is about. */
function findings(report, script, clean, answer) {
  const lines = script.replace(/\n$/, "").split("\n");
  const own = report.findings.filter(each => each.path === FILE);
  const rows = lines.flatMap((line, place) => {
    const here = own.filter(each => each.at.line === place + 1);
    const marks = here.map(each => [each.at.column - 1, each.at.end_line === each.at.line ? each.at.end_column - 1 : line.length]);
    return [make("div", { class: "row", id: `line-${place + 1}` }, make("span", { class: "number" }, String(place + 1)), make("code", {}, ...marked(line, marks)), "\n"), ...here.map(each => finding(each, answer(each.at.end_line)))];
  });
  // One link for all findings of a server, at its last one.
  const links = rows.flatMap(row => [...row.querySelectorAll("a.configure")]);
  links.forEach((link, place) => links[place + 1]?.href === link.href && link.remove());
  return own.length ? rows : [make("p", { class: "clean" }, clean), ...rows];
}

/** Return a line with the narrowest places underlined. */
function marked(line, marks) {
  const narrow = marks.filter(([start, end]) => end - start < line.length && end > start).sort((one, other) => one[0] - other[0]);
  const pieces = [];
  let from = 0;
  for (const [start, end] of narrow) {
    if (start < from) continue;
    pieces.push(line.slice(from, start), make("u", {}, line.slice(start, end)));
    from = end;
  }
  return [...pieces, line.slice(from)];
}

function finding({ rule, severity, message, why, fix }, answer) {
  return make("div", { class: `finding ${severity}` },
    make("p", {}, make("a", { href: `rules/${rule.toLowerCase()}.html` }, rule), " ", make("b", {}, said(message, rule))),
    make("p", {}, ...(why ? [said(why, rule), " "] : []), answer),
    ...(fix ? [make("p", { class: "repair" }, ...around(texts.fix, "{what}", said(fix.what, rule)))] : []));
}

/** Put an element into a text. */
function around(text, place, element) {
  const [before, after] = text.split(place);
  return [before, element, after];
}

/** Return a reason of the command: its line, what changes, and why. */
function because(text) {
  const [, head, why] = text.match(/^(?!.*: (?:add it by hand|not optimized): )(\d+: \S.*?: )(.*)$/) ?? [];
  return head ? [head, said(why)] : [said(text)];
}

function difference({ stdout, stderr }, nothing) {
  const reasons = stderr.split("\n").filter(line => line.startsWith("recommend review: ")).map(line => line.replace(/^recommend review: script:/, ""));
  const rows = stdout.split("\n").filter((line, place) => line && place > 1).map(line => {
    const kind = { "+": "added", "-": "removed", "@": "place" }[line[0]] ?? "";
    return make("div", { class: `row ${kind}` }, make("code", {}, line), "\n");
  });
  // Where the command says why nothing changes, that is the answer.
  return [...(rows.length || reasons.length ? rows : [make("p", { class: "clean" }, nothing)]), ...(reasons.length ? [make("ul", { class: "reasons" }, ...reasons.map(each => make("li", {}, ...because(each))))] : [])];
}

function show() {
  at("#check-part").replaceChildren(...state.parts[state.part]);
  at("#check-part").setAttribute("aria-labelledby", `tab-${state.part}`);
  root.dataset.shown = `${state.part} ${state.asked}`;
}

function choose(tab, focus) {
  for (const each of root.querySelectorAll("[role=tab]")) {
    each.setAttribute("aria-selected", String(each === tab));
    each.tabIndex = each === tab ? 0 : -1;
  }
  state.part = tab.dataset.part;
  if (focus) tab.focus();
  show();
}

form.addEventListener("submit", event => {
  event.preventDefault();
  check();
});
for (const name of ["gpu", "model", "lmdeploy"]) {
  combobox(form.elements[name], prepared(data[`${name}s`]), () => form.elements.script.value.trim() && check());
}
at("#example").addEventListener("click", () => {
  form.elements.script.value = form.elements.script.placeholder;
  form.elements.gpu.value = "A100-80G";
  form.elements.load.value = "16";
  form.elements.lmdeploy.value = form.elements.lmdeploy.placeholder;
  check();
});
at("[role=tablist]").addEventListener("click", event => event.target.dataset.part && choose(event.target));
at("[role=tablist]").addEventListener("keydown", event => {
  const tabs = [...root.querySelectorAll("[role=tab]")];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) choose(tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length], true);
});
at("#check-copy").addEventListener("click", event => copy(event.currentTarget, state.texts[state.part], texts));
// The first paste needs the recommender; load it while the reader looks for the script.
form.elements.script.addEventListener("focus", () => engine.start(), { once: true });
