// @ts-check
// The databases of a cluster, and one of them with its shards and copies.

import { bytes, number, visible } from "../format.js";
import { ofCopy } from "../place.js";
import { polled } from "../polling.js";
import { ask, button, copyLine, h, notice, panel, raw, table } from "../ui.js";
import { requestId, send } from "../cluster-api.js";
import { meanings, titleOf } from "./cluster-fields.js";
import { graphsOf } from "./cluster-graphs.js";
import { jobs } from "./cluster-jobs.js";
import { creator, databaseTable, factList, healthBadge, roleBadge } from "./cluster-parts.js";
import { users } from "./cluster-users.js";

export function show(context) {
  if (!context.rest) {
    return polled(context, async () => databases(await send("GET", "/databases")));
  }
  const graphs = graphsOf({ database: context.rest });
  const draw = async () => {
    const means = await meanings();
    const it = await send("GET", "/database?name=" + encodeURIComponent(context.rest));
    return database(it, await send("GET", "/jobs"), means, graphs.root);
  };
  return polled(context, draw, graphs);
}

function databases(list) {
  return [
    h("div", { class: "title" }, h("h1", {}, "Databases"), creator()),
    panel("All of the cluster", databaseTable(list)),
  ];
}

function database(it, all, means, graphs) {
  const running = all.filter((job) => job.state === "running" && job.database === it.name);
  const copies = it.shards.flatMap((shard) =>
    shard.copies.map((copy) => ({
      ...copy,
      epoch: shard.epoch,
      slots: shard.slots,
      hasPrimary: shard.has_primary,
    })),
  );
  const { settings } = it;
  /** @type {[string, import("../ui.js").Child][]} */
  const facts = [
    ["Port", settings.port],
    ["Memory", bytes(settings.memory_bytes)],
    ["Replicas", settings.replicas],
    [titleOf("endpoint"), explain(means, "endpoint", settings.endpoint)],
    ["Persistence", explain(means, "persistence", settings.persistence)],
    [titleOf("eviction"), explain(means, "eviction", settings.eviction)],
    [titleOf("commit"), explain(means, "commit", settings.commit)],
    [
      "Hashing",
      settings.hashing && settings.hashing.length
        ? raw(visible(settings.hashing.join("  ")))
        : "standard",
    ],
    [titleOf("databases"), settings.databases || 1],
    ["Flash", settings.flash_bytes ? bytes(settings.flash_bytes) : "none"],
    ["Password", it.has_password ? "yes" : "none"],
    ["TLS", settings.tls ? "yes" : "no"],
    ["Zones", settings.zones ? "different" : "any"],
  ];
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, visible(it.name)),
      healthBadge(it),
      h("span", { class: "space" }),
      button(
        "Change",
        () => {
          location.hash = "change/" + encodeURIComponent(it.name);
        },
        { kind: "primary" },
      ),
      button("Slots", () => {
        location.hash = "slots/" + encodeURIComponent(it.name);
      }),
      button("Delete", () => remove(it.name), { kind: "danger" }),
    ),
    connection(it, copies),
    running.length ? panel("Under way", jobs(running)) : null,
    panel(
      "Shards and copies",
      table(
        [
          {
            name: "shard",
            title: "Shard",
            number: true,
            cell: (copy) => copy.shard,
            sort: (copy) => copy.shard,
          },
          { name: "slots", title: "Slots", cell: (copy) => raw(copy.slots) },
          {
            name: "role",
            title: "Role",
            cell: roleBadge,
            sort: (copy) => copy.role,
          },
          {
            name: "machine",
            title: "Machine",
            cell: (copy) => visible(copy.machine),
            sort: (copy) => copy.machine,
          },
          {
            name: "address",
            title: "Address",
            cell: (copy) =>
              h(
                "a",
                { href: ofCopy(it.name, copy.id, "now"), title: "Open this copy" },
                raw(visible(`${copy.host}:${copy.port}`)),
              ),
          },
          {
            name: "used",
            title: "Memory used",
            number: true,
            cell: (copy) => (copy.answers ? bytes(copy.used_bytes) : "–"),
            sort: (copy) => copy.used_bytes,
          },
          {
            name: "ops",
            title: "Commands/s",
            number: true,
            cell: (copy) => (copy.answers ? number(copy.commands_per_second) : "–"),
            sort: (copy) => copy.commands_per_second,
          },
          {
            name: "clients",
            title: "Clients",
            number: true,
            cell: (copy) => (copy.answers ? copy.clients : "–"),
            sort: (copy) => copy.clients,
          },
          {
            name: "lag",
            title: "Lag",
            number: true,
            cell: (copy) => (copy.lag_bytes === null ? "–" : bytes(copy.lag_bytes)),
            sort: (copy) => copy.lag_bytes || 0,
          },
          {
            name: "process",
            title: "Process",
            cell: (copy) =>
              h(
                "span",
                { title: visible(copy.note) },
                copy.process +
                  (copy.restarts
                    ? `, ${copy.restarts} restart${copy.restarts === 1 ? "" : "s"}`
                    : "") +
                  (copy.is_surge ? ", added for a restart" : ""),
              ),
            sort: (copy) => copy.process,
          },
          { name: "does", title: "", class: "does", cell: (copy) => actions(it.name, copy) },
        ],
        copies,
        { label: "Copies" },
      ),
    ),
    graphs,
    panel("Options", factList(facts)),
    users(it.name, it.users),
  ];
}

