// @ts-check
// Browsing keys: as a list by pattern and type, or as a tree by a separator.

import { can, get, post, remove } from "../api.js";
import { asQuery, blob, bytes, exact, isCut, percent, sameBlob, ttl } from "../format.js";
import { ask, button, cut, failure, fill, h, notice, progress, raw, tabs } from "../ui.js";
import { create } from "./adding.js";
import { importKey } from "./moving.js";
import { nameOf, showKey, typeName } from "./value.js";

const kinds = [
  "",
  "string",
  "hash",
  "list",
  "set",
  "zset",
  "stream",
  "ReJSON-RL",
  "MBbloom--",
  "MBbloomCF",
  "CMSk-TYPE",
  "TopK-TYPE",
  "TDIS-TYPE",
  "TSDB-TYPE",
  "vectorset",
];
// Names with numbers are in the order of these: user:9 is before user:10.
const byNumbers = new Intl.Collator("en", { numeric: true });
// A line of the tree that has the focus at times: names that are too long never do.
const reachable = ".line:has([role=treeitem]:not(:disabled))";
const remembered = { db: 0, mode: "tree", pattern: "", kind: "", separator: ":" };

export async function show(context) {
  const state = remembered;
  let open = null;
  if (context.rest) {
    try {
      const wanted = JSON.parse(context.rest);
      state.db = wanted.db || 0;
      open = wanted.key;
    } catch {
      open = null;
    }
  }
  const databases = await get("/databases").catch(() => []);
  const list = h("div", { class: "panel keylist" });
  const side = h("div", { class: "panel" }, h("p", { class: "empty" }, "Choose a key."));
  const jobs = h("div");
  let timer = 0;
  let isOver = false;
  let turn = 0;
  let branches = 0;

  const numbers = [...new Set([0, state.db, ...databases.map((d) => d.db)])].sort((a, b) => a - b);
  const database = h(
    "select",
    {
      "aria-label": "Database",
      onchange: () => {
        state.db = Number(database.value);
        browse();
      },
    },
    numbers.map((db) => {
      const found = databases.find((other) => other.db === db);
      return h(
        "option",
        { value: db, selected: db === state.db },
        `db ${db} · ${exact(found ? found.keys : 0)} keys`,
      );
    }),
  );
  const pattern = h("input", {
    type: "search",
    value: state.pattern,
    placeholder: "Pattern: user:* — or part of a name",
    "aria-label": "Pattern",
    spellcheck: "false",
  });
  const kind = h(
    "select",
    { "aria-label": "Type", onchange: submit },
    kinds.map((name) =>
      h(
        "option",
        { value: name, selected: name === state.kind },
        name ? typeName(name) : "any type",
      ),
    ),
  );
  const separator = h("input", {
    type: "text",
    value: state.separator,
    "aria-label": "Separator",
    title: "Separator of the tree",
    size: 2,
    onchange: submit,
  });
  separator.style.maxWidth = "52px";
  const modes = h("div");

  function submit(event) {
    if (event) event.preventDefault();
    Object.assign(state, {
      pattern: pattern.value,
      kind: kind.value,
      separator: separator.value || ":",
    });
    if (state.pattern || state.kind) state.mode = "list";
    browse();
  }

  // What is done with a key is told here.
  const told = {
    gone: () => {
      fill(side, h("p", { class: "empty" }, "Choose a key."));
      browse();
    },
    made: (key) => {
      browse();
      choose(key);
    },
  };

  async function choose(item) {
    open = item;
    list
      .querySelectorAll("[aria-current]")
      .forEach((element) => element.removeAttribute("aria-current"));
    await showKey(side, state.db, item, told);
    // On a narrow screen the key is below the tree.
    if (open === item && matchMedia("(max-width: 760px)").matches) side.scrollIntoView();
  }

  /**
   * A line for a key: `depth` is its level in a tree, which a list does not have.
   * @param {any} item
   * @param {string} label
   * @param {any} details
   * @param {number} [depth]
   */
  function keyLine(item, label, details, depth) {
    const current = open !== null && sameBlob(open, item);
    const link = h(
      "button",
      {
        type: "button",
        class: "link",
        ...(depth ? inTree(depth) : {}),
        "aria-current": current ? "true" : false,
        disabled: isCut(item),
        title: isCut(item) ? "The name is too long to be opened here" : null,
        onclick: (event) => {
          choose(item);
          event.currentTarget.setAttribute("aria-current", "true");
        },
      },
      cut(label),
    );
    return h("div", { class: "line" }, h("span", { class: "mark" }), link, details);
  }

  function browse() {
    const views = /** @type {[string, string][]} */ ([
      ["tree", "Tree"],
      ["list", "List"],
    ]);
    const choice = tabs("View", views, state.mode, (mode) => {
      state.mode = mode;
      browse();
    });
    const hadFocus = modes.contains(document.activeElement);
    fill(modes, choice);
    const chosen = /** @type {HTMLElement} */ (choice.querySelector('[aria-selected="true"]'));
    if (hadFocus) chosen.focus();
    separator.hidden = state.mode !== "tree";
    turn += 1;
    fill(list);
    const work = state.mode === "tree" ? branch(list, "", turn) : page(list, "0", turn);
    work.catch((error) => fill(list, failure(error)));
  }

  /**
   * Makes a line the one that the tabulator comes to. The others are reached by arrows.
   * @param {Element | null} line
   */
  function stopAt(line) {
    if (!line) return;
    const reached = list.querySelectorAll(".tree [tabindex='0']");
    for (const other of /** @type {NodeListOf<HTMLElement>} */ (reached)) other.tabIndex = -1;
    for (const of of line.querySelectorAll("button")) of.tabIndex = 0;
  }
  const stop = (/** @type {Event} */ event) =>
    stopAt(/** @type {Element} */ (event.target).closest(".tree .line"));
  list.addEventListener("focusin", stop);
  // Not every browser gives a button the focus when it is clicked.
  list.addEventListener("click", stop);

  // Arrows go through the tree as they do in other programs: down, up, and open and close.
  function steer(event) {
    const at = event.target;
    if (!at.matches("[role=treeitem]")) return;
    const all = /** @type {HTMLElement[]} */ ([
      ...list.querySelectorAll("[role=treeitem]:not(:disabled)"),
    ]);
    const to = (/** @type {number} */ place) => {
      const wanted = all[Math.max(0, Math.min(all.length - 1, place))];
      if (wanted) wanted.focus();
    };
    const place = all.indexOf(at);
    const state = at.getAttribute("aria-expanded");
    const parent = at.closest("ul").parentElement.closest("li");
    const steps = {
      ArrowDown: () => to(place + 1),
      ArrowUp: () => to(place - 1),
      Home: () => to(0),
      End: () => to(all.length - 1),
      ArrowRight: () => (state === "false" ? at.click() : to(place + (state ? 1 : 0))),
      ArrowLeft: () => {
        if (state === "true") at.click();
        else if (parent) parent.querySelector("[role=treeitem]").focus();
      },
    };
    if (!steps[event.key]) return;
    event.preventDefault();
    steps[event.key]();
  }
  list.addEventListener("keydown", (event) => {
    if (state.mode === "tree") steer(event);
  });

  async function page(into, cursor, mine) {
    const text =
      state.pattern && !/[*?[\]]/.test(state.pattern) ? `*${state.pattern}*` : state.pattern;
    const more = h("p", { class: "empty" }, "Looking…");
    into.append(more);
    const found = await get("/keys", {
      db: state.db,
      cursor,
      pattern: text,
      type: state.kind,
      count: 100,
    });
    if (mine !== turn) return;
    more.remove();
    for (const item of found.keys) {
      into.append(
        keyLine(item.key, nameOf(item.key), [
          h("span", { class: "kind" }, typeName(item.type)),
          h("span", { class: "number dim" }, item.bytes === null ? "" : bytes(item.bytes)),
          item.ttl_ms >= 0
            ? h("span", { class: "badge", title: "Time to live" }, ttl(item.ttl_ms))
            : null,
        ]),
      );
    }
    if (found.cursor !== "0")
      into.append(
        h(
          "div",
          { class: "row" },
          button("More keys", async (element) => {
            if (element.parentElement) element.parentElement.remove();
            await page(into, found.cursor, mine);
          }),
        ),
      );
    else if (!into.children.length) into.append(h("p", { class: "empty" }, "No key matches."));
  }

  async function branch(into, prefix, mine, depth = 1) {
    const groups = new Map();
    const items = h("ul", {
      class: "tree",
      role: prefix === "" ? "tree" : "group",
      "aria-label": prefix === "" ? "Keys" : `Keys that begin with ${blob(prefix)}`,
    });
    const foot = h("div", { class: "row" });
    fill(into, items, foot);
    async function look(cursor) {
      fill(foot, h("span", { class: "dim" }, "Looking…"));
      const level = await get("/tree", {
        db: state.db,
        separator: state.separator,
        cursor,
        ...(prefix === "" ? {} : asQuery(prefix, "prefix")),
      });
      if (mine !== turn) return;
      for (const group of level.groups) {
        const name = JSON.stringify([group.name, group.is_key]);
        const known = groups.get(name);
        if (known) known.keys += group.keys;
        else groups.set(name, group);
      }
      const isWhole = level.cursor === "0";
      const all = [...groups.values()].sort(
        (a, b) => a.is_key - b.is_key || byNumbers.compare(blob(a.name), blob(b.name)),
      );
      fill(
        items,
        all.slice(0, 2000).map((group) => groupItem(group, prefix, isWhole, mine, depth)),
      );
      if (!list.querySelector(".tree [tabindex='0']")) stopAt(list.querySelector(reachable));
      fill(
        foot,
        isWhole
          ? null
          : [
              h("span", { class: "dim" }, "Not all keys were looked at."),
              button("Look further", () => look(level.cursor)),
            ],
      );
      if (isWhole && !all.length) fill(foot, h("span", { class: "empty" }, "No keys."));
    }
    await look("0");
  }

  // What an item of the tree is for a screen reader. The buttons beside it are none of its name.
  const inTree = (/** @type {number} */ depth) => ({
    role: "treeitem",
    "aria-level": depth,
    tabindex: "-1",
  });

  function groupItem(group, prefix, isWhole, mine, depth) {
    const label =
      blob(group.name).slice(typeof prefix === "string" ? blob(prefix).length : 0) ||
      (prefix === "" ? nameOf("") : "(the prefix itself)");
    if (group.is_key) return h("li", { role: "none" }, keyLine(group.name, label, null, depth));
    branches += 1;
    const below = h("div", { id: `keys-below-${branches}` });
    const mark = h("span", { class: "mark", "aria-hidden": "true" }, "▸");
    const count = exact(group.keys) + (isWhole ? "" : "+");
    const drop =
      can("unlink") && !isCut(group.name)
        ? button("Delete…", () => deleteSubtree(group.name), {
            kind: "quiet",
            title: `Delete all keys that begin with ${blob(group.name)}`,
          })
        : null;
    if (drop) drop.tabIndex = -1;
    const toggle = h(
      "button",
      {
        type: "button",
        class: "link",
        ...inTree(depth),
        "aria-label": `${label} ${count === "1" ? "1 key" : `${count} keys`}`,
        "aria-owns": below.id,
        "aria-expanded": "false",
        disabled: isCut(group.name),
        onclick: async () => {
          const isOpen = toggle.getAttribute("aria-expanded") === "true";
          toggle.setAttribute("aria-expanded", String(!isOpen));
          mark.textContent = isOpen ? "▸" : "▾";
          if (isOpen) fill(below);
          else
            await branch(below, group.name, mine, depth + 1).catch((error) =>
              fill(below, failure(error)),
            );
        },
      },
      cut(label),
    );
    return h(
      "li",
      { role: "none" },
      h(
        "div",
        { class: "line" },
        mark,
        toggle,
        h("span", { class: "number dim", "aria-hidden": "true" }, count),
        drop,
      ),
      below,
    );
  }

  async function deleteSubtree(prefix) {
    const job = await post("/jobs", { kind: "count", db: state.db, prefix });
    let counted = job;
    while (counted.status === "running") {
      await new Promise((resolve) => {
        setTimeout(resolve, 200);
      });
      counted = (await get("/jobs")).find((other) => other.id === job.id) || {
        status: "failed",
        done: 0,
      };
    }
    if (counted.status !== "done") throw new Error(counted.error || "The keys cannot be counted.");
    const isWanted = await ask({
      title: "Delete all these keys?",
      action: `Delete ${exact(counted.done)} keys`,
      word: String(counted.done),
      text:
        `All keys of db ${state.db} that begin ` +
        `with\n${blob(prefix)}\n${exact(counted.done)} keys with their values are ` +
        "lost, and those that are written meanwhile. It runs in the background and " +
        "can be stopped.",
    });
    if (!isWanted) return;
    await post("/jobs", { kind: "delete", db: state.db, prefix });
    await followJobs();
  }

  async function followJobs() {
    clearTimeout(timer);
    if (isOver) return;
    const running = (await get("/jobs")).filter((job) => job.task.kind === "delete");
    const busy = running.filter((job) => job.status === "running");
    const last = running.slice(-3);
    const wasBusy = jobs.dataset.busy === "yes";
    jobs.dataset.busy = busy.length ? "yes" : "no";
    fill(
      jobs,
      (busy.length || wasBusy ? last : []).map((job) =>
        h(
          "div",
          { class: "node" },
          h("b", {}, "Deleting"),
          raw(blob(job.task.prefix) + "*"),
          h("span", {}, `${exact(job.done)} deleted`),
          h("span", { class: "badge" }, job.status),
          job.error ? h("span", { class: "failure" }, job.error) : null,
          job.status === "running"
            ? [
                h("span", { class: "dim" }, percent(job.total ? job.looked_at / job.total : 1)),
                button("Stop", () => remove("/jobs", { id: job.id })),
                progress(job.total ? job.looked_at / job.total : 1, "progress"),
              ]
            : null,
        ),
      ),
    );
    if (busy.length)
      timer = setTimeout(() => followJobs().catch((error) => notice(error.message, "alarm")), 500);
    else if (wasBusy) browse();
  }

  context.leave = () => {
    isOver = true;
    clearTimeout(timer);
  };
  browse();
  followJobs().catch(() => {});
  if (open !== null) showKey(side, state.db, open, told);
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Keys"),
      modes,
      h("span", { class: "space" }),
      can("set") || can("hset") ? button("New key…", () => create(state.db, told.made)) : null,
      can("restore") && can("set") ? button("Import…", () => importKey(state.db, told.made)) : null,
    ),
    h(
      "form",
      { class: "row", onsubmit: submit },
      database,
      pattern,
      kind,
      separator,
      h("button", { type: "submit" }, "Search"),
    ),
    jobs,
    h("div", { class: "two" }, list, side),
  ];
}
