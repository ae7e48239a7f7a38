// @ts-check
// Fields of a database, for the forms that create and change one. They are made of the schema of
// its options.

import { documentOf } from "../cluster-api.js";
import { h } from "../ui.js";
import { lines } from "./cluster-hashing.js";

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

// What a user thinks of first. Other options follow by name.
const FIRST = "memory port shards replicas persistence commit eviction endpoint password".split(
  " ",
);

// The options of a database, from the schema in the interface's document, in the order of a form.
async function options(changes) {
  const {
    components: { schemas },
  } = await documentOf();
  const whole = schemas.Settings;
  const resolved = (of) => (of.$ref ? { ...schemas[of.$ref.split("/").pop()], ...of } : of);
  const all = Object.entries(whole.properties).map(([key, of]) => ({
    key,
    ...resolved(of),
    required: whole.required.includes(key),
  }));
  const shown = all.filter((it) => !it["x-of-requests"] && (!changes || it["x-changes"]));
  const name = (it) => it["x-option"] || it.key;
  const place = (it) => (FIRST.includes(it.name) ? FIRST.indexOf(it.name) : FIRST.length);
  return shown
    .map((it) => ({ ...it, name: name(it) }))
    .sort((one, other) => place(one) - place(other) || (one.name < other.name ? -1 : 1));
}

// The words of a schema, each with what it means.
function words(schema) {
  const described = (schema.oneOf || []).flatMap((it) =>
    it.const === undefined
      ? words(it)
      : [[it.const, it.description ? `${it.const}: ${it.description}` : it.const]],
  );
  return described.concat((schema.enum || []).map((word) => [word, word]));
}

/**
 * Returns what the words of options mean, by option and word.
 * @returns {Promise<Record<string, Record<string, string>>>}
 */
export async function meanings() {
  const all = await options(false);
  return Object.fromEntries(all.map((schema) => [schema.key, Object.fromEntries(words(schema))]));
}

// An element for an option, and what reads its value.
function control(schema, value) {
  const choices = words(schema);
  if (choices.length) {
    const element = choice(choices, value);
    return { element, read: () => element.value };
  }
  if (schema["x-unit"] === "bytes") {
    const element = input(sizeText(value || 0));
    return { element, read: () => size(element.value) };
  }
  if (schema.type === "integer") {
    const element = input(String(value || 0), "number");
    for (const [limit, name] of [
      ["minimum", "min"],
      ["maximum", "max"],
    ])
      if (schema[limit] !== undefined) element.setAttribute(name, schema[limit]);
    return { element, read: () => Number(element.value) };
  }
  if (schema.type === "boolean") {
    const element = h("input", { type: "checkbox", checked: Boolean(value) });
    return { element, read: () => element.checked };
  }
  if (schema.type === "array") {
    const element = h("textarea", {
      rows: 3,
      spellcheck: "false",
      value: (value || []).join("\n"),
    });
    return { element, read: () => lines(element.value) };
  }
  const element = input(value || "", schema.format === "password" ? "password" : "text");
  return { element, read: () => element.value };
}

// What options are called where their name does not say it.
const TITLES = {
  commit: "A write is confirmed",
  databases: "Databases of SELECT",
  endpoint: "Clients see",
  eviction: "When the memory is full",
  tls: "TLS",
};

/** @param {string} name of an option */
export const titleOf = (name) => TITLES[name] || name[0].toUpperCase() + name.slice(1);

// The elements of a form for a database, and what reads its options: all of a new one; of one that
// is there, those that differ.
export async function databaseFields(settings) {
  const all = (await options(Boolean(settings))).map((schema) => {
    const before = settings
      ? (settings[schema.key] ?? schema.default)
      : ((schema.examples || [])[0] ?? schema.default);
    const { element, read } = control(schema, before);
    return { schema, element, read, before: read() };
  });
  const label = ({ schema, element }) =>
    schema.type === "boolean"
      ? h("label", { class: "check" }, element, `${titleOf(schema.name)}: ${schema.description}`)
      : h(
          "label",
          {},
          schema.type === "array" ? `${titleOf(schema.name)}, one a line` : titleOf(schema.name),
          element,
          h("small", {}, schema.description),
        );
  const is =
    (type) =>
    ({ schema }) =>
      (schema.type === "array") === type;
  const secrets = settings ? all.filter(({ schema }) => schema.format === "password") : [];
  const marks = new Map(secrets.map((field) => [field, h("input", { type: "checkbox" })]));
  for (const [field, mark] of marks)
    field.element.addEventListener("input", () => {
      mark.checked = true;
    });
  const marked = [...marks].map(([field, mark]) =>
    h("label", { class: "check" }, mark, `Set another ${field.schema.name}`),
  );
  const differs = (field) =>
    marks.has(field)
      ? /** @type {HTMLInputElement} */ (marks.get(field)).checked
      : JSON.stringify(field.read()) !== JSON.stringify(field.before);
  return {
    elements: [
      h("div", { class: "facts" }, all.filter(is(false)).map(label), marked),
      ...all.filter(is(true)).map(label),
    ],
    read: () =>
      Object.fromEntries(
        all
          .filter((field) => !settings || differs(field))
          .map((field) => [field.schema.key, field.read()]),
      ),
  };
}
