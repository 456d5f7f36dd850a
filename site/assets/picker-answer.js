// The picker's answer: puts one state of a file of api/v1/recommendations into the page.
"use strict";

const pickerAnswer = (() => {
  const SPEEDS = ["alone_ms", "latency_ms", "p99_ms", "ttft_ms", "token_ms", "rps"];
  const at = (name) => document.getElementById(`picker-${name}`);

  /** A text of the page's language as nodes, its {names} filled in. */
  function say(key, values = {}) {
    const made = document.createElement("span");
    const from = document.querySelector(`#picker-texts [data-text="${key}"]`);
    for (const node of from ? from.childNodes : [document.createTextNode(key)]) made.append(node.cloneNode(true));
    const texts = document.createTreeWalker(made, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      texts.currentNode.data = texts.currentNode.data.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
    }
    return made;
  }

  /** An element with attributes and content. */
  function element(name, attributes = {}, ...content) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...content);
    return made;
  }

  /** An English text; options that it names are code, which is not broken in two after their dashes. */
  const english = (text, name = "span") => element(name, { lang: "en" }, ...named(text));
  const named = (text) => text.split(/(--[a-z][a-z0-9-]*[a-z0-9])/).map((each, place) =>
    (place % 2 ? element("code", { class: "name" }, each) : each));
  const number = (value, digits = 1) =>
    value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const gib = (value) => value.toFixed(value < 10 ? 2 : 1);

  function row(table, head, ...cells) {
    const made = element("tr", {}, element("th", { scope: "row" }, ...[head].flat()));
    made.append(...cells.map((each) => element("td", {}, ...[each].flat())));
    table.tBodies[0].append(made);
    return made;
  }

  function emptied(name) {
    const table = at(name);
    table.tBodies[0].replaceChildren();
    return table;
  }

  function memory(plan, card) {
    const { parts, total, at_most: most, kv_cache: cache } = plan.memory;
    const stack = at("stack"), table = emptied("memory-table"), scale = Math.max(card, total[0]);
    stack.replaceChildren();
    for (const [name, [size, low, high]] of Object.entries(parts)) {
      const kind = name.replace(" ", "-");
      const bar = element("span", { class: `part ${kind}` });
      bar.style.width = `${(100 * size) / scale}%`;
      stack.append(bar);
      const swatch = element("span", { class: `swatch ${kind}`, "aria-hidden": "true" });
      const label = say(name === "loading" ? "loading-part" : name);
      row(table, [swatch, label], gib(size), say("range", { low: gib(low), high: gib(high) }));
    }
    row(table, say("total"), gib(total[0]), say("range", { low: gib(total[1]), high: gib(total[2]) })).className = "total";
    row(table, [element("span", { class: "swatch free", "aria-hidden": "true" }), say("free")], gib(Math.max(card - total[0], 0)), "");
    const held = { tokens: number(cache.tokens, 0), requests: number(cache.requests, 0), needed: number(cache.needed_tokens, 0) };
    at("cache").replaceChildren(say("most", { gib: gib(most) }), " ", say("cache", held));
  }

  function speed(plan, common, links) {
    const table = emptied("speed");
    for (const name of SPEEDS) {
      const [value, low, high] = plan.speed[name];
      row(table, say(name), number(value), say("range", { low: number(low), high: number(high) }));
    }
    const { limit, basis } = plan.speed, wide = common.ranges[basis];
    at("basis").replaceChildren(say("limit", { limit, basis }));
    if (wide) at("basis").append(" ", english(`${wide[0].toUpperCase()}${wide.slice(1)}.`));
    const runs = plan.near.map((each) => {
      const values = { concurrency: each.concurrency, rps: number(each.rps), ms: number(each.p50_ms, 0), release: each.lmdeploy };
      const link = element("a", { href: links.evidence(each.run) }, each.run);
      return element("li", {}, link, " ", say("flight", values), ", ", say(each.random_weights ? "random" : "real"));
    });
    at("near").replaceChildren(...(runs.length ? [say("near"), element("ul", {}, ...runs)] : []));
  }

  /** Show the advice on an option with verdicts, and the link to its page. */
  function judged(id, known, links) {
    const claims = known.claims.map((each) => element("li", {},
      element("span", { class: `verdict ${each.verdict}`, lang: "en" }, each.verdict), " ",
      element("a", { href: links.claim(each.id), lang: "en" }, each.says)));
    const page = links.option(id);
    return [...(claims.length ? [element("ul", {}, ...claims)] : []), ...(page ? [element("p", {}, page)] : [])];
  }

  function flags(plan, texts, common, links) {
    const vietnamese = document.getElementById("picker").dataset.language === "vi";
    at("flags").replaceChildren(...Object.entries(plan.options).map(([id, { value, why, on }]) => {
      const known = common.options[id];
      const written = known.switch ? known.name : known.kind === "flag" ? `${known.name} ${value}` : `${known.name}=${value}`;
      const made = element("details", { class: "picker-flag", "data-option": id });
      made.append(element("summary", {}, element("code", {}, written)));
      const own = vietnamese && known.summary_vi;
      made.firstChild.append(" ", own ? known.summary_vi : english(known.summary));
      made.append(english(texts[why], "p"), element("p", { class: "picker-source" }, english(texts[on])));
      const advice = Object.entries(known.advice);
      if (advice.length) {
        const values = advice.map(([who, what]) => `${common.advisers[who]} ${what || "–"}`).join(", ");
        made.append(element("p", {}, say("advised"), ` ${values}`));
      }
      // Most of an answer's elements: made when somebody opens it.
      made.addEventListener("toggle", () => made.append(...judged(id, known, links)), { once: true });
      return made;
    }));
    at("left").replaceChildren(say("left", { count: common.count - Object.keys(plan.options).length }));
  }

  function warnings(plan, texts) {
    at("warned").hidden = !plan.warnings.length && !plan.notes.length;
    at("warnings").replaceChildren(
      ...plan.warnings.map((each) => element("li", { class: "warning" }, ...named(texts[each.says]), " ",
        ...(texts[each.mend] ? [say("mend"), " ", ...named(texts[each.mend])] : []))),
      ...plan.notes.map((each) => element("li", {}, ...named(texts[each]))));
  }

  function advisers(plan, common) {
    const table = emptied("advisers");
    for (const [id, name] of Object.entries(common.advisers)) {
      const given = Object.entries(plan.options).filter(([option]) => id in common.options[option].advice);
      const value = (option) => common.options[option].advice[id];
      const other = given.filter(([, { alike }]) => !alike.includes(id));
      const shown = other.map(([option, { value: ours }]) => element("li", {}, element("code", {}, common.options[option].name),
        " ", say("differs", { value: value(option) || "–", ours })));
      const same = say("agrees", { same: given.length - other.length, all: given.length });
      row(table, name, same, shown.length ? element("ul", {}, ...shown) : say("nothing")).dataset.adviser = id;
    }
  }

  /** Fills the page; gives the script's text. */
  function fill(slice, state, common, links) {
    const plan = slice.plans[state.plan], script = state.script.map((each) => slice.texts[each]).join("\n\n");
    at("script").querySelector("code").textContent = script;
    warnings(plan, slice.texts);
    memory(plan, slice.card_gib);
    speed(plan, common, links);
    flags(plan, slice.texts, common, links);
    advisers(plan, common);
    return script;
  }

  return { at, say, fill, english, gib, number };
})();
