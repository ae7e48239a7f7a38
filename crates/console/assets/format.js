// @ts-check
// Numbers, times and strings for people.

/**
 * @param {any} value
 * @param {number} [digits]
 * @returns {string}
 */
export function number(value, digits = 1) {
  if (typeof value === "string") return number(Number(value), digits);
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  // A sum of nothing may be -0.
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e12) return (value / 1e12).toFixed(digits) + " T";
  if (size >= 1e9) return (value / 1e9).toFixed(digits) + " G";
  if (size >= 1e6) return (value / 1e6).toFixed(digits) + " M";
  if (size >= 1e4) return (value / 1e3).toFixed(digits) + " k";
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(size >= 10 ? 1 : 2);
}

/** @param {number | string} value */
export const exact = (value) => Number(value).toLocaleString("en-US");

/**
 * @param {any} value
 * @returns {string}
 */
export function bytes(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  let size = Number(value);
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(size) >= 1024 && unit < units.length - 1; unit += 1) size /= 1024;
  return `${unit === 0 ? Math.round(size) : size.toFixed(size < 10 ? 2 : 1)} ${units[unit]}`;
}

/** @param {number} seconds */
export function duration(seconds) {
  let left = Math.max(0, Math.round(seconds));
  if (left < 60) return `${left} s`;
  const parts = [];
  /** @type {[string, number][]} */
  const units = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  for (const [unit, size] of units) {
    const count = Math.floor(left / size);
    if (count) parts.push(`${count} ${unit}`);
    left -= count * size;
  }
  return parts.slice(0, 2).join(" ");
}

/** @param {number} value in microseconds */
export function usec(value) {
  if (!value) return "–";
  if (value < 1000) return value.toFixed(value < 10 ? 1 : 0) + " µs";
  if (value < 1e6) return (value / 1e3).toFixed(value < 1e4 ? 1 : 0) + " ms";
  return (value / 1e6).toFixed(1) + " s";
}

/** @param {number} share of 1 */
export const percent = (share) =>
  (share * 100).toFixed(share > 0.995 || share === 0 ? 0 : 1) + " %";

const spans = { ms: 1, s: 1000, min: 60_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * Reads a duration as people write it: "90", "90 s", "5 min", "2 h 30 min", "3 d".
 * @param {string} text
 * @returns {number} milliseconds
 */
export function readDuration(text) {
  const parts = [...text.matchAll(/\s*(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|)/gy)];
  const read = parts.map((part) => part[0]).join("");
  if (!parts.length || text.slice(read.length).trim()) {
    throw new Error(
      `"${text}" is no time: write a number with a unit, as in 30 s, 5 min, 2 h, 3 d.`,
    );
  }
  return Math.round(parts.reduce((sum, part) => sum + Number(part[1]) * spans[part[2] || "s"], 0));
}

/**
 * A duration that `readDuration` reads as the same.
 * @param {number} ms
 */
export function writeDuration(ms) {
  let left = ms;
  const parts = [];
  for (const unit of ["d", "h", "min", "s", "ms"]) {
    const count = Math.floor(left / spans[unit]);
    if (count) parts.push(`${count} ${unit}`);
    left -= count * spans[unit];
  }
  return parts.join(" ") || "0 s";
}

/**
 * A string of any bytes, as bytes.
 * @param {any} value
 */
export function bytesOf(value) {
  if (isText(value)) return new TextEncoder().encode(value);
  if (value.base64 === undefined) return new TextEncoder().encode(value.text);
  return Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0));
}

/**
 * Bytes, as requests have them.
 * @param {Uint8Array} all
 */
export function blobOf(all) {
  let text = "";
  for (let at = 0; at < all.length; at += 4096) {
    text += String.fromCharCode(...all.subarray(at, at + 4096));
  }
  return { base64: btoa(text) };
}

/** @param {number} ms below 0 if there is no expiry */
export function ttl(ms) {
  if (ms < 0) return "no expiry";
  if (ms < 1000) return `${ms} ms`;
  return duration(ms / 1000);
}

/** @param {number} value */
const two = (value) => String(value).padStart(2, "0");
const months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

/**
 * A moment as people write it: with the day if it is not today, with the year if it is not this.
 * @param {number} seconds since 1970
 */
