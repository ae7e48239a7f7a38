// @ts-check
// What keys take and when they expire, by looking at all of them: memory by prefix, expiries, big
// and hot keys. The server is asked step by step in the background.

import { get, post, remove } from "../api.js";
import { blob, bytes, duration, exact, isCut, number, percent, visible } from "../format.js";
import { link } from "../place.js";
import { button, failure, fill, h, notice, progress, raw, share, table, views } from "../ui.js";
import { nameOf, typeName } from "./value.js";

/** @type {import("../ui.js").View[]} */
const all = [
  ["prefixes", "Memory by prefix", analysis(prefixes)],
  ["expiries", "Expiries", analysis(expiries)],
  ["big-keys", "Big keys", sample("big-keys")],
  ["hot-keys", "Hot keys", sample("hot-keys")],
];

export const show = (context) => views(context, "Analysis", all);

// How often a job that runs is asked for.
const INTERVAL_MS = 700;

/**
 * Shows a job of a kind: the last one, or one that is begun.
 * @param {HTMLElement} into
 * @param {string} kind
 * @param {(job: any) => import("../ui.js").Child} draw
 */
async function job(into, kind, draw) {
  let timer = 0;
  let isOver = false;

  async function follow(id) {
    clearTimeout(timer);
    const found = (await get("/jobs")).find((other) => other.id === id);
    if (isOver || !found) return;
    const done = found.total ? found.looked_at / found.total : 1;
    const isRunning = found.status === "running";
    fill(
      into,
      h(
        "div",
        { class: "row" },
        h(
          "span",
          {},
          `${exact(found.looked_at)} of ${exact(found.total)} keys looked at: ${found.status}`,
        ),
        isRunning ? button("Stop", () => remove("/jobs", { id })) : null,
      ),
      isRunning ? progress(done, "progress") : null,
      found.error ? failure(new Error(found.error)) : null,
      draw(found),
    );
    const again = () => follow(id).catch((error) => notice(error.message, "alarm"));
    if (isRunning) timer = setTimeout(again, INTERVAL_MS);
  }

  const last = (await get("/jobs")).filter((other) => other.task.kind === kind).pop();
  if (last) await follow(last.id);
  return {
    begin: async (/** @type {any} */ task) => follow((await post("/jobs", { kind, ...task })).id),
    end() {
      isOver = true;
      clearTimeout(timer);
    },
  };
}

/** @param {string} value */
const databaseInput = (value = "0") => h("input", { type: "number", min: "0", value });

// What was asked for last: the views of one analysis share it.
const asked = { db: "0", separator: ":", prefix: /** @type {any} */ ("") };

/**
 * A view of the sums of an analysis.
 * @param {(found: any, job: any, below: (prefix: any) => unknown) => import("../ui.js").Child} draw
 */
function analysis(draw) {
  return async (/** @type {HTMLElement} */ body) => {
    const database = databaseInput(asked.db);
    const separator = h("input", { type: "text", value: asked.separator, size: "3" });
    const prefix = h("input", { type: "text", value: blob(asked.prefix), spellcheck: "false" });
    const result = h("div");
    const submit = h("button", { type: "submit", class: "primary" }, "Analyse");
    const form = h(
      "form",
      { class: "row end" },
      h("label", {}, "Database", database),
      h("label", { class: "wide" }, "Names that begin with (empty: all)", prefix),
      h("label", {}, "Separator", separator),
      submit,
    );
    const below = (/** @type {any} */ wanted) => {
      asked.prefix = wanted;
      prefix.value = blob(wanted);
      return begin();
    };
    const shown = await job(result, "analyse", (it) =>
      it.analysis ? draw(it.analysis, it, below) : null,
    );
    const begin = () =>
      shown.begin({
        db: Number(asked.db) || 0,
        prefix: asked.prefix,
        separator: asked.separator,
      });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      // A prefix that is no text stays as it was chosen.
      if (prefix.value !== blob(asked.prefix)) asked.prefix = prefix.value;
      Object.assign(asked, { db: database.value, separator: separator.value });
      submit.disabled = true;
      await begin().catch((error) => notice(error.message, "alarm"));
      submit.disabled = false;
    });
    fill(
      body,
      h(
        "p",
        { class: "dim" },
        "Looks at the memory and the expiry of every key, step by step in the background.",
      ),
      form,
      result,
    );
    return shown.end;
  };
}

/** @param {{ keys: number, bytes: number }} sum */
const mean = (sum) => (sum.keys ? bytes(sum.bytes / sum.keys) : "–");

