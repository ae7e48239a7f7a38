// Building blocks: elements, dialogs, notices, tables. Text is only ever set as text.

import { lineEnd, visible } from "./format.js";

export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "disabled") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// A string that came from outside, kept from mixing with what is around it.
export const raw = (text, className = "") => h("bdi", { class: ("raw " + className).trim(), dir: "ltr" }, text);

export function button(label, onclick, options = {}) {
  const { kind = "", title, disabled } = options;
  const element = h("button", { type: "button", class: kind, title, disabled }, label);
  element.addEventListener("click", async () => {
    element.disabled = true;
    element.setAttribute("aria-busy", "true");
    try {
      await onclick(element);
    } catch (error) {
      notice(error.message, "alarm");
    }
    element.removeAttribute("aria-busy");
    element.disabled = Boolean(disabled);
  });
  return element;
}

let notices;
export function notice(text, level = "info") {
  if (!notices) {
    notices = h("div", { class: "notices", role: "status", "aria-live": "polite" });
    document.body.append(notices);
  }
  const element = h("div", { class: `notice ${level}` }, visible(String(text)),
    h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => element.remove() }, "×"));
  notices.append(element);
  setTimeout(() => element.remove(), level === "alarm" ? 12000 : 5000);
}

// A form keeps no line ends but in an area, and there each is a line feed.
const hasLines = (field) => field.area || /[\r\n]/.test(field.value || "");
const asLines = (text) => text.replace(/\r\n?/g, "\n");

// Whether an area gives back what it was given.
const keeps = (field, input) => lineEnd(field.value || "") !== null && input.value === asLines(field.value || "");

// What is in an area, with the line ends of the text of before.
const written = (field, input) => input.value.replaceAll("\n", lineEnd(field.value || ""));

// Asks with what will be lost; resolves to whether it is wanted. `word` has to be typed if given. What `act` refuses is said in the
// dialog, which stays with what was typed.
export function ask({ title, text, action, word, danger = true, fields = [], act }) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const typed = word && h("input", { type: "text", "aria-label": `Type ${word} to confirm`, autocomplete: "off", spellcheck: "false" });
    const submit = h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: Boolean(word) }, action);
    const inputs = fields.map((field) => {
      const input = field.options
        ? h("select", { value: field.value }, field.options.map((value) => h("option", { value }, visible(value))))
        : hasLines(field)
        ? h("textarea", { rows: field.rows || 6, spellcheck: "false", value: field.value || "" })
        : h("input", { type: field.type || "text", spellcheck: "false", autocomplete: "off", value: field.value || "", placeholder: field.placeholder, min: field.min, step: field.step });
      return { field, input };
    });
    const refusal = h("p", { class: "failure", role: "alert", hidden: true });
    const valuesOf = () => Object.fromEntries(inputs.map(({ field, input }) => [field.name, hasLines(field) ? written(field, input) : input.value]));
    const dialog = h("dialog", { "aria-label": title },
      h("form", { method: "dialog" },
        h("h2", {}, title),
        text && h("p", {}, text),
        inputs.map(({ field, input }) => h("label", {}, field.label, input)),
        word && h("label", {}, "Type ", raw(visible(word)), " to confirm", typed),
        refusal,
        h("div", { class: "actions" },
          h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), submit)));
    if (typed) typed.addEventListener("input", () => { submit.disabled = typed.value !== word; });
    if (!inputs.every(({ field, input }) => !hasLines(field) || keeps(field, input))) {
      submit.disabled = true;
      fill(refusal, "The text has several kinds of line ends, or characters that a form does not keep. Change it on the command line.").hidden = false;
    }
    dialog.querySelector("form").addEventListener("submit", async (event) => {
      event.preventDefault();
      submit.disabled = true;
      refusal.hidden = true;
      try {
        if (act) await act(valuesOf());
        dialog.close("yes");
      } catch (error) {
        fill(refusal, visible(error.message)).hidden = false;
      }
      submit.disabled = false;
    });
    dialog.addEventListener("close", () => {
      const isWanted = dialog.returnValue === "yes";
      const values = isWanted && fields.length ? valuesOf() : isWanted;
      dialog.remove();
      if (before && before.focus) before.focus();
      resolve(values);
    });
    document.body.append(dialog);
    dialog.showModal();
    const first = inputs[0] ? inputs[0].input : typed;
    if (first) first.focus();
  });
}

// How tables are sorted, by their labels: those that are drawn anew keep it.
const orders = new Map();

function orderOf(label) {
  if (!orders.has(label)) orders.set(label, {});
  return orders.get(label);
}

// A table whose columns can be sorted. Columns: { name, title, number, cell(row), sort(row) }.
export function table(columns, rows, options = {}) {
  const state = options.state || (options.label ? orderOf(options.label) : {});
  let { sortBy = null, isDown = true } = state;
  const body = h("tbody");
  const heads = columns.map((column) => {
    const head = h("th", { scope: "col", class: column.number ? "number" : "" });
    if (!column.sort) return fill(head, column.title);
    const click = () => {
      isDown = sortBy === column.name ? !isDown : Boolean(column.number);
      sortBy = column.name;
      Object.assign(state, { sortBy, isDown });
      draw();
    };
    return fill(head, h("button", { type: "button", class: "quiet sort", onclick: click }, column.title));
  });
  function draw() {
    const column = columns.find((other) => other.name === sortBy);
    const sorted = [...rows];
    if (column) {
      sorted.sort((a, b) => {
        const [x, y] = [column.sort(a), column.sort(b)];
        return (x < y ? -1 : x > y ? 1 : 0) * (isDown ? -1 : 1);
      });
    }
    columns.forEach((other, at) => {
      heads[at].setAttribute("aria-sort", other.name === sortBy ? (isDown ? "descending" : "ascending") : "none");
    });
    fill(body, sorted.slice(0, options.most || 1000).map((row) =>
      h("tr", {}, columns.map((other) => h("td", { class: [other.number ? "number" : "", other.class || ""].join(" ").trim(), "data-title": other.title }, other.cell(row))))));
    if (!sorted.length) fill(body, h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, options.empty || "Nothing here.")));
  }
  draw();
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label || "Table" },
    h("table", {}, h("thead", {}, h("tr", {}, heads)), body));
}

export function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), children);
}

// How full something is: near its end it warns.
export const meter = (share, label) => bar(share, label, share > 0.9 ? " high" : "");

// How far work has come.
export const progress = (share, label) => bar(share, label, "");

function bar(share, label, kind) {
  const fillBar = h("span", { class: "bar" });
  fillBar.style.width = Math.max(0, Math.min(1, share)) * 100 + "%";
  return h("span", { class: "meter" + kind, role: "img", "aria-label": label }, fillBar);
}

export const failure = (error) => h("p", { class: "failure", role: "alert" }, visible(error.message));
export const loading = () => h("p", { class: "empty" }, "Loading…");
