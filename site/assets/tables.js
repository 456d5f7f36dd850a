// The controls above the comparison and above the claims: sorting, filters, columns. What is chosen stands in the
// address behind "#" as NAME=VALUE&..., so that a link shows the same. Without this script everything is shown.
(() => {
  "use strict";

  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const words = (text) => (text ?? "").split(/[\s,]+/).filter(Boolean);

  // An anchor has no "=", so both can stand behind the "#".
  const stated = () => location.hash.includes("=");
  const read = () => new URLSearchParams(stated() ? location.hash.slice(1) : "");

  function write(values) {
    const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
    // An anchor in the address stays there until there is something else to say.
    if (text || stated()) history.replaceState(history.state, "", text ? `#${text}` : location.pathname + location.search);
  }

  const press = (button, on) => button.setAttribute("aria-pressed", String(on));

  function say(place, ...numbers) {
    const text = place.dataset.said.replace(/\{(\d)\}/g, (_, number) => numbers[number]);
    if (place.textContent !== text) place.textContent = text;
  }

  function flip(set, value) {
    if (!set.delete(value)) set.add(value);
  }

  /** Return whether the text contains every word of the query. */
  const found = (text, query) => words(query.toLowerCase()).every((word) => text.includes(word));

  /** Reads the state now and whenever the address changes; an anchor to what is hidden shows everything. */
  function follow(restore, clear) {
    const anchor = () => {
      const target = !stated() && location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!target?.closest("[hidden]")) return;
      clear();
      target.scrollIntoView();
    };
    addEventListener("hashchange", () => (stated() ? restore() : anchor()));
    restore();
  }

  function comparison(form) {
    const table = document.querySelector("table.settings");
    const rows = all("tbody", table);
    const given = new Map(rows.map((row, place) => [row, place]));
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const text = form.querySelector("input");
    const state = { sort: "given", only: new Set(), hide: new Set() };
    const seen = (row, name) => words(row.dataset[name]).filter((column) => !state.hide.has(column)).length;
    // The most differences and verdicts first; a "-" before the name turns the order round.
    const orders = {
      given: () => 0,
      name: (one, other) => one.dataset.name.localeCompare(other.dataset.name),
      topic: (one, other) => one.dataset.topic.localeCompare(other.dataset.topic),
      differences: (one, other) => seen(other, "differs") - seen(one, "differs"),
      verdicts: (one, other) => seen(other, "judged") - seen(one, "judged"),
    };

    function shown(row) {
      return (
        found(texts.get(row), text.value) &&
        (!state.only.has("differs") || seen(row, "differs") > 0) &&
        (!state.only.has("refuted") || seen(row, "refuted") > 0)
      );
    }

    function sort() {
      const name = state.sort.replace("-", "");
      const way = state.sort.startsWith("-") ? -1 : 1;
      const order = (one, other) => way * orders[name](one, other) || given.get(one) - given.get(other);
      const sorted = name === "given" && way < 0 ? [...rows].reverse() : [...rows].sort(order);
      if (sorted.some((row, place) => table.tBodies[place] !== row)) table.append(...sorted);
      for (const button of all("[data-sort]", form)) {
        press(button, button.dataset.sort === name);
        button.dataset.way = button.dataset.sort === name && way < 0 ? "back" : "";
      }
      const head = document.getElementById("compare-setting");
      if (name === "name") head.setAttribute("aria-sort", way < 0 ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }

    function apply() {
      for (const cell of all("[data-column]", table)) cell.hidden = state.hide.has(cell.dataset.column);
      const wide = 1 + all("thead [data-column]:not([hidden])", table).length;
      for (const cell of all("tr.why > td", table)) cell.colSpan = wide;
      for (const row of rows) row.hidden = !shown(row);
      for (const button of all("[data-only]", form)) press(button, state.only.has(button.dataset.only));
      for (const button of all("[data-toggle]", form)) press(button, !state.hide.has(button.dataset.toggle));
      sort();
      say(form.querySelector("[role=status]"), rows.filter((row) => !row.hidden).length, rows.length);
    }

    function change() {
      apply();
      write({
        q: text.value.trim(),
        sort: state.sort === "given" ? "" : state.sort,
        only: [...state.only].sort().join(","),
        hide: [...state.hide].sort().join(","),
      });
    }

    function restore() {
      const values = read();
      const known = (kind) => all(`[data-${kind}]`, form).map((button) => button.dataset[kind]);
      const among = (name, kind) => words(values.get(name)).filter((value) => known(kind).includes(value));
      const sort = values.get("sort") ?? "";
      text.value = values.get("q") ?? "";
      state.sort = known("sort").includes(sort.replace(/^-/, "")) ? sort : "given";
      state.only = new Set(among("only", "only"));
      state.hide = new Set(among("hide", "toggle"));
      apply();
    }

    function clear() {
      text.value = "";
      Object.assign(state, { sort: "given", only: new Set(), hide: new Set() });
      change();
    }

    function pressed(event) {
      const button = event.target.closest("button");
      if (!button) return;
      const { sort, only, toggle, reasons, clear: all_of_it } = button.dataset;
      if (sort) state.sort = state.sort === sort ? `-${sort}` : sort;
      if (only) flip(state.only, only);
      if (toggle) flip(state.hide, toggle);
      if (reasons !== undefined) {
        const open = button.getAttribute("aria-pressed") !== "true";
        press(button, open);
        for (const each of all("details", table)) each.open = open;
      } else if (all_of_it !== undefined) clear();
      else change();
    }

    form.addEventListener("click", pressed);
    text.addEventListener("input", change);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    follow(restore, clear);
  }

  function claims(form) {
    const rows = all("section.claim");
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const text = form.querySelector("input");
    const adviser = form.querySelector("select");
    const verdicts = new Set();
    // Entries of the table of contents go with what they lead to.
    const entries = new Map(
      all(".md-nav--secondary a[href^='#']").map((link) => [link.hash.slice(1), link.closest("li")]),
    );

    function show(element, id, on) {
      element.hidden = !on;
      const entry = entries.get(id);
      if (entry) entry.hidden = !on;
    }

    function apply() {
      const left = new Set();
      for (const row of rows) {
        const on =
          (!verdicts.size || verdicts.has(row.dataset.verdict)) &&
          (!adviser.value || words(row.dataset.advisers).includes(adviser.value)) &&
          found(texts.get(row), text.value);
        if (on) left.add(row.dataset.verdict);
        show(row, row.querySelector("h3").id, on);
      }
      for (const button of all("[data-verdict]", form)) {
        press(button, verdicts.has(button.dataset.verdict));
        const head = document.getElementById(button.dataset.verdict);
        if (head) show(head, head.id, left.has(head.id));
      }
      say(form.querySelector("[role=status]"), rows.filter((row) => !row.hidden).length, rows.length);
    }

    function change() {
      apply();
      write({ q: text.value.trim(), verdict: [...verdicts].sort().join(","), adviser: adviser.value });
    }

    function restore() {
      const values = read();
      const known = all("[data-verdict]", form).map((button) => button.dataset.verdict);
      verdicts.clear();
      for (const each of words(values.get("verdict"))) if (known.includes(each)) verdicts.add(each);
      text.value = values.get("q") ?? "";
      adviser.value = values.get("adviser") ?? "";
      if (adviser.selectedIndex < 0) adviser.value = "";
      apply();
    }

    function clear() {
      text.value = "";
      adviser.value = "";
      verdicts.clear();
      change();
    }

    form.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.clear !== undefined) return clear();
      flip(verdicts, button.dataset.verdict);
      change();
    });
    text.addEventListener("input", change);
    adviser.addEventListener("change", change);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    follow(restore, clear);
  }

  const forms = { "compare-controls": comparison, "claims-controls": claims };
  for (const [id, start] of Object.entries(forms)) {
    const form = document.getElementById(id);
    if (form) start(form);
  }
})();
