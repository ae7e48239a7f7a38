// @ts-check
// The users of a database beside the default one.

import { raw as plain, ask, button, h, notice, panel, table } from "../ui.js";
import { visible } from "../format.js";
import { send } from "../cluster-api.js";

export function users(name, list) {
  const rows = Object.entries(list).map(([user, rules]) => ({ user, rules: rules.join(" ") }));
  async function edit(row) {
    /** @type {import("../ui.js").Field[]} */
    const fields = [
      ...(row.user ? [] : [{ name: "user", label: "Name" }]),
      { name: "rules", label: "Rules, as ACL SETUSER takes them", value: row.rules },
      {
        name: "password",
        label: row.user ? "Password, empty keeps the present one" : "Password",
        type: "password",
      },
    ];
    const act = (answer) => {
      const body = { name, user: row.user || answer.user, rules: answer.rules };
      if (answer.password) body.password = answer.password;
      return send("POST", "/databases/users", body);
    };
    if (
      await ask({
        title: row.user ? "Change " + row.user : "Create a user",
        action: "Save",
        danger: false,
        fields,
        act,
      })
    )
      notice("All copies are told.");
  }
  async function remove(user) {
    const act = () => send("DELETE", "/databases/users", { name, user });
    if (
      await ask({
        title: "Delete the user",
        text: "Its connections are closed.",
        action: "Delete",
        word: user,
        act,
      })
    )
      notice("All copies are told.");
  }
  return panel(
    "Users",
    table(
      [
        { name: "user", title: "User", cell: (it) => visible(it.user), sort: (it) => it.user },
        { name: "rules", title: "Rules", cell: (it) => plain(visible(it.rules)) },
        {
          name: "does",
          title: "",
          class: "does",
          cell: (it) =>
            h(
              "div",
              { class: "actions" },
              button("Edit", () => edit(it)),
              button("Delete", () => remove(it.user), { kind: "danger" }),
            ),
        },
      ],
      rows,
      { label: "Users", empty: "There is only the default user." },
    ),
    h(
      "div",
      { class: "actions" },
      button("Create a user", () => edit({ user: "", rules: "+@read ~*" })),
    ),
  );
}
