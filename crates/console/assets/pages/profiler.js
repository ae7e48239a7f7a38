// @ts-check
// A profile of what clients send: MONITOR, with a limit of commands and of time.

import { can, messages, plain } from "../api.js";
import { blob, exact, readDuration, time } from "../format.js";
import { button, download, fill, h, notice, raw, share, table, tabs } from "../ui.js";

// The most commands that are asked for, and how many lines are shown of them.
const MAX_COMMANDS = 1_000_000;
const MAX_SHOWN = 500;
// Clients and arguments that are told apart.
const MAX_COUNTED = 20_000;
const MAX_ROWS = 100;
// How often what is counted is shown.
const INTERVAL_MS = 500;

// What was asked for last.
const asked = { most: "10000", time: "30 s", filter: "" };

const form = /^(\d+\.\d+) \[(\d+) ([^\]]*)\] (.*)$/s;
const word = /"((?:[^"\\]|\\.)*)"/gs;

/**
 * Reads a line of MONITOR: when, which database, which client, and the first two words.
 * @param {string} line
 */
function read(line) {
  const parts = form.exec(line);
  if (!parts) return null;
  const words = parts[4].matchAll(word);
  const next = () => {
    const { value } = words.next();
    return value ? value[1] : "";
  };
  return {
    at: Number(parts[1]),
    db: parts[2],
    client: parts[3],
    command: next().toLowerCase(),
    argument: next(),
    words: parts[4],
  };
}

/** @typedef {NonNullable<ReturnType<typeof read>>} Line */

/** @type {[string, string, string, (line: Line) => string][]} */
const groupings = [
  ["command", "By command", "Command", (line) => line.command],
  ["client", "By client", "Client", (line) => line.client],
  [
    "argument",
    "By first argument",
    "Command and argument",
    (line) => `${line.command} ${line.argument}`,
  ],
];

function counting() {
  const counts = groupings.map(() => /** @type {Map<string, number>} */ (new Map()));
  /** @type {Line[]} */
  const lines = [];
  return {
    all: 0,
    lines,
    counts,
    /** @param {Line} line */
    add(line) {
      this.all += 1;
      lines.push(line);
      groupings.forEach(([, , , of], at) => {
        const name = of(line);
        const known = counts[at].get(name);
        if (known !== undefined || counts[at].size < MAX_COUNTED)
          counts[at].set(name, (known || 0) + 1);
      });
    },
    seconds() {
      return lines.length ? Math.max(1, lines[lines.length - 1].at - lines[0].at) : 1;
    },
  };
}

