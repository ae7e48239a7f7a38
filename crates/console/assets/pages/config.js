// @ts-check
// The configuration: options with their documentation.

import { can, get, post } from "../api.js";
import { bytes, visible } from "../format.js";
import { ask, button, fill, h, notice } from "../ui.js";

// Groups of options, by the beginnings of their names; the first that matches counts.
/** @type {[string, RegExp][]} */
const groups = [
  ["Encryption", /^tls/],
  ["Cluster", /^cluster/],
  ["Users and passwords", /^(acl|requirepass|user|enable-|protected|masterauth|masteruser)/],
  ["Replication", /^(repl|slave|min-(replicas|slaves)|master|primary|quorum|commit)/],
  ["Persistence", /^(save|rdb|dbfilename|dir$|append|aof|auto-aof|no-appendfsync|stop-writes)/],
  ["Flash tier", /^(tier|flash)/],
  ["Encodings of values", /^(hash|list|set|zset|stream|hll|json)-/],
  ["Filters and time series", /^(bf|cf|ts)-/],
  ["Memory and eviction", /^(maxmemory|active|defrag|lfu|lazy|jemalloc|oom|disable-thp)/],
  [
    "Network and clients",
    /^(bind|port|tcp|unix|timeout|max.*client|client|proto|io-|socket|admin)/,
  ],
  ["Logs and figures", /^(log|syslog|slowlog|commandlog|latency|notify|crash|tracking|hotkeys)/],
  ["Scripts", /^(lua|busy|function|script)/],
];

// The groups as they are shown.
const order = [
  "Memory and eviction",
  "Network and clients",
  "Persistence",
  "Replication",
  "Users and passwords",
  "Encryption",
  "Cluster",
  "Flash tier",
  "Logs and figures",
  "Encodings of values",
  "Filters and time series",
  "Scripts",
  "Others",
];

/** @param {string} name */
function groupOf(name) {
  const found = groups.find(([, names]) => names.test(name));
  return found ? found[0] : "Others";
}

/**
 * Says a number of bytes as people do; nothing for other values.
 * @param {any} option
 */
function readable(option) {
  const isBytes = option.unit === "bytes" || /(^maxmemory|-size|-bytes)$/.test(option.name);
  const count = Number(option.value);
  return isBytes && /^\d+$/.test(option.value) && count >= 1024 ? `${bytes(count)} · ` : "";
}

export async function show() {
  let options = await get("/config");
  const list = h("div", { class: "panel" });
  const changes = new Map();
  const search = h("input", {
    type: "search",
    placeholder: "Name or what it is for",
    "aria-label": "Search options",
    oninput: draw,
  });
  const only = h("input", { type: "checkbox", onchange: draw });
  const apply = button("Apply", commit, { kind: "primary" });
  const note = h("span", { class: "dim" });
  // Of another make's options no default is known.
  const hasDefaults = options.some((option) => typeof option.default === "string");
  const mayChange = can("config|set");

  function row(option) {
    const isEditable = mayChange && option.mutable && !option.value.startsWith("••");
    const set = (value) => {
      if (value === option.value) changes.delete(option.name);
      else changes.set(option.name, value);
      count();
    };
    const value = changes.has(option.name) ? changes.get(option.name) : option.value;
    const input = !isEditable
      ? h(
          "span",
          { class: "raw", title: option.mutable ? null : "Only a restart changes it" },
          visible(option.value) || "–",
        )
      : option.choices.length
        ? h(
            "select",
            { "aria-label": option.name, onchange: (event) => set(event.target.value) },
            (option.choices.includes(option.value)
              ? option.choices
              : [option.value, ...option.choices]
            ).map((choice) => h("option", { value: choice, selected: choice === value }, choice)),
          )
        : h("input", {
            type: "text",
            "aria-label": option.name,
            value,
            spellcheck: "false",
            oninput: (event) => set(event.target.value),
          });
    return h(
      "div",
      { class: "option" + (option.differs ? " differs" : "") },
      h("span", { class: "name" }, visible(option.name)),
      input,
      h(
        "small",
        {},
        readable(option),
        option.doc ? visible(option.doc) : "",
        option.differs ? ` · default: ${visible(option.default || "") || "empty"}` : "",
        option.mutable ? "" : " · needs a restart",
        option.has_effect ? "" : " · no effect in this version",
      ),
    );
  }

  function draw() {
    const text = search.value.toLowerCase();
    const shown = options.filter(
      (option) =>
        (!only.checked || option.differs || changes.has(option.name)) &&
        (!text || option.name.includes(text) || (option.doc || "").toLowerCase().includes(text)),
    );
    fill(
      list,
      order.map((name) => {
        const members = shown.filter((option) => groupOf(option.name) === name);
        if (!members.length) return null;
        return h("section", {}, h("h3", { class: "group" }, name), members.map(row));
      }),
      shown.length ? null : h("p", { class: "empty" }, "No option matches."),
    );
    count();
  }

  function count() {
    apply.hidden = !changes.size;
    note.textContent = changes.size
      ? `${changes.size} to be changed: ${[...changes.keys()].join(", ")}`
      : describe();
  }

  function describe() {
    if (!hasDefaults) return `${options.length} options`;
    return `${options.filter((option) => option.differs).length} differ from the default`;
  }

  async function commit() {
    const text = [...changes]
      .map(
        ([name, value]) =>
          `${name}: ` +
          `${options.find((option) => option.name === name).value || "(empty)"} ` +
          `→ ${value || "(empty)"}`,
      )
      .join("\n");
    if (
      !(await ask({
        title: "Change the configuration?",
        action: "Change it",
        danger: false,
        text:
          `${visible(text, true)}\n\nAll or none take effect at once. The file ` +
          "stays as it is until it is rewritten.",
      }))
    )
      return;
    await post("/config", { options: Object.fromEntries(changes) });
    changes.clear();
    options = await get("/config");
    notice("The configuration is changed.");
    draw();
  }

  async function act(title, text, action, path, done) {
    if (!(await ask({ title, text, action, danger: false }))) return;
    await post(path, {});
    notice(done);
  }

  draw();
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Configuration"),
      h("span", { class: "space" }),
      can("bgsave") &&
        button("Save a snapshot", () =>
          act(
            "Save a snapshot?",
            "It is written in the background, and takes the place of the last " +
              "one when it is whole.",
            "Save it",
            "/save",
            "The snapshot is being written.",
          ),
        ),
      can("bgrewriteaof") &&
        button("Rewrite the log", () =>
          act(
            "Rewrite the append-only file?",
            "It is written anew in the background, and becomes as short as it can be.",
            "Rewrite it",
            "/rewrite",
            "The file is being rewritten.",
          ),
        ),
      can("config|rewrite") &&
        button("Rewrite the file", () =>
          act(
            "Write these values into the configuration file?",
            "The file is rewritten with the values that hold now. Comments and includes stay.",
            "Rewrite it",
            "/config/rewrite",
            "The configuration file is rewritten.",
          ),
        ),
    ),
    h(
      "div",
      { class: "row" },
      search,
      hasDefaults && h("label", { class: "check" }, only, "Only what differs"),
    ),
    h("div", { class: "row" }, note, apply),
    list,
  ];
}