export function moment(seconds) {
  const [date, now] = [new Date(seconds * 1000), new Date()];
  const clock = time(seconds, false);
  if (date.toDateString() === now.toDateString()) return clock;
  const day = `${date.getDate()} ${months[date.getMonth()]}`;
  if (date.getFullYear() === now.getFullYear()) return `${day}, ${clock.slice(0, 5)}`;
  return `${day} ${date.getFullYear()}, ${clock.slice(0, 5)}`;
}

/**
 * @param {number} seconds since 1970
 * @param {boolean} [withDate]
 */
export function time(seconds, withDate = true) {
  const date = new Date(seconds * 1000);
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (!withDate) return clock;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}

// Characters that would not be seen, or change the order of others, are written out.
const hidden = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u200b-\\u200f\\u202a-\\u202e" +
    "\\u2028\\u2029\\u2060-\\u2069\\ufeff]",
  "g",
);
/**
 * @param {string} text
 * @param {boolean} [keepLines]
 */
export function visible(text, keepLines) {
  const escaped = text.replace(
    hidden,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"),
  );
  return keepLines ? escaped : escaped.replace(/\n/g, "\\n").replace(/\t/g, "\\t");
}

// The line end of a text; null if it has several kinds.
/**
 * @param {string} text
 * @returns {string | null}
 */
export function lineEnd(text) {
  const kinds = new Set(text.match(/\r\n|\r|\n/g) || ["\n"]);
  return kinds.size === 1 ? [...kinds][0] : null;
}

const MAX_DEPTH = 100;
const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// JSON on lines of its own; null if the text is none. Only blanks between the tokens change:
// numbers are as they are written, and
// equal names stay.
/**
 * @param {string} text
 * @returns {string | null}
 */
export function layOut(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const found = text.match(tokens) || [];
  let depth = 0;
  let out = "";
  const line = () => "\n" + "  ".repeat(depth);
  for (const [at, token] of found.entries()) {
    if (token === "{" || token === "[") {
      depth += 1;
      if (depth > MAX_DEPTH) return null;
      out += token + ("}]".includes(found[at + 1]) ? "" : line());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      out += ("{[".includes(found[at - 1]) ? "" : line()) + token;
    } else if (token === ",") out += token + line();
    else out += token === ":" ? ": " : token;
  }
  return out;
}

/**
 * A string of any bytes: text, or what it is in base64. One that is shortened has its size.
 * @typedef {string | { text?: string, base64?: string, size?: number }} Blobbed
 */

/** @type {(blob: any) => boolean} */
const isText = (blob) => typeof blob === "string";
/** @type {(blob: any) => boolean} */
export const isCut = (blob) => !isText(blob) && blob.size !== undefined;
/** @type {(blob: any) => boolean} */
export const isBinary = (blob) => !isText(blob) && blob.base64 !== undefined;

// A string of any bytes, for people: binary ones with escapes.
/**
 * @param {any} value
 * @param {boolean} [keepLines]
 * @returns {string}
 */
export function blob(value, keepLines) {
  if (isText(value)) return visible(value, keepLines);
  let text;
  if (value.base64 !== undefined) {
    text = Array.from(atob(value.base64), (c) => {
      const code = c.charCodeAt(0);
      return code >= 32 && code < 127 && c !== "\\"
        ? c
        : "\\x" + code.toString(16).padStart(2, "0");
    }).join("");
  } else {
    text = visible(value.text, keepLines);
  }
  return isCut(value) ? `${text}…` : text;
}

/** @type {(value: any) => number} */
export const blobSize = (value) => {
  if (isText(value)) return new Blob([value]).size;
  return value.size !== undefined ? value.size : atob(value.base64).length;
};

// How a name is given in a query. A name that is shown in part would be another one.
/** @type {(value: any, name: string) => Record<string, string>} */
export const asQuery = (value, name) => {
  if (isCut(value)) throw new Error("The name is too long: only its beginning is known here.");
  return isText(value) ? { [name]: value } : { [name + "64"]: value.base64 };
};

/** @type {(a: Blobbed, b: Blobbed) => boolean} */
export const sameBlob = (a, b) => JSON.stringify(a) === JSON.stringify(b);
