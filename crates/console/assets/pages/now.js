// @ts-check
// What is wrong, what goes on, and what went on.

import { get } from "../api.js";
import { chart, windows } from "../chart.js";
import { bytes, duration, moment, number, percent, usec, visible } from "../format.js";
import { link } from "../place.js";
import { fill, h, meter, notice, panel, progress, tabs } from "../ui.js";

let window_ = 300;

const rate = (value) => number(value) + "/s";
const perSecond = (value) => bytes(value) + "/s";
const line = (name, column, color, fillIt) => ({ name, column, color, fill: fillIt });

function charts() {
  return [
    chart({
      title: "Commands",
      format: rate,
      series: [line("all", "commands", "a", true), line("errors", "errors", "b")],
    }),
    chart({
      title: "Latency of reads",
      format: usec,
      log: true,
      series: [
        line("p50", "read_p50", "a"),
        line("p99", "read_p99", "b"),
        line("p99.9", "read_p999", "c"),
      ],
    }),
    chart({
      title: "Latency of writes",
      format: usec,
      log: true,
      series: [
        line("p50", "write_p50", "a"),
        line("p99", "write_p99", "b"),
        line("p99.9", "write_p999", "c"),
      ],
    }),
    chart({
      title: "Memory",
      format: bytes,
      series: [
        line("used", "memory", "a", true),
        line("resident", "memory_rss", "b"),
        { ...line("limit", "memory_limit", "c"), isLimit: true },
      ],
    }),
    chart({
      title: "Lookups",
      format: rate,
      series: [line("hits", "hits", "a", true), line("misses", "misses", "b")],
    }),
    chart({
      title: "Network",
      format: perSecond,
      series: [
        line("in", "net_in", "a"),
        line("out", "net_out", "b"),
        line("to replicas", "repl_out", "c"),
      ],
    }),
    chart({
      title: "Processor, in cores",
      format: (value) => number(value),
      series: [line("user", "cpu_user", "a", true), line("system", "cpu_sys", "b")],
    }),
    chart({
      title: "Clients",
      format: number,
      series: [line("connected", "clients", "a"), line("blocked", "blocked", "b")],
    }),
    chart({
      title: "Keys",
      format: number,
      series: [line("keys", "keys", "a", true), line("with expiry", "expiring", "b")],
    }),
    chart({
      title: "Keys that leave",
      format: rate,
      series: [line("expired", "expired", "a"), line("evicted", "evicted", "b")],
    }),
    chart({
      title: "Replication: bytes behind",
      format: bytes,
      series: [line("furthest", "replica_behind", "a", true)],
    }),
    chart({
      title: "Flash tier",
      format: rate,
      series: [line("reads", "tier_reads", "a"), line("demotions", "tier_demotions", "b")],
    }),
  ];
}

function tile(title, value, note, share) {
  return h(
    "div",
    { class: "tile" },
    h("span", {}, title),
    h("b", {}, value),
    note && h("small", { title: note }, note),
    share === undefined ? null : meter(share, `${title}: ${percent(share)}`),
  );
}

function tiles({ values: v, facts: f }) {
  if (v.commands === undefined)
    return [h("p", { class: "empty" }, "Collecting the first samples…")];
  const lookups = v.hits + v.misses;
  const limit = v.memory_limit;
  return [
    tile("Commands", rate(v.commands), `${rate(v.errors)} errors`),
    tile("Hit ratio", lookups ? percent(v.hits / lookups) : "–", `${rate(v.misses)} misses`),
    tile(
      "Memory",
      bytes(v.memory),
      limit ? `of ${bytes(limit)}, ${f.maxmemory_policy}` : "no limit",
      limit ? v.memory / limit : undefined,
    ),
    tile("Keys", number(v.keys), `${number(v.expiring)} with expiry`),
    tile("Clients", number(v.clients), `${number(v.blocked)} blocked`),
    tile("Network", perSecond(v.net_in), `${perSecond(v.net_out)} out`),
    tile("Processor", number(v.cpu_user + v.cpu_sys), "cores"),
    tile("Up for", duration(Number(f.uptime_in_seconds)), `process ${f.process_id || "?"}`),
  ];
}

function problemList(problems) {
  if (!problems.length)
    return h(
      "ul",
      { class: "problems" },
      h("li", { class: "fine" }, h("b", {}, "Nothing is wrong.")),
    );
  return h(
    "ul",
    { class: "problems" },
    problems.map((problem) =>
      h(
        "li",
        { class: problem.level },
        h("b", {}, problem.title),
        h("span", {}, visible(problem.detail)),
        h("a", { href: link(problem.page) }, "Look"),
      ),
    ),
  );
}

