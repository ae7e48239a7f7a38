// @ts-check
// Values of the types that Redis has in modules: what each of them can show of itself.

import { fields, plain, run } from "../api.js";
import { blob, exact } from "../format.js";
import { h, raw, table } from "../ui.js";
import { samplesOf } from "./samples.js";
import { nearestOf } from "./vectors.js";

/**
 * What a type is called here, the command of its figures, and what is shown beside them.
 * @typedef {object} Shown
 * @property {string} name
 * @property {string} info
 * @property {(db: number, key: any, info: Record<string, any>) => Promise<any[]>} [more]
 */

/** @type {Record<string, Shown>} */
const shown = {
  "MBbloom--": { name: "bloom filter", info: "BF.INFO" },
  bloomfltr: { name: "bloom filter", info: "BF.INFO" },
  MBbloomCF: { name: "cuckoo filter", info: "CF.INFO" },
  "CMSk-TYPE": { name: "count-min sketch", info: "CMS.INFO" },
  "TopK-TYPE": { name: "top-k", info: "TOPK.INFO", more: frequent },
  "TDIS-TYPE": { name: "t-digest", info: "TDIGEST.INFO", more: quantiles },
  "TSDB-TYPE": { name: "time series", info: "TS.INFO", more: samplesOf },
  vectorset: { name: "vector set", info: "VINFO", more: nearestOf },
};

/**
 * Returns what a type is called, if it is one of these.
 * @param {string} type
 */
export const nameOfType = (type) => (shown[type] ? shown[type].name : null);

/**
 * Shows a value of one of these types; null if it is of another.
 * @param {string} type
 * @param {number} db
 * @param {any} key
 */
export async function valueOf(type, db, key) {
  const of = shown[type];
  if (!of) return null;
  const info = fields(plain(await run(db, [of.info, key])));
  return [...(of.more ? await of.more(db, key, info) : []), figures(info)];
}

// Names and numbers; what is a list has its own place, or none.
/** @param {Record<string, any>} info */
function figures(info) {
  const isNumber = (/** @type {any} */ value) => /^-?\d+$/.test(String(value));
  const rows = Object.entries(info).filter(([, value]) => !Array.isArray(value));
  return table(
    [
      { title: "Figure", cell: ([name]) => name },
      {
        title: "Value",
        number: true,
        cell: ([, value]) =>
          value === null ? "–" : isNumber(value) ? exact(value) : raw(blob(value)),
      },
    ],
    rows,
    { label: "Figures", empty: "None." },
  );
}

/**
 * The items that occur most often.
 * @param {number} db
 * @param {any} key
 */
async function frequent(db, key) {
  const list = plain(await run(db, ["TOPK.LIST", key, "WITHCOUNT"]));
  const rows = [];
  for (let at = 0; at + 1 < list.length; at += 2) rows.push([list[at], list[at + 1]]);
  const columns = [
    { title: "Item", cell: ([item]) => h("span", { class: "whole" }, raw(blob(item))) },
    { title: "Count", number: true, cell: ([, count]) => exact(count) },
  ];
  return [table(columns, rows, { label: "Most frequent items", empty: "No item yet." })];
}

const SHARES = ["0", "0.01", "0.1", "0.25", "0.5", "0.75", "0.9", "0.99", "0.999", "1"];

/**
 * Numbers below which a share of all numbers is.
 * @param {number} db
 * @param {any} key
 */
async function quantiles(db, key) {
  const found = plain(await run(db, ["TDIGEST.QUANTILE", key, ...SHARES]));
  const rows = SHARES.map((share, at) => [share, found[at]]);
  const columns = [
    { title: "Quantile", number: true, cell: ([share]) => share },
    { title: "Value", number: true, cell: ([, value]) => String(value) },
  ];
  return [table(columns, rows, { label: "Quantiles" })];
}
