// The slots of a database as a map: one cell for each, darker where there is more; and slots that are moved by hand.

import { bytes, exact, visible } from "../format.js";
import { ask, button, fill, h, notice, panel, table } from "../ui.js";
import { requestId, send } from "../cluster-api.js";
import { choice } from "./cluster-fields.js";
import { drawPlan } from "./cluster-plan.js";

const SLOTS = 16384;
const CELL = 6;

// Asks for what is to be done with a plan that is shown first.
export async function planned(title, path, body, action) {
  const { plan } = await send("POST", path + "?dry_run=true", body);
  return new Promise((resolve) => {
    const id = requestId();
    const close = (value) => { dialog.close(); dialog.remove(); resolve(value); };
    const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), drawPlan(plan),
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => close(null) }, "Cancel"),
        button(action, async () => {
          const begun = await send("POST", path, body, id);
          notice("The job has begun.");
          close(begun.job);
        }, { kind: "primary" })));
    dialog.addEventListener("cancel", () => { dialog.remove(); resolve(null); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export async function slots(name) {
  let map = await send("GET", "/databases/slots?name=" + encodeURIComponent(name));
  const counts = [...new Set(map.shards)].filter((shard) => shard).sort((a, b) => a - b);
  const sum = (list, shard) => list.reduce((total, value, slot) => total + (map.shards[slot] === shard ? value : 0), 0);
  // The map is as wide as the page. A narrow one has fewer cells in a row, so that each can be seen.
  const columns = matchMedia("(max-width: 760px)").matches ? 128 : 256;
  const rows = SLOTS / columns;
  const canvas = h("canvas", { width: columns * CELL, height: rows * CELL, class: "map", role: "img", "aria-label": "One cell for each slot" });
  const line = h("p", { class: "dim", "aria-live": "polite" }, "Point at a cell.");
  const what = choice(["bytes", "keys", "requests", "cpu", "network", "shard"]);
  what.addEventListener("change", () => show().catch((error) => notice(error.message, "alarm")));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * columns);
    const row = Math.floor((event.clientY - box.top) / box.height * rows);
    const slot = row * columns + column;
    if (slot >= 0 && slot < SLOTS) fill(line, `Slot ${slot}: shard ${map.shards[slot]}, ${exact(map.keys[slot])} keys, ${bytes(map.bytes[slot])}${load(slot)}`);
  });
  const load = (slot) => map.cpu_us ? `, ${exact(map.requests?.[slot] ?? 0)} requests/s, ${(map.cpu_us[slot] / 1e4).toFixed(2)} % of a core, ${bytes(map.network_bytes[slot])}/s` : "";

  // Requests, CPU and network are counted when they are looked at, for two seconds.
  async function show() {
    if (["requests", "cpu", "network"].includes(what.value) && !map.cpu_us) {
      fill(line, "Counting for two seconds.");
      map = await send("GET", "/databases/slots?count=true&name=" + encodeURIComponent(name));
      fill(line, map.cpu_us ? "Point at a cell." : "The copies do not count it: they are of an older version.");
    }
    draw();
  }

  function draw() {
    const paint = canvas.getContext("2d");
    const values = { keys: map.keys, requests: map.requests, cpu: map.cpu_us, network: map.network_bytes }[what.value] || map.bytes;
    const most = Math.max(1, ...counts.length ? values : [1]);
    paint.clearRect(0, 0, canvas.width, canvas.height);
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const hue = (map.shards[slot] * 67) % 360;
      // The eye sees ratios: a slot with a tenth of the most is half as dark.
      const part = what.value === "shard" ? 0.7 : Math.log1p(values[slot] / most * 99) / Math.log(100);
      paint.fillStyle = values[slot] || what.value === "shard" ? `hsl(${hue} 70% ${88 - 58 * part}%)` : "hsl(0 0% 60% / 0.15)";
      paint.fillRect((slot % columns) * CELL, Math.floor(slot / columns) * CELL, CELL - 1, CELL - 1);
    }
  }
  draw();

  const shards = counts.map((shard) => ({ shard, slots: map.shards.filter((other) => other === shard).length, keys: sum(map.keys, shard), bytes: sum(map.bytes, shard) }));
  const by = choice(["bytes", "keys", "cpu", "network"]);
  const rebalance = () => planned("Rebalance " + name, "/databases/rebalance", { name, by: by.value }, "Move the slots");
  async function move() {
    const fields = [{ name: "slots", label: "Slots, as in 0-99,200" }, { name: "shard", label: "To shard", type: "number" }];
    const answer = await ask({ title: "Move slots", action: "Show the plan", danger: false, fields });
    if (answer) await planned("Move slots", "/databases/move", { name, slots: answer.slots, shard: Number(answer.shard) }, "Move the slots");
  }
  return [
    h("div", { class: "title" }, h("h1", {}, "Slots of ", visible(name)), h("span", { class: "space" }), h("label", { class: "check" }, "by", by), button("Rebalance", rebalance, { kind: "primary" }), button("Move slots", move)),
    panel("Shards", table([
      { name: "shard", title: "Shard", number: true, cell: (it) => it.shard, sort: (it) => it.shard },
      { name: "slots", title: "Slots", number: true, cell: (it) => exact(it.slots), sort: (it) => it.slots },
      { name: "keys", title: "Keys", number: true, cell: (it) => exact(it.keys), sort: (it) => it.keys },
      { name: "bytes", title: "Bytes", number: true, cell: (it) => bytes(it.bytes), sort: (it) => it.bytes },
    ], shards, { label: "Shards" })),
    panel("Map", h("label", { class: "check" }, "Show", what), canvas, line)];
}
