// The picker's question: what the form and the address say, what is wrong with it, and the command that asks it.
// Classic scripts, not modules: browsers load no module from a folder, and the command is to be shown there too.
"use strict";

const pickerQuestion = (() => {
  const ASKED = ["model", "gpu", "load", "goal"];
  const MORE = ["count", "image", "text-only", "prompt-tokens", "output-tokens", "p99", "cpus", "kv", "lmdeploy"];
  const MOST = { load: 4096, count: 64, "prompt-tokens": 2000000, "output-tokens": 2000000, cpus: 4096 };
  const field = (form, name) => form.elements.namedItem(name);

  // Names as people write them: without case, blanks, dashes and underscores.
  const plain = (name) => name.toLowerCase().replace(/[ _-]/g, "");

  /** The values that a list or a group of buttons offers, each with the other names that it goes by. */
  function offered(form, name) {
    const of = field(form, name);
    if (of.options) return [...of.options].map((each) => [each.value, ...(each.dataset.names || "").split("|")]);
    return [...of].map((each) => [each.value]);
  }

  /** How many letters differ (Levenshtein's distance). */
  function apart(one, other) {
    let row = [...Array(other.length + 1).keys()];
    for (let i = 1; i <= one.length; i++) {
      const next = [i];
      for (let j = 1; j <= other.length; j++) {
        next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1));
      }
      row = next;
    }
    return row[other.length];
  }

  /** The offered value of this name, or the one whose name is nearest; a load may be a number of requests too. */
  function near(form, name, given) {
    if (name === "load" && checked(name, given)) return { value: checked(name, given), far: 0 };
    const asked = plain(given.slice(0, 80));
    const known = offered(form, name).flatMap(([value, ...others]) =>
      [value, ...others].filter(Boolean).map((each) => ({ value, far: apart(asked, plain(each)) })));
    return known.reduce((best, each) => (each.far < best.far ? each : best));
  }

  /** A number or a size as the command takes it; empty where it is none. */
  function checked(name, text) {
    const given = text.trim();
    if (name === "image") {
      const sides = /^(\d{1,6})[x×](\d{1,6})(?:[x×](\d{1,2}))?$/i.exec(given);
      const fits = sides && sides.slice(1, 3).every((each) => +each >= 1 && +each <= 100000);
      return fits && (sides[3] === undefined || (+sides[3] >= 1 && +sides[3] <= 64)) ? given.toLowerCase().replace(/×/g, "x") : "";
    }
    if (name === "text-only") return given === "1" ? given : "";
    if (name === "p99") return /^\d{1,8}(\.\d{1,3})?$/.test(given) && +given > 0 && +given <= 86400000 ? String(+given) : "";
    return /^\d{1,7}$/.test(given) && +given >= 1 && +given <= MOST[name] ? String(+given) : "";
  }

  /** Whether a value says no more than what is taken anyway. */
  function usual(form, name, value) {
    const own = { count: "1", cpus: "16", kv: "auto", lmdeploy: form.closest("#picker").dataset.release };
    return value === "" || value === own[name];
  }

  /** What is asked, from pairs of names and texts: {values, wrong}; each wrong one is {name, given, used}. */
  function read(form, pairs) {
    const values = {}, wrong = [];
    for (const name of ASKED) values[name] = start(form, name);
    for (const name of [...ASKED, ...MORE]) {
      const given = pairs.get(name);
      if (given === null || given === undefined || given === "") continue;
      const listed = ASKED.includes(name) || name === "kv" || name === "lmdeploy";
      const found = listed ? near(form, name, given) : { value: checked(name, given), far: 0 };
      if (found.far || !found.value) wrong.push({ name, given: given.slice(0, 80), used: found.value });
      if (ASKED.includes(name) || !usual(form, name, found.value)) values[name] = found.value;
    }
    if (values.image && values["text-only"]) {
      wrong.push({ name: "image", given: values.image, used: "" });
      delete values.image;
    }
    return { values, wrong };
  }

  /** What the page was built to ask first. */
  function start(form, name) {
    const of = field(form, name);
    if (of.options) return [...of.options].find((each) => each.defaultSelected).value;
    return [...of].find((each) => each.defaultChecked).value;
  }

  /** Puts what is asked into the form. */
  function show(form, values) {
    for (const name of [...ASKED, ...MORE]) {
      const of = field(form, name);
      if (!of.options && of.length) of.forEach((each) => (each.checked = each.value === values[name]));
      else if (of.type === "checkbox") of.checked = Boolean(values[name]);
      else if (name === "count") of.value = values.count || "1";
      else if (name === "lmdeploy") of.value = values.lmdeploy || form.closest("#picker").dataset.release;
      else if (name === "kv") of.value = values.kv || "auto";
      else of.value = values[name] || "";
    }
    if (MORE.some((name) => name !== "count" && values[name])) form.querySelector("details").open = true;
  }

  const words = (values) => MORE.filter((name) => values[name] && name !== "count").map((name) =>
    name === "text-only" ? "--text-only" : `--${name} ${values[name]}`);

  /** The command that gives the same answer. All values were checked: none needs quotes. */
  function command(values) {
    const gpu = values.count ? `${values.gpu}:${values.count}` : values.gpu;
    const more = words(values).map((each) => ` ${each}`).join("");
    return `recommend --gpu ${gpu} --model ${values.model} --load ${values.load} --goal ${values.goal}${more}`;
  }

  /** What leads away from the stored answers, as the command has it. */
  function elsewhere(form, values) {
    const here = (name) => field(form, name).selectedOptions[0].dataset.here !== undefined;
    return [
      ...(here("model") ? [] : [`--model ${values.model}`]),
      ...(/^\d/.test(values.load) ? [`--load ${values.load}`] : []),
      ...(here("gpu") && !values.count ? [] : [`--gpu ${values.gpu}${values.count ? `:${values.count}` : ""}`]),
      ...words(values),
    ];
  }

  /** The address' query for what is asked. */
  const query = (values) => `?${new URLSearchParams([...ASKED, ...MORE].filter((name) => values[name]).map((name) => [name, values[name]]))}`;

  return { read, show, command, elsewhere, query };
})();
