// @ts-check
// What several pages of the cluster show.

import { bytes, moment, time, visible } from "../format.js";
import { button, h, table } from "../ui.js";

export const badge = (text, level) => h("span", { class: "badge " + level }, text);
/** @param {number} ms since 1970 */
export const when = (ms) => h("time", { title: time(ms / 1000) }, moment(ms / 1000));

/**
 * Names with values.
 * @param {[string, import("../ui.js").Child][]} facts
 */
export const factList = (facts) =>
  h(
    "dl",
    { class: "facts" },
    facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );

/** @param {{ role: string }} copy */
export const roleBadge = ({ role }) =>
  badge(
    role === "none" ? "not there" : role,
    role === "primary" ? "info" : role === "none" ? "alarm" : "",
  );

function level(it) {
  if (it.health === "ok") return "good";
  if (it.stage === "creating") return "info";
  return it.is_available ? "warning" : "alarm";
}

export const healthBadge = (it) => badge(visible(it.health), level(it));

export const creator = () =>
  button(
    "Create a database",
    () => {
      location.hash = "create";
    },
    { kind: "primary" },
  );

export function databaseTable(list) {
  return table(
    [
      {
        name: "name",
        title: "Database",
        cell: (it) =>
          h("a", { href: "#databases/" + encodeURIComponent(it.name) }, visible(it.name)),
        sort: (it) => it.name,
      },
      { name: "health", title: "Health", cell: (it) => healthBadge(it), sort: (it) => it.health },
      {
        name: "port",
        title: "Port",
        number: true,
        cell: (it) => String(it.settings.port),
        sort: (it) => it.settings.port,
      },
      {
        name: "shards",
        title: "Shards",
        number: true,
        cell: (it) => it.settings.shards,
        sort: (it) => it.settings.shards,
      },
      {
        name: "replicas",
        title: "Replicas",
        number: true,
        cell: (it) => it.settings.replicas,
        sort: (it) => it.settings.replicas,
      },
      {
        name: "memory",
        title: "Memory",
        number: true,
        cell: (it) => bytes(it.settings.memory_bytes),
        sort: (it) => it.settings.memory_bytes,
      },
    ],
    list,
    { label: "Databases", empty: "There is no database yet." },
  );
}
