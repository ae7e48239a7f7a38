// @ts-check
// What a database or a machine did, over time.

import { chart, windows } from "../chart.js";
import { bytes, number } from "../format.js";
import { fill, h, messageOf, notice, tabs } from "../ui.js";
import { send } from "../cluster-api.js";

// Copies are asked every ten seconds.
const INTERVAL_MS = 10_000;

const rate = (/** @type {number} */ value) => number(value) + "/s";

/**
 * @param {string} name
 * @param {string} column
 * @param {string} color
 * @param {boolean} [isFilled]
 */
const line = (name, column, color, isFilled) => ({ name, column, color, fill: isFilled });

const charts = () => [
  chart({ title: "Commands", format: rate, series: [line("all", "commands", "a", true)] }),
  chart({
    title: "Memory",
    format: bytes,
    series: [
      line("used", "memory", "a", true),
      { ...line("limit", "memory_limit", "c"), isLimit: true },
    ],
  }),
  chart({
    title: "Processor, in cores",
    format: (value) => number(value),
    series: [line("all copies", "cpu", "a", true)],
  }),
  chart({ title: "Clients", format: number, series: [line("connected", "clients", "a")] }),
  chart({ title: "Keys", format: number, series: [line("keys", "keys", "a", true)] }),
  chart({
    title: "Replication: bytes behind",
    format: bytes,
    series: [line("furthest", "lag", "a", true)],
  }),
];

// The window that was chosen last: it holds for the next subject, too.
let seconds = 900;

/**
 * Graphs of a database or of a machine. They are drawn anew until `end` is called.
 * @param {Record<string, string>} subject database, or machine
 */
export function graphsOf(subject) {
  const all = charts();
  const state = h("p", { class: "dim" }, "Loading…");
  const grid = h(
    "div",
    { class: "grid" },
    all.map((one) => one.root),
  );
  let timer = 0;
  let isOver = false;
  let turn = 0;

  async function load() {
    clearTimeout(timer);
    const mine = (turn += 1);
    const query = new URLSearchParams({ ...subject, window: String(seconds) });
    try {
      const found = await send("GET", "/history?" + query);
      if (isOver || mine !== turn) return;
      all.forEach((one) => one.show({ ...found, window: seconds }));
      state.hidden = true;
    } catch (error) {
      if (isOver || mine !== turn) return;
      state.hidden = false;
      fill(state, messageOf(error));
    }
    timer = setTimeout(load, INTERVAL_MS);
  }

  load();
  const choose = (/** @type {number} */ wanted) => {
    seconds = wanted;
    load().catch((error) => notice(error.message, "alarm"));
  };
  const reach = windows.filter(([value]) => value >= 900);
  const root = h(
    "section",
    { class: "graphs" },
    h(
      "div",
      { class: "title" },
      h("h2", {}, "Over time"),
      h("span", { class: "space" }),
      tabs("Window", reach, seconds, choose),
    ),
    state,
    grid,
  );
  return {
    root,
    end() {
      isOver = true;
      clearTimeout(timer);
    },
  };
}
