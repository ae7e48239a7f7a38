// @ts-check
// Backups: those that are scheduled, those in a place, and what is done with them.

import { bytes, exact, visible } from "../format.js";
import { ask, button, fill, h, notice, panel, raw, table } from "../ui.js";
import { requestId, send } from "../cluster-api.js";
import { size } from "./cluster-fields.js";
import { when } from "./cluster-parts.js";
import { planned } from "./cluster-slots.js";

// The place that was looked at last. It may name keys of a bucket, so no page remembers it.
let place = "";

/** @param {number} ms since 1970; 0 is never */
const moment = (ms) => (ms ? when(ms) : "–");
/** @type {[number, string][]} */
const spans = [
  [86400, "day"],
  [3600, "hour"],
  [60, "minute"],
];

function span(seconds) {
  const [size, unit] = spans.find(([it]) => seconds >= it && seconds % it === 0) || [1, "second"];
  const count = seconds / size;
  return count === 1 ? `every ${unit}` : `every ${count} ${unit}s`;
}

export async function show() {
  const found = h("div");
  const at = h("input", {
    type: "text",
    value: place,
    placeholder: "/mnt/backups or s3://bucket/prefix",
    spellcheck: "false",
    autocomplete: "off",
  });
  const schedules = h("div");

  async function look() {
    place = at.value.trim();
    if (!place) return;
    fill(found, list(await send("POST", "/backups/list", { at: place }), look));
  }
  async function again() {
    fill(schedules, rounds(await send("GET", "/schedules"), again));
  }
  async function create() {
    const databases = (await send("GET", "/databases")).map((it) => it.name);
    if (!databases.length) return notice("There is no database yet.");
    const fields = [
      { name: "database", label: "Database", options: databases },
      {
        name: "at",
        label: "Location of the backups",
        value: place,
        placeholder: "/mnt/backups or s3://bucket/prefix",
      },
      {
        name: "hours",
        label: "Repeat every so many hours; empty: once",
        type: "number",
        min: "0",
        step: "any",
      },
      {
        name: "keep",
        label: "Keep so many of them; empty: all",
        type: "number",
        min: "1",
      },
    ];
    const id = requestId();
    const act = (given) => {
      const body = { database: given.database, at: given.at };
      if (given.hours) body.every_s = Math.round(Number(given.hours) * 3600);
      if (given.keep) body.keep = Number(given.keep);
      return send("POST", "/backups", body, id);
    };
    const answer = await ask({
      title: "Back up a database",
      action: "Back up",
      danger: false,
      fields,
      act,
    });
    if (!answer) return;
    notice(
      answer.hours
        ? "The backups are scheduled, the first begins now: see Jobs."
        : "The backup has begun: see Jobs.",
    );
    at.value = answer.at;
    await again();
  }

  await again();
  const show = h(
    "form",
    { class: "row end" },
    h("label", { class: "wide" }, "Location ", at),
    h("button", { type: "submit" }, "Show"),
  );
  show.addEventListener("submit", (event) => {
    event.preventDefault();
    look().catch((error) => notice(error.message, "alarm"));
  });
  if (place) await look().catch((error) => notice(error.message, "alarm"));
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Backups"),
      h("span", { class: "space" }),
      button("Back up", create, { kind: "primary" }),
    ),
    panel("Scheduled backups", schedules),
    panel("Backups at a location", show, found),
  ];
}

