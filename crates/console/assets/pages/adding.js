// @ts-check
// Making a key, and adding an element to one, by its type.

import { can, get, post, run } from "../api.js";
import { ask } from "../ui.js";

/**
 * How a key of a type gets an element: `made` is the change, or `words` the command.
 * @typedef {object} Adder
 * @property {string} command
 * @property {string} name of the type
 * @property {string} title
 * @property {import("../ui.js").Field[]} fields
 * @property {(given: Record<string, string>) => any} [made]
 * @property {(key: any, given: Record<string, string>) => any[]} [words]
 */

/** @param {string} text with a field a line: name=value */
const pairs = (text) =>
  text.split("\n").flatMap((line) => {
    const at = line.indexOf("=");
    return line ? [line.slice(0, at < 0 ? line.length : at), at < 0 ? "" : line.slice(at + 1)] : [];
  });

const value = { name: "value", label: "Value", area: true };

/** @type {Record<string, Adder>} */
export const adders = {
  string: {
    command: "set",
    name: "string: text or bytes",
    title: "A string",
    fields: [value],
    made: (given) => ({ op: "set", value: given.value }),
  },
  hash: {
    command: "hset",
    name: "hash: fields with values",
    title: "A field",
    fields: [{ name: "field", label: "Field" }, value],
    made: (given) => ({ op: "hash-set", field: given.field, value: given.value }),
  },
  list: {
    command: "rpush",
    name: "list: elements in order",
    title: "An element at the end",
    fields: [value],
    made: (given) => ({ op: "list-push", value: given.value }),
  },
  set: {
    command: "sadd",
    name: "set: members without order",
    title: "A member",
    fields: [{ name: "member", label: "Member" }],
    made: (given) => ({ op: "set-add", member: given.member }),
  },
  zset: {
    command: "zadd",
    name: "sorted set: members with scores",
    title: "A member",
    fields: [
      { name: "member", label: "Member" },
      { name: "score", label: "Score", value: "0" },
    ],
    made: (given) => ({ op: "sorted-set-add", member: given.member, score: given.score }),
  },
  stream: {
    command: "xadd",
    name: "stream: a log of entries",
    title: "An entry",
    fields: [{ name: "fields", label: "Fields, one a line: name=value", area: true }],
    made: (given) => ({ op: "stream-add", fields: pairs(given.fields) }),
  },
  json: {
    command: "json.set",
    name: "JSON: a document",
    title: "A document",
    fields: [{ name: "value", label: "JSON", area: true, rows: 10, value: "{}" }],
    words: (key, given) => ["JSON.SET", key, "$", given.value],
  },
};

/**
 * Adds to a key, or makes it.
 * @param {number} db
 * @param {any} key
 * @param {Adder} form
 * @param {Record<string, string>} given
 */
export async function makeKey(db, key, form, given) {
  if (form.words) await run(db, form.words(key, given));
  else if (form.made) await post("/key", { db, key, change: form.made(given) });
}

/**
 * Asks for a key that is not there yet, and makes it.
 * @param {number} db
 * @param {(key: string) => unknown} done
 */
export async function create(db, done) {
  const kinds = Object.entries(adders).filter(([, form]) => can(form.command));
  const absent = async (/** @type {Record<string, string>} */ given) => {
    const known = await get("/key", { db, key: given.key }).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    });
    if (known) throw new Error("There is a key of that name already.");
  };
  const first = await ask({
    title: "A new key",
    action: "Next",
    danger: false,
    fields: [
      { name: "key", label: "Name" },
      { name: "kind", label: "Type", options: kinds.map(([kind, form]) => [kind, form.name]) },
    ],
    act: absent,
  });
  if (!first) return;
  const form = adders[first.kind];
  const second = await ask({
    title: form.title,
    action: "Create",
    danger: false,
    fields: form.fields,
    act: (given) => makeKey(db, first.key, form, given),
  });
  if (second) done(first.key);
}
