// @ts-check
// The samples of a time series as a line: means of as many buckets as there is place for.

import { plain, run } from "../api.js";
import { exact } from "../format.js";
import { h, raw, tabs } from "../ui.js";

// Buckets of the whole line.
const BUCKETS = 400;
const [WIDTH, HEIGHT] = [800, 220];
const SVG = "http://www.w3.org/2000/svg";

/** @type {[string, string][]} */
const aggregations = [
  ["avg", "Mean"],
  ["min", "Lowest"],
  ["max", "Highest"],
  ["count", "Count"],
];

/** @param {number} ms since 1970 */
const moment = (ms) => new Date(ms).toISOString().replace("T", " ").replace(".000Z", "Z");

/**
 * Draws samples: pairs of a time and a number.
 * @param {[number, number][]} samples
 */
function line(samples) {
  const times = samples.map(([at]) => at);
  const values = samples.map(([, value]) => value).filter(Number.isFinite);
  const [first, last] = [times[0], times[times.length - 1]];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (/** @type {number} */ at) => ((at - first) / (last - first || 1)) * WIDTH;
  const y = (/** @type {number} */ value) =>
    4 + (1 - (value - low) / (high - low || 1)) * (HEIGHT - 8);
  const points = samples
    .filter(([, value]) => Number.isFinite(value))
    .map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
  const graph = document.createElementNS(SVG, "svg");
  graph.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  graph.setAttribute("preserveAspectRatio", "none");
  graph.setAttribute("role", "img");
  graph.setAttribute("aria-label", `From ${low} to ${high}`);
  const path = document.createElementNS(SVG, "polyline");
  // One point has no line to be seen.
  path.setAttribute("points", (points.length === 1 ? [...points, ...points] : points).join(" "));
  graph.append(path);
  const ends = h(
    "div",
    { class: "ends" },
    h("span", {}, moment(first)),
    h("span", {}, moment(last)),
  );
  const bounds = h("div", { class: "bounds" }, h("span", {}, `${high}`), h("span", {}, `${low}`));
  return h("figure", { class: "samples" }, h("div", { class: "plot" }, bounds, graph), ends);
}

/**
 * Names and what they have: lists under RESP2, names and lists in turn under RESP3.
 * @param {any[] | undefined} list
 * @returns {any[][]}
 */
function pairs(list) {
  if (!list || Array.isArray(list[0])) return list || [];
  const found = [];
  for (let at = 0; at + 1 < list.length; at += 2) found.push([list[at], list[at + 1]].flat());
  return found;
}

/**
 * Shows the samples of a series, its labels and its rules.
 * @param {number} db
 * @param {any} key
 * @param {Record<string, any>} info what TS.INFO says
 */
export async function samplesOf(db, key, info) {
  const count = Number(info.totalSamples);
  const [first, last] = [Number(info.firstTimestamp), Number(info.lastTimestamp)];
  const body = h("div");
  async function draw(/** @type {string} */ how) {
    const width = Math.max(1, Math.ceil((last - first + 1) / BUCKETS));
    const range = ["TS.RANGE", key, String(first), "+", "ALIGN", "-"];
    const words = [...range, "AGGREGATION", how, String(width)];
    const found = plain(await run(db, words));
    /** @type {[number, number][]} */
    const samples = found.map(([at, value]) => [Number(at), Number(value)]);
    const isDrawn = samples.some(([, value]) => Number.isFinite(value));
    body.replaceChildren(isDrawn ? line(samples) : h("p", { class: "empty" }, "No number yet."));
  }
  if (count) await draw(aggregations[0][0]);
  else body.append(h("p", { class: "empty" }, "No sample yet."));
  const badges = pairs(info.labels).map(([name, value]) =>
    h("span", { class: "badge" }, raw(`${name}=${value}`)),
  );
  const rules = pairs(info.rules).map(([target, duration, how]) =>
    h("p", {}, "Makes ", raw(String(target)), `: ${how} of ${exact(duration)} ms.`),
  );
  return [
    count ? tabs("Aggregation", aggregations, aggregations[0][0], draw) : null,
    body,
    h("div", { class: "row" }, badges),
    ...rules,
  ];
}
