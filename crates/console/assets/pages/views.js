// @ts-check
// How a string can be looked at: as text, as JSON, as MessagePack, as bytes, and as what it was
// before gzip.

import { blob, bytes, bytesOf, isCut, layOut } from "../format.js";
import { unpackMessage } from "../msgpack.js";
import { fill, h, messageOf, tabs } from "../ui.js";

// Longer strings are not laid out as JSON.
const MAX_JSON = 60_000;
// Bytes that are shown of what gzip has made smaller.
const MAX_UNPACKED = 1 << 20;

// The view that was chosen last: the next string that has it is shown so.
let preferred = "";

/**
 * Returns the text laid out as JSON; null if it is none, or is only a word or a number.
 * @param {any} text
 */
const asJson = (text) =>
  typeof text === "string" && /^\s*[{[]/.test(text) && text.length < MAX_JSON ? layOut(text) : null;

/**
 * Writes bytes as editors of binary files do.
 * @param {Uint8Array} all
 */
function hex(all) {
  const lines = [];
  for (let at = 0; at < all.length; at += 16) {
    const row = [...all.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "."));
    const place = at.toString(16).padStart(8, "0");
    lines.push(`${place}  ${digits.padEnd(47)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}

/** @param {Uint8Array} all */
const isGzip = (all) => all[0] === 0x1f && all[1] === 0x8b;

/**
 * Unpacks gzip, up to a limit: what is small can become large.
 * @param {Uint8Array<ArrayBuffer>} all
 */
async function unpack(all) {
  const packed = new Blob([all]).stream();
  const reader = packed.pipeThrough(new DecompressionStream("gzip")).getReader();
  const parts = [];
  let length = 0;
  let isWhole = false;
  while (length < MAX_UNPACKED) {
    const { done, value } = await reader.read();
    isWhole = done;
    if (done) break;
    parts.push(value);
    length += value.length;
  }
  if (!isWhole) await reader.cancel();
  const text = await new Blob(parts).text();
  const more = isWhole ? "" : `\n… only the first ${bytes(length)} are shown.`;
  return (asJson(text) || blob(text, true)) + more;
}

/**
 * Shows a string, with the views that it has.
 * @param {any} value
 */
export function viewsOf(value) {
  const json = asJson(value);
  const all = bytesOf(value);
  const message = isCut(value) ? null : unpackMessage(all);
  /** @type {[string, string, boolean][]} */
  const known = [
    ["json", "JSON", json !== null],
    ["gzip", "Gzip", isGzip(all) && !isCut(value)],
    ["message", "MessagePack", message !== null],
    ["plain", "Plain", true],
    ["hex", "Hex", true],
  ];
  const views = known
    .filter(([, , has]) => has)
    .map(([name, title]) => /** @type {[string, string]} */ ([name, title]));
  const shown = h("pre", { class: "value", tabindex: "0" });
  const write = {
    json: () => blob(json, true),
    plain: () => blob(value, true),
    hex: () => hex(all),
    gzip: () => unpack(all),
    message: () => blob(message, true),
  };
  const look = async (/** @type {string} */ view) => {
    try {
      fill(shown, await write[view]());
    } catch (error) {
      fill(shown, `It cannot be shown so: ${messageOf(error)}`);
    }
  };
  const first = views.find(([view]) => view === preferred) || views[0];
  look(first[0]);
  const choose = (/** @type {string} */ view) => {
    preferred = view;
    look(view);
  };
  return [tabs("View", views, first[0], choose), shown];
}
