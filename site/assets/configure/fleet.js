/* The plan of a fleet: what `recommend plan --json` found, in tables. Texts are in the page. */

import { figure, fill, make } from "./dom.js";

const whole = value => Math.round(value).toLocaleString("en");
const percent = share => `${Math.round(100 * share)} %`;
const name = ({ gpu, cards, tp }) => `${gpu}:${cards}${tp > 1 ? ` tp ${tp}` : ""}`;

function table(head, rows) {
  const cells = (row, kind) => row.map((each, at) => make(at ? kind : "th", { scope: at ? null : kind === "th" ? "col" : "row" }, each));
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...cells(head, "th"))),
    make("tbody", {}, ...rows.map(row => make("tr", {}, ...cells(row, "td"))))));
}

/** Return the plan as elements; `said` translates what the recommender says. */
export function plan({ asked, aim, fleets, cannot, notes }, { texts, said }) {
  const words = text => said(text);
  const down = aim.spare ? fill(texts["hosts-down"], { count: aim.spare }) : texts["hosts-up"];
  const head = make("p", {}, make("b", {}, fill(texts["plan-of"], { rps: aim.rps.toLocaleString("en"), model: asked.model_source })), " ",
    fill(texts["plan-peak"], { peak: aim.peak, down, release: asked.lmdeploy, network: aim.network_gbps }));
  return [
    head,
    ...(fleets.length ? sized(fleets, aim, asked, texts, words) : []),
    ...(cannot.length ? [make("p", {}, make("b", {}, texts.cannot)), make("ul", {}, ...cannot.map(each => misfit(each, texts, words)))] : []),
    ...(notes.length ? [make("ul", {}, ...notes.map(each => make("li", {}, words(each))))] : []),
  ];
}

function sized(fleets, aim, asked, texts, words) {
  const priced = fleets.some(each => each.cost_a_million !== null);
  const columns = texts["plan-columns"].split("|").slice(0, priced ? 8 : 7);
  const rows = fleets.map(each => [name(each.kind), whole(each.hosts), whole(each.cards), whole(each.servers), figure(each.server_rps, 1),
    whole(each.p99_ms.value), words(each.limit), ...(priced ? [each.cost_a_million === null ? "–" : figure(each.cost_a_million, 2)] : [])]);
  const [best] = fleets;
  return [
    table(columns, rows),
    make("p", {}, make("b", {}, `${name(best.kind)}: `), fill(texts["plan-server"], { gib: figure(best.gib_a_card, 1), batch: best.config.max_batch_size })),
    table(texts["state-columns"].split("|").slice(0, asked.images ? 4 : 6), states(best, aim, asked, texts)),
  ];
}

/** Return a server at the peak: all hosts up, the spare ones down, and then slower than predicted. */
function states({ peak: { up, spare_down: down, slow_end: slow } }, aim, asked, texts) {
  const times = state => (asked.images ? [] : [whole(state.ttft.p99), figure(state.tpot.p99, 1)]);
  const row = (label, state) => [label, percent(state.busy), whole(state.p50_ms), whole(state.p99_ms), ...times(state)];
  const label = fill(texts.slower, { times: slow.times_slower.toFixed(2), share: percent(slow.confidence) });
  return [
    row(texts["all-up"], up),
    ...(aim.spare ? [row(fill(texts["hosts-down"], { count: aim.spare }), down)] : []),
    [label, percent(slow.busy), "–", slow.p99_ms === null ? texts["cannot-keep-up"] : whole(slow.p99_ms), ...(asked.images ? [] : ["–", "–"])],
  ];
}

function misfit({ kind, why, needed }, texts, words) {
  return make("li", {}, make("b", {}, name(kind)), ": ", words(why), ...(needed ? [make("br"), fill(texts["would-do"], { needed })] : []));
}
