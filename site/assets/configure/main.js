/* The configurator: reads the question, asks the recommender, shows the answer. Texts are in the page. */

import { Answer } from "./answer.js";
import { combobox, named, prepared } from "./combobox.js";
import { copy, fill, make } from "./dom.js";
import { pageEngine } from "./engine.js";
import { plan as shownPlan } from "./fleet.js";
import { Question, shell } from "./question.js";
import { show as showFile } from "./script.js";

const PAUSE_MS = 250;
const SLOW_MS = 400;
const FOLDERS = ["compose", "systemd", "k8s"];
const FOLDER = "files";
const OPENING = ["compose.yaml", "lmdeploy.target", "kustomization.yaml"];  // files that say how to start the others
const LENGTHS = ["image", "input-tokens", "output-tokens"];  // fields that show what the answer took for them
const root = document.getElementById("configurator");
const at = selector => root.querySelector(selector);
const data = JSON.parse(document.getElementById("configurator-data").textContent);
const { texts } = data;
const assets = new URL("../", import.meta.url);
const question = new Question(at("#question"));
const answer = new Answer(root, data, apply, plan);
const engine = pageEngine(hear);
const state = { form: "bash", words: [], files: {}, asked: 0 };

/** Change the question as an offer says, without the options that it drops. */
function apply(options, without = []) {
  for (const name of without) question.leave(name);
  if (options) question.apply(options);
  ask();
}

/** Show the command that writes the chosen form. */
function showCommand() {
  const { form } = state;
  const format = form === "bash" ? "" : ` --format ${form}`;
  at("#command").textContent = `recommend ${shell(state.words)}${format}${FOLDERS.includes(form) ? " -o fleet" : ` > ${data.names[form]}`}`;
}

/** Answer the question of the form: from the recommender, or from a stored answer until it is there. */
async function ask({ push = true } = {}) {
  const turn = ++state.asked;
  root.dataset.asked = turn;
  const words = question.words();
  state.words = words;
  const address = question.address();
  if (push && address !== state.address) history.pushState(null, "", address);
  state.address = address;
  showCommand();
  const set = question.form.querySelectorAll("#more :is(input, select)");
  const more = [...set].filter(each => each.value).length;
  at("#more-set").textContent = more ? `(${more})` : "";
  say();
  const key = engine.ready ? "" : meaning(words).join(" ");
  if (data.stored[key]) {
    await stored(key, turn);
    if (!engine.possible) say(texts.stored);
    return;  // asked again when the recommender is there
  }
  if (!engine.possible) return unavailable();
  if (!engine.ready) {
    at("#given").classList.add("stale");
    // The first answer's name would stand over a question that is not its own.
    for (const name of ["#title", "#load"]) at(name).textContent = "";
  }
  const slow = setTimeout(() => engine.ready && say(texts.computing), SLOW_MS);
  try {
    const given = await question.files();
    await engine.idle();
    if (turn !== state.asked) return;
    const found = await engine.call("answer", words, given);
    if (turn !== state.asked) return;
    reveal(found);
    if (found.exit === 0) await file(turn);
  } catch (error) {
    if (turn === state.asked) unavailable(error.message);
  } finally {
    clearTimeout(slow);
    if (turn === state.asked && engine.ready) say();
  }
}

async function stored(key, turn) {
  const name = data.stored[key];
  const found = name === data.first.name ? data.first.answer : await fetched(new URL(`configure/stored/${name}`, assets));
  if (turn !== state.asked) return;
  reveal(found);
  if (engine.possible || state.form === "bash") await file(turn);
}

async function fetched(address) {
  const [figures, script] = await Promise.all([fetch(`${address}.json`), fetch(`${address}.sh`)]);
  return { ...(await figures.json()), script: await script.text() };
}

