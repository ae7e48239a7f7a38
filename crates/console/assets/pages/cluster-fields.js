// @ts-check
// Fields of a database, for the forms that create and change one.

import { h } from "../ui.js";

const units = { kb: 1024, mb: 1024 ** 2, gb: 1024 ** 3, tb: 1024 ** 4, "": 1 };

export function size(text) {
  const match = /^\s*(\d+(?:\.\d+)?)\s*(kb|mb|gb|tb|)\s*$/i.exec(text);
  if (!match) throw new Error(`"${text}" is no size: write a number with a unit, as in 10gb.`);
  return Math.round(Number(match[1]) * units[match[2].toLowerCase()]);
}

// A size that `size` reads as the same number.
export function sizeText(bytes) {
  for (const unit of ["tb", "gb", "mb", "kb"])
    if (bytes && bytes % units[unit] === 0) return bytes / units[unit] + unit;
  return String(bytes);
}

// A number is a whole one and has to be there: the browser says so.
export const input = (value, type = "text") =>
  h("input", {
    type,
    value,
    spellcheck: "false",
    autocomplete: "off",
    ...(type === "number" ? { required: true, min: "0" } : {}),
  });

// Words, or pairs of a word and what is said for it.
export function choice(words, value) {
  const select = h(
    "select",
    {},
    words.map((word) =>
      Array.isArray(word)
        ? h("option", { value: word[0] }, word[1])
        : h("option", { value: word }, word),
    ),
  );
  if (value !== undefined) select.value = value;
  return select;
}

export const persistences = /** @type {[string, string][]} */ ([
  ["aof", "a log of each write (aof)"],
  ["rdb", "snapshots now and then (rdb)"],
  ["none", "none: a restart begins empty"],
]);

export const commits = /** @type {[string, string][]} */ ([
  ["memory", "when it is in memory (memory)"],
  ["fsync", "when it is on disk (fsync)"],
  ["quorum", "when most copies have it (quorum)"],
]);

export const endpoints = /** @type {[string, string][]} */ ([
  ["single", "one server"],
  ["all", "one server, on every machine"],
  ["cluster", "a Redis Cluster"],
]);

export const policies = /** @type {[string, string][]} */ ([
  ["noeviction", "refuse writes (noeviction)"],
  ["allkeys-lru", "delete keys that were not used lately (allkeys-lru)"],
  ["allkeys-lfu", "delete keys that are rarely used (allkeys-lfu)"],
  ["allkeys-random", "delete keys at random (allkeys-random)"],
  ["volatile-lru", "of keys with an expiry, those not used lately (volatile-lru)"],
  ["volatile-lfu", "of keys with an expiry, those rarely used (volatile-lfu)"],
  ["volatile-random", "of keys with an expiry, any (volatile-random)"],
  ["volatile-ttl", "of keys with an expiry, those that expire soonest (volatile-ttl)"],
]);
