// @ts-check
// What was slow: logs of commands, statistics of commands, events, big and hot keys.

import { can, get, post, remove } from "../api.js";
import {
  blob,
  bytes,
  duration,
  exact,
  isCut,
  moment,
  number,
  percent,
  time,
  usec,
  visible,
} from "../format.js";
import { link } from "../place.js";
import { ask, button, failure, fill, h, meter, notice, progress, raw, table } from "../ui.js";

/** @type {[string, string, (body: HTMLElement, again: () => any) => Promise<any>][]} */
const tabs = [
  ["slow", "Slow commands", log("slow")],
  ["statistics", "By command", statistics],
  ["large-request", "Large requests", log("large-request")],
  ["large-reply", "Large replies", log("large-reply")],
  ["latency", "Stalls", latency],
  ["big-keys", "Big keys", sample("big-keys")],
  ["hot-keys", "Hot keys", sample("hot-keys")],
];

export async function show(context) {
  const bar = h("div", { class: "tabs", role: "tablist" });
  const body = h("div", { class: "panel" });
  let stop = () => {};
  async function open(name) {
    stop();
    const tab = tabs.find(([other]) => other === name) || tabs[0];
    fill(
      bar,
      tabs.map(([other, title]) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            "aria-selected": String(other === tab[0]),
            onclick: () => open(other),
          },
          title,
        ),
      ),
    );
    try {
      stop = (await tab[2](body, () => open(name))) || (() => {});
    } catch (error) {
      fill(body, failure(error));
    }
  }
  await open(context.rest || "slow");
  context.leave = () => stop();
  return [h("div", { class: "title" }, h("h1", {}, "Slow log")), bar, body];
}

function log(kind) {
  return async (body, again) => {
    const entries = await get("/slowlog", { kind });
    const isTime = kind === "slow";
    const amount = (value) => (isTime ? usec(value) : bytes(value));
    /** @type {import("../ui.js").Column[]} */
    const columns = [
      {
        name: "at",
        title: "When",
        sort: (e) => e.id,
        cell: (e) => h("time", { title: time(e.at) }, moment(e.at)),
      },
      {
        name: "amount",
        title: isTime ? "Took" : "Size",
        number: true,
        sort: (e) => e.amount,
        cell: (e) => amount(e.amount),
      },
      {
        name: "words",
        title: "Command",
        cell: (e) => raw(e.words.map((word) => blob(word)).join(" ")),
      },
      {
        name: "address",
        title: "Client",
        sort: (e) => e.address,
        cell: (e) => raw(visible([e.address, e.name].filter(Boolean).join(" "))),
      },
    ];
    const clear =
      can("slowlog|reset") && entries.length
        ? button("Clear", async () => {
            if (
              !(await ask({
                title: "Clear this log?",
                text: `${entries.length} entries are lost.`,
                action: "Clear it",
              }))
            )
              return;
            await post("/slowlog/reset", { kind });
            await again();
          })
        : null;
    fill(
      body,
      h(
        "div",
        { class: "row" },
        h(
          "span",
          { class: "dim" },
          isTime
            ? "Commands that ran longer than slowlog-log-slower-than."
            : "Requests and replies above the limits of commandlog.",
        ),
        button("Refresh", again),
        clear,
      ),
      table(columns, entries, {
        state: { sortBy: "at", isDown: true },
        label: "Log",
        empty: "No command was logged.",
      }),
    );
  };
}

async function statistics(body, again) {
  const rows = await get("/statistics");
  const all = rows.reduce((sum, row) => sum + row.usec, 0) || 1;
  const field = (name, title, format) => ({
    name,
    title,
    number: true,
    sort: (row) => row[name],
    cell: (row) => format(row[name]),
  });
  const sizes = (name, title) => ({
    name,
    title,
    number: true,
    sort: (row) => row[name],
    cell: (row) =>
      h("span", { title: `99 % have less than ${bytes(row[name + "_p99"])}` }, bytes(row[name])),
  });
  /** @type {import("../ui.js").Column[]} */
  const columns = [
    {
      name: "name",
      title: "Command",
      sort: (row) => row.name,
      cell: (row) => raw(visible(row.name)),
    },
    field("calls", "Calls", exact),
    {
      name: "usec",
      title: "Share of time",
      number: true,
      sort: (row) => row.usec,
      cell: (row) => [percent(row.usec / all), " ", meter(row.usec / all, "share")],
    },
    {
      name: "mean",
      title: "Mean",
      number: true,
      sort: (row) => row.usec / row.calls,
      cell: (row) => usec(row.usec / row.calls),
    },
    field("p50", "p50", usec),
    field("p99", "p99", usec),
    field("p999", "p99.9", usec),
    sizes("request", "Request"),
    sizes("reply", "Reply"),
    field("rejected", "Refused", exact),
    field("failed", "Failed", exact),
  ];
  const clear = can("config|resetstat")
    ? button("Begin anew", async () => {
        if (
          !(await ask({
            title: "Begin statistics anew?",
            text: "Counters of INFO, among them those that other monitors read, go back to zero.",
            action: "Begin anew",
            danger: false,
          }))
        )
          return;
        await post("/config/resetstat", {});
        await again();
      })
    : null;
  fill(
    body,
    h("div", { class: "row" }, button("Refresh", again), clear),
    table(columns, rows, { state: { sortBy: "usec", isDown: true }, label: "Statistics" }),
  );
}

