// @ts-check
// The cluster at a glance: what is to be looked at, databases, machines, jobs that run.

import { bytes, visible } from "../format.js";
import { polled } from "../polling.js";
import { h, panel } from "../ui.js";
import { send } from "../cluster-api.js";
import { jobs } from "./cluster-jobs.js";
import { machines } from "./cluster-machines.js";
import { badge, creator, databaseTable, factList } from "./cluster-parts.js";

export const show = (context) =>
  polled(context, async () => {
    const status = await send("GET", "");
    context.describe(status);
    return overview(status);
  });

function overview(status) {
  const alive = status.machines.filter((machine) => machine.is_alive).length;
  /** @type {[string, import("../ui.js").Child][]} */
  const facts = [
    ["Machines", `${alive} of ${status.machines.length}`],
    ["Databases", status.databases.length],
    [
      "etcd",
      `${status.etcd_version}, ${status.etcd_members.length} ` +
        `member${status.etcd_members.length === 1 ? "" : "s"}, ` +
        `${bytes(status.etcd_bytes)}`,
    ],
  ];
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Overview"),
      badge(
        status.problems.length ? `${status.problems.length} to look at` : "all well",
        status.problems.length ? "warning" : "good",
      ),
      h("span", { class: "space" }),
      creator(),
    ),
    status.problems.map((problem) => h("p", { class: "warning-text" }, visible(problem))),
    panel("Cluster", factList(facts)),
    panel("Databases", databaseTable(status.databases)),
    panel("Machines", machines(status.machines, false)),
    status.jobs.length ? panel("Jobs that run", jobs(status.jobs)) : null,
  ];
}
