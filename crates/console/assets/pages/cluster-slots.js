// @ts-check
// The slots of a database as a map: one cell for each, stronger where there is more; the keys that
// take most; and slots that are
// moved by hand.

import { bytes, exact, number, visible } from "../format.js";
import { ask, button, fill, h, notice, panel, raw, table } from "../ui.js";
import { requestId, send } from "../cluster-api.js";
import { choice } from "./cluster-fields.js";
import { drawPlan } from "./cluster-plan.js";

const SLOTS = 16384;
const CELL = 6;

// Asks for what is to be done with a plan that is shown first. What is refused then is said in the
// dialog, which stays.
export async function planned(title, path, body, action, kind = "primary") {
  const { plan } = await send("POST", path + "?dry_run=true", body);
  return new Promise((resolve) => {
    const id = requestId();
    const close = (value) => {
      resolve(value);
      dialog.close();
    };
    const refusal = h("p", { class: "failure", role: "alert", hidden: true });
    const leave = h("button", { type: "button", onclick: () => close(null) }, "Cancel");
    async function begin() {
      refusal.hidden = true;
      try {
        const begun = await send("POST", path, body, id);
        notice("The job has begun.");
        close(begun.job);
      } catch (error) {
        fill(refusal, visible(error.message)).hidden = false;
      }
    }
    const dialog = h(
      "dialog",
      { "aria-label": title, class: "wide" },
      h("h2", {}, title),
      drawPlan(plan),
      refusal,
      h("div", { class: "actions" }, leave, button(action, begin, { kind })),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(null);
    });
    document.body.append(dialog);
    dialog.showModal();
    leave.focus();
  });
}

const share = (cpu) => `${(cpu / 1e4).toFixed(2)} %`;

// What the map can show: its name, a list of figures by slot, and how one is said.
/** @typedef {[string, (map: any) => number[] | undefined, (value: number) => string]} Measure */

/** @type {Record<string, Measure>} */
const measures = {
  bytes: ["Bytes", (map) => map.bytes, bytes],
  keys: ["Keys", (map) => map.keys, (value) => `${exact(value)} keys`],
  requests: ["Requests", (map) => map.requests, (value) => `${exact(value)} requests/s`],
  cpu: ["CPU", (map) => map.cpu_us, (value) => `${share(value)} of a core`],
  network: ["Network", (map) => map.network_bytes, (value) => `${bytes(value)}/s`],
  shard: ["Shard", (map) => map.shards, (value) => `shard ${value}`],
};
const counted = ["requests", "cpu", "network"];

export async function show({ rest: name }) {
  const of = "name=" + encodeURIComponent(name);
  let map = await send("GET", "/databases/slots?" + of);
  // The map is as wide as the page. A narrow one has fewer cells in a row, so that each can be
  // seen.
  const columns = matchMedia("(max-width: 760px)").matches ? 128 : 256;
  const rows = SLOTS / columns;
  const canvas = h("canvas", {
    width: columns * CELL,
    height: rows * CELL,
    class: "map",
    role: "img",
    "aria-label": "One cell for each slot",
  });
  const line = h("p", { class: "dim", "aria-live": "polite" });
  const scale = h("p", { class: "row dim" });
  const [shards, hot] = [h("div"), h("div")];
  const what = choice(Object.entries(measures).map(([word, [title]]) => [word, title]));
  what.addEventListener("change", () =>
    show(false).catch((error) => notice(error.message, "alarm")),
  );
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    const slot = row * columns + column;
    if (slot < 0 || slot >= SLOTS) return;
    const known = Object.entries(measures).filter(
      ([word, [, list]]) => word !== "shard" && list(map),
    );
    fill(
      line,
      `Slot ${slot}, shard ${map.shards[slot] || "none"}: ` +
        known.map(([, [, list, say]]) => say((list(map) || [])[slot])).join(", "),
    );
  });

  // Requests, CPU, network and hot keys are counted when they are looked at, for two seconds.
  async function show(isAnew) {
    const counts = counted.includes(what.value);
    if (isAnew || (counts && !map.cpu_us)) {
      fill(line, counts ? "Counting for two seconds." : "Reading.");
      map = counts
        ? await send("POST", "/databases/slots/count", { name })
        : await send("GET", "/databases/slots?" + of);
    }
    const isMissing = counts && !measures[what.value][1](map);
    fill(line, isMissing ? "The copies do not count it by slot." : "Point at a cell.");
    draw();
  }

  function draw() {
    drawMap();
    fill(shards, shardTable(map));
    fill(hot, hotTable(map));
  }

  function drawMap() {
    const paint = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const isDark = document.documentElement.classList.contains("dark");
    const isShard = what.value === "shard";
    const [, list, say] = measures[what.value];
    const values = list(map) || new Array(SLOTS).fill(0);
    const most = values.reduce((one, other) => Math.max(one, other), 1);
    // Much stands out from the ground: it is dark on a light page, and light on a dark one.
    const color = (slot, part) =>
      `hsl(${(map.shards[slot] * 67) % 360} 70% ${isDark ? 24 + 56 * part : 88 - 58 * part}%)`;
    paint.clearRect(0, 0, canvas.width, canvas.height);
    for (let slot = 0; slot < SLOTS; slot += 1) {
      // The eye sees ratios: a slot with a tenth of the most is half as strong.
      const part = isShard ? 0.6 : Math.log1p((values[slot] / most) * 99) / Math.log(100);
      paint.fillStyle = values[slot] ? color(slot, part) : "hsl(0 0% 60% / 0.15)";
      paint.fillRect(
        (slot % columns) * CELL,
        Math.floor(slot / columns) * CELL,
        CELL - 1,
        CELL - 1,
      );
    }
    const swatch = (style) => Object.assign(h("span", { class: "swatch" }), { style });
    const first = map.shards.findIndex((shard) => shard);
    const steps =
      isShard || first < 0
        ? []
        : [0.01, 0.1, 1].map((part) => [
            swatch(`background: ${color(first, Math.log1p(part * 99) / Math.log(100))}`),
            say(Math.round(most * part)),
          ]);
    fill(
      scale,
      isShard
        ? "One colour for each shard."
        : [swatch("background: hsl(0 0% 60% / 0.15)"), "none", steps],
    );
  }
  const redraw = () => {
    if (canvas.isConnected) drawMap();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  fill(line, "Point at a cell.");
  draw();

  const by = choice([
    ["bytes", "bytes"],
    ["keys", "keys"],
    ["cpu", "CPU"],
    ["network", "network"],
  ]);
  const rebalance = async () => {
    if (
      await planned(
        "Rebalance " + name,
        "/databases/rebalance",
        { name, by: by.value },
        "Move the slots",
      )
    )
      location.hash = "databases/" + encodeURIComponent(name);
  };
  async function move() {
    const fields = [
      { name: "slots", label: "Slots, as in 0-99,200" },
      { name: "shard", label: "To shard", type: "number", min: "1" },
    ];
    const body = (given) => ({ name, slots: given.slots, shard: Number(given.shard) });
    const act = (given) => send("POST", "/databases/move?dry_run=true", body(given));
    const answer = await ask({
      title: "Move slots",
      action: "Show the plan",
      danger: false,
      fields,
      act,
    });
    if (answer && (await planned("Move slots", "/databases/move", body(answer), "Move the slots")))
      location.hash = "databases/" + encodeURIComponent(name);
  }
  return [
    h(
      "div",
      { class: "title" },
      h(
        "h1",
        {},
        "Slots of ",
        h("a", { href: "#databases/" + encodeURIComponent(name) }, visible(name)),
      ),
      h("span", { class: "space" }),
      h("label", { class: "check" }, "by", by),
      button("Rebalance", rebalance, { kind: "primary" }),
      button("Move slots", move),
    ),
    panel("Shards", shards),
    panel(
      "Map",
      h(
        "div",
        { class: "row" },
        h("label", { class: "check" }, "Show", what),
        button("Look again", () => show(true)),
        h("span", { class: "space" }),
        scale,
      ),
      canvas,
      line,
    ),
    panel("Keys that take most", hot),
  ];
}