function prefixes(found, it, below) {
  const whole = Math.max(1, found.all.bytes);
  const rows = [...found.groups];
  if (found.others.keys) rows.push({ ...found.others, prefix: null, expiring: null });
  const name = (row) => {
    if (row.prefix === null) return "all others";
    if (isCut(row.prefix)) return raw(blob(row.prefix));
    if (!row.is_open) {
      const address = link("keys", JSON.stringify({ db: it.task.db, key: row.prefix }));
      return h("a", { href: address }, raw(nameOf(row.prefix)));
    }
    const open = () => below(row.prefix).catch((error) => notice(error.message, "alarm"));
    return h(
      "button",
      { type: "button", class: "link", title: "Tell the names below it apart", onclick: open },
      raw(blob(row.prefix) + "*"),
    );
  };
  /** @type {import("../ui.js").Column[]} */
  const columns = [
    { name: "prefix", title: "Prefix", cell: name },
    {
      name: "bytes",
      title: "Memory",
      number: true,
      cell: (row) => bytes(row.bytes),
      sort: (row) => row.bytes,
    },
    {
      name: "share",
      title: "Share",
      number: true,
      cell: (row) => share(row.bytes / whole),
    },
    {
      name: "keys",
      title: "Keys",
      number: true,
      cell: (row) => exact(row.keys),
      sort: (row) => row.keys,
    },
    { name: "mean", title: "A key", number: true, cell: mean, sort: (row) => row.bytes / row.keys },
    {
      name: "expiring",
      title: "With expiry",
      number: true,
      cell: (row) => (row.expiring === null ? "–" : percent(row.expiring / row.keys)),
      sort: (row) => row.expiring,
    },
  ];
  return [
    total(found, it),
    table(columns, rows, { label: "Prefixes", empty: "No key yet.", state: {} }),
  ];
}

const total = (found, it) =>
  h(
    "p",
    {},
    `${exact(found.all.keys)} keys`,
    it.task.prefix === "" ? "" : [" that begin with ", raw(blob(it.task.prefix))],
    ` of database ${it.task.db}: ${bytes(found.all.bytes)}.`,
    found.skipped ? ` ${exact(found.skipped)} more got no answer, as when slots move.` : "",
  );

function expiries(found, it) {
  const whole = Math.max(1, found.all.bytes);
  let from = "now";
  const rows = found.spans.map((span) => {
    const until = span.until_s === null ? "later" : duration(span.until_s);
    const title = span.until_s === null ? `after ${from}` : `${from} to ${until}`;
    from = until;
    return { ...span, title };
  });
  rows.push({ ...found.staying, title: "never" });
  /** @type {import("../ui.js").Column[]} */
  const columns = [
    { name: "title", title: "Expires in", cell: (row) => visible(row.title) },
    { name: "keys", title: "Keys", number: true, cell: (row) => exact(row.keys) },
    { name: "bytes", title: "Memory", number: true, cell: (row) => bytes(row.bytes) },
    {
      name: "share",
      title: "Share of memory",
      number: true,
      cell: (row) => share(row.bytes / whole),
    },
  ];
  return [total(found, it), table(columns, rows, { label: "Expiries" })];
}

const units = {
  bytes: ["Memory", bytes],
  frequency: ["Frequency", exact],
  idle: ["Idle", (value) => duration(value)],
  "": ["Amount", number],
};

/** @param {string} kind */
function sample(kind) {
  return async (/** @type {HTMLElement} */ body) => {
    const database = databaseInput();
    const result = h("div");
    const shown = await job(result, kind, (it) => {
      const [title, format] = units[it.unit] || units[""];
      const columns = [
        {
          name: "key",
          title: "Key",
          cell: (row) =>
            isCut(row.key)
              ? raw(blob(row.key))
              : h(
                  "a",
                  { href: link("keys", JSON.stringify({ db: it.task.db, key: row.key })) },
                  raw(nameOf(row.key)),
                ),
        },
        { name: "type", title: "Type", cell: (row) => typeName(row.type) },
        { name: "amount", title, number: true, cell: (row) => format(row.amount) },
      ];
      return table(columns, it.found, { label: "Keys", empty: "No key yet." });
    });
    const start = () => shown.begin({ db: Number(database.value) || 0 });
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
      h(
        "div",
        { class: "row end" },
        h("label", {}, "Database", database),
        button("Look for them", start, { kind: "primary" }),
      ),
      result,
    );
    return shown.end;
  };
}