/** Show figures or the refusal; what is not understood is said at its field too. */
function reveal(found) {
  const refused = found.exit !== 0;
  at("#refusal").hidden = !refused;
  at("#given").classList.toggle("stale", refused);
  at("#given").inert = refused;
  at("#given").hidden = refused && !state.options;  // no earlier answer to go back to
  for (const each of root.querySelectorAll(".said")) each.replaceChildren();
  if (refused) {
    root.dataset.shown = `refused ${state.asked}`;
    for (const name of LENGTHS) question.field(name).placeholder = "";  // those of the last answer are another question's
    answer.refuse(at("#refusal"), found);
    const name = { load: "amount", concurrency: "amount", rps: "amount" }[found.option?.slice(2)] ?? found.option?.slice(2);
    const place = name && at(`#said-${CSS.escape(name)}`);
    if (place) {
      place.replaceChildren(make("span", { class: "wrong" }, answer.said(found.error)));
      if (place.closest("details")) place.closest("details").open = true;
    }
    return;
  }
  state.files = { bash: { [data.names.bash]: found.script } };
  answer.show(found);
  state.options = found.options.map(option => answer.brief(option));
  answer.table(at("#reasons"), found);
  for (const name of LENGTHS) question.field(name).placeholder = found.lengths[name] ?? "";
  meant("gpu", data.gpus, found.gpu);
  meant("model", data.models, found.model);
}

/** Say which record a name means, unless the box says it already. */
function meant(name, items, id) {
  const typed = question.field(name).value.trim();
  const item = items.find(each => each.id === id);
  if (item && typed !== id) at(`#said-${name}`).textContent = item.name;
}

async function file(turn = state.asked) {
  const { form } = state;
  if (!state.files[form]) {
    if (!engine.possible) return complain(texts.stored);
    wait();
    const folder = FOLDERS.includes(form);
    const done = await engine.call("run", [...state.words, "--format", form, ...(folder ? ["-o", FOLDER] : [])], await question.files());
    if (turn !== state.asked || form !== state.form) return;
    if (done.code) return complain(done.stderr);
    state.files[form] = folder ? done.files : { [data.names[form]]: done.stdout };
  }
  show();
}

/** What is shown is another form's: nobody shall copy it. */
function wait() {
  at("#files").hidden = true;
  at("#copy").disabled = true;
  at("#download").removeAttribute("href");
  at("#file").classList.add("waiting");
}

function complain(text) {
  wait();
  at("#file").classList.remove("waiting");
  at("#file").replaceChildren(make("p", { class: "wrong" }, answer.said(text.trim().replace(/^recommend: /, ""))));
}

function show() {
  const files = state.files[state.form] ?? {};
  // The file that a reader looks for first; names with a dot before them are sums and settings.
  const rank = name => (OPENING.includes(name) ? 0 : name.startsWith(".") ? 2 : 1);
  const names = Object.keys(files).sort((one, other) => rank(one) - rank(other));
  state.name = names.includes(state.name) ? state.name : names[0];
  at("#files").hidden = names.length < 2;
  at("#files").replaceChildren(...names.map(name => {
    const button = make("button", { type: "button", "aria-pressed": String(name === state.name) }, name);
    button.addEventListener("click", () => {
      state.name = name;
      show();
    });
    return button;
  }));
  const text = files[state.name] ?? "";
  showFile(at("#file"), text, state.options, { texts, form: state.form, explain: (option, short) => answer.explain(option, short) });
  unfold();
  at("#file").classList.remove("waiting");
  at("#copy").disabled = false;
  const link = at("#download");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = state.name.split("/").pop();
  root.dataset.shown = `${state.form} ${state.asked}`;
}

function unfold() {
  const open = at("#comments").getAttribute("aria-pressed") === "true";
  at("#file").classList.toggle("unfolded", open);
  for (const each of at("#file").querySelectorAll("details")) each.open = open;
}

function choose(tab, focus) {
  for (const each of root.querySelectorAll("[role=tab]")) {
    each.setAttribute("aria-selected", String(each === tab));
    each.tabIndex = each === tab ? 0 : -1;
  }
  state.form = tab.dataset.form;
  showCommand();
  at("#file").setAttribute("aria-labelledby", tab.id);
  if (focus) tab.focus();
  file().catch(error => complain(error.message));
}

