// @ts-check
// Hashing rules, tried on keys: tags, slots, shards, and how the keys spread.

import { button, failure, fill, h, panel, raw, table } from "../ui.js";
import { visible } from "../format.js";
import { send } from "../cluster-api.js";

const area = (value, label) =>
  h("textarea", { rows: 5, spellcheck: "false", "aria-label": label, value });
export const lines = (text) =>
  text
    .split("\n")
    .map((line) => line.replace(/\r$/, ""))
    .filter((line) => line !== "");

// One rule a line.
const rulesField = (value = []) => area(value.join("\n"), "Hashing rules");

export async function show() {
  const databases = await send("GET", "/databases");
  const rules = rulesField([".*{(?<tag>.*)}.*", "(?<tag>.*)"]);
  const keys = area("user:{1}:name\nuser:{1}:cart\nuser:2", "Keys");
  const shards = h("input", { type: "number", min: 1, value: "3" });
  const database = h(
    "select",
    {},
    h("option", { value: "" }, "none"),
    databases.map((it) => h("option", { value: it.name }, visible(it.name))),
  );
  const out = h("div", {});
  database.addEventListener("change", () => {
    const chosen = databases.find((it) => it.name === database.value);
    shards.disabled = Boolean(chosen);
    if (chosen && chosen.settings.hashing && chosen.settings.hashing.length)
      rules.value = chosen.settings.hashing.join("\n");
  });
  const attempt = button(
    "Try",
    async () => {
      const trial = { rules: lines(rules.value), keys: lines(keys.value) };
      if (database.value) trial.database = database.value;
      else trial.shards = Number(shards.value);
      try {
        fill(out, trialOf(await send("POST", "/hashing/try", trial)));
      } catch (error) {
        fill(out, failure(error));
      }
    },
    { kind: "primary" },
  );
  return [
    h("h1", {}, "Hashing rules"),
    h(
      "p",
      { class: "dim" },
      "A rule is a regular expression with a group named tag. The first that " +
        "matches from the start of a key wins; keys with the same tag are on one " +
        "shard. Without rules, the standard rule is tried.",
    ),
    h(
      "div",
      { class: "panel" },
      h(
        "div",
        { class: "facts" },
        h("label", {}, "Rules, one a line", rules),
        h("label", {}, "Keys, one a line", keys),
        h("label", {}, "Keys and shards of a database", database),
        h("label", {}, "Shards, without a database", shards),
      ),
      h("div", { class: "actions" }, attempt),
    ),
    out,
  ];
}

function trialOf(tried) {
  const or = (value) => (value === null || value === undefined ? "–" : value);
  return [
    panel(
      "How the keys spread",
      h(
        "p",
        {},
        `${tried.keys.length} keys with ${tried.tags} different tags; the ` +
          `largest shard has ${tried.skew.toFixed(2)} of the mean.`,
      ),
      tried.unmatched
        ? h(
            "p",
            { class: "warning-text" },
            `${tried.unmatched} keys match no rule: requests for them would get an error.`,
          )
        : null,
      table(
        [
          { name: "shard", title: "Shard", number: true, cell: (it) => it.shard },
          {
            name: "keys",
            title: "Keys",
            number: true,
            cell: (it) => it.keys,
            sort: (it) => it.keys,
          },
          {
            name: "percent",
            title: "Share",
            number: true,
            cell: (it) => it.percent.toFixed(1) + " %",
            sort: (it) => it.percent,
          },
        ],
        tried.parts,
        { label: "Shards" },
      ),
    ),
    panel(
      "Keys",
      table(
        [
          { name: "key", title: "Key", cell: (it) => raw(visible(it.key)), sort: (it) => it.key },
          {
            name: "rule",
            title: "Rule",
            cell: (it) => (it.rule === null ? "none: refused" : it.rule || "standard"),
          },
          {
            name: "tag",
            title: "Tag",
            cell: (it) => (it.tag === null ? "–" : raw(visible(it.tag))),
            sort: (it) => it.tag || "",
          },
          {
            name: "slot",
            title: "Slot",
            number: true,
            cell: (it) => or(it.slot),
            sort: (it) => it.slot || 0,
          },
          {
            name: "shard",
            title: "Shard",
            number: true,
            cell: (it) => or(it.shard),
            sort: (it) => it.shard || 0,
          },
        ],
        tried.keys.slice(0, 200),
        { label: "Keys" },
      ),
    ),
  ];
}
