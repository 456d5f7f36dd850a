// The picker: listens to its form and to the address, fetches answers when they are asked for, and shows them.
"use strict";

(() => {
  const box = document.getElementById("picker");
  if (!box) return;
  const { at, say, fill, gib, number } = pickerAnswer;
  const { read, show, command, elsewhere, query } = pickerQuestion;
  const form = at("form"), answer = at("answer");
  // Where the site lies: this script is in its folder "assets".
  const api = new URL("../api/v1/recommendations/", document.currentScript.src);
  const fetched = new Map();
  let turn = 0, values = {}, download = "";

  const page = (name) => document.querySelector(`#picker-links [data-page="${name}"]`).href;
  const links = {
    claim: (id) => `${page("claims")}#${id}`,
    evidence: (id) => new URL(`${id}.html`, page("evidence")).href,
    option: (id) => document.querySelector(`#picker-links [data-option="${id}"]`)?.cloneNode(true),
  };

  /** A file of the interface, fetched once; one that failed is tried anew the next time. */
  function load(path) {
    if (!fetched.has(path)) {
      const got = fetch(new URL(path, api)).then((found) => {
        if (!found.ok) throw new Error(`${found.status}`);
        return found.json();
      });
      got.catch(() => fetched.delete(path));
      fetched.set(path, got);
    }
    return fetched.get(path);
  }

  function hidden(...shown) {
    for (const name of ["why", "nearest", "error", "result"]) at(name).hidden = !shown.includes(name);
  }

  function showState(state, status) {
    answer.dataset.state = state;
    answer.removeAttribute("aria-busy");
    at("status").replaceChildren(status);
  }

  /** The words of a command, none of which breaks at its hyphens; read back as text it is what it was. */
  function words(text) {
    return text.split(/( )/).map((word) => {
      const span = document.createElement("span");
      span.style.whiteSpace = word === " " ? "" : "nowrap";
      span.textContent = word;
      return span;
    });
  }

  /** Show the reason and the command instead of an answer. */
  function instead(state, why) {
    hidden("why");
    at("why").replaceChildren(...why);
    showState(state, say("elsewhere"));
  }

  function refused(slice, state) {
    hidden("error", "nearest");
    at("error").textContent = slice.texts[state.error];
    const other = /^--gpu ([\w.-]+)(?::(\d+))?$/.exec(state.nearest || "");
    at("nearest").hidden = !other;
    if (other) {
      const link = document.createElement("a");
      link.href = query({ ...values, gpu: other[1], count: other[2] });
      link.append(document.createElement("code"));
      link.firstChild.textContent = state.nearest;
      link.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        go(new URL(link.href).searchParams);
        at("gpu").focus();
      });
      at("nearest").replaceChildren(say("nearest"), " ", link);
    }
    showState("refused", say("refused", { code: state.exit }));
  }

  function answered(slice, state, common) {
    const script = fill(slice, state, common, links), plan = slice.plans[state.plan];
    URL.revokeObjectURL(download);
    download = URL.createObjectURL(new Blob([script], { type: "text/x-shellscript" }));
    at("download").href = download;
    hidden("result");
    const [model, gpu] = ["model", "gpu"].map((name) => at(name).selectedOptions[0].textContent);
    const figures = { gib: gib(plan.memory.total[0]), card: gib(slice.card_gib), ms: number(plan.speed.latency_ms[0], 0) };
    showState("answer", say("answered", { model, gpu, ...figures, rps: number(plan.speed.rps[0]) }));
  }

  /** Answers what is asked now. An answer that comes late, after the next question, is dropped. */
  async function ask() {
    const mine = ++turn;
    at("command").replaceChildren(...words(`${command(values)} > serve.sh`));
    at("copied").replaceChildren();
    const away = elsewhere(form, values);
    if (away.length) {
      const codes = away.flatMap((each) => [" ", Object.assign(document.createElement("code"), { textContent: each })]);
      instead("elsewhere", [say("why"), ...codes]);
      return;
    }
    answer.setAttribute("aria-busy", "true");
    try {
      const [slice, common] = await Promise.all([load(`${values.model}/${values.gpu}.json`), load("options.json")]);
      if (mine !== turn) return;
      const began = performance.now(), state = slice.states[values.load][values.goal];
      if (state.exit) refused(slice, state);
      else answered(slice, state, common);
      answer.dataset.ms = (performance.now() - began).toFixed(1);
    } catch (error) {
      if (mine !== turn) return;
      instead("failed", [say(location.protocol === "file:" ? "folder" : "failed")]);
    }
  }

  /** Takes a question from pairs of names and texts, and says what is wrong with it. */
  function take(pairs, keep) {
    const found = read(form, pairs), notice = at("notice");
    values = found.values;
    if (!keep) show(form, values);
    notice.hidden = !found.wrong.length;
    notice.replaceChildren(...found.wrong.flatMap((each) => [say(each.used ? "wrong" : "ignored", each), " "]));
    languages();
    ask();
  }

  /** The switch of languages keeps the question. */
  function languages() {
    for (const link of document.querySelectorAll(".md-select__link[hreflang]")) link.search = location.search;
  }

  /** Asks, and puts the question into the address. */
  function go(pairs, keep = false) {
    const asked = query(read(form, pairs).values);
    try {
      if (asked !== location.search) history.pushState(null, "", asked);
    } catch (error) {
      // From a folder some browsers do not let a page change its address.
    }
    take(pairs, keep);
  }

  async function copy(text) {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) {
      // Without a clipboard (http, an old browser): the old way, by a selected field.
      const field = Object.assign(document.createElement("textarea"), { value: text });
      const focused = document.activeElement;
      document.body.append(field);
      field.select();
      done = document.execCommand("copy");
      field.remove();
      focused?.focus();
    }
    at("copied").replaceChildren(say(done ? "copied" : "uncopied"));
  }

  /** What the form says. A load that is a number has no button: it stays until one is chosen. */
  function asked() {
    const pairs = new FormData(form);
    if (!pairs.has("load")) pairs.set("load", values.load);
    return pairs;
  }

  form.addEventListener("change", () => go(asked(), true));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go(asked(), true);
  });
  addEventListener("popstate", () => take(new URLSearchParams(location.search)));
  at("copy").addEventListener("click", () => copy(at("script").textContent));
  at("copy-command").addEventListener("click", () => copy(at("command").textContent));
  at("copy-link").addEventListener("click", () => copy(new URL(query(values), location.href).href));
  take(new URLSearchParams(location.search));
})();
