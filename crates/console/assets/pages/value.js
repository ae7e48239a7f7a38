// @ts-check
// One key: its value page by page, and changing it.

import { can, get, post } from "../api.js";
import { asQuery, blob, blobSize, bytes, exact, isBinary, isCut, layOut, ttl } from "../format.js";
import { ask, button, failure, fill, h, loading, notice, raw, table } from "../ui.js";

export function showKey(into, db, key, { gone }) {
  if (isCut(key)) {
    fill(into, h("p", { class: "empty" }, "The name is too long to be opened here."));
    return;
  }
  const query = { db, ...asQuery(key, "key") };
  let pattern = "";
  let isPlain = false;

  const change = async (what) => {
    await post("/key", { db, key, change: what });
    await load();
  };

  async function load() {
    let found;
    try {
      found = await get("/key", { ...query, pattern });
    } catch (error) {
      if (error.status === 404) gone();
      else fill(into, failure(error));
      return;
    }
    fill(into, draw(found));
  }

  function draw(found) {
    const elements = [...found.elements];
    const body = h("div");
    const foot = h("div", { class: "row" });
    const render = () => {
      fill(
        body,
        found.type === "string"
          ? text(elements[0] ? elements[0].value[0] : "", found)
          : list(found.type, elements),
      );
      fill(
        foot,
        found.next
          ? button(found.type === "string" ? "Next 64 KiB" : "More", async () => {
              const next = await get("/key", { ...query, pattern, from: found.next });
              found.next = next.next;
              if (found.type === "string") elements[0] = next.elements[0];
              else elements.push(...next.elements);
              render();
            })
          : null,
        found.type !== "string" &&
          h("span", { class: "dim" }, `${exact(elements.length)} of ${exact(found.length)} shown`),
      );
    };
    render();
    return [heading(found), tools(found), body, foot];
  }

  function heading(found) {
    const unit = found.type === "string" ? bytes(found.length) : `${exact(found.length)} elements`;
    return [
      h("div", {}, raw(blob(found.key), "keyname")),
      h(
        "div",
        { class: "row" },
        h("span", { class: "badge info" }, found.type),
        h("span", { class: "badge" }, found.encoding),
        h("span", {}, unit),
        found.bytes === null
          ? null
          : h("span", { class: "dim" }, `${bytes(found.bytes)} of memory`),
        h("span", { class: "badge" }, ttl(found.ttl_ms)),
      ),
    ];
  }

  function tools(found) {
    const filter = ["hash", "set", "zset"].includes(found.type)
      ? h("input", {
          type: "search",
          placeholder: "Pattern of names",
          value: pattern,
          "aria-label": "Pattern of names",
          onchange: (event) => {
            pattern = event.target.value;
            load();
          },
        })
      : null;
    return h(
      "div",
      { class: "row" },
      filter,
      button("Refresh", load),
      found.type === "string" ? null : add(found.type),
      can("pexpire") && can("persist") ? button("Expiry…", () => expire(found)) : null,
      can("rename") ? button("Rename…", rename) : null,
      can("unlink") ? button("Delete…", () => drop(found), { kind: "" }) : null,
    );
  }

  async function expire(found) {
    const seconds = found.ttl_ms >= 0 ? String(Math.round(found.ttl_ms / 1000)) : "";
    const wanted = await ask({
      title: "Expiry",
      action: "Set",
      danger: false,
      text: "The key is deleted when the time is over. Leave the field empty for no expiry.",
      fields: [{ name: "seconds", label: "Seconds from now", type: "number", value: seconds }],
    });
    if (!wanted || wanted.seconds === seconds) return;
    await change({
      op: "expire",
      ttl_ms: wanted.seconds === "" ? null : Math.round(Number(wanted.seconds) * 1000),
    });
  }

  async function rename() {
    const wanted = await ask({
      title: "Rename the key",
      action: "Rename",
      danger: false,
      fields: [{ name: "to", label: "New name", value: typeof key === "string" ? key : "" }],
    });
    if (!wanted) return;
    await post("/key", { db, key, change: { op: "rename", to: wanted.to } });
    notice("The key is renamed.");
    gone();
  }

  async function drop(found) {
    const what =
      found.type === "string"
        ? `a string of ${bytes(found.length)}`
        : `a ${found.type} of ${exact(found.length)} elements`;
    if (
      !(await ask({
        title: "Delete the key?",
        action: "Delete it",
        text: `${blob(key)}\n${what} is lost.`,
      }))
    )
      return;
    await post("/keys/delete", { db, keys: [key] });
    notice("The key is deleted.");
    gone();
  }

  function text(value, found) {
    const tidy =
      typeof value === "string" && /^\s*[{[]/.test(value) && value.length < 60000
        ? layOut(value)
        : null;
    const shown = h("pre", { class: "value", tabindex: "0" });
    const views = tidy === null ? null : h("div", { class: "tabs", role: "tablist" });
    const look = () => {
      fill(shown, blob(tidy === null || isPlain ? value : tidy, true));
      if (views)
        fill(
          views,
          /** @type {[string, boolean][]} */ ([
            ["JSON", false],
            ["Plain", true],
          ]).map(([title, plain]) =>
            h(
              "button",
              {
                type: "button",
                role: "tab",
                "aria-selected": String(plain === isPlain),
                onclick: () => {
                  isPlain = plain;
                  look();
                },
              },
              title,
            ),
          ),
        );
    };
    look();
    const isWhole = !isCut(value) && !isBinary(value) && found.length === blobSize(value);
    return [
      isCut(value)
        ? h(
            "p",
            { class: "dim" },
            `${bytes(blobSize(value))} from here on; the first ${bytes(65536)} of them are shown.`,
          )
        : null,
      views,
      shown,
      can("set") && isWhole
        ? button("Edit…", async () => {
            const wanted = await ask({
              title: "Edit the value",
              action: "Save",
              danger: false,
              text: "The expiry stays as it is.",
              fields: [{ name: "value", label: "Value", area: true, rows: 12, value }],
            });
            if (wanted) await change({ op: "set", value: wanted.value });
          })
        : null,
    ];
  }

  function list(kind, elements) {
    const wide = (value) => raw(blob(value) + (isCut(value) ? ` (${bytes(blobSize(value))})` : ""));
    const name = {
      title:
        { list: "Index", hash: "Field", set: "Member", zset: "Member", stream: "Id" }[kind] ||
        "Name",
      cell: (e) => raw(blob(e.name)),
    };
    /** @type {import("../ui.js").Column[]} */
    const columns = [name];
    if (kind === "zset") columns.push({ title: "Score", number: true, cell: (e) => e.score });
    if (kind === "list" || kind === "hash")
      columns.push({ title: "Value", cell: (e) => wide(e.value[0]) });
    if (elements.some((e) => e.ttl_ms !== null))
      columns.push({
        title: "Expiry",
        cell: (e) =>
          e.ttl_ms === null
            ? ""
            : h("span", { class: "badge", title: "Time to live" }, ttl(e.ttl_ms)),
      });
    if (kind === "stream")
      columns.push({
        title: "Fields",
        cell: (e) =>
          e.value.map((value, at) => (at % 2 ? ["= ", wide(value), h("br")] : [wide(value), " "])),
      });
    columns.push({ title: "", class: "number", cell: (e) => rowTools(kind, e) });
    return table(columns, elements, { most: 20000, label: "Elements", empty: "Nothing matches." });
  }

  function rowTools(kind, e) {
    const edit = (title, fields, made) =>
      button(
        "Edit",
        async () => {
          const wanted = await ask({ title, action: "Save", danger: false, fields });
          if (wanted) await change(made(wanted));
        },
        { kind: "quiet" },
      );
    const takeOut = (made) =>
      button(
        "Remove",
        async () => {
          if (await ask({ title: "Remove this element?", action: "Remove it", text: blob(e.name) }))
            await change(made);
        },
        { kind: "quiet" },
      );
    const value = e.value[0];
    const isWhole = typeof value === "string";
    const field = [{ name: "value", label: "Value", area: true, value: isWhole ? value : "" }];
    switch (kind) {
      case "hash":
        return [
          can("hset") &&
            isWhole &&
            !isCut(e.name) &&
            edit("Edit the field", field, (w) => ({
              op: "hash-set",
              field: e.name,
              value: w.value,
            })),
          can("hdel") && !isCut(e.name) && takeOut({ op: "hash-delete", field: e.name }),
        ].filter(Boolean);
      case "list":
        return can("lset") && isWhole
          ? edit("Edit the element", field, (w) => ({
              op: "list-set",
              index: Number(e.name),
              value: w.value,
            }))
          : "";
      case "set":
        return can("srem") && !isCut(e.name) ? takeOut({ op: "set-remove", member: e.name }) : "";
      case "zset":
        return [
          can("zadd") &&
            !isCut(e.name) &&
            edit("Change the score", [{ name: "score", label: "Score", value: e.score }], (w) => ({
              op: "sorted-set-add",
              member: e.name,
              score: w.score,
            })),
          can("zrem") && !isCut(e.name) && takeOut({ op: "sorted-set-remove", member: e.name }),
        ].filter(Boolean);
      case "stream":
        return can("xdel") ? takeOut({ op: "stream-delete", id: String(e.name) }) : "";
      default:
        return "";
    }
  }

  function add(kind) {
    const form = adders[kind];
    if (!form || !can(form.command)) return null;
    return button("Add…", async () => {
      const wanted = await ask({
        title: form.title,
        action: "Add",
        danger: false,
        fields: form.fields,
      });
      if (wanted) await change(form.made(wanted));
    });
  }

  fill(into, loading());
  load();
}

const words = (text) =>
  text.split("\n").flatMap((line) => {
    const at = line.indexOf("=");
    return line ? [line.slice(0, at < 0 ? line.length : at), at < 0 ? "" : line.slice(at + 1)] : [];
  });

const adders = {
  string: {
    command: "set",
    title: "A string",
    fields: [{ name: "value", label: "Value", area: true }],
    made: (w) => ({ op: "set", value: w.value }),
  },
  hash: {
    command: "hset",
    title: "A field",
    fields: [
      { name: "field", label: "Field" },
      { name: "value", label: "Value", area: true },
    ],
    made: (w) => ({ op: "hash-set", field: w.field, value: w.value }),
  },
  list: {
    command: "rpush",
    title: "An element at the end",
    fields: [{ name: "value", label: "Value", area: true }],
    made: (w) => ({ op: "list-push", value: w.value }),
  },
  set: {
    command: "sadd",
    title: "A member",
    fields: [{ name: "member", label: "Member" }],
    made: (w) => ({ op: "set-add", member: w.member }),
  },
  zset: {
    command: "zadd",
    title: "A member",
    fields: [
      { name: "member", label: "Member" },
      { name: "score", label: "Score", value: "0" },
    ],
    made: (w) => ({ op: "sorted-set-add", member: w.member, score: w.score }),
  },
  stream: {
    command: "xadd",
    title: "An entry",
    fields: [{ name: "fields", label: "Fields, one a line: name=value", area: true }],
    made: (w) => ({ op: "stream-add", fields: words(w.fields) }),
  },
};

// Asks for a key that is not there yet.
export async function create(db, done) {
  const first = await ask({
    title: "A new key",
    action: "Next",
    danger: false,
    fields: [
      { name: "key", label: "Name" },
      { name: "kind", label: `Type: ${Object.keys(adders).join(", ")}`, value: "string" },
    ],
  });
  if (!first) return;
  const form = adders[first.kind.trim()];
  if (!form) throw new Error(`There is no type ${first.kind}.`);
  const known = await get("/key", { db, key: first.key }).catch((error) => {
    if (error.status === 404) return null;
    throw error;
  });
  if (known) throw new Error("There is a key of that name already.");
  const second = await ask({
    title: form.title,
    action: "Create",
    danger: false,
    fields: form.fields,
  });
  if (!second) return;
  await post("/key", { db, key: first.key, change: form.made(second) });
  done(first.key);
}
