// @ts-check
// Building blocks: elements, dialogs, notices, tables. Text is only ever set as text.

import { lineEnd, percent, visible } from "./format.js";

/**
 * What an element can have in it: text, elements, lists of them, and nothing.
 * @typedef {Node | string | number | boolean | null | undefined | any[]} Child
 */

/**
 * Makes an element. A name that begins with "on" is an event.
 * @template {keyof HTMLElementTagNameMap} N
 * @param {N} name
 * @param {Record<string, any>} attributes
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[N]}
 */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (["value", "checked", "disabled"].includes(key))
      Object.assign(element, { [key]: value });
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function append(element, children) {
  for (const child of /** @type {any[]} */ (children).flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Puts these children in place of those that an element has.
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// A text of so many characters may be cut where there is little room.
const LONG = 24;

/**
 * A string that came from outside, kept from mixing with what is around it.
 * @param {string} text
 */
export const raw = (text, className = "") =>
  h(
    "bdi",
    { class: `raw ${className}`.trim(), dir: "ltr", title: text.length > LONG ? text : null },
    text,
  );

/**
 * A name that may be long: what is cut is shown whole when it is pointed at.
 * @param {string} text
 */
export const cut = (text) => h("bdi", { class: "raw cut", dir: "ltr", title: text }, text);

/**
 * A button. It cannot be pressed again until what it does is done, and then has the focus again;
 * what fails is said.
 * @param {string} label
 * @param {(element: HTMLButtonElement) => unknown} onclick
 * @param {{ kind?: string, title?: string, disabled?: boolean }} [options]
 */
export function button(label, onclick, options = {}) {
  const { kind = "", title, disabled } = options;
  const element = h("button", { type: "button", class: kind, title, disabled }, label);
  element.addEventListener("click", async () => {
    const hadFocus = document.activeElement === element;
    element.disabled = true;
    element.setAttribute("aria-busy", "true");
    try {
      await onclick(element);
    } catch (error) {
      notice(messageOf(error), "alarm");
    }
    element.removeAttribute("aria-busy");
    element.disabled = Boolean(disabled);
    if (hadFocus && document.activeElement === document.body) {
      element.focus({ preventScroll: true });
    }
  });
  return element;
}

/**
 * Copies a text. Browsers have a clipboard only for pages of TLS or of this machine.
 * @param {string} text
 */
export async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
  } else {
    const area = h("textarea", { value: text, class: "unseen", "aria-hidden": "true" });
    (document.querySelector("dialog[open]") || document.body).append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    if (!isCopied) throw new Error("The browser does not let the page copy.");
  }
  notice("Copied.");
}

/**
 * @param {() => string} text
 * @param {string} [label]
 */
export const copyButton = (text, label = "Copy") => button(label, () => copyText(text()));

/**
 * A line of text with its name, to be copied.
 * @param {string} title
 * @param {string} text
 */
export const copyLine = (title, text) =>
  h(
    "div",
    { class: "connect" },
    h("span", { class: "dim" }, title),
    h("code", { class: "raw" }, visible(text)),
    copyButton(() => text),
  );

/**
 * Saves a text or bytes as a file of the browser's.
 * @param {string} name
 * @param {BlobPart[]} parts
 */
export function download(name, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/**
 * A list of views of which one is chosen. Arrow keys go from one to the next.
 * @template T
 * @param {string} label
 * @param {[T, string][]} entries
 * @param {T} selected
 * @param {(value: T) => unknown} choose
 */
export function tabs(label, entries, selected, choose) {
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label });
  const buttons = entries.map(([value, title]) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        "aria-selected": String(value === selected),
        tabindex: value === selected ? "0" : "-1",
        onclick: () => {
          buttons.forEach((other, at) => {
            const isChosen = entries[at][0] === value;
            other.setAttribute("aria-selected", String(isChosen));
            other.tabIndex = isChosen ? 0 : -1;
          });
          choose(value);
        },
      },
      title,
    ),
  );
  list.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = buttons.findIndex((element) => element === document.activeElement);
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
  });
  return fill(list, buttons);
}

/**
 * A view of a page: its name in the address, its title, and what draws it. That may return what
 * ends it, and may call the second argument to be drawn again.
 * @typedef {[string, string, (body: HTMLElement, again: () => any) => Promise<any>]} View
 */

/**
 * A page that has several views, of which one is shown.
 * @param {{ rest: string, leave: (() => unknown) | null }} context
 * @param {string} title
 * @param {View[]} all
 */
export async function views(context, title, all) {
  const body = h("div", { class: "panel" });
  let stop = () => {};
  async function open(/** @type {View} */ view) {
    stop();
    stop = () => {};
    try {
      stop = (await view[2](body, () => open(view))) || stop;
    } catch (error) {
      fill(body, failure(error));
    }
  }
  const first = all.find(([name]) => name === context.rest) || all[0];
  await open(first);
  context.leave = () => stop();
  const entries = all.map((view) => /** @type {[View, string]} */ ([view, view[1]]));
  return [
    h("div", { class: "title" }, h("h1", {}, title)),
    tabs(title, entries, first, open),
    body,
  ];
}

