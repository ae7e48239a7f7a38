// @ts-check
// Jobs: what is done, by which machine, how far it is; and what is done with them.

import { bytes, duration, visible } from "../format.js";
import { polled } from "../polling.js";
import { ask, button, h, notice, panel, progress, table } from "../ui.js";
import { requestId, send } from "../cluster-api.js";
import { size, sizeText } from "./cluster-fields.js";
import { badge, when } from "./cluster-parts.js";

export const show = (context) =>
  polled(context, async () => [
    h("h1", {}, "Jobs"),
    panel("The newest first", jobs(await send("GET", "/jobs"))),
  ]);

export function jobs(list) {
  return table(
    [
      {
        name: "began",
        title: "Began",
        class: "moment",
        cell: (it) => when(it.began_ms),
        sort: (it) => it.began_ms,
      },
      { name: "kind", title: "Type", cell: (it) => it.kind, sort: (it) => it.kind },
      {
        name: "database",
        title: "Database",
        cell: (it) => visible(it.database),
        sort: (it) => it.database,
      },
      {
        name: "state",
        title: "State",
        cell: (it) =>
          badge(
            it.state,
            it.state === "done"
              ? "good"
              : it.state === "failed"
                ? "alarm"
                : it.state === "running"
                  ? "info"
                  : "",
          ),
        sort: (it) => it.state,
      },
      {
        name: "percent",
        title: "Done",
        cell: (it) =>
          it.state === "cancelled"
            ? "–"
            : [`${it.percent} %`, h("br"), progress(it.percent / 100, `${it.percent} %`)],
      },
      {
        name: "machine",
        title: "Machine",
        cell: (it) => visible(it.machine),
        sort: (it) => it.machine,
      },
      { name: "took", title: "Took", number: true, cell: took },
      {
        name: "text",
        title: "",
        cell: (it) => visible([it.text, paced(it)].filter(Boolean).join("; ")),
      },
      {
        name: "does",
        title: "",
        class: "does",
        cell: (it) => (it.state === "running" ? h("div", { class: "actions" }, doings(it)) : null),
      },
    ],
    list,
    { label: "Jobs", empty: "There was no job yet." },
  );
}

// Returns whether a job that is cancelled undoes what it has done.
const goesBack = (job) => ["create", "update"].includes(job.kind);

const movesSlots = (job) => ["update", "rebalance", "move"].includes(job.kind);

function took(job) {
  const seconds = ((job.ended_ms || Date.now()) - job.began_ms) / 1000;
  if (!job.ended_ms) return duration(seconds);
  return seconds < 10 ? `${seconds.toFixed(2)} s` : duration(seconds);
}

function paced(job) {
  if (job.state !== "running") return "";
  const parts = [];
  if (job.rate_bytes) parts.push(`at most ${bytes(job.rate_bytes)}/s`);
  if (job.priority) parts.push(`priority ${job.priority}`);
  return parts.join(", ");
}

function doings(job) {
  const isCopying = ["import", "export"].includes(job.kind);
  return [
    movesSlots(job) && !job.is_cancelled ? button("Speed…", () => pace(job)) : null,
    isCopying && !job.is_cancelled
      ? button(job.is_finishing ? "Finishing" : "Finish", () => finish(job), {
          disabled: job.is_finishing,
        })
      : null,
    job.kind !== "delete"
      ? button(
          job.is_cancelled ? (goesBack(job) ? "Going back" : "Ending") : "Cancel",
          () => cancel(job),
          { disabled: job.is_cancelled },
        )
      : null,
  ];
}

async function cancel(job) {
  const text = goesBack(job)
    ? "It goes back to what was before, as far as it has come."
    : "It ends. What it has done so far stays.";
  const request = requestId();
  if (
    !(await ask({
      title: "Cancel the job",
      danger: false,
      text,
      action: "Cancel the job",
      act: () => send("POST", "/jobs/cancel", { id: job.id }, request),
    }))
  )
    return;
  notice(goesBack(job) ? "The job goes back." : "The job ends.");
}

async function finish(job) {
  const text =
    "It ends as soon as both sides have the same. Send no more writes to the side that is left.";
  const request = requestId();
  if (
    !(await ask({
      title: `Finish the ${job.kind}`,
      text,
      action: "Finish",
      danger: false,
      act: () => send("POST", "/jobs/finish", { id: job.id }, request),
    }))
  )
    return;
  notice("The job ends when both sides are in step.");
}

async function pace(job) {
  const fields = [
    {
      name: "rate",
      label: "At most a second from each source to each target, as in 20mb; 0 is no limit",
      value: typeof job.rate_bytes === "number" ? sizeText(job.rate_bytes) : "",
    },
    {
      name: "priority",
      label: "Priority: of moves that wait, the greatest is next",
      type: "number",
      value: typeof job.priority === "number" ? String(job.priority) : "",
    },
  ];
  const act = (answer) => {
    const body = { id: job.id };
    if (answer.rate.trim() !== "") body.rate_bytes = size(answer.rate);
    if (answer.priority !== "") body.priority = Number(answer.priority);
    return send("POST", "/jobs/pace", body);
  };
  if (
    await ask({ title: "Speed of the slots that move", action: "Set", danger: false, fields, act })
  )
    notice("The speed is set.");
}
