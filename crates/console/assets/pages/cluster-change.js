// @ts-check
// The form that changes a database while it serves: it shows the plan first.

import { visible } from "../format.js";
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
  sizeText,
} from "./cluster-fields.js";
import { lines, rulesField } from "./cluster-hashing.js";
import { drawPlan } from "./cluster-plan.js";

export async function show({ rest: name }) {
  const { settings, has_password: hasPassword } = await send(
    "GET",
    "/database?name=" + encodeURIComponent(name),
  );
  const check = (value) => h("input", { type: "checkbox", checked: value });
  const fields = {
    memory: input(sizeText(settings.memory_bytes)),
    shards: input(String(settings.shards), "number"),
    replicas: input(String(settings.replicas), "number"),
    persistence: choice(persistences, settings.persistence),
    eviction: choice(policies, settings.eviction),
    commit: choice(commits, settings.commit),
    endpoint: choice(endpoints, settings.endpoint),
    flash: input(sizeText(settings.flash_bytes)),
    zones: check(settings.zones),
    sets: check(false),
    password: input("", "password"),
    hashing: rulesField(settings.hashing),
  };
  fields.password.addEventListener("input", () => {
    fields.sets.checked = true;
  });
  const label = (text, key) => h("label", {}, text, fields[key]);
  const out = h("div", {});
  const form = h(
    "form",
    { class: "panel" },
    h(
      "div",
      { class: "facts" },
      label("Memory, in all shards together", "memory"),
      label("Shards", "shards"),
      label("Replicas of each shard", "replicas"),
      label("Persistence", "persistence"),
      label("When the memory is full", "eviction"),
      label("A write is confirmed", "commit"),
      label("Clients see", "endpoint"),
      label("Flash, 0 is none", "flash"),
      h("label", { class: "check" }, fields.zones, "Copies of a shard in different zones"),
      h("label", { class: "check" }, fields.sets, hasPassword ? "Another password" : "A password"),
      label("Password, empty is none", "password"),
    ),
    label(
      "Hashing rules, one a line; none is the standard rule. Keys move while the database serves",
      "hashing",
    ),
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", class: "primary" }, "Show the plan"),
    ),
  );

  function asked() {
    const update = {
      name,
      memory_bytes: size(fields.memory.value),
      shards: Number(fields.shards.value),
      replicas: Number(fields.replicas.value),
      persistence: fields.persistence.value,
      eviction: fields.eviction.value,
      commit: fields.commit.value,
      endpoint: fields.endpoint.value,
      flash_bytes: size(fields.flash.value),
      zones: fields.zones.checked,
    };
    if (fields.sets.checked) update.password = fields.password.value;
    const rules = lines(fields.hashing.value);
    if (JSON.stringify(rules) !== JSON.stringify(settings.hashing || [])) update.hashing = rules;
    return update;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const update = asked();
      const { plan } = await send("PATCH", "/databases?dry_run=true", update);
      const id = requestId();
      fill(
        out,
        panel(
          "The plan",
          drawPlan(plan),
          h(
            "div",
            { class: "actions" },
            button(
              "Change the database",
              async () => {
                await send("PATCH", "/databases", update, id);
                location.hash = "databases/" + encodeURIComponent(name);
              },
              { kind: "primary" },
            ),
          ),
        ),
      );
    } catch (error) {
      fill(out, failure(error));
    }
  });
  return [h("h1", {}, "Change ", visible(name)), form, out];
}