/** @type {HTMLElement | undefined} */
let notices;

/**
 * Says something at the edge of the page, for some seconds.
 * @param {string} text
 */
export function notice(text, level = "info") {
  if (!notices) {
    notices = h("div", { class: "notices", role: "status", "aria-live": "polite" });
    document.body.append(notices);
  }
  const element = h(
    "div",
    { class: `notice ${level}` },
    visible(String(text)),
    h(
      "button",
      { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => element.remove() },
      "×",
    ),
  );
  notices.append(element);
  setTimeout(() => element.remove(), level === "alarm" ? 12000 : 5000);
}

/**
 * A field of a form. `options` are words, or pairs of a word and what is said for it; `area` has
 * several lines; `hint` explains it.
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {string} [hint]
 * @property {string} [value]
 * @property {(string | [string, string])[]} [options]
 * @property {boolean} [area]
 * @property {number} [rows]
 * @property {string} [type]
 * @property {string} [placeholder]
 * @property {string} [min]
 * @property {string} [step]
 * @property {boolean} [required]
 */

// A form keeps no line ends but in an area, and there each is a line feed.
/** @param {Field} field */
const hasLines = (field) => !field.options && (field.area || /[\r\n]/.test(field.value || ""));
/** @param {string} text */
const asLines = (text) => text.replace(/\r\n?/g, "\n");

/**
 * Returns whether an area gives back what it was given.
 * @param {Field} field
 * @param {{ value: string }} input
 */
const keeps = (field, input) =>
  lineEnd(field.value || "") !== null && input.value === asLines(field.value || "");

/**
 * Returns what is in an area, with the line ends of the text of before.
 * @param {Field} field
 * @param {{ value: string }} input
 */
const written = (field, input) =>
  input.value.replaceAll("\n", /** @type {string} */ (lineEnd(field.value || "")));

/**
 * Makes the input of a field.
 * @param {Field} field
 */
function inputOf(field) {
  const { value = "", placeholder, min, step, required } = field;
  const plain = { spellcheck: "false", autocomplete: "off", value };
  if (field.options) {
    const select = h(
      "select",
      {},
      field.options.map((option) => {
        const [word, title] = Array.isArray(option) ? option : [option, option];
        return h("option", { value: word }, visible(title));
      }),
    );
    if (field.value !== undefined) select.value = field.value;
    return select;
  }
  if (hasLines(field)) return h("textarea", { ...plain, rows: field.rows || 6 });
  return h("input", { ...plain, type: field.type || "text", placeholder, min, step, required });
}

const LINE_ENDS =
  "The text has several kinds of line ends, or characters that a form does not keep. " +
  "Change it on the command line.";

/**
 * What is asked. `word` has to be typed if it is given. `danger` is for what destroys:
 * its button is red. What `act` refuses is said in the dialog, which stays with what was typed.
 * @typedef {object} Question
 * @property {string} title
 * @property {string} [text]
 * @property {string} action
 * @property {string} [word]
 * @property {boolean} [danger]
 * @property {Field[]} [fields]
 * @property {(values: Record<string, string>) => unknown} [act]
 */

/**
 * Asks, and resolves to false if it is not wanted; to the values of the fields, or true without
 * fields, if it is.
 * @param {Question} question
 * @returns {Promise<any>}
 */
export function ask({ title, text, action, word, danger = true, fields = [], act }) {
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const typed = word
    ? h("input", {
        type: "text",
        "aria-label": `Type ${word} to confirm`,
        autocomplete: "off",
        spellcheck: "false",
      })
    : null;
  const kind = danger ? "danger" : "primary";
  const submit = h("button", { type: "submit", class: kind, disabled: Boolean(word) }, action);
  const inputs = fields.map((field) => ({ field, input: inputOf(field) }));
  const refusal = h("p", { class: "failure", role: "alert", hidden: true });
  const refuse = (/** @type {string} */ why) => {
    fill(refusal, why).hidden = false;
  };
  const valuesOf = () =>
    Object.fromEntries(
      inputs.map(({ field, input }) => [
        field.name,
        hasLines(field) ? written(field, input) : input.value,
      ]),
    );
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", {}, title),
    text && h("p", {}, text),
    inputs.map(({ field, input }) =>
      h("label", {}, field.label, input, field.hint && h("small", {}, field.hint)),
    ),
    typed && h("label", {}, "Type ", raw(visible(word || "")), " to confirm", typed),
    refusal,
    h(
      "div",
      { class: "actions" },
      h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
      submit,
    ),
  );
  const dialog = h("dialog", { "aria-label": title }, form);
  if (typed) {
    typed.addEventListener("input", () => {
      submit.disabled = typed.value !== word;
    });
  }
  if (!inputs.every(({ field, input }) => !hasLines(field) || keeps(field, input))) {
    submit.disabled = true;
    refuse(LINE_ENDS);
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    refusal.hidden = true;
    try {
      if (act) await act(valuesOf());
      dialog.close("yes");
    } catch (error) {
      refuse(visible(messageOf(error)));
    }
    submit.disabled = false;
  });
  document.body.append(dialog);
  dialog.showModal();
  const first = inputs[0] ? inputs[0].input : typed;
  if (first) first.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const isWanted = dialog.returnValue === "yes";
      const values = isWanted && fields.length ? valuesOf() : isWanted;
      dialog.remove();
      if (before && before.focus) before.focus();
      resolve(values);
    });
  });
}

