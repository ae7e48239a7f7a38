// The form that creates a database: it shows the plan first.

import { bytes, visible } from "../format.js";
import { button, failure, fill, h, panel, raw, table } from "../ui.js";
import { send } from "../cluster-api.js";
import { lines, rulesField } from "./cluster-hashing.js";

const units = { kb: 1024, mb: 1024 ** 2, gb: 1024 ** 3, tb: 1024 ** 4, "": 1 };

function size(text) {
  const match = /^\s*(\d+(?:\.\d+)?)\s*(kb|mb|gb|tb|)\s*$/i.exec(text);
  if (!match) throw new Error(`"${text}" is no size: write a number with a unit, as in 10gb.`);
  return Math.round(Number(match[1]) * units[match[2].toLowerCase()]);
}

const input = (value, type = "text") => h("input", { type, value, spellcheck: "false", autocomplete: "off" });
const choice = (words) => h("select", {}, words.map((word) => h("option", { value: word }, word)));

export function create() {
  const fields = {
    name: input(""), memory: input("1gb"), shards: input("3", "number"), replicas: input("1", "number"), port: input("12000", "number"),
    persistence: choice(["aof", "rdb", "none"]),
    eviction: choice(["noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"]),
    commit: choice(["memory", "fsync", "quorum"]), endpoint: choice(["", "single", "cluster"]), hashing: rulesField(), password: input("", "password"), zones: h("input", { type: "checkbox" }),
  };
  fields.endpoint.options[0].textContent = "as servers can";
  const label = (text, name) => h("label", {}, text, fields[name]);
  const out = h("div", {});
  const form = h("form", { class: "panel" },
    h("div", { class: "facts" }, label("Name", "name"), label("Memory, in all shards together", "memory"), label("Shards", "shards"), label("Replicas of each shard", "replicas"), label("Port", "port"),
      label("Persistence", "persistence"), label("When the memory is full", "eviction"), label("A write is confirmed by", "commit"), label("Clients see", "endpoint"), label("Password", "password"), label("Hashing rules, one a line; none is the standard rule", "hashing"),
      h("label", { class: "check" }, fields.zones, "Copies of a shard in different zones")),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Show the plan")));

  function asked() {
    const settings = {
      memory_bytes: size(fields.memory.value), shards: Number(fields.shards.value), replicas: Number(fields.replicas.value), port: Number(fields.port.value),
      persistence: fields.persistence.value, eviction: fields.eviction.value, commit: fields.commit.value, password: fields.password.value, zones: fields.zones.checked, hashing: lines(fields.hashing.value),
    };
    if (fields.endpoint.value) settings.endpoint = fields.endpoint.value;
    return { name: fields.name.value, settings };
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const creation = asked();
      const { plan } = await send("POST", "/databases", { ...creation, dry_run: true });
      fill(out, draw(plan, creation));
    } catch (error) {
      fill(out, failure(error));
    }
  });
  return [h("h1", {}, "Create a database"), form, out];
}

function draw(plan, creation) {
  const columns = [
    { name: "shard", title: "Shard", number: true, cell: (it) => it.shard },
    { name: "role", title: "Role", cell: (it) => it.role },
    { name: "machine", title: "Machine", cell: (it) => visible(it.machine) },
    { name: "zone", title: "Zone", cell: (it) => visible(it.zone || "–") },
    { name: "address", title: "Address", cell: (it) => raw(visible(`${it.host}:${it.port}`)) },
    { name: "memory", title: "Memory", number: true, cell: (it) => bytes(it.memory_bytes) },
  ];
  return panel("The plan", plan.warnings.map((warning) => h("p", { class: "warning-text" }, visible(warning))),
    table(columns, plan.copies, { label: "The plan" }),
    h("div", { class: "actions" }, button("Create the database", async () => {
      await send("POST", "/databases", creation);
      location.hash = "databases/" + encodeURIComponent(creation.name);
    }, { kind: "primary" })));
}