function progressList(list) {
  return list.map((item) =>
    h(
      "div",
      { class: "node" },
      h("b", {}, item.what),
      item.share === null
        ? h("span", { class: "dim" }, "under way")
        : h("span", { class: "badge" }, percent(item.share)),
      item.left_s ? h("span", { class: "dim" }, `${duration(item.left_s)} left`) : null,
      item.share === null ? null : progress(item.share, item.what),
    ),
  );
}

function latencies(l) {
  const row = (name, p) =>
    h(
      "tr",
      {},
      h("td", {}, name),
      [p.p50, p.p99, p.p999].map((value) => h("td", { class: "number" }, usec(value))),
    );
  return h(
    "table",
    {},
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", {}, "Commands that"),
        ["p50", "p99", "p99.9"].map((name) => h("th", { class: "number" }, name)),
      ),
    ),
    h("tbody", {}, row("read", l.read), row("write", l.write), row("do other things", l.other)),
  );
}

/** @type {[string, string, ((value: any) => string)?][]} */
const known = [
  ["os", "System"],
  ["io_threads", "Reactor threads"],
  ["used_memory_peak", "Peak memory", bytes],
  ["mem_fragmentation_ratio", "Fragmentation"],
  ["maxclients", "Most clients"],
  ["tcp_port", "Port"],
  ["rdb_last_save_time", "Last snapshot", (value) => moment(Number(value))],
  ["rdb_changes_since_last_save", "Changes since", (value) => number(Number(value))],
  ["aof_enabled", "Append-only file", (value) => (value === "1" ? "on" : "off")],
  ["aof_current_size", "Its size", bytes],
  ["tier_enabled", "Flash tier", (value) => (value === "1" ? "on" : "off")],
  ["tier_value_bytes", "On flash", bytes],
];

function facts(f) {
  return h(
    "dl",
    { class: "facts" },
    known
      .filter(([name]) => f[name])
      .map(([name, title, format]) =>
        h("div", {}, h("dt", {}, title), h("dd", {}, format ? format(f[name]) : visible(f[name]))),
      ),
  );
}

function threads(list) {
  const entries = Object.entries(list)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 24);
  return h(
    "div",
    { class: "threads" },
    entries.map(([name, share]) =>
      h(
        "div",
        { class: "thread" },
        h("span", { title: name }, name),
        meter(share, name),
        h("span", { class: "number" }, percent(share)),
      ),
    ),
  );
}

export async function show(context) {
  const all = charts();
  let data = null;
  const parts = {
    problems: h("div"),
    progress: h("div", { class: "topology" }),
    tiles: h("div", { class: "tiles" }),
    latencies: h("div"),
    threads: h("div"),
    facts: h("div"),
  };

  async function load() {
    data = await get("/history", { window: window_ });
    draw();
  }

  function draw() {
    const of = (row) => data.rows.some((values) => values[data.columns.indexOf(row)]);
    const sample = {
      at: data.at,
      columns: data.columns,
      rows: data.rows,
      window: window_,
      step: data.step,
    };
    all.forEach((one) => one.show(sample));
    // What this server does not do needs no place.
    all[10].root.hidden = !of("replica_behind") && !of("replicas");
    all[11].root.hidden = !of("tier_reads") && !of("tier_demotions");
  }

  function choose(seconds) {
    window_ = seconds;
    load().catch((error) => notice(error.message, "alarm"));
  }

  function update(document_) {
    fill(parts.problems, problemList(document_.problems));
    fill(parts.progress, progressList(document_.progress));
    fill(parts.tiles, tiles(document_));
    fill(parts.latencies, latencies(document_.latencies));
    const busy = Object.keys(document_.threads).length;
    threadPanel.hidden = !busy;
    if (busy) fill(parts.threads, threads(document_.threads));
    fill(parts.facts, facts(document_.facts));
    const values = data && data.columns.map((name) => document_.values[name]);
    if (!values || values.some((value) => value === undefined)) return;
    const last = data.at[data.at.length - 1] || 0;
    if (document_.at < last + data.step) return;
    data.at.push(document_.at);
    data.rows.push(values);
    while (data.at.length && data.at[0] < document_.at - window_ - data.step) {
      data.at.shift();
      data.rows.shift();
    }
    draw();
  }

  await load();
  const first = context.live.last || (await get("/now"));
  const threadPanel = panel("Threads", parts.threads);
  update(first);
  context.live.listeners.add(update);
  context.leave = () => context.live.listeners.delete(update);
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Overview"),
      h("span", { class: "space" }),
      tabs("Window", windows, window_, choose),
    ),
    parts.problems,
    parts.progress,
    parts.tiles,
    h(
      "div",
      { class: "grid" },
      all.map((one) => one.root),
    ),
    h(
      "div",
      { class: "grid" },
      panel("Latency in the last second", parts.latencies),
      threadPanel,
      panel("Facts", parts.facts),
    ),
  ];
}