/**
 * Returns what is said of something that was thrown.
 * @param {unknown} error
 */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

// How tables are sorted, by their labels: those that are drawn anew keep it.
/** @typedef {{ sortBy?: string | null, isDown?: boolean }} Order */

/** @type {Map<string, Order>} */
const orders = new Map();

/**
 * @param {string} label
 * @returns {Order}
 */
function orderOf(label) {
  const order = orders.get(label) || {};
  orders.set(label, order);
  return order;
}

/**
 * A column of a table. One with `sort` can be sorted by.
 * @typedef {object} Column
 * @property {string} [name]
 * @property {string} title
 * @property {boolean} [number]
 * @property {string} [class]
 * @property {(row: any) => Child} cell
 * @property {(row: any) => any} [sort]
 */

/**
 * A table.
 * @param {Column[]} columns
 * @param {any[]} rows
 * @param {{ state?: Order, label?: string, most?: number, empty?: string }} [options]
 */
export function table(columns, rows, options = {}) {
  const state = options.state || (options.label ? orderOf(options.label) : {});
  let { sortBy = null, isDown = true } = state;

  const body = h("tbody");
  const heads = columns.map((column) => {
    const head = h("th", { scope: "col", class: column.number ? "number" : "" });
    if (!column.sort) return fill(head, column.title);
    const click = () => {
      isDown = sortBy === column.name ? !isDown : Boolean(column.number);
      sortBy = column.name || null;
      Object.assign(state, { sortBy, isDown });
      draw();
    };
    return fill(
      head,
      h("button", { type: "button", class: "quiet sort", onclick: click }, column.title),
    );
  });
  function draw() {
    const column = columns.find((other) => other.name === sortBy);
    const sorted = [...rows];
    const valueOf = column && column.sort;
    if (valueOf) {
      sorted.sort((a, b) => {
        const [x, y] = [valueOf(a), valueOf(b)];
        return (x < y ? -1 : x > y ? 1 : 0) * (isDown ? -1 : 1);
      });
    }
    columns.forEach((other, at) => {
      heads[at].setAttribute(
        "aria-sort",
        other.name === sortBy ? (isDown ? "descending" : "ascending") : "none",
      );
    });
    fill(
      body,
      sorted.slice(0, options.most || 1000).map((row) =>
        h(
          "tr",
          {},
          columns.map((other) =>
            h(
              "td",
              {
                class: [other.number ? "number" : "", other.class || ""].join(" ").trim(),
                "data-title": other.title,
              },
              other.cell(row),
            ),
          ),
        ),
      ),
    );
    if (!sorted.length)
      fill(
        body,
        h(
          "tr",
          {},
          h("td", { colspan: columns.length, class: "empty" }, options.empty || "Nothing here."),
        ),
      );
  }
  draw();
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label || "Table" },
    h("table", {}, h("thead", {}, h("tr", {}, heads)), body),
  );
}

/**
 * A part of a page with a title.
 * @param {string} title
 * @param {...Child} children
 */
export function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), children);
}

// How full something is: near its end it warns.
/** @type {(share: number, label: string) => HTMLElement} */
export const meter = (share, label) => bar(share, label, share > 0.9 ? " high" : "");

// How far work has come.
/** @type {(share: number, label: string) => HTMLElement} */
export const progress = (share, label) => bar(share, label, "");

/**
 * @param {number} share of 1
 * @param {string} label
 * @param {string} kind
 */
function bar(share, label, kind) {
  const fillBar = h("span", { class: "bar" });
  fillBar.style.width = Math.max(0, Math.min(1, share)) * 100 + "%";
  return h("span", { class: "meter" + kind, role: "img", "aria-label": label }, fillBar);
}

/**
 * A share of a whole, as a number and as a bar.
 * @param {number} value of 1
 */
export const share = (value) =>
  h("span", { class: "share" }, percent(value), bar(value, percent(value), ""));

/** @param {unknown} error */
export const failure = (error) =>
  h("p", { class: "failure", role: "alert" }, visible(messageOf(error)));
export const loading = () => h("p", { class: "empty" }, "Loading…");
