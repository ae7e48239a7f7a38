// @ts-check
// Reads MessagePack for people: as text that looks like JSON. Integers of 64 bits stay exact; what
// JSON does not have is written as bin(…), ext(type, …) and time(…).

const MAX_DEPTH = 100;
// Characters of the text. A short value can name the same long time only so often.
const MAX_TEXT = 1 << 20;

class Reader {
  /** @param {Uint8Array} all */
  constructor(all) {
    this.all = all;
    this.view = new DataView(all.buffer, all.byteOffset, all.byteLength);
    this.at = 0;
    this.length = 0;
  }

  /** @param {number} count */
  take(count) {
    if (this.at + count > this.all.length) throw new Error("The value ends too early.");
    this.at += count;
    return this.at - count;
  }

  /** @param {1 | 2 | 4} size */
  unsigned(size) {
    const at = this.take(size);
    if (size === 1) return this.view.getUint8(at);
    return size === 2 ? this.view.getUint16(at) : this.view.getUint32(at);
  }

  /** @param {number} count */
  bytes(count) {
    const at = this.take(count);
    return this.all.subarray(at, at + count);
  }
}

/** @param {Uint8Array} all */
const hex = (all) => Array.from(all, (byte) => byte.toString(16).padStart(2, "0")).join(" ");

/** @param {Uint8Array} all */
const text = (all) => JSON.stringify(new TextDecoder("utf-8", { fatal: true }).decode(all));

/** @param {number} value */
const double = (value) =>
  Number.isInteger(value) && Math.abs(value) < 1e21 ? value.toFixed(1) : String(value);

/**
 * @param {Reader} reader
 * @param {number} size
 */
function extension(reader, size) {
  const type = reader.view.getInt8(reader.take(1));
  const all = reader.bytes(size);
  const view = new DataView(all.buffer, all.byteOffset, all.byteLength);
  let seconds = null;
  if (type === -1 && size === 4) seconds = view.getUint32(0);
  // 30 bits of nanoseconds, 34 of seconds.
  if (type === -1 && size === 8) seconds = Number(view.getBigUint64(0) & 0x3ffffffffn);
  if (type === -1 && size === 12) seconds = Number(view.getBigInt64(4));
  const moment = seconds === null ? null : new Date(seconds * 1000);
  if (moment && !Number.isNaN(moment.getTime())) return `time(${moment.toISOString()})`;
  return `ext(${type}, ${hex(all)})`;
}

/**
 * @param {Reader} reader
 * @param {number} count
 * @param {number} depth
 * @param {boolean} isMap
 */
function list(reader, count, depth, isMap) {
  const [open, close] = isMap ? "{}" : "[]";
  if (!count) return open + close;
  if (depth >= MAX_DEPTH) throw new Error("The value has too many levels.");
  // Each has a byte at least: a count that lies is found before anything is made of it.
  if (count * (isMap ? 2 : 1) > reader.all.length - reader.at)
    throw new Error("The value ends too early.");
  const line = "\n" + "  ".repeat(depth + 1);
  const parts = [];
  for (let at = 0; at < count; at += 1) {
    const name = isMap ? value(reader, depth + 1) + ": " : "";
    const part = line + name + value(reader, depth + 1);
    reader.length += part.length;
    if (reader.length > MAX_TEXT) throw new Error("The value is too large to be shown.");
    parts.push(part);
  }
  return open + parts.join(",") + "\n" + "  ".repeat(depth) + close;
}

/**
 * @param {Reader} reader
 * @param {number} depth
 * @returns {string}
 */
function value(reader, depth) {
  const kind = reader.unsigned(1);
  if (kind < 0x80) return String(kind);
  if (kind < 0x90) return list(reader, kind & 15, depth, true);
  if (kind < 0xa0) return list(reader, kind & 15, depth, false);
  if (kind < 0xc0) return text(reader.bytes(kind & 31));
  if (kind >= 0xe0) return String(kind - 256);
  const size = /** @type {(at: number) => number} */ (
    (at) => reader.unsigned(/** @type {1 | 2 | 4} */ (1 << at))
  );
  const { view } = reader;
  switch (kind) {
    case 0xc0:
      return "null";
    case 0xc2:
      return "false";
    case 0xc3:
      return "true";
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return `bin(${hex(reader.bytes(size(kind - 0xc4)))})`;
    case 0xc7:
    case 0xc8:
    case 0xc9:
      return extension(reader, size(kind - 0xc7));
    case 0xca:
      return double(view.getFloat32(reader.take(4)));
    case 0xcb:
      return double(view.getFloat64(reader.take(8)));
    case 0xcc:
    case 0xcd:
    case 0xce:
      return String(size(kind - 0xcc));
    case 0xcf:
      return String(view.getBigUint64(reader.take(8)));
    case 0xd0:
      return String(view.getInt8(reader.take(1)));
    case 0xd1:
      return String(view.getInt16(reader.take(2)));
    case 0xd2:
      return String(view.getInt32(reader.take(4)));
    case 0xd3:
      return String(view.getBigInt64(reader.take(8)));
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return extension(reader, 1 << (kind - 0xd4));
    case 0xd9:
    case 0xda:
    case 0xdb:
      return text(reader.bytes(size(kind - 0xd9)));
    case 0xdc:
    case 0xdd:
      return list(reader, size(kind - 0xdc + 1), depth, false);
    case 0xde:
    case 0xdf:
      return list(reader, size(kind - 0xde + 1), depth, true);
    default:
      throw new Error("The value has a type that MessagePack does not have.");
  }
}

/**
 * Returns a map or a list as text; null if the bytes are none, or are not all of it.
 * @param {Uint8Array} all
 * @returns {string | null}
 */
export function unpackMessage(all) {
  const first = all.length ? all[0] : 0;
  if (!((first >= 0x80 && first < 0xa0) || (first >= 0xdc && first < 0xe0))) return null;
  try {
    const reader = new Reader(all);
    const found = value(reader, 0);
    return reader.at === all.length ? found : null;
  } catch {
    return null;
  }
}
