// @ts-check
// One key: its value page by page, and changing it.

import { can, get, plain, post, run } from "../api.js";
import {
  asQuery,
  blob,
  blobSize,
  bytes,
  exact,
  isBinary,
  isCut,
  layOut,
  readDuration,
  ttl,
  writeDuration,
} from "../format.js";
import { ask, button, copyText, failure, fill, h, loading, notice, raw } from "../ui.js";
import { adders, makeKey } from "./adding.js";
import { elementsOf } from "./elements.js";
import { copyKey, exportKey } from "./moving.js";
import { groupsOf } from "./streams.js";
import { nameOfType, valueOf } from "./types.js";
import { viewsOf } from "./views.js";

// How TYPE calls a document.
const JSON_TYPE = "ReJSON-RL";

/** @param {any} key */
export const nameOf = (key) => blob(key) || "(empty name)";

/** @param {any} found */
function amountOf(found) {
  if (found.type === "string") return bytes(found.length);
  if (found.type === JSON_TYPE) return "a JSON document";
  const name = nameOfType(found.type);
  if (name) return `a ${name}`;
  return found.length === 1 ? "1 element" : `${exact(found.length)} elements`;
}

/** @param {string} type */
export const typeName = (type) => (type === JSON_TYPE ? "json" : nameOfType(type) || type);

/**
 * Shows a key, and ends when it is shown.
 * @param {Element} into
 * @param {number} db
 * @param {any} key
 * @param {{ gone: () => void, made: (key: any) => void }} told of a key that is gone, and a new one
 */
