/* The answer beside the file: tiles, notes, offers and the table of reasons. */

import { figure, fill, make } from "./dom.js";
import { said, translated } from "./translate.js";

const ms = value => (value >= 10_000 ? [figure(value / 1000, 1), "s"] : [figure(value, value >= 20 ? 0 : 1), "ms"]);
const range = (texts, [, low, high], show = figure) => fill(texts.range, { low: show(low), high: show(high) });
const OFFERS = 6;  // more are folded
const kind = basis => (basis.startsWith("extrapolated") ? "extrapolated" : "modelled");

export class Answer {
  constructor(root, { texts, reasons, pages }, apply, plan) {
    Object.assign(this, { root, texts, reasons, pages, apply, plan });
    this.tile = name => root.querySelector(`#tile-${name}`);
  }

  #put(tile, part, ...children) {
    tile.querySelector(`.${part}`).replaceChildren(...children);
  }

  /** Say what a figure rests on, each kind with its figures on a line. */
  #basis(tile, name, why, figures, run, measured) {
    const pair = (mark, text) => make("span", { class: "pair" }, mark, " ", make("span", {}, text));
    const made = pair(make("span", { class: `mark ${name}`, title: why }, this.texts[name]), figures);
    const link = run && make("a", { href: this.#run(run.run), class: "mark measured", title: run.run }, this.texts.measured);
    this.#put(tile, "basis", made, ...(link ? [" ", pair(link, measured)] : []));
  }

  show(answer) {
    const texts = this.texts;
    this.root.querySelector("#title").replaceChildren(this.said(answer.title));
    this.root.querySelector("#load").replaceChildren(this.said(answer.load));
    this.#memory(answer.memory);
    this.#speed(answer);
    this.root.querySelector("#notes").replaceChildren(
      ...answer.warnings.map(({ constraint, message, remedy }) =>
        make("li", { class: "warning" }, this.said(message, constraint), " ", this.said(remedy, constraint))),
      ...answer.notes.map(each => make("li", {}, this.said(each))),
      ...(answer.assumed.length ? [make("li", {}, make("b", {}, texts.assumed), " ", ...answer.assumed.flatMap((each, at) => (at ? [", ", this.said(each)] : [this.said(each)])))] : []),
    );
  }

  /** Return what the recommender says in the page's language, or marked as English. */
  said(text, constraint) {
    return said(text, this.reasons.constraints?.[constraint], this.reasons.said);
  }

  /** The same of a text that any constraint may have said. */
  saidByAny(text) {
    return said(text, this.reasons.said, ...Object.values(this.reasons.constraints ?? {}));
  }

  #memory({ total, card, parts, at_most: most, cache }) {
    const { texts } = this;
    const tile = this.tile("memory");
    this.#put(tile, "figure", make("b", {}, figure(total[0])), ` ${fill(texts.of, { card: figure(card, 1) })}`);
    const scale = Math.max(card, most);
    const pieces = parts.map(([name, gib]) => {
      const part = make("span", { class: `part ${name.replace(" ", "-")}`, title: `${texts[name] ?? name}: ${figure(gib)} GiB` });
      part.style.width = `${(100 * gib) / scale}%`;
      return part;
    });
    const limit = make("span", { class: "most" });
    limit.style.left = `${(100 * most) / scale}%`;
    this.#put(tile, "bar", ...pieces, limit);
    const gib = Object.fromEntries(parts.map(([name, size]) => [name, figure(size, 2)]));
    this.#put(tile, "detail", fill(texts.parts, { weights: gib.weights, cache: gib["kv cache"], tokens: cache[0].toLocaleString("en") }));
    const only = parts.every(each => each[4] === "measured") ? "measured" : "modelled";
    this.#basis(tile, only, range(texts, total), range(texts, total));
  }

  /** Return a goal beside what is predicted of it. */
  #goal([name, at, predicted, most]) {
    const { texts } = this;
    const time = { ttft: "TTFT", tpot: "TPOT", latency: texts.latency }[name];
    const values = { time: `${at === "mean" ? texts.mean : at} ${time}`, ms: ms(predicted).join(" "), most: ms(most).join(" ") };
    return make("span", { class: predicted <= most ? "goal kept" : "goal missed" }, fill(texts.goal, values));
  }

  #speed({ speed, measured, defaults, servers, goals }) {
    const { texts } = this;
    const [latency, unit] = ms(speed.latency_ms[0]);
    const tile = this.tile("latency");
    this.#put(tile, "figure", make("b", {}, latency), ` ${unit}`);
    const also = [["TTFT", "ttft_ms"], ["TPOT", "token_ms"], ["p99", "p99_ms"]].map(([name, key]) => `${name} ${ms(speed[key][0]).join(" ")}`);
    this.#put(tile, "detail", also.join(" · "), ...goals.map(each => this.#goal(each)));
    const scale = unit === "s" ? 1000 : 1;
    const times = value => (value === speed.latency_ms[2] ? `${figure(value / scale)} ${unit}` : figure(value / scale));
    this.#basis(tile, kind(speed.basis), this.#text(speed.basis), range(texts, speed.latency_ms, times), measured, measured && fill(texts.median, { ms: measured.p50_ms }));
    const rate = this.tile("rate");
    this.#put(rate, "figure", make("b", {}, figure(speed.rps[0])), ` ${texts.rps}`);
    const than = !defaults ? "" : !defaults.fits ? texts["defaults-fail"] :
      defaults.gain[1] <= 1 && defaults.gain[2] >= 1 ? texts["defaults-same"] : fill(texts["defaults-gain"], { gain: figure(defaults.gain[0], 1) });
    this.#put(rate, "detail", [servers > 1 ? fill(texts.servers, { servers }) : "", than].filter(Boolean).join(" · "));
    this.#basis(rate, kind(speed.basis), this.#text(speed.basis), range(texts, speed.rps, figure), measured, measured && `${figure(measured.rps)} ${texts.rps}`);
  }

  #run(id) {
    return `${this.pages.runs}#${id}`;
  }

  /** Say why there is no answer, and offer those that exist. */
  refuse(place, { error, offers, option, constraint }) {
    const output = make("div", { class: "output", "aria-live": "polite" });
    const buttons = offers.map(({ options, text, without = [] }) => {
      const button = make("button", { type: "button" }, options);
      button.addEventListener("click", () => (options.startsWith("recommend ") ? this.plan(options, output) : this.apply(options, without)));
      return make("li", {}, button, ...(text ? [" ", this.said(text)] : []));
    });
    if (option && option !== "--gpu") {
      const leave = make("button", { type: "button" }, fill(this.texts.leave, { option }));
      leave.addEventListener("click", () => this.apply("", [option.slice(2)]));
      buttons.push(make("li", {}, leave));
    }
    place.replaceChildren(
      make("p", {}, make("b", {}, option ? this.texts["not-understood"] : this.texts["nothing-fits"]), " ", this.said(error, constraint)),
      ...(buttons.length ? [make("p", {}, this.texts.offers), make("ul", {}, ...buttons.slice(0, OFFERS)), ...this.#folded(buttons.slice(OFFERS))] : []),
      ...(option === "--gpu" ? [make("p", {}, make("a", { href: this.pages.adding }, this.texts["not-listed"]))] : []),
      ...(option === "--model" ? [make("p", {}, make("a", { href: this.pages.models }, this.texts["all-models"]))] : []), output,
    );
  }

  #folded(buttons) {
    const summary = make("summary", {}, fill(this.texts["more-offers"], { count: buttons.length }));
    return buttons.length ? [make("details", {}, summary, make("ul", {}, ...buttons))] : [];
  }

  #reason({ id, reason }) {
    return said(reason, this.reasons.options?.[id], this.reasons.said);
  }

  /** What holds without the option: a value, or in words where it differs. */
  #default(option) {
    return translated(option.default, this.reasons.options?.[option.id]) ?? option.default;
  }

  /** The full reason of an option; `short` for a mouse that hovers. */
  explain(option, short) {
    const { texts } = this;
    const reason = make("p", {}, this.#reason(option));
    const head = make("p", { class: "head" }, make("code", {}, option.name), ` ${option.value}`,
      ...(option.default !== option.value ? [make("small", {}, ` ${fill(texts.default, { default: this.#default(option) || texts.none })}`)] : []));
    if (short) return [head, reason];
    const sources = option.sources.map(({ text, href, run }) =>
      make("li", {}, href || run ? make("a", { href: href || this.#run(run) }, text) : text));
    const advice = option.advice.filter(([, value]) => value !== option.value).map(([who, value]) => `${who} ${value}`);
    const page = make("a", { href: this.pages.options[option.id] }, texts.page);
    return [
      head, reason,
      ...(sources.length ? [make("ul", { class: "sources" }, ...sources, ...(option.caveat ? [make("li", {}, this.said(option.caveat))] : []))] : [make("p", {}, texts.unverified)]),
      ...(advice.length ? [make("p", {}, `${texts.others} ${advice.join(", ")}`)] : []),
      make("p", {}, page),
    ];
  }

  #text(words) {
    return translated(words, this.reasons.said) ?? words;
  }

  /** Return an option as the file's lines show it: with its reason in a few words, and the language of that. */
  brief(option) {
    const own = translated(option.brief, this.reasons.options?.[option.id]);
    return { ...option, shown: own || option.brief || option.value, lang: own ? document.documentElement.lang : "en" };
  }

  /** Every option in a table, for reading without the file. */
  table(place, { options, left, near, speed }) {
    const { texts } = this;
    const rows = options.map(option => {
      const name = make("a", { href: this.pages.options[option.id] }, make("code", {}, option.name));
      return make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, option.value), make("td", {}, this.#default(option) || "–"),
        make("td", {}, this.#reason(option)));
    });
    const head = texts.columns.split("|").map(each => make("th", { scope: "col" }, each));
    const runs = near.map(run => make("li", {}, make("a", { href: this.#run(run.run) }, run.run), ` ${fill(texts.near, run)}`));
    place.replaceChildren(
      make("h2", {}, texts.reasons),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": texts.reasons },
        make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))),
      make("p", {}, fill(texts.left, { left })),
      make("h2", {}, texts.basis),
      make("p", {}, fill(texts.limit, { limit: this.#text(speed.limit), basis: this.#text(speed.basis) })),
      ...(runs.length ? [make("ul", { class: "near" }, ...runs)] : []),
    );
  }
}