export async function show(context) {
  let found = counting();
  let grouping = "command";
  let timer = 0;
  /** @type {(() => void) | null} */
  let end = null;
  const most = h("input", {
    type: "number",
    min: "1",
    max: String(MAX_COMMANDS),
    value: asked.most,
  });
  const limit = h("input", { type: "text", value: asked.time, spellcheck: "false", size: "8" });
  const filter = h("input", {
    type: "search",
    value: asked.filter,
    placeholder: "Part of a command, a key or an address",
    spellcheck: "false",
    oninput: () => {
      asked.filter = filter.value;
      draw();
    },
  });
  const state = h("span", { class: "badge", role: "status" }, "not running");
  const begin = h("button", { type: "submit", class: "primary" }, "Start");
  const summary = h("div");
  const lines = h("div");

  function draw() {
    const at = groupings.findIndex(([name]) => name === grouping);
    const seconds = found.seconds();
    const rows = [...found.counts[at]]
      .map(([name, count]) => ({ name, count }))
      .sort((a, b) => b.count - a.count)
      .slice(0, MAX_ROWS);
    fill(
      summary,
      table(
        [
          { title: groupings[at][2], cell: (row) => raw(row.name) },
          { title: "Commands", number: true, cell: (row) => exact(row.count) },
          {
            title: "Per second",
            number: true,
            cell: (row) => exact(Math.round(row.count / seconds)),
          },
          {
            title: "Share",
            number: true,
            cell: (row) => share(row.count / found.all),
          },
        ],
        rows,
        { label: "Commands, summed", empty: "No command was seen." },
      ),
    );
    const text = filter.value.toLowerCase();
    const wanted = [];
    for (let last = found.lines.length - 1; last >= 0 && wanted.length < MAX_SHOWN; last -= 1) {
      const line = found.lines[last];
      if (!text || `${line.client} ${line.words}`.toLowerCase().includes(text)) wanted.push(line);
    }
    fill(
      lines,
      table(
        [
          { title: "Time", class: "moment", cell: (line) => time(line.at, false) },
          { title: "Db", number: true, cell: (line) => line.db },
          { title: "Client", cell: (line) => raw(line.client) },
          { title: "Command", cell: (line) => h("span", { class: "whole" }, raw(line.words)) },
        ],
        wanted,
        { label: "The last commands", empty: "No command was seen." },
      ),
    );
  }

  const seen = () => `${exact(found.all)} ${found.all === 1 ? "command" : "commands"}`;

  function drawLater() {
    if (timer) return;
    timer = setTimeout(() => {
      timer = 0;
      state.textContent = seen();
      draw();
    }, INTERVAL_MS);
  }

  /** @param {string} why */
  function stop(why) {
    if (end) end();
    end = null;
    clearTimeout(timer);
    timer = 0;
    state.className = "badge";
    state.textContent = `${seen()}; ${why}`;
    begin.textContent = "Start";
    draw();
  }

  /** @param {any} message */
  function add(message) {
    const line = read(blob(plain(message)));
    if (!line) return;
    found.add(line);
    drawLater();
  }

  function start() {
    Object.assign(asked, { most: most.value, time: limit.value });
    const ms = readDuration(asked.time);
    const began = Date.now();
    found = counting();
    const ended = () => {
      end = null;
      const isLimit = found.all >= Number(asked.most) || Date.now() - began >= ms;
      stop(isLimit ? "the limit is reached" : "the connection has ended");
    };
    end = messages("/monitor", { most: asked.most, ms: String(ms) }, add, ended);
    state.className = "badge good";
    state.textContent = "running";
    begin.textContent = "Stop";
    draw();
  }

  const row = h("form", { class: "row end" });
  fill(
    row,
    h("label", {}, "At most so many commands", most),
    h("label", {}, "For at most", limit),
    begin,
    state,
  );
  row.addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      if (end) stop("stopped");
      else start();
    } catch (error) {
      notice(error.message, "alarm");
    }
  });
  context.leave = () => {
    if (end) end();
    clearTimeout(timer);
  };
  const save = () => {
    const text = found.lines.map(
      (line) => `${line.at.toFixed(6)} [${line.db} ${line.client}] ${line.words}\n`,
    );
    download("commands.txt", text);
  };
  draw();
  const views = groupings.map(([name, title]) => /** @type {[string, string]} */ ([name, title]));
  return [
    h("div", { class: "title" }, h("h1", {}, "Profiler")),
    h(
      "div",
      { class: "panel" },
      h(
        "p",
        { class: "dim" },
        "Shows what clients send, as MONITOR does: the server copies each command, so it " +
          "answers fewer requests meanwhile. It ends at the limit, or when the page is left.",
      ),
      can("monitor") ? row : h("p", { class: "empty" }, "Your user may not run MONITOR."),
    ),
    h(
      "div",
      { class: "panel" },
      tabs("Sum", views, grouping, (name) => {
        grouping = name;
        draw();
      }),
      summary,
    ),
    h(
      "div",
      { class: "panel" },
      h(
        "div",
        { class: "row end" },
        h("label", { class: "wide" }, "Filter", filter),
        button("Save as a file", save),
      ),
      lines,
    ),
  ];
}
