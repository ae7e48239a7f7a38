// @ts-check
// The form that creates a database: it shows the plan first.

import { button, failure, fill, h, panel } from "../ui.js";
import { requestId, send } from "../cluster-api.js";
import {
  choice,
  commits,
  endpoints,
  input,
  persistences,
  policies,
  size,
} from "./cluster-fields.js";
import { drawPlan } from "./cluster-plan.js";
import { lines, rulesField } from "./cluster-hashing.js";

export async function show() {
  const fields = {
    name: input(""),
    memory: input("1gb"),
    shards: input("3", "number"),
    replicas: input("1", "number"),
    port: input("12000", "number"),
    flash: input("0"),
    databases: input("1", "number"),
    tls: h("input", { type: "checkbox" }),
    persistence: choice(persistences),
    eviction: choice(policies),
    commit: choice(commits),
    endpoint: choice(endpoints),
    hashing: rulesField(),
    password: input("", "password"),
    zones: h("input", { type: "checkbox" }),
  };
  const label = (text, name) => h("label", {}, text, fields[name]);
  const out = h("div", {});
  const form = h(
    "form",
    { class: "panel" },
    h(
      "div",
      { class: "facts" },
      label("Name", "name"),
      label("Memory, in all shards together", "memory"),
      label("Shards", "shards"),
      label("Replicas of each shard", "replicas"),
      label("Port", "port"),
      label("Persistence", "persistence"),
      label("When the memory is full", "eviction"),
      label("A write is confirmed", "commit"),
      label("Clients see", "endpoint"),
      label("Flash for cold values, 0 is none", "flash"),
      label("Databases that SELECT chooses from", "databases"),
      label("Password, empty is none", "password"),
      h("label", { class: "check" }, fields.zones, "Copies of a shard in different zones"),
      h("label", { class: "check" }, fields.tls, "Clients speak TLS"),
    ),
    label("Hashing rules, one a line; none is the standard rule", "hashing"),
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", class: "primary" }, "Show the plan"),
    ),
  );

  function asked() {
    const settings = {
      memory_bytes: size(fields.memory.value),
      shards: Number(fields.shards.value),
      replicas: Number(fields.replicas.value),
      port: Number(fields.port.value),
      persistence: fields.persistence.value,
      eviction: fields.eviction.value,
      commit: fields.commit.value,
      password: fields.password.value,
      zones: fields.zones.checked,
      hashing: lines(fields.hashing.value),
      endpoint: fields.endpoint.value,
      flash_bytes: size(fields.flash.value),
      databases: Number(fields.databases.value),
      tls: fields.tls.checked,
    };
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
  const id = requestId();
  return panel(
    "The plan",
    drawPlan(plan),
    h(
      "div",
      { class: "actions" },
      button(
        "Create the database",
        async () => {
          await send("POST", "/databases", creation, id);
          location.hash = "databases/" + encodeURIComponent(creation.name);
        },
        { kind: "primary" },
      ),
    ),
  );
}
