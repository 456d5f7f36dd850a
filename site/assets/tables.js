// Tables and lists that filter and sort. What is chosen stands in the address behind "#" as NAME=VALUE&..., so that a
// link shows the same; an anchor there shows what it names. Without this script everything is shown.
(() => {
  "use strict";

  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const words = text => text.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const stated = () => location.hash.includes("=");
  const state = () => new URLSearchParams(stated() ? location.hash.slice(1) : "");
  const press = (button, on) => button.setAttribute("aria-pressed", String(on));

  function write(values) {
    const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
    if (text || stated()) history.replaceState(history.state, "", text ? `#${text}` : location.pathname + location.search);
  }

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  /** A form that hides and shows items: a search field, select boxes on data or columns, and pressed buttons. */
  function filter(form, items, { holds, changed = () => {}, more = () => ({}), restore = () => {} }) {
    const texts = new Map(items.map(item => [item, item.textContent.toLowerCase()]));
    const text = form.querySelector("input[type=search]");
    const selects = all("select", form);
    const pressed = () => all("button[data-only][aria-pressed=true]", form).map(button => button.dataset.only);
    const status = form.querySelector("[role=status]");

    function apply() {
      const query = words(text?.value ?? "");
      for (const item of items) {
        const chosen = selects.every(select => !select.value || holds(item, select));
        item.hidden = !(chosen && query.every(word => texts.get(item).includes(word)) && pressed().every(name => item.matches(`[data-only~="${name}"]`)));
      }
      const shown = items.filter(item => !item.hidden).length;
      if (status) status.textContent = status.dataset.said.replace("{0}", shown).replace("{1}", items.length);
      changed();
    }

    function change() {
      apply();
      write({ q: text?.value.trim(), ...Object.fromEntries(selects.map(select => [select.id, select.value])), only: pressed().join(" "), ...more() });
    }

    function read() {
      const values = state();
      if (text) text.value = values.get("q") ?? "";
      for (const select of selects) {
        select.value = values.get(select.id) ?? "";
        if (select.selectedIndex < 0) select.value = "";
      }
      const only = words(values.get("only") ?? "");
      for (const button of all("button[data-only]", form)) press(button, only.includes(button.dataset.only));
      restore(values);
      apply();
    }

    function anchor() {
      const target = !stated() && location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!target) return;
      if (target.closest("[hidden]")) {
        for (const field of [text, ...selects]) if (field) field.value = "";
        for (const button of all("button[data-only]", form)) press(button, false);
        change();
      }
      target.scrollIntoView();
      target.dispatchEvent(new CustomEvent("named", { bubbles: true }));
    }

    form.addEventListener("submit", event => event.preventDefault());
    form.addEventListener("input", change);
    form.addEventListener("click", event => {
      const button = event.target.closest("button[data-only]");
      if (!button) return;
      press(button, button.getAttribute("aria-pressed") !== "true");
      change();
    });
    addEventListener("hashchange", () => (stated() ? read() : anchor()));
    form.hidden = false;
    read();
    addEventListener("load", anchor);
    return change;
  }

  const number = text => (/\d/.test(text) && !Number.isNaN(Number(text.replace(/[,%×]/g, ""))) ? Number(text.replace(/[,%×]/g, "")) : null);

  /** Let the heads of a table sort its rows; numbers first, empty cells last. */
  function sortable(table, rows, change) {
    const given = new Map(rows.map((row, place) => [row, place]));
    const heads = all("thead th", table);
    let column = -1, back = false;

    function sort() {
      heads.forEach((head, place) => {
        if (place === column) head.setAttribute("aria-sort", back ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      const value = row => row.cells[column]?.dataset.value ?? row.cells[column]?.textContent.trim() ?? "";
      const order = (one, other) => {
        if (column < 0) return given.get(one) - given.get(other);
        const [a, b] = [value(one), value(other)];
        if (!a || !b) return !a - !b || given.get(one) - given.get(other);
        const [m, n] = [number(a), number(b)];
        const way = m !== null && n !== null ? m - n : a.localeCompare(b);
        return (back ? -way : way) || given.get(one) - given.get(other);
      };
      table.tBodies[0].append(...[...rows].sort(order));
    }

    heads.forEach((head, place) => {
      const button = make("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        // The first click on figures shows the largest.
        const figures = rows.some(row => number(row.cells[place]?.textContent.trim() ?? "") !== null);
        [column, back] = column === place ? [place, !back] : [place, figures];
        sort();
        change();
      });
    });
    return {
      state: () => (column < 0 ? {} : { sort: `${back ? "-" : ""}${column}` }),
      restore: values => {
        const sorted = values.get("sort") ?? "";
        const place = Number(sorted.replace("-", ""));
        if (sorted && heads[place]) [column, back] = [place, sorted.startsWith("-")];
        sort();
      },
    };
  }

  function dataTable(table) {
    const rows = [...table.tBodies[0].rows];
    const form = document.getElementById(table.id.replace("-table", "-controls")) ?? make("form");
    let change = () => {};
    const sorting = sortable(table, rows, () => change());
    change = filter(form, rows, {
      holds: (row, { value, dataset: { column, field } }) =>
        field ? words(row.dataset[field]).includes(value) : row.cells[column].textContent.trim() === value,
      more: sorting.state,
      restore: sorting.restore,
      changed: () => all("tr.detail", table).forEach(detail => detail.remove()),
    });
    if (table.matches(".runs")) details(table);
  }

  /** A row's link opens its details below it: blocks of a title, texts, a command or a table. */
  function details(table) {
    const { titles, heads } = JSON.parse(document.getElementById("runs-texts").textContent);

    function block({ title, text, warning, code, head, rows, file }, from) {
      const parts = [];
      if (title) parts.push(make("h4", {}, titles[title] ?? title));
      if (warning) parts.push(make("p", { class: "warned" }, warning));
      if (text) parts.push(make("p", {}, text));
      if (code) parts.push(make("pre", { tabindex: 0 }, make("code", {}, code)));
      if (file) parts.push(make("p", {}, make("a", { href: new URL(file, from).href }, file.split("/").pop())));
      if (rows) {
        const whole = rows.map(row => [...row, ...(heads[head] ?? []).slice(row.length).map(() => "–")]);
        const body = make("tbody", {}, ...whole.map(row => make("tr", {}, ...row.map((cell, place) => make(place ? "td" : "th", place ? {} : { scope: "row" }, cell)))));
        const top = head ? [make("thead", {}, make("tr", {}, ...heads[head].map(each => make("th", { scope: "col" }, each))))] : [];
        parts.push(make("div", { class: "data-scroll" }, make("table", { class: "data" }, ...top, body)));
      }
      return parts;
    }

    async function open(row) {
      const link = row.querySelector("a");
      if (row.nextElementSibling?.matches(".detail")) {
        row.nextElementSibling.remove();
        return link.setAttribute("aria-expanded", "false");
      }
      link.setAttribute("aria-expanded", "true");
      const cell = make("td", { colspan: row.cells.length }, "…");
      row.after(make("tr", { class: "detail" }, cell));
      try {
        const answer = await fetch(link.href);
        if (!answer.ok) throw new Error(answer.status);
        cell.replaceChildren(...(await answer.json()).flatMap(each => block(each, link.href)));
        const own = make("a", { href: `#${row.id}` }, "#");
        own.setAttribute("aria-label", row.id);
        cell.prepend(own);
      } catch (error) {
        cell.replaceChildren(`${link.href}: ${error.message}`);
      }
    }

    for (const link of all("tbody th a", table)) link.setAttribute("aria-expanded", "false");
    table.addEventListener("click", event => {
      const link = event.target.closest("tbody th a");
      if (!link || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      open(link.closest("tr"));
    });
    table.addEventListener("named", event => event.target.nextElementSibling?.matches(".detail") || open(event.target));
  }

  for (const table of all("table.data[id]")) dataTable(table);

  const compare = document.getElementById("compare-controls");
  if (compare) filter(compare, all("table.settings tbody"), { holds: () => true });

  // Claims: entries of the table of contents, and headings of verdicts, go with what they lead to.
  const claims = document.getElementById("claims-controls");
  if (claims) {
    const rows = all("section.claim");
    const entries = new Map(all(".md-nav--secondary a[href^='#']").map(link => [link.hash.slice(1), link.closest("li")]));
    filter(claims, rows, {
      holds: (row, select) => words(row.dataset[select.dataset.field]).includes(select.value),
      changed: () => {
        const left = new Set(rows.filter(row => !row.hidden).map(row => row.dataset.verdict));
        for (const head of all("h2[id]").filter(each => rows.some(row => row.dataset.verdict === each.id))) {
          head.hidden = !left.has(head.id);
          entries.get(head.id)?.toggleAttribute("hidden", head.hidden);
        }
        for (const row of rows) entries.get(row.querySelector("h3").id)?.toggleAttribute("hidden", row.hidden);
      },
    });
  }
})();
