// @ts-check
// The elements of a list, hash, set, sorted set or stream, and changing them.

import { can, run } from "../api.js";
import { blob, blobSize, bytes, isCut, readDuration, ttl, writeDuration } from "../format.js";
import { ask, button, h, raw, table } from "../ui.js";

/**
 * What changes an element: `post` sends a change of the key, `again` shows the key anew.
 * @typedef {object} Editing
 * @property {number} db
 * @property {any} key
 * @property {(change: any) => Promise<void>} post
 * @property {() => Promise<void>} again
 */

/** @typedef {import("../ui.js").Field} Field */

const names = { list: "Index", hash: "Field", set: "Member", zset: "Member", stream: "Id" };

/**
 * @param {any} value
 * @param {string} [kind]
 */
const whole = (value, kind = "") =>
  h(
    "span",
    { class: `whole ${kind}`.trim() },
    raw(blob(value)),
    isCut(value) && ` (${bytes(blobSize(value))})`,
  );

/**
 * Shows elements.
 * @param {string} kind
 * @param {any[]} elements
 * @param {Editing} editing
 */
export function elementsOf(kind, elements, editing) {
  /** @type {import("../ui.js").Column[]} */
  const columns = [{ title: names[kind] || "Name", cell: (e) => whole(e.name, "named") }];
  if (kind === "zset") columns.push({ title: "Score", number: true, cell: (e) => e.score });
  if (kind === "list" || kind === "hash") {
    columns.push({ title: "Value", cell: (e) => whole(e.value[0]) });
  }
  if (elements.some((e) => e.ttl_ms !== null)) {
    const badge = (/** @type {number} */ ms) =>
      h("span", { class: "badge", title: "Time to live" }, ttl(ms));
    columns.push({ title: "Expiry", cell: (e) => (e.ttl_ms === null ? "" : badge(e.ttl_ms)) });
  }
  if (kind === "stream") {
    columns.push({
      title: "Fields",
      cell: (e) =>
        e.value.map((value, at) => (at % 2 ? ["= ", whole(value), h("br")] : [whole(value), " "])),
    });
  }
  const cell = (/** @type {any} */ e) =>
    h("div", { class: "actions" }, (actions[kind] || (() => []))(e, editing));
  columns.push({ title: "", class: "does", cell });
  return table(columns, elements, { most: 20000, label: "Elements", empty: "Nothing matches." });
}

/**
 * A button that asks for values and makes a change of them.
 * @param {string} title
 * @param {Field[]} fields
 * @param {(given: Record<string, string>) => unknown} act
 * @param {Editing} editing
 */
const edit = (title, fields, act, editing) =>
  button(
    "Edit",
    async () => {
      if (await ask({ title, action: "Save", danger: false, fields, act })) await editing.again();
    },
    { kind: "quiet" },
  );

/**
 * @param {any} e
 * @param {any} change
 * @param {Editing} editing
 */
const takeOut = (e, change, editing) =>
  button(
    "Remove",
    async () => {
      const act = () => editing.post(change);
      const text = blob(e.name);
      const question = { title: "Remove this element?", action: "Remove it", text, act };
      if (await ask(question)) await editing.again();
    },
    { kind: "quiet" },
  );

/** @type {(value: any) => Field} */
const valueField = (value) => ({ name: "value", label: "Value", area: true, value });

/**
 * Sets the expiry of a field of a hash, if it was changed.
 * @param {any} e
 * @param {string} text as it was written
 * @param {string} before
 * @param {Editing} editing
 */
async function expireField(e, text, before, { db, key }) {
  if (text === before) return;
  const of = ["FIELDS", "1", e.name];
  if (text.trim() === "") await run(db, ["HPERSIST", key, ...of]);
  else await run(db, ["HPEXPIRE", key, String(readDuration(text)), ...of]);
}

/**
 * @param {any} e
 * @param {Editing} editing
 */
function ofHash(e, editing) {
  const value = e.value[0];
  const isWhole = typeof value === "string" && !isCut(e.name);
  const before = e.ttl_ms === null ? "" : writeDuration(e.ttl_ms);
  /** @type {Field[]} */
  const fields = [valueField(isWhole ? value : "")];
  const hint = "As in 30 s, 5 min, 2 h, 3 d. Empty: the field stays.";
  if (can("hpexpire")) fields.push({ name: "expiry", label: "Expires in", value: before, hint });
  const act = async (/** @type {Record<string, string>} */ given) => {
    if (given.expiry !== undefined && given.expiry.trim()) readDuration(given.expiry);
    await editing.post({ op: "hash-set", field: e.name, value: given.value });
    if (given.expiry !== undefined) await expireField(e, given.expiry, before, editing);
  };
  return [
    can("hset") && isWhole && edit("Edit the field", fields, act, editing),
    can("hdel") && !isCut(e.name) && takeOut(e, { op: "hash-delete", field: e.name }, editing),
  ];
}

/**
 * @param {any} e
 * @param {Editing} editing
 */
function ofList(e, editing) {
  if (!can("lset") || typeof e.value[0] !== "string") return [];
  const act = (/** @type {Record<string, string>} */ given) =>
    editing.post({ op: "list-set", index: Number(e.name), value: given.value });
  return [edit("Edit the element", [valueField(e.value[0])], act, editing)];
}

/**
 * @param {any} e
 * @param {Editing} editing
 */
function ofSortedSet(e, editing) {
  if (isCut(e.name)) return [];
  const field = { name: "score", label: "Score", value: e.score };
  const act = (/** @type {Record<string, string>} */ given) =>
    editing.post({ op: "sorted-set-add", member: e.name, score: given.score });
  return [
    can("zadd") && edit("Change the score", [field], act, editing),
    can("zrem") && takeOut(e, { op: "sorted-set-remove", member: e.name }, editing),
  ];
}

/** @type {Record<string, (e: any, editing: Editing) => any[]>} */
const actions = {
  hash: ofHash,
  list: ofList,
  zset: ofSortedSet,
  set: (e, editing) =>
    can("srem") && !isCut(e.name)
      ? [takeOut(e, { op: "set-remove", member: e.name }, editing)]
      : [],
  stream: (e, editing) =>
    can("xdel") ? [takeOut(e, { op: "stream-delete", id: String(e.name) }, editing)] : [],
};