function shardTable(map) {
  const numbers = [...new Set(map.shards)]
    .filter((shard) => shard)
    .sort((one, other) => one - other);
  const rows = numbers.map((shard) => ({
    shard,
    slots: 0,
    keys: 0,
    bytes: 0,
    requests: 0,
    cpu_us: 0,
    network_bytes: 0,
  }));
  const at = new Map(rows.map((row) => [row.shard, row]));
  const lists = ["keys", "bytes", "requests", "cpu_us", "network_bytes"].filter(
    (list) => map[list],
  );
  map.shards.forEach((shard, slot) => {
    const row = at.get(shard);
    if (!row) return;
    row.slots += 1;
    for (const list of lists) row[list] += map[list][slot];
  });
  const column = (name, title, say) => ({
    name,
    title,
    number: true,
    cell: (it) => say(it[name]),
    sort: (it) => it[name],
  });
  /** @type {import("../ui.js").Column[]} */
  const columns = [
    column("shard", "Shard", (it) => it),
    column("slots", "Slots", exact),
    column("keys", "Keys", exact),
    column("bytes", "Bytes", bytes),
  ];
  if (map.requests) columns.push(column("requests", "Requests/s", number));
  if (map.cpu_us)
    columns.push(
      column("cpu_us", "CPU of a core", share),
      column("network_bytes", "Network/s", bytes),
    );
  return table(columns, rows, { label: "Shards with slots" });
}

function hotTable(map) {
  if (!map.hot_keys)
    return h(
      "p",
      { class: "dim" },
      map.cpu_us
        ? "The copies do not count it, or do so for somebody else (HOTKEYS)."
        : "They are counted with requests, CPU and network: choose one of these above.",
    );
  return table(
    [
      { name: "key", title: "Key", cell: (it) => raw(visible(it.key)), sort: (it) => it.key },
      {
        name: "slot",
        title: "Slot",
        number: true,
        cell: (it) => (it.slot === null ? "–" : it.slot),
        sort: (it) => it.slot || 0,
      },
      {
        name: "shard",
        title: "Shard",
        number: true,
        cell: (it) => it.shard,
        sort: (it) => it.shard,
      },
      {
        name: "cpu",
        title: "CPU of a core",
        number: true,
        cell: (it) => share(it.cpu_us),
        sort: (it) => it.cpu_us,
      },
      {
        name: "network",
        title: "Network/s",
        number: true,
        cell: (it) => bytes(it.network_bytes),
        sort: (it) => it.network_bytes,
      },
    ],
    map.hot_keys,
    { label: "Keys that take most", empty: "No key was used." },
  );
}