export async function showKey(into, db, key, { gone, made }) {
  if (isCut(key)) {
    fill(into, h("p", { class: "empty" }, "The name is too long to be opened here."));
    return;
  }
  const query = { db, ...asQuery(key, "key") };
  let pattern = "";

  const send = (/** @type {any} */ what) => post("/key", { db, key, change: what });

  async function load() {
    try {
      const found = await get("/key", { ...query, pattern });
      fill(into, heading(found), tools(found), ...(await bodyOf(found)));
    } catch (error) {
      if (error.status === 404) gone();
      else fill(into, failure(error));
    }
  }

  /** @param {any} found */
  async function bodyOf(found) {
    if (found.type === JSON_TYPE) return [await documentOf()];
    if (found.type === "string") return stringOf(found);
    const value = await valueOf(found.type, db, key);
    if (value) return value;
    const parts = pagesOf(found);
    return found.type === "stream" ? [...parts, await groupsOf(db, key).catch(failure)] : parts;
  }

  /** @param {any} found */
  function heading(found) {
    const memory = found.bytes === null ? "" : `${bytes(found.bytes)} of memory`;
    const copy = () => copyText(blob(found.key));
    return [
      h(
        "div",
        { class: "row" },
        h("span", { class: "whole keyname" }, raw(nameOf(found.key))),
        button("Copy name", copy, { kind: "quiet" }),
      ),
      h(
        "div",
        { class: "row" },
        h("span", { class: "badge info" }, typeName(found.type)),
        h("span", { class: "badge" }, found.encoding),
        h("span", {}, amountOf(found)),
        h("span", { class: "dim" }, memory),
        h("span", { class: "badge" }, ttl(found.ttl_ms)),
      ),
    ];
  }

  /** @param {any} found */
  function tools(found) {
    const filter = h("input", {
      type: "search",
      placeholder: "Pattern of names",
      value: pattern,
      "aria-label": "Pattern of names",
      onchange: () => {
        pattern = filter.value;
        load();
      },
    });
    return h(
      "div",
      { class: "row" },
      ["hash", "set", "zset"].includes(found.type) ? filter : null,
      button("Refresh", load),
      found.type === "string" ? null : add(found.type),
      can("pexpire") && can("persist") ? button("Expiry…", () => expire(found)) : null,
      can("rename") ? button("Rename…", rename) : null,
      can("copy") && can("set") ? button("Copy…", () => copyKey(db, key, made)) : null,
      can("dump") ? button("Export", () => exportKey(db, found)) : null,
      can("unlink") ? button("Delete…", () => drop(found)) : null,
    );
  }

  /** @param {any} found */
  async function expire(found) {
    const before = found.ttl_ms >= 0 ? writeDuration(Math.round(found.ttl_ms / 1000) * 1000) : "";
    const hint = "As in 30 s, 5 min, 2 h, 3 d. Empty: it stays.";
    const act = async (/** @type {Record<string, string>} */ given) => {
      if (given.time === before) return;
      const ms = given.time.trim() === "" ? null : readDuration(given.time);
      await send({ op: "expire", ttl_ms: ms });
    };
    const isDone = await ask({
      title: "Expiry",
      action: "Set",
      danger: false,
      text: "The key is deleted when the time is over.",
      fields: [{ name: "time", label: "Expires in", value: before, hint }],
      act,
    });
    if (isDone) await load();
  }

  async function rename() {
    const act = (/** @type {Record<string, string>} */ given) =>
      send({ op: "rename", to: given.to });
    const value = typeof key === "string" ? key : "";
    const fields = [{ name: "to", label: "New name", value }];
    const question = { title: "Rename the key", action: "Rename", danger: false, fields, act };
    if (!(await ask(question))) return;
    notice("The key is renamed.");
    gone();
  }

  /** @param {any} found */
  async function drop(found) {
    const text = `${nameOf(key)}\n${typeName(found.type)}, ${amountOf(found)}: it is lost.`;
    const act = () => post("/keys/delete", { db, keys: [key] });
    if (!(await ask({ title: "Delete the key?", action: "Delete it", text, act }))) return;
    notice("The key is deleted.");
    gone();
  }

  /** @param {string} kind */
  function add(kind) {
    const form = adders[kind];
    if (!form || !can(form.command)) return null;
    return button("Add…", async () => {
      const act = (/** @type {Record<string, string>} */ given) => makeKey(db, key, form, given);
      const { title, fields } = form;
      if (await ask({ title, action: "Add", danger: false, fields, act })) await load();
    });
  }

  /** @param {any} found */
  function stringOf(found) {
    const body = h("div");
    const foot = h("div", { class: "row" });
    const show = (/** @type {any} */ value, /** @type {any} */ next) => {
      const size = bytes(blobSize(value));
      const isWhole = !isCut(value) && !isBinary(value) && found.length === blobSize(value);
      fill(
        body,
        isCut(value)
          ? h("p", { class: "dim" }, `${size} from here on; the first ${bytes(65536)} are shown.`)
          : null,
        viewsOf(value),
        h(
          "div",
          { class: "row" },
          can("set") && isWhole ? button("Edit…", () => editString(value)) : null,
          isCut(value) ? null : button("Copy value", () => copyText(blobText(value))),
        ),
      );
      const go = async () => {
        const page = await get("/key", { ...query, from: next });
        show(page.elements[0] ? page.elements[0].value[0] : "", page.next);
      };
      fill(foot, next ? button("Next 64 KiB", go) : null);
    };
    show(found.elements[0] ? found.elements[0].value[0] : "", found.next);
    return [body, foot];
  }

  /** @param {any} value */
  const blobText = (value) => (typeof value === "string" ? value : blob(value, true));

  /** @param {string} value */
  async function editString(value) {
    const act = (/** @type {Record<string, string>} */ given) =>
      send({ op: "set", value: given.value });
    const isDone = await ask({
      title: "Edit the value",
      action: "Save",
      danger: false,
      text: "The expiry stays as it is.",
      fields: [{ name: "value", label: "Value", area: true, rows: 12, value }],
      act,
    });
    if (isDone) await load();
  }

  // A document is text from here to the server: numbers stay as they are written.
  async function documentOf() {
    const value = plain(await run(db, ["JSON.GET", key]));
    const laidOut = typeof value === "string" ? layOut(value) : null;
    const isEditable = can("json.set") && typeof value === "string";
    return h(
      "div",
      {},
      isCut(value) ? h("p", { class: "dim" }, `The beginning of ${bytes(blobSize(value))}.`) : null,
      h("pre", { class: "value", tabindex: "0" }, laidOut || blob(value, true)),
      h(
        "div",
        { class: "row" },
        isEditable ? button("Edit…", () => editDocument(laidOut || value)) : null,
        isCut(value) ? null : button("Copy value", () => copyText(laidOut || blobText(value))),
      ),
    );
  }

  /** @param {string} value */
  async function editDocument(value) {
    const act = (/** @type {Record<string, string>} */ given) =>
      run(db, ["JSON.SET", key, "$", given.value]);
    const isDone = await ask({
      title: "Edit the document",
      action: "Save",
      danger: false,
      text: "The whole document is replaced. The expiry stays as it is.",
      fields: [{ name: "value", label: "JSON", area: true, rows: 16, value }],
      act,
    });
    if (isDone) await load();
  }

  /** @param {any} found */
  function pagesOf(found) {
    const elements = [...found.elements];
    const body = h("div");
    const foot = h("div", { class: "row" });
    const editing = { db, key, post: send, again: load };
    const show = () => {
      const shown = `${exact(elements.length)} of ${exact(found.length)} shown`;
      fill(body, elementsOf(found.type, elements, editing));
      fill(foot, found.next ? button("More", more) : null, h("span", { class: "dim" }, shown));
    };
    async function more() {
      const next = await get("/key", { ...query, pattern, from: found.next });
      found.next = next.next;
      elements.push(...next.elements);
      show();
    }
    show();
    return [body, foot];
  }

  fill(into, loading());
  await load();
}
