// What changed between any two releases, from api/v1/diff/OLD.json: the same as `recommend diff OLD NEW`.
(() => {
  "use strict";

  const form = document.getElementById("releases-controls");
  if (!form) return;
  const place = document.getElementById("release-diff");
  const status = document.getElementById("release-status");
  const command = document.getElementById("release-command");
  const [older, newer] = ["release-old", "release-new"].map((id) => document.getElementById(id));
  const loaded = new Map();

  /** An element; children are text or elements. */
  function make(name, ...children) {
    const element = document.createElement(name);
    element.append(...children);
    return element;
  }

  function link(href, ...children) {
    const element = make("a", ...children);
    element.href = href;
    return element;
  }

  const option = (each) => link(`../flags/${each.option}.html`, ...named(each.name));
  const list = (items) => make("ul", ...items.map((each) => make("li", ...each)));
  /** Show options in a text as code, so that they do not wrap after a dash. */
  const named = (text) => text.split(/(--[a-z][a-z0-9-]*[a-z0-9])/).map((each, place) =>
    (place % 2 ? Object.assign(make("code", each), { className: "name" }) : each));
  const listed = (text) => text.split(/\s+/).filter(Boolean).join(", ") || "none";
  /** Show a constraint's placeholders by name: <compute capability>. */
  const holes = (text) => text.replace(/\{(?:\w+\.)?(\w+)\}/g, (_, name) => `<${name.replaceAll("_", " ")}>`);

  function moved(each, when) {
    const served = each.read_by.some((reader) => reader === "turbomind" || reader === "server");
    const engine = served ? "" : `, read by ${each.read_by.join(" and ")} only`;
    const see = each.see.length ? ` See ${each.see.join(", ")}.` : "";
    return [option(each), ` (${when} ${each.release}${engine}): `, ...named(`${each.summary}${see}`)];
  }

  /** One or two list items for a change: the old and the new text are separate. */
  function change({ what, before, after }) {
    if (what === "meaning") {
      return [...(before ? [["was: ", ...named(before)]] : []), ["now: ", ...named(after || "no longer applies")]];
    }
    if (what !== "choices") return [[`${what}: `, make("code", listed(before)), " → ", make("code", listed(after))]];
    const [old, now] = [before, after].map((text) => text.split(/\s+/).filter(Boolean));
    const gone = old.filter((each) => !now.includes(each));
    const more = now.filter((each) => !old.includes(each));
    const kept = [gone.length ? `no longer ${gone.join(", ")}` : "", more.length ? `now also ${more.join(", ")}` : ""];
    return [[`${what}: ${kept.filter(Boolean).join("; ")}`]];
  }

  const need = (each) => [`${each.name}: `, code(each.before), " → ", code(each.after)];
  const code = (text) => (text ? make("code", text) : "not read");
  const rule = (each) => [...named(`${holes(each.text)} Fix: ${holes(each.more)} `), link(`../constraints.html#${each.id}`, each.id)];
  const thread = (each) => [link(`../threads.html#${each.id}`, ...named(each.text)), " ", link(each.more, "thread")];
  const claim = (each) => [`${each.more}: `, link(`../claims.html#${each.id}`, ...named(each.text))];

  /** Return the parts in the order of the command's output. */
  function parts(diff) {
    const gone = `${diff.new} does not know these; a server started with one ends at once.`;
    return [
      ["Removed options", diff.removed.map((each) => moved(each, "last in")), gone],
      ["Changed options", diff.changed.map((each) => [option(each), list(each.changes.flatMap(change))])],
      ["New options", diff.added.map((each) => moved(each, diff.back ? "in" : "since"))],
      ["Requirements", diff.needs.map(need)],
      ["Removed constraints", diff.rules_gone.map(rule)],
      ["New constraints", diff.rules_new.map(rule)],
      ["Fixed issues", diff.threads_gone.map(thread)],
      ["New known issues", diff.threads_new.map(thread)],
      ["Earlier verdicts", diff.claims_gone.map(claim)],
      ["New verdicts", diff.claims_new.map(claim)],
    ].filter(([, items]) => items.length);
  }

  function show(diff) {
    const way = diff.back ? "back to the older" : "on to";
    const head = `From LMDeploy ${diff.old} (${diff.old_published}) ${way} ${diff.new} (${diff.new_published})`;
    const shown = parts(diff);
    const sections = shown.flatMap(([title, items, note]) => [
      make("h2", `${title} (${items.length})`),
      ...(note ? [make("p", note)] : []),
      list(items),
    ]);
    place.replaceChildren(...sections);
    const counts = `options: ${diff.removed.length} gone, ${diff.changed.length} changed, ${diff.added.length} new.`;
    status.textContent = `${head}: ${shown.length ? counts : "nothing that a launch script would notice."}`;
  }

  function load(name) {
    if (!loaded.has(name)) {
      const url = new URL(`${place.dataset.files}${encodeURIComponent(name)}.json`, document.baseURI);
      const asked = fetch(url).then((answer) => {
        if (!answer.ok) throw new Error(`${url.pathname} answers ${answer.status}`);
        return answer.json();
      });
      loaded.set(name, asked);
      asked.catch(() => loaded.delete(name));
    }
    return loaded.get(name);
  }

  function fail(why) {
    place.replaceChildren();
    status.textContent = `${why} The command above gives the same answer.`;
  }

  async function update() {
    const [old, now] = [older.value, newer.value];
    command.textContent = `recommend diff ${old} ${now}`;
    if (old === now) {
      place.replaceChildren();
      status.textContent = "Both releases are the same.";
      return;
    }
    if (location.protocol === "file:") return fail("The browser cannot load the data from a folder: open this page from a server.");
    place.setAttribute("aria-busy", "true");
    try {
      const diff = (await load(old)).new[now];
      // The user may have chosen another pair in the meantime.
      if (older.value === old && newer.value === now) show(diff);
    } catch (error) {
      if (older.value === old && newer.value === now) fail(`Could not be loaded: ${error.message}.`);
    }
    place.setAttribute("aria-busy", "false");
  }

  function changed() {
    history.replaceState(history.state, "", `#${new URLSearchParams({ old: older.value, new: newer.value })}`);
    update();
  }

  function restore() {
    const values = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    for (const [select, name] of [[older, "old"], [newer, "new"]]) {
      const value = values.get(name);
      if ([...select.options].some((each) => each.value === value)) select.value = value;
    }
    update();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  older.addEventListener("change", changed);
  newer.addEventListener("change", changed);
  form.querySelector("[data-swap]").addEventListener("click", () => {
    [older.value, newer.value] = [newer.value, older.value];
    changed();
  });
  form.hidden = false;
  addEventListener("hashchange", () => location.hash.includes("=") && restore());
  restore();
})();