async function latency(body, again) {
  const rows = await get("/latency");
  /** @type {import("../ui.js").Column[]} */
  const columns = [
    {
      name: "name",
      title: "Event",
      sort: (row) => row.name,
      cell: (row) => raw(visible(row.name)),
    },
    {
      name: "at",
      title: "Last seen",
      sort: (row) => row.at,
      cell: (row) => h("time", { title: time(row.at) }, moment(row.at)),
    },
    {
      name: "last",
      title: "Last",
      number: true,
      sort: (row) => row.last_ms,
      cell: (row) => `${exact(row.last_ms)} ms`,
    },
    {
      name: "max",
      title: "Longest",
      number: true,
      sort: (row) => row.max_ms,
      cell: (row) => `${exact(row.max_ms)} ms`,
    },
  ];
  const clear =
    can("latency|reset") && rows.length
      ? button("Clear", async () => {
          await post("/latency/reset", {});
          await again();
        })
      : null;
  fill(
    body,
    h(
      "div",
      { class: "row" },
      h(
        "span",
        { class: "dim" },
        "Events that took longer than latency-monitor-threshold; 0 watches none.",
      ),
      button("Refresh", again),
      clear,
    ),
    table(columns, rows, { label: "Events", empty: "No event was seen." }),
  );
}

const units = {
  bytes: ["Memory", bytes],
  frequency: ["Frequency", exact],
  idle: ["Idle", (value) => duration(value)],
  "": ["Amount", number],
};

function sample(kind) {
  return async (body) => {
    let timer = 0;
    let isOver = false;
    const database = h("input", { type: "number", min: 0, value: "0", "aria-label": "Database" });
    const result = h("div");
    const start = button(
      "Look for them",
      async () => {
        const job = await post("/jobs", { kind, db: Number(database.value) || 0 });
        await follow(job.id);
      },
      { kind: "primary" },
    );
    async function follow(id) {
      if (isOver) return;
      const job = (await get("/jobs")).find((other) => other.id === id);
      if (!job) return;
      const [title, format] = units[job.unit] || units[""];
      const share = job.total ? job.looked_at / job.total : 1;
      const stop = job.status === "running" ? button("Stop", () => remove("/jobs", { id })) : null;
      const columns = [
        {
          name: "key",
          title: "Key",
          cell: (row) =>
            isCut(row.key)
              ? raw(blob(row.key))
              : h(
                  "a",
                  { href: link("keys", JSON.stringify({ db: job.task.db, key: row.key })) },
                  raw(blob(row.key)),
                ),
        },
        { name: "type", title: "Type", cell: (row) => row.type },
        { name: "amount", title, number: true, cell: (row) => format(row.amount) },
      ];
      fill(
        result,
        h(
          "div",
          { class: "row" },
          h(
            "span",
            {},
            `${exact(job.looked_at)} of ${exact(job.total)} keys looked at: ${job.status}`,
          ),
          stop,
        ),
        progress(share, "progress"),
        job.error ? failure(new Error(job.error)) : null,
        table(columns, job.found, { label: "Keys", empty: "No key yet." }),
      );
      if (job.status === "running")
        timer = setTimeout(() => follow(id).catch((error) => notice(error.message, "alarm")), 700);
    }
    fill(
      body,
      h(
        "p",
        { class: "dim" },
        kind === "big-keys"
          ? "Looks at the memory of every key, step by step in the background."
          : "Looks at every key's frequency of use, with an LFU policy, or else at " +
              "how lately it was used.",
      ),
      h("div", { class: "row end" }, h("label", {}, "Database", database), start),
      result,
    );
    const last = (await get("/jobs")).filter((job) => job.task.kind === kind).pop();
    if (last) await follow(last.id);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  };
}
