// @ts-check
// The machines of a cluster: memory, zones, and their copies, which are given away and got. One of
// them with its copies and graphs, and how another one joins.

import { bytes, visible } from "../format.js";
import { ofCopy } from "../place.js";
import { polled } from "../polling.js";
import { ask, button, copyLine, h, meter, notice, panel, raw, table } from "../ui.js";
import { send } from "../cluster-api.js";
import { graphsOf } from "./cluster-graphs.js";
import { badge, factList, roleBadge } from "./cluster-parts.js";
import { planned } from "./cluster-slots.js";

export async function show(context) {
  const { rest } = context;
  if (rest) {
    const graphs = graphsOf({ machine: rest });
    return polled(context, () => machine(rest, graphs.root), graphs);
  }
  const joining = await send("GET", "/joining");
  // It stays as it is while the list is drawn anew: a command can be marked and copied.
  const adding = addingPanel(joining);
  return polled(context, async () => [
    h("h1", {}, "Machines"),
    panel("All of the cluster", machines(await send("GET", "/machines"), true)),
    adding,
  ]);
}

/** @param {{ command: string, token_file: string, host: string }} joining */
function addingPanel({ command, token_file: file, host }) {
  if (!command) {
    return panel(
      "Add a machine",
      h(
        "p",
        {},
        "Nodes in containers join by themselves. In Kubernetes, raise nodes.count of the chart:",
      ),
      copyLine("Command", "helm upgrade RELEASE CHART -f values.yaml --set nodes.count=NUMBER"),
    );
  }
  return panel(
    "Add a machine",
    file && [
      h("p", {}, "1. On the new machine, get the token of the cluster:"),
      copyLine("Token", `scp ${/:/.test(host) ? `[${host}]` : host}:${file} join-token`),
    ],
    h("p", {}, file ? "2. There, start a node with it:" : "On the new machine, start a node:"),
    copyLine("Command", command),
    h(
      "p",
      {},
      `${file ? "3. " : ""}It appears in the list above. Then move copies to it: Move copies here.`,
    ),
    file &&
      h(
        "p",
        { class: "dim" },
        "The token has the key of the cluster's authority in it: it gives access to everything, " +
          "so it is not shown here. Delete the copy when the machine has joined.",
      ),
  );
}

/**
 * One machine.
 * @param {string} name
 * @param {HTMLElement} graphs
 */
async function machine(name, graphs) {
  const it = (await send("GET", "/machines")).find((other) => other.name === name);
  if (!it) throw new Error(`There is no machine '${name}' any more.`);
  const databases = await send("GET", "/databases");
  const copies = databases.flatMap((database) =>
    database.shards.flatMap((shard) =>
      shard.copies
        .filter((copy) => copy.machine === name)
        .map((copy) => ({ ...copy, database: database.name })),
    ),
  );
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, visible(name)),
      badge(...state(it)),
      h("span", { class: "space" }),
      actions(it),
    ),
    panel(
      "Machine",
      factList([
        ["Host", raw(visible(it.host))],
        ["Port of the console", it.admin_port],
        ["Zone", visible(it.zone || "none")],
        ["Cores", it.cores],
        ["Memory for copies", bytes(it.memory_bytes)],
        ["Memory given to copies", bytes(it.used_bytes)],
        ["Version", raw(visible(it.version))],
        ["Disk", visible(it.disk_error || "has room")],
      ]),
    ),
    panel(
      "Copies",
      table(
        [
          {
            name: "database",
            title: "Database",
            cell: (copy) =>
              h(
                "a",
                { href: "#databases/" + encodeURIComponent(copy.database) },
                visible(copy.database),
              ),
            sort: (copy) => copy.database,
          },
          {
            name: "shard",
            title: "Shard",
            number: true,
            cell: (copy) => copy.shard,
            sort: (copy) => copy.shard,
          },
          { name: "role", title: "Role", cell: roleBadge, sort: (copy) => copy.role },
          {
            name: "address",
            title: "Address",
            cell: (copy) =>
              h(
                "a",
                { href: ofCopy(copy.database, copy.id, "now"), title: "Open this copy" },
                raw(visible(`${copy.host}:${copy.port}`)),
              ),
          },
          { name: "process", title: "Process", cell: (copy) => copy.process },
        ],
        copies,
        { label: "Copies of a machine", empty: "It has no copy." },
      ),
    ),
    graphs,
  ];
}

const state = (it) =>
  !it.is_alive ? ["down", "alarm"] : it.is_draining ? ["draining", "warning"] : ["up", "good"];

export function machines(list, hasActions) {
  /** @type {import("../ui.js").Column[]} */
  const columns = [
    {
      name: "name",
      title: "Machine",
      cell: (it) => h("a", { href: "#machines/" + encodeURIComponent(it.name) }, visible(it.name)),
      sort: (it) => it.name,
    },
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