/** What the recommender's worker tells of itself. */
function hear({ progress, ready, failed }) {
  root.dataset.engine = ready ? "ready" : failed ? "failed" : "loading";
  if (ready) {
    say();
    ask({ push: false });
  } else if (failed) say(fill(texts.failed, { why: failed }));
  else say(progress < 1 ? fill(texts["loading-engine"], { percent: Math.floor(100 * progress) }) : texts.starting, progress);
}

function say(text = "", progress) {
  const place = at("#progress");
  if (!text && engine.worker && !engine.ready) return;
  place.hidden = !text;
  place.classList.toggle("passing", progress !== undefined || text === texts.computing);
  place.querySelector("progress").hidden = progress === undefined;
  place.querySelector("progress").value = progress ?? 0;
  place.querySelector("span").textContent = text;
}

/** Return the words of a question, with the ids of what its names mean. */
function meaning(words) {
  const known = { "--model": data.models, "--gpu": data.gpus };
  return words.map((word, place) => (known[words[place - 1]] ? named(known[words[place - 1]], word) : word));
}

/** No recommender, and no stored answer: offer the stored ones, those that have most of the question first. */
function unavailable(why) {
  const asked = meaning(state.words);
  const shared = key => key.split(" ").filter(word => asked.includes(word)).length;
  const offers = Object.keys(data.stored).sort((one, other) => shared(other) - shared(one)).map(key => ({ options: key, text: "" }));
  const error = document.createTextNode(why ? fill(texts.failed, { why }) : texts["no-wasm"]);
  reveal({ exit: 2, option: "", error, offers });
}

/** Size the fleet that an answer offers, and say how its files are written. */
async function plan(command, place) {
  const [, ...words] = command.split(/\s+/);
  place.textContent = texts.computing;
  try {
    const done = await engine.call("run", [...words, "--json"], {});
    const said = { texts, said: text => answer.saidByAny(text) };
    const guide = make("a", { href: data.pages.fleet }, texts["fleet-guide"]);
    const files = make("code", { lang: "en" }, `${command} --format k8s -o fleet`);
    place.replaceChildren(...(done.stdout ? shownPlan(JSON.parse(done.stdout), said) : [answer.said(done.stderr.trim().replace(/^recommend( plan)?: /, ""))]),
      make("p", {}, texts["fleet-files"], " ", files, " · ", guide));
  } catch (error) {
    place.textContent = error.message;
  }
}

let timer;
/** A half-typed name is no question yet. */
const choosing = () => document.activeElement?.matches('[role="combobox"][aria-expanded="true"]');
const soon = () => {
  clearTimeout(timer);
  timer = setTimeout(() => (choosing() ? soon() : ask()), PAUSE_MS);
};
for (const name of ["model", "gpu"]) {
  combobox(question.field(name), prepared(data[`${name}s`]), soon);
}
question.form.addEventListener("submit", event => event.preventDefault());
question.form.addEventListener("change", soon);
question.form.addEventListener("input", event => event.target.role !== "combobox" && soon());
question.form.addEventListener("reset", () => {
  question.extra.clear();
  setTimeout(soon);
});
at("[role=tablist]").addEventListener("click", event => event.target.dataset.form && choose(event.target));
at("[role=tablist]").addEventListener("keydown", event => {
  const tabs = [...root.querySelectorAll("[role=tab]")];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) choose(tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length], true);
});
at("#comments").addEventListener("click", event => {
  const button = event.currentTarget;
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
  unfold();
});
at("#copy").addEventListener("click", event => copy(event.currentTarget, state.files[state.form]?.[state.name] ?? "", texts));
at("#copy-command").addEventListener("click", event => copy(event.currentTarget, at("#command").textContent, texts));
at("#copy-link").addEventListener("click", event => copy(event.currentTarget, new URL(question.address(), location).href, texts));
addEventListener("popstate", () => {
  if (location.search) question.restore(location.search);
  else question.begin();
  ask({ push: false });
});
question.restore(location.search);
ask({ push: false });
// After the first paint, unless the reader saves data: then with the first question that needs it.
const later = globalThis.requestIdleCallback ?? setTimeout;
if (!navigator.connection?.saveData) addEventListener("load", () => later(() => engine.start()));