function rounds(list, again) {
  async function stop(it) {
    const act = () => send("DELETE", "/schedules", { name: it.database });
    if (
      !(await ask({
        title: "Stop the backups of " + it.database,
        danger: false,
        text: "No more are made. Those that there are stay.",
        action: "Stop them",
        act,
      }))
    )
      return;
    await again();
  }
  return table(
    [
      {
        name: "database",
        title: "Database",
        cell: (it) => visible(it.database),
        sort: (it) => it.database,
      },
      { name: "at", title: "Location", cell: (it) => raw(visible(it.at)) },
      {
        name: "every",
        title: "Interval",
        cell: (it) => span(it.every_s),
        sort: (it) => it.every_s,
      },
      {
        name: "keep",
        title: "Kept",
        number: true,
        cell: (it) => (it.keep === null ? "all" : it.keep),
      },
      {
        name: "last",
        title: "Last begun",
        cell: (it) => moment(it.last_ms),
        sort: (it) => it.last_ms,
      },
      {
        name: "does",
        title: "",
        class: "does",
        cell: (it) => button("Stop…", () => stop(it)),
      },
    ],
    list,
    { label: "Scheduled backups", empty: "No backup is scheduled." },
  );
}

function list(found, look) {
  const at = place;
  async function restore(it) {
    const fields = [
      { name: "database", label: "Name of the new database" },
      { name: "port", label: "Its port; empty is that of the old one", type: "number", min: "1" },
      { name: "shards", label: "Its shards; empty is as many as before", type: "number", min: "1" },
      {
        name: "replicas",
        label: "Replicas of each shard; empty is as many as before",
        type: "number",
        min: "0",
      },
      { name: "memory", label: "Its memory, as in 10gb; empty is as before" },
    ];
    const bodyOf = (given) => {
      const body = { at, name: it.name, database: given.database };
      for (const name of ["port", "shards", "replicas"])
        if (given[name]) body[name] = Number(given[name]);
      if (given.memory.trim()) body.memory_bytes = size(given.memory);
      return body;
    };
    const act = (given) => send("POST", "/restore?dry_run=true", bodyOf(given));
    const answer = await ask({
      title: "Restore " + it.name,
      action: "Show the plan",
      danger: false,
      fields,
      act,
    });
    if (answer && (await planned("Restore " + it.name, "/restore", bodyOf(answer), "Restore")))
      location.hash = "jobs";
  }
  async function verify(it) {
    await send("POST", "/backups/verify", { at, name: it.name });
    location.hash = "jobs";
  }
  async function remove(it) {
    const act = () => send("DELETE", "/backups", { at, name: it.name });
    if (
      !(await ask({
        title: "Delete the backup",
        text: "Its files are gone afterwards.",
        action: "Delete",
        word: it.name,
        act,
      }))
    )
      return;
    await look();
  }
  return table(
    [
      { name: "name", title: "Backup", cell: (it) => raw(visible(it.name)), sort: (it) => it.name },
      {
        name: "state",
        title: "State",
        cell: (it) =>
          h(
            "span",
            { class: "badge " + (it.state === "ok" ? "good" : "alarm") },
            visible(it.state),
          ),
        sort: (it) => it.state,
      },
      { name: "moment", title: "Time", cell: (it) => moment(it.at_ms), sort: (it) => it.at_ms },
      {
        name: "shards",
        title: "Shards",
        number: true,
        cell: (it) => it.shards,
        sort: (it) => it.shards,
      },
      {
        name: "keys",
        title: "Keys",
        number: true,
        cell: (it) => exact(it.keys),
        sort: (it) => it.keys,
      },
      {
        name: "bytes",
        title: "Bytes",
        number: true,
        cell: (it) => bytes(it.bytes),
        sort: (it) => it.bytes,
      },
      {
        name: "pause",
        title: "Writes paused",
        number: true,
        cell: (it) => `${it.pause_ms} ms`,
        sort: (it) => it.pause_ms,
      },
      {
        name: "does",
        title: "",
        class: "does",
        cell: (it) =>
          h(
            "div",
            { class: "actions" },
            it.state === "ok" ? button("Restore", () => restore(it)) : null,
            button("Verify", () => verify(it)),
            button("Delete", () => remove(it), { kind: "danger" }),
          ),
      },
    ],
    found,
    { label: "Backups", empty: "There is no backup." },
  );
}
