// @ts-check
// ACL users and what was refused.

import { can, get, post, remove, session } from "../api.js";
import { duration, exact, visible } from "../format.js";
import { ask, button, failure, fill, h, notice, panel, raw, table } from "../ui.js";

export async function show() {
  const list = h("div");
  const refused = h("div");

  /** @type {import("../ui.js").Column[]} */
  const columns = [
    {
      name: "name",
      title: "User",
      sort: (u) => u.name,
      cell: (u) => [raw(visible(u.name)), u.name === session.user ? " (you)" : ""],
    },
    {
      name: "state",
      title: "State",
      sort: (u) => u.is_on,
      cell: (u) =>
        h("span", { class: "badge " + (u.is_on ? "good" : "warning") }, u.is_on ? "on" : "off"),
    },
    {
      name: "password",
      title: "Password",
      cell: (u) =>
        u.needs_no_password
          ? h("span", { class: "warning-text" }, "none needed")
          : u.passwords
            ? `${u.passwords} set`
            : "none set",
    },
    { name: "rules", title: "Rules", cell: (u) => raw(visible(u.rules.join(" "))) },
  ];
  if (can("acl|setuser"))
    columns.push({
      name: "edit",
      title: "",
      cell: (u) => button("Change…", () => change(u), { kind: "quiet" }),
    });
  if (can("acl|deluser"))
    columns.push({
      name: "delete",
      title: "",
      cell: (u) =>
        u.name === "default" ? "" : button("Delete…", () => drop(u), { kind: "quiet" }),
    });

  async function change(user) {
    const wanted = await ask({
      title: user ? `Change ${visible(user.name)}` : "A new user",
      action: "Apply",
      danger: false,
      text:
        "Rules are applied in order, as ACL SETUSER does: on, off, >password, " +
        "nopass, ~pattern, &channel, +command, -command, +@category, reset.",
      fields: [
        ...(user ? [] : [{ name: "name", label: "Name" }]),
        {
          name: "rules",
          label: user ? "Rules to apply" : "Rules",
          area: true,
          rows: 3,
          value: user ? "" : "on >password ~* &* +@read",
        },
      ],
    });
    if (!wanted) return;
    await post("/users", {
      name: user ? user.name : wanted.name,
      rules: wanted.rules.split(/\s+/).filter(Boolean),
    });
    notice("The user is changed. It is kept until the server ends, unless users are saved.");
    await load();
  }

  async function drop(user) {
    if (
      !(await ask({
        title: "Delete the user?",
        action: "Delete it",
        text: `${visible(user.name)} and its rules are lost. Its connections are closed at once.`,
      }))
    )
      return;
    await remove("/users", { name: user.name });
    await load();
  }

  async function load() {
    fill(list, table(columns, await get("/users"), { label: "Users" }));
    if (!can("acl|log")) return;
    const rows = await get("/users/log");
    fill(
      refused,
      panel(
        "What was refused",
        table(
          [
            {
              title: "Last",
              number: true,
              name: "age",
              sort: (r) => r.age_s,
              cell: (r) => `${duration(r.age_s)} ago`,
            },
            {
              title: "Times",
              number: true,
              name: "count",
              sort: (r) => r.count,
              cell: (r) => exact(r.count),
            },
            { title: "User", cell: (r) => raw(visible(r.user)) },
            { title: "Reason", cell: (r) => visible(r.reason) },
            { title: "What", cell: (r) => raw(visible(r.object)) },
            {
              title: "Client",
              cell: (r) => raw(visible((r.client.match(/addr=(\S+)/) || ["", ""])[1])),
            },
          ],
          rows,
          { label: "Refused", empty: "Nothing was refused." },
        ),
      ),
    );
  }

  await load().catch((error) => fill(list, failure(error)));
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Users"),
      h("span", { class: "space" }),
      can("acl|setuser") && button("New user…", () => change(null)),
      can("acl|save") &&
        button("Save users", async () => {
          await post("/users/save", {});
          notice("The ACL file is written.");
        }),
    ),
    h("div", { class: "panel" }, list),
    refused,
  ];
}
