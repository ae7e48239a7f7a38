// @ts-check
// The form that creates a database: it shows the plan first.

import { button, failure, fill, h, panel } from "../ui.js";
import { requestId, send } from "../cluster-api.js";
import { databaseFields, input } from "./cluster-fields.js";
import { drawPlan } from "./cluster-plan.js";

export async function show() {
  const name = input("");
  const fields = await databaseFields();
  const out = h("div", {});
  const form = h(
    "form",
    { class: "panel" },
    h("div", { class: "facts" }, h("label", {}, "Name", name)),
    fields.elements,
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", class: "primary" }, "Show the plan"),
    ),
  );
  const asked = () => ({ name: name.value, settings: fields.read() });

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
