// @ts-check
// Who is connected.

import { can, get, post } from "../api.js";
import { bytes, duration, exact, visible } from "../format.js";
import { ask, button, fill, h, notice, raw, table } from "../ui.js";

export async function show() {
  const state = { sortBy: "id", isDown: false };
  const list = h("div", { class: "panel" });
  const count = h("span", { class: "badge" });
  const search = h("input", {
    type: "search",
    placeholder: "Address, name, user or command",
    "aria-label": "Search clients",
    oninput: draw,
  });
  let clients = [];

  /** @type {import("../ui.js").Column[]} */
  const columns = [
    { name: "id", title: "Id", number: true, sort: (c) => Number(c.id), cell: (c) => c.id },
    {
      name: "addr",
      title: "Address",
      sort: (c) => c.addr,
      cell: (c) => raw(visible(c.addr || "")),
    },
    { name: "name", title: "Name", sort: (c) => c.name, cell: (c) => raw(visible(c.name || "")) },
    { name: "user", title: "User", sort: (c) => c.user, cell: (c) => raw(visible(c.user || "")) },
    {
      name: "lib",
      title: "Library",
      sort: (c) => c["lib-name"] || "",
      cell: (c) => visible([c["lib-name"], c["lib-ver"]].filter(Boolean).join(" ")),
    },
    {
      name: "cmd",
      title: "Last command",
      sort: (c) => c.cmd,
      cell: (c) => raw(visible(c.cmd || "")),
    },
    {
      name: "flags",
      title: "Flags",
      sort: (c) => c.flags,
      cell: (c) => h("span", { title: meaning(c.flags || "") }, c.flags || ""),
    },
    { name: "db", title: "Db", number: true, sort: (c) => Number(c.db), cell: (c) => c.db },
    {
      name: "age",
      title: "Age",
      number: true,
      sort: (c) => Number(c.age),
      cell: (c) => duration(Number(c.age)),
    },
    {
      name: "idle",
      title: "Idle",
      number: true,
      sort: (c) => Number(c.idle),
      cell: (c) => duration(Number(c.idle)),
    },
    {
      name: "memory",
      title: "Memory",
      number: true,
      sort: (c) => Number(c["tot-mem"]),
      cell: (c) => bytes(Number(c["tot-mem"])),
    },
    {
      name: "out",
      title: "Output waiting",
      number: true,
      sort: (c) => Number(c.omem),
      cell: (c) => bytes(Number(c.omem)),
    },
  ];
  if (can("client|kill")) {
    columns.push({
      name: "kill",
      title: "",
      cell: (c) =>
        button("Close", () => kill(c), { kind: "quiet", title: "Close this connection" }),
    });
  }

  async function kill(client) {
    const isWanted = await ask({
      title: "Close this connection?",
      action: "Close it",
      danger: false,
      text:
        `${visible(client.addr)} (${visible(client.name || "no name")}, user ` +
        `${visible(client.user || "?")}).\nA command that it is waiting for, a ` +
        "transaction that it has begun and its subscriptions are lost. Most " +
        "clients connect again.",
    });
    if (!isWanted) return;
    await post("/clients/kill", { id: Number(client.id) });
    notice("The connection is closed.");
    await load();
  }

  function draw() {
    const text = search.value.toLowerCase();
    const shown = clients.filter(
      (c) =>
        !text ||
        [c.addr, c.name, c.user, c.cmd, c["lib-name"]].some((field) =>
          (field || "").toLowerCase().includes(text),
        ),
    );
    count.textContent =
      shown.length === clients.length
        ? exact(clients.length)
        : `${exact(shown.length)} of ${exact(clients.length)}`;
    fill(list, table(columns, shown, { state, label: "Clients", empty: "No client matches." }));
  }

  async function load() {
    clients = await get("/clients");
    draw();
  }

  await load();
  return [
    h("div", { class: "title" }, h("h1", {}, "Clients"), count),
    h("div", { class: "row" }, search, button("Refresh", load)),
    list,
  ];
}

const flags = {
  N: "ordinary",
  S: "replica",
  M: "primary",
  O: "monitor",
  P: "subscribed",
  x: "in a transaction",
  b: "blocked",
  t: "tracks keys",
  R: "tracking target is gone",
  B: "broadcast tracking",
  c: "closing after the reply",
  u: "not blocked any more",
  A: "closing now",
  U: "Unix socket",
  r: "read-only",
  d: "watched key has changed",
  e: "not evicted",
  T: "does not touch keys",
  i: "waits for values from flash",
};
const meaning = (text) => [...text].map((flag) => flags[flag] || flag).join(", ");
