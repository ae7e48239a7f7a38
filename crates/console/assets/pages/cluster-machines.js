// @ts-check
// The machines of a cluster: memory, zones, and their copies, which are given away and got.

import { bytes, visible } from "../format.js";
import { polled } from "../polling.js";
import { ask, button, h, meter, notice, panel, raw, table } from "../ui.js";
import { send } from "../cluster-api.js";
import { badge } from "./cluster-parts.js";
import { planned } from "./cluster-slots.js";

export const show = (context) =>
  polled(context, async () => [
    h("h1", {}, "Machines"),
    panel("All of the cluster", machines(await send("GET", "/machines"), true)),
  ]);

const state = (it) =>
  !it.is_alive ? ["down", "alarm"] : it.is_draining ? ["draining", "warning"] : ["up", "good"];

export function machines(list, hasActions) {
  /** @type {import("../ui.js").Column[]} */
  const columns = [
    { name: "name", title: "Machine", cell: (it) => visible(it.name), sort: (it) => it.name },
    {
      name: "state",
      title: "State",
      cell: (it) => badge(...state(it)),
      sort: (it) => state(it)[0],
    },
    { name: "host", title: "Host", cell: (it) => raw(visible(it.host)), sort: (it) => it.host },
    { name: "zone", title: "Zone", cell: (it) => visible(it.zone || "–"), sort: (it) => it.zone },
    { name: "cores", title: "Cores", number: true, cell: (it) => it.cores, sort: (it) => it.cores },
    {
      name: "given",
      title: "Memory given",
      number: true,
      cell: (it) => [
        bytes(it.used_bytes),
        " of ",
        bytes(it.memory_bytes),
        h("br"),
        meter(it.used_bytes / Math.max(1, it.memory_bytes), "memory given to copies"),
      ],
      sort: (it) => it.used_bytes,
    },
    {
      name: "copies",
      title: "Copies",
      number: true,
      cell: (it) => it.copies,
      sort: (it) => it.copies,
    },
    {
      name: "version",
      title: "Version",
      cell: (it) => raw(visible(it.version)),
      sort: (it) => it.version,
    },
  ];
  if (hasActions) columns.push({ name: "does", title: "", class: "does", cell: actions });
  return table(columns, list, { label: "Machines", empty: "There is no machine." });
}

function actions(it) {
  const { name } = it;
  const begin = (title, path, action, kind) => async () => {
    if (await planned(title, path, { name }, action, kind)) location.hash = "jobs";
  };
  async function zone() {
    const fields = [
      { name: "zone", label: "Zone: machines of one fail together. Empty: none", value: it.zone },
    ];
    const act = (answer) => send("POST", "/machines/zone", { name, zone: answer.zone });
    if (await ask({ title: "Zone of " + name, action: "Set the zone", danger: false, fields, act }))
      notice("The zone is set.");
  }
  if (!it.is_alive)
    return button(
      "Replace",
      begin(
        `Replace ${name}, which is lost`,
        "/machines/replace",
        "Replace and forget it",
        "danger",
      ),
      { kind: "danger" },
    );
  const last = it.is_draining
    ? button("Undo drain", async () => {
        const act = () => send("POST", "/machines/undo-drain", { name });
        const text = "New copies may be placed on it again.";
        const title = `End the drain of ${name}?`;
        if (!(await ask({ title, action: "Undo drain", danger: false, text, act }))) return;
        notice("It can have copies again.");
      })
    : [
        button("Drain", begin("Drain " + name, "/machines/drain", "Drain")),
        button(
          "Move copies here",
          begin("Move copies to " + name, "/machines/add", "Move the copies"),
        ),
      ];
  return h(
    "div",
    { class: "actions" },
    last,
    button("Zone", zone),
    button("Remove", begin("Remove " + name, "/machines/remove", "Remove the machine")),
  );
}