function actions(name, copy) {
  if (copy.role === "replica" && copy.hasPrimary) {
    return button("Make primary…", async () => {
      const id = requestId();
      const act = () => send("POST", "/failover", { name, copy: copy.id }, id);
      const text =
        `The copy on machine ${copy.machine} becomes the primary of shard ${copy.shard}. ` +
        "Writes wait for a moment; connections to the primary of now are closed.";
      const title = "Hand the shard over?";
      if (await ask({ title, text, action: "Hand it over", danger: false, act })) {
        notice("The shard is handed over.");
      }
    });
  }
  if (copy.role !== "none" && !copy.hasPrimary) {
    return button(
      "Recover",
      async () => {
        const text =
          `The copy on machine ${copy.machine}, ${copy.host}:${copy.port}, becomes ` +
          `the primary of shard ${copy.shard}. What only other copies have is ` +
          "given up.";
        const id = requestId();
        const act = () => send("POST", "/recover", { name, copy: copy.id }, id);
        if (await ask({ title: "Recover the shard", text, action: "Recover", word: name, act }))
          notice("The copy leads its shard.");
      },
      { kind: "danger" },
    );
  }
  return null;
}

async function remove(name) {
  const id = requestId();
  if (
    !(await ask({
      title: "Delete the database",
      text: "All its data and copies go.",
      action: "Delete",
      word: name,
      act: () => send("DELETE", "/databases", { name }, id),
    }))
  )
    return;
  location.hash = "jobs";
}

/**
 * Says what a word of an option means.
 * @param {Record<string, Record<string, string>>} means
 * @param {string} option
 * @param {string} word
 */
const explain = (means, option, word) => (means[option] || {})[word] || word;

/**
 * How to connect to a database: an address, and a command line and a line of code for it.
 * @param {any} it
 * @param {any[]} copies
 */
function connection(it, copies) {
  const { settings } = it;
  const primary = copies.find((copy) => copy.role === "primary");
  const hosts = [...new Set(copies.map((copy) => copy.host))];
  if (!hosts.length) return null;
  const host = primary && settings.endpoint !== "all" ? primary.host : hosts[0];
  const isBare = /:/.test(host) ? `[${host}]` : host;
  const scheme = settings.tls ? "rediss" : "redis";
  const password = it.has_password ? ":PASSWORD@" : "";
  const url = `${scheme}://${password}${isBare}:${settings.port}`;
  const options = [
    settings.endpoint === "cluster" ? " -c" : "",
    settings.tls ? " --tls --cacert ca.pem" : "",
    it.has_password ? " --askpass" : "",
  ].join("");
  const command = `redis-cli -h ${host} -p ${settings.port}${options}`;
  const of = settings.endpoint === "cluster" ? "RedisCluster" : "Redis";
  const python = `redis.${of}.from_url("${url}")`;
  return panel(
    "Connect",
    copyLine("Address", `${isBare}:${settings.port}`),
    copyLine("URL", url),
    copyLine("Command line", command),
    copyLine("Python", python),
    h("p", { class: "dim" }, hint(it, hosts)),
  );
}

/**
 * What a client has to know beside the address.
 * @param {any} it
 * @param {string[]} hosts
 */
function hint({ settings, users: known, has_password: hasPassword }, hosts) {
  const parts = [];
  if (settings.endpoint === "cluster") {
    parts.push("Take a client of Redis Cluster: it finds the shards by itself.");
  } else if (hosts.length > 1) {
    parts.push(`The same port answers on ${hosts.join(", ")}.`);
  }
  if (hasPassword) parts.push("Put the password of the database in place of PASSWORD.");
  const names = Object.keys(known || {});
  if (names.length) parts.push(`Users beside the default one: ${names.join(", ")}.`);
  if (settings.tls) parts.push("The certificates are signed by the cluster: tls/ca.pem of a node.");
  return visible(parts.join(" "));
}
