// @ts-check
// The elements of a vector set that are nearest to one of them, or to a vector.

import { plain, run } from "../api.js";
import { blob, exact, layOut } from "../format.js";
import { button, failure, fill, h, raw, table } from "../ui.js";

// Elements that are shown while none is chosen.
const SOME = 20;
// The most neighbours that can be asked for here.
const MOST = 1000;
// How the forms of vectors are called.
const FORMS = { f32: "32-bit floats", int8: "8 bits a dimension", bin: "1 bit a dimension" };

/**
 * Reads numbers as people write vectors: with commas or spaces, in brackets or not.
 * @param {string} text
 */
function readVector(text) {
  const words = text
    .trim()
    .replace(/^\[|\]$/g, "")
    .split(/[\s,;]+/)
    .filter(Boolean);
  const isVector = words.length > 1 && words.every((word) => Number.isFinite(Number(word)));
  return isVector ? words : null;
}

/**
 * The words of a request for what is nearest.
 * @param {any} key
 * @param {any} of the name of an element, or numbers
 * @param {string} count
 * @param {string} filter
 */
function search(key, of, count, filter) {
  const query = Array.isArray(of) ? ["VALUES", String(of.length), ...of] : ["ELE", of];
  const narrowed = filter.trim() ? ["FILTER", filter.trim()] : [];
  return ["VSIM", key, ...query, "WITHSCORES", "WITHATTRIBS", "COUNT", count, ...narrowed];
}

/**
 * Rows of names, scores and attributes.
 * @param {any[]} reply
 */
function rowsOf(reply) {
  const rows = [];
  const isMap = reply.length > 0 && Array.isArray(reply[1]);
  const step = isMap ? 2 : 3;
  for (let at = 0; at + step <= reply.length; at += step) {
    const [score, attributes] = isMap ? reply[at + 1] : reply.slice(at + 1, at + 3);
    rows.push({ name: reply[at], score: Number(score), attributes });
  }
  return rows;
}

/**
 * Shows a vector set: its form, and a search in it.
 * @param {number} db
 * @param {any} key
 * @param {Record<string, any>} info what VINFO says
 */
export async function nearestOf(db, key, info) {
  const input = Number(info["projection-input-dim"]);
  const list = h("div");
  const query = h("input", {
    type: "search",
    placeholder: "Element, or a vector: 0.1, -0.2, …",
    "aria-label": "Element or vector",
    spellcheck: "false",
  });
  const count = h("input", {
    type: "number",
    min: 1,
    max: MOST,
    value: 10,
    "aria-label": "How many",
  });
  const filter = h("input", {
    type: "search",
    placeholder: "Filter: .year > 1980",
    "aria-label": "Filter",
    spellcheck: "false",
  });

  /** @param {any} name */
  const open = (name) =>
    h(
      "button",
      {
        type: "button",
        class: "link",
        title: "What is nearest to it",
        onclick: () => {
          query.value = typeof name === "string" ? name : "";
          look(name);
        },
      },
      raw(blob(name)),
    );

  /** @type {import("../ui.js").Column} */
  const names = { title: "Element", cell: (row) => open(row.name) };
  /** @type {import("../ui.js").Column} */
  const attributes = {
    title: "Attributes",
    cell: (row) =>
      row.attributes === null || row.attributes === undefined
        ? ""
        : h("span", { class: "whole" }, raw(blob(row.attributes))),
  };

  async function some() {
    const found = plain(await run(db, ["VRANDMEMBER", key, String(SOME)])) || [];
    const asked = found.map((name) => run(db, ["VGETATTR", key, name]).then(plain));
    const all = await Promise.all(asked);
    const rows = found.map((name, at) => ({ name, attributes: all[at] }));
    fill(list, table([names, attributes], rows, { label: "Elements", empty: "No element." }));
  }

  /** @param {any} of */
  async function look(of) {
    try {
      const most = String(Math.min(MOST, Math.max(1, Math.round(Number(count.value) || 10))));
      const rows = rowsOf(plain(await run(db, search(key, of, most, filter.value))));
      const score = { title: "Similarity", number: true, cell: (row) => row.score.toFixed(4) };
      const columns = [names, score, attributes];
      const [vector, own] = Array.isArray(of) ? [null, null] : await vectorOf(of);
      fill(
        list,
        table(columns, rows, { label: "Nearest elements", empty: "Nothing is found." }),
        own ? h("pre", { class: "value", tabindex: "0" }, layOut(own) || own) : null,
        vector && h("p", { class: "dim whole" }, `Its vector: ${vector}`),
      );
    } catch (error) {
      fill(list, failure(error));
    }
  }

  /**
   * The beginning of an element's vector, and its attributes.
   * @param {any} name
   */
  async function vectorOf(name) {
    const numbers = plain(await run(db, ["VEMB", key, name])) || [];
    const shown = numbers.slice(0, 12).map((number) => Number(number).toFixed(4));
    const more = numbers.length > shown.length ? ` … (${exact(numbers.length)})` : "";
    const own = plain(await run(db, ["VGETATTR", key, name]));
    return [shown.join(", ") + more, typeof own === "string" ? own : null];
  }

  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = query.value.trim();
    if (text === "") some().catch((error) => fill(list, failure(error)));
    else look(readVector(text) || query.value);
  };
  await some();
  return [
    h(
      "div",
      { class: "row" },
      h("span", { class: "badge info" }, `${exact(info["vector-dim"])} dimensions`),
      input ? h("span", { class: "badge" }, `reduced from ${exact(input)}`) : null,
      h("span", { class: "badge" }, FORMS[info["quant-type"]] || String(info["quant-type"])),
      h("span", {}, `${exact(info.size)} elements`),
      h("span", { class: "dim" }, `${exact(info["attributes-count"])} with attributes`),
    ),
    h(
      "form",
      { class: "row", onsubmit: submit },
      query,
      count,
      filter,
      h("button", { type: "submit" }, "Find nearest"),
      button("Some elements", some),
    ),
    list,
  ];
}
