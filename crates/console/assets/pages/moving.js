// @ts-check
// Copying a key, saving it as a file, and making a key of such a file.

import { plain, run } from "../api.js";
import { blob, blobOf, bytesOf, isCut } from "../format.js";
import { ask, download, h, notice } from "../ui.js";

/**
 * Asks for a name, and copies a key with its expiry.
 * @param {number} db
 * @param {any} key
 * @param {(key: string) => unknown} done
 */
export async function copyKey(db, key, done) {
  const act = async (/** @type {Record<string, string>} */ given) => {
    const copied = plain(await run(db, ["COPY", key, given.to]));
    if (copied !== "1") throw new Error("There is a key of that name already.");
  };
  const fields = [{ name: "to", label: "Name of the copy", value: `${blob(key)}:copy` }];
  const given = await ask({ title: "Copy the key", action: "Copy", danger: false, fields, act });
  if (!given) return;
  notice("The key is copied.");
  done(given.to);
}

// What the first line of a file says, so that others are refused.
const FORMAT = "dunlin-key-1";

/** @param {string} name */
const fileName = (name) => `${name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "key"}.key.json`;

/**
 * Saves a key as a file: its name, its expiry, and its value as DUMP gives it.
 * @param {number} db
 * @param {any} found the key, as the interface describes it
 */
export async function exportKey(db, found) {
  const dump = plain(await run(db, ["DUMP", found.key]));
  if (dump === null) throw new Error("The key is gone.");
  if (isCut(dump)) {
    throw new Error("The value is too large for a page: use dunlin cli --rdb, or a snapshot.");
  }
  const file = {
    format: FORMAT,
    key: found.key,
    type: found.type,
    ttl_ms: found.ttl_ms,
    dump: blobOf(bytesOf(dump)).base64,
  };
  download(fileName(blob(found.key)), [JSON.stringify(file, null, 2) + "\n"]);
}

/** @returns {Promise<File | null>} */
function chooseFile() {
  return new Promise((resolve) => {
    // One that is in no page may be collected before a file is chosen.
    const before = document.querySelector("#key-file");
    if (before) before.remove();
    const input = h("input", {
      type: "file",
      id: "key-file",
      class: "unseen",
      accept: ".json,application/json",
      tabindex: "-1",
      "aria-hidden": "true",
    });
    const end = (/** @type {File | null} */ file) => {
      input.remove();
      resolve(file);
    };
    input.addEventListener("change", () => end((input.files && input.files[0]) || null));
    input.addEventListener("cancel", () => end(null));
    document.body.append(input);
    input.click();
  });
}

// Bytes of the longest file that is read.
const MAX_FILE = 8 << 20;

/** @param {File} file */
async function readKey(file) {
  if (file.size > MAX_FILE) throw new Error("The file is longer than 8 MiB.");
  let read = null;
  try {
    read = JSON.parse(await file.text());
  } catch {
    /* said below */
  }
  const isName = (/** @type {any} */ key) =>
    typeof key === "string" || (key && typeof key.base64 === "string");
  if (!read || read.format !== FORMAT || typeof read.dump !== "string" || !isName(read.key)) {
    throw new Error("The file is none that Export has saved.");
  }
  return read;
}

/**
 * Makes a key of a file that `exportKey` has saved.
 * @param {number} db
 * @param {(key: string) => unknown} done
 */
export async function importKey(db, done) {
  const file = await chooseFile();
  if (!file) return;
  const read = await readKey(file);
  const ttl = read.ttl_ms > 0 ? String(Math.round(read.ttl_ms)) : "0";
  // A name of bytes is written with escapes: unless it is changed, the key gets its bytes.
  const name = typeof read.key === "string" ? read.key : blob(read.key);
  const keyOf = (/** @type {string} */ text) => (text === name ? read.key : text);
  const act = (/** @type {Record<string, string>} */ given) => {
    const words = ["RESTORE", keyOf(given.key), ttl, { base64: read.dump }];
    return run(db, given.replace === "yes" ? [...words, "REPLACE"] : words);
  };
  const given = await ask({
    title: "Import a key",
    action: "Import",
    danger: false,
    text: `A ${read.type} of the file ${file.name}.`,
    fields: [
      { name: "key", label: "Name", value: name },
      {
        name: "replace",
        label: "If there is a key of that name",
        options: [
          ["no", "leave it, and say so"],
          ["yes", "replace it: its value is lost"],
        ],
      },
    ],
    act,
  });
  if (!given) return;
  notice("The key is imported.");
  done(keyOf(given.key));
}
