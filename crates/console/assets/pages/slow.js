// @ts-check
// What was slow: logs of commands, statistics of commands, events.

import { can, get, post } from "../api.js";
import { blob, bytes, exact, moment, time, usec, visible } from "../format.js";
import { ask, button, fill, h, raw, share, table, views } from "../ui.js";

/** @type {import("../ui.js").View[]} */
const all = [
  ["slow", "Slow commands", log("slow")],
  ["statistics", "By command", statistics],
  ["large-request", "Large requests", log("large-request")],
  ["large-reply", "Large replies", log("large-reply")],
  ["latency", "Stalls", latency],
];

export const show = (context) => views(context, "Slow log", all);

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

/**
 * Says that the server counts no sizes, with a switch; nothing if it does, or knows no such option.
 */
async function sizesHint(rows, again) {
  if (rows.some((row) => row.request) || !can("config|get")) return null;
  const options = await get("/config");
  if (options.find(({ name }) => name === "size-tracking")?.value !== "no") return null;
  const count = async () => {
    await post("/config", { options: { "size-tracking": "yes" } });
    await again();
  };
  return h(
    "div",
    { class: "row" },
    h(
      "span",
      { class: "dim" },
      "Sizes of requests and replies are not counted: size-tracking is no. " +
        "Counting takes some 2 % of a pipelined GET.",
    ),
    can("config|set") ? button("Count sizes", count) : null,
  );
}

async function statistics(body, again) {
  const rows = await get("/statistics");
  const hint = await sizesHint(rows, again);
  const whole = rows.reduce((sum, row) => sum + row.usec, 0) || 1;
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
      row[name]
        ? h("span", { title: `99 % have less than ${bytes(row[name + "_p99"])}` }, bytes(row[name]))
        : h("span", { title: "Sizes are counted with size-tracking yes" }, "–"),
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
      cell: (row) => share(row.usec / whole),
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
    hint,
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
