// @ts-check
// The form that changes a database while it serves: it shows the plan first.

import { visible } from "../format.js";
import { button, failure, fill, h, panel } from "../ui.js";
import { requestId, send } from "../cluster-api.js";
import { databaseFields } from "./cluster-fields.js";
import { drawPlan } from "./cluster-plan.js";

export async function show({ rest: name }) {
  const { settings } = await send("GET", "/database?name=" + encodeURIComponent(name));
  const fields = await databaseFields(settings);
  const out = h("div", {});
  const form = h(
    "form",
    { class: "panel" },
    fields.elements,
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", class: "primary" }, "Show the plan"),
    ),
  );
  const asked = () => ({ name, ...fields.read() });

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
