// The console of a cluster: machines, databases with their shards and copies, jobs, events. A node serves it.

import { bytes, duration, number, time, visible } from "./format.js";
import { ask, button, failure, fill, h, loading, notice, panel, progress, raw, table } from "./ui.js";
import { backups } from "./pages/cluster-backups.js";
import { change } from "./pages/cluster-change.js";
import { create } from "./pages/cluster-create.js";
import { hashing } from "./pages/cluster-hashing.js";
import { machines } from "./pages/cluster-machines.js";
import { slots } from "./pages/cluster-slots.js";
import { users } from "./pages/cluster-users.js";
import { size, sizeText } from "./pages/cluster-fields.js";
import { requestId, send } from "./cluster-api.js";

const pages = [["overview", "Overview"], ["databases", "Databases"], ["machines", "Machines"], ["jobs", "Jobs"], ["hashing", "Hashing rules"], ["backups", "Backups"], ["events", "Events"]];
const badge = (text, level) => h("span", { class: "badge " + level }, text);
const when = (ms) => time(ms / 1000);
const sentence = (text) => text.endsWith(".") ? text : text + ".";
const healthBadge = (it) => badge(visible(it.health), it.health === "ok" ? "good" : it.stage === "creating" ? "info" : it.is_available ? "warning" : "alarm");

const frame = { main: h("main", { id: "main", tabindex: "-1" }), title: h("span", { class: "dim" }), lost: h("div", { class: "lost", role: "alert", hidden: true }), links: [] };
let timer = 0;
let turn = 0;

const system = matchMedia("(prefers-color-scheme: dark)");
const dress = () => document.documentElement.classList.toggle("dark", system.matches);

function start() {
  dress();
  system.addEventListener("change", dress);
  frame.links = pages.map(([name, title]) => h("a", { href: "#" + name }, title));
  const top = h("header", { class: "top" }, h("span", { class: "brand" }, h("img", { src: "assets/icon.svg", alt: "" }), "Dunlin cluster"), frame.title, h("span", { class: "space" }));
  fill(document.getElementById("app"), h("div", { class: "frame" }, frame.lost, top, h("nav", { "aria-label": "Pages" }, h("ul", {}, frame.links.map((link) => h("li", {}, link)))), frame.main));
  window.addEventListener("hashchange", open);
  // What was changed is seen at once.
  window.addEventListener("changed", () => { if (!(place()[0] in forms)) look(); });
  open();
  send("GET", "").then(entitle).catch(() => { /* the page says so */ });
}

function entitle(status) {
  frame.title.textContent = `${status.cluster} · machine ${status.machine}`;
}

// The name of the page, and what it is about.
function place() {
  const [name, ...of] = (location.hash.slice(1) || "overview").split("/");
  try {
    return [name, decodeURIComponent(of.join("/"))];
  } catch {
    return [name, of.join("/")];
  }
}

function look() {
  clearTimeout(timer);
  turn += 1;
  return again(turn, ...place());
}

function open() {
  clearTimeout(timer);
  turn += 1;
  const mine = turn;
  const [name, of] = place();
  frame.links.forEach((link, at) => {
    const isHere = pages[at][0] === name || (["create", "change", "slots"].includes(name) && pages[at][0] === "databases");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  // Nothing of the page before can be taken for this one.
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  frame.lost.hidden = true;
  fill(frame.main);
  setTimeout(() => { if (mine === turn && !frame.isShown) fill(frame.main, loading()); }, 200);
  frame.isShown = false;
  if (name in forms) return form(turn, forms[name], of);
  return again(turn, name, of);
}

// Pages that stay as they are while they are filled in.
const forms = { create, change, slots, hashing, backups };

async function form(mine, page, of) {
  let parts;
  try {
    parts = await page(of);
  } catch (error) {
    parts = failure(error);
  }
  if (mine === turn) {
    fill(frame.main, parts);
    frame.isShown = true;
  }
}

async function again(mine, name, of) {
  try {
    const parts = await draw(name, of);
    if (mine !== turn) return;
    // What somebody is about to do stays where it is.
    if (!document.querySelector("dialog[open], main [aria-busy]")) redraw(parts);
    frame.isShown = true;
    frame.lost.hidden = true;
    frame.seen = Date.now();
  } catch (error) {
    if (mine !== turn) return;
    if (error.isAway && frame.isShown) {
      fill(frame.lost, visible(`${sentence(error.message)} What is shown is of ${when(frame.seen)}.`)).hidden = false;
    } else {
      fill(frame.main, failure(error));
    }
  }
  timer = setTimeout(() => again(mine, name, of), 2000);
}

// Draws a page anew: the focus, and what was scrolled, stay where they were.
function redraw(parts) {
  const { main } = frame;
  const reachable = () => [...main.querySelectorAll("a, button, [tabindex]")];
  // Buttons of the same name are told apart by the first cells of their rows, which do not change.
  const known = (element) => {
    const row = element.closest("tbody tr");
    return [element.innerText, ...row ? [...row.cells].slice(0, 3).map((cell) => cell.innerText) : []].join("\n");
  };
  const before = reachable();
  const at = before.indexOf(document.activeElement);
  const wanted = at < 0 ? "" : known(before[at]);
  const scrolled = [...main.querySelectorAll(".scroll")].map((part) => [part.scrollLeft, part.scrollTop]);
  fill(main, parts);
  main.querySelectorAll(".scroll").forEach((part, number) => { if (scrolled[number]) [part.scrollLeft, part.scrollTop] = scrolled[number]; });
  if (at < 0) return;
  const distance = ([, number]) => Math.abs(number - at);
  const same = reachable().map((element, number) => [element, number]).filter(([element]) => known(element) === wanted);
  same.sort((one, other) => distance(one) - distance(other));
  if (same.length) same[0][0].focus({ preventScroll: true });
}

async function draw(name, of) {
  if (name === "databases" && of) return database(await send("GET", "/database?name=" + encodeURIComponent(of)), await send("GET", "/jobs"));
  if (name === "databases") return databases(await send("GET", "/databases"));
  if (name === "machines") return [h("h1", {}, "Machines"), panel("All of the cluster", machines(await send("GET", "/machines"), true))];
  if (name === "jobs") return [h("h1", {}, "Jobs"), panel("The newest first", jobs(await send("GET", "/jobs")))];
  if (name === "events") return [h("h1", {}, "Events"), panel("The newest first", events(await send("GET", "/events")))];
  return overview(await send("GET", ""));
}

function overview(status) {
  entitle(status);
  const alive = status.machines.filter((machine) => machine.is_alive).length;
  const facts = [["Machines", `${alive} of ${status.machines.length}`], ["Databases", status.databases.length], ["etcd", `${status.etcd_version}, ${status.etcd_members.length} member${status.etcd_members.length === 1 ? "" : "s"}, ${bytes(status.etcd_bytes)}`]];
  return [
    h("div", { class: "title" }, h("h1", {}, "Overview"), badge(status.problems.length ? `${status.problems.length} to look at` : "all well", status.problems.length ? "warning" : "good"), creator()),
    status.problems.map((problem) => h("p", { class: "warning-text" }, visible(problem))),
    panel("Cluster", h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
    panel("Databases", databaseTable(status.databases)), panel("Machines", machines(status.machines, false)),
    status.jobs.length ? panel("Jobs that run", jobs(status.jobs)) : null];
}

const creator = () => button("Create a database", () => { location.hash = "create"; }, { kind: "primary" });

function databases(list) {
  return [h("div", { class: "title" }, h("h1", {}, "Databases"), creator()), panel("All of the cluster", databaseTable(list))];
}

function databaseTable(list) {
  return table([
    { name: "name", title: "Database", cell: (it) => h("a", { href: "#databases/" + encodeURIComponent(it.name) }, visible(it.name)), sort: (it) => it.name },
    { name: "health", title: "Health", cell: (it) => healthBadge(it), sort: (it) => it.health },
    { name: "port", title: "Port", number: true, cell: (it) => String(it.settings.port), sort: (it) => it.settings.port },
    { name: "shards", title: "Shards", number: true, cell: (it) => it.settings.shards, sort: (it) => it.settings.shards },
    { name: "replicas", title: "Replicas", number: true, cell: (it) => it.settings.replicas, sort: (it) => it.settings.replicas },
    { name: "memory", title: "Memory", number: true, cell: (it) => bytes(it.settings.memory_bytes), sort: (it) => it.settings.memory_bytes },
  ], list, { label: "Databases", empty: "There is no database yet." });
}

function database(it, all) {
  const running = all.filter((job) => job.state === "running" && job.database === it.name);
  const copies = it.shards.flatMap((shard) => shard.copies.map((copy) => ({ ...copy, epoch: shard.epoch, slots: shard.slots, hasPrimary: shard.has_primary })));
  const { settings } = it;
  const facts = [["Port", settings.port], ["Memory", bytes(settings.memory_bytes)], ["Replicas", settings.replicas], ["Endpoint", settings.endpoint], ["Persistence", settings.persistence], ["Eviction", settings.eviction], ["Commit", settings.commit], ["Hashing", settings.hashing && settings.hashing.length ? raw(visible(settings.hashing.join("  "))) : "standard"], ["Databases of SELECT", settings.databases || 1], ["Flash", settings.flash_bytes ? bytes(settings.flash_bytes) : "none"], ["Password", it.has_password ? "yes" : "none"], ["TLS", settings.tls ? "yes" : "no"], ["Zones", settings.zones ? "different" : "any"]];
  return [
    h("div", { class: "title" }, h("h1", {}, visible(it.name)), healthBadge(it), h("span", { class: "space" }),
      button("Change", () => { location.hash = "change/" + encodeURIComponent(it.name); }, { kind: "primary" }), button("Slots", () => { location.hash = "slots/" + encodeURIComponent(it.name); }),
      button("Delete", () => remove(it.name), { kind: "danger" })),
    running.length ? panel("Under way", jobs(running)) : null,
    panel("Options", h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
    panel("Shards and copies", table([
      { name: "shard", title: "Shard", number: true, cell: (copy) => copy.shard, sort: (copy) => copy.shard },
      { name: "slots", title: "Slots", cell: (copy) => raw(copy.slots) },
      { name: "role", title: "Role", cell: (copy) => badge(copy.role === "none" ? "not there" : copy.role, copy.role === "primary" ? "info" : copy.role === "none" ? "alarm" : ""), sort: (copy) => copy.role },
      { name: "machine", title: "Machine", cell: (copy) => visible(copy.machine), sort: (copy) => copy.machine },
      { name: "address", title: "Address", cell: (copy) => raw(visible(`${copy.host}:${copy.port}`)) },
      { name: "used", title: "Memory used", number: true, cell: (copy) => copy.answers ? bytes(copy.used_bytes) : "–", sort: (copy) => copy.used_bytes },
      { name: "ops", title: "Commands/s", number: true, cell: (copy) => copy.answers ? number(copy.commands_per_second) : "–", sort: (copy) => copy.commands_per_second },
      { name: "clients", title: "Clients", number: true, cell: (copy) => copy.answers ? copy.clients : "–", sort: (copy) => copy.clients },
      { name: "lag", title: "Behind", number: true, cell: (copy) => copy.lag_bytes === null ? "–" : bytes(copy.lag_bytes), sort: (copy) => copy.lag_bytes || 0 },
      { name: "process", title: "Process", cell: (copy) => h("span", { title: visible(copy.note) }, copy.process + (copy.restarts ? `, ${copy.restarts} restart${copy.restarts === 1 ? "" : "s"}` : "")), sort: (copy) => copy.process },
      { name: "does", title: "", class: "does", cell: (copy) => actions(it.name, copy) },
    ], copies, { label: "Copies" })),
    users(it.name, it.users)];
}

function actions(name, copy) {
  if (copy.role === "replica" && copy.hasPrimary) {
    return button("Make primary", async () => {
      await send("POST", "/failover", { name, copy: copy.id }, requestId());
      notice("The shard is handed over.");
    });
  }
  if (copy.role !== "none" && !copy.hasPrimary) {
    return button("Recover", async () => {
      const text = `The copy on machine ${copy.machine}, ${copy.host}:${copy.port}, becomes the primary of shard ${copy.shard}. What only other copies have is given up.`;
      const id = requestId();
      const act = () => send("POST", "/recover", { name, copy: copy.id }, id);
      if (await ask({ title: "Recover the shard", text, action: "Recover", word: name, act })) notice("The copy leads its shard.");
    }, { kind: "danger" });
  }
  return null;
}

async function remove(name) {
  const id = requestId();
  if (!await ask({ title: "Delete the database", text: "All its data and copies go.", action: "Delete", word: name, act: () => send("DELETE", "/databases", { name }, id) })) return;
  location.hash = "jobs";
}

function jobs(list) {
  return table([
    { name: "began", title: "Began", class: "moment", cell: (it) => when(it.began_ms), sort: (it) => it.began_ms },
    { name: "kind", title: "Does", cell: (it) => it.kind, sort: (it) => it.kind },
    { name: "database", title: "About", cell: (it) => visible(it.database), sort: (it) => it.database },
    { name: "state", title: "State", cell: (it) => badge(it.state, it.state === "done" ? "good" : it.state === "failed" ? "alarm" : it.state === "running" ? "info" : ""), sort: (it) => it.state },
    { name: "percent", title: "Done", cell: (it) => it.state === "cancelled" ? "–" : [`${it.percent} %`, h("br"), progress(it.percent / 100, `${it.percent} %`)] },
    { name: "machine", title: "By machine", cell: (it) => visible(it.machine), sort: (it) => it.machine },
    { name: "took", title: "Took", number: true, cell: took },
    { name: "text", title: "", cell: (it) => visible([it.text, paced(it)].filter(Boolean).join("; ")) },
    { name: "does", title: "", class: "does", cell: (it) => it.state === "running" ? h("div", { class: "actions" }, doings(it)) : null },
  ], list, { label: "Jobs", empty: "There was no job yet." });
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
    movesSlots(job) && !job.is_cancelled ? button("Pace", () => pace(job)) : null,
    isCopying && !job.is_cancelled ? button(job.is_finishing ? "Finishing" : "Finish", () => finish(job), { disabled: job.is_finishing }) : null,
    job.kind !== "delete" ? button(job.is_cancelled ? (goesBack(job) ? "Going back" : "Ending") : "Cancel", () => cancel(job), { disabled: job.is_cancelled }) : null];
}

async function cancel(job) {
  const text = goesBack(job) ? "It goes back to what was before, as far as it has come." : "It ends. What it has done so far stays.";
  const request = requestId();
  if (!await ask({ title: "Cancel the job", text, action: "Cancel the job", act: () => send("POST", "/jobs/cancel", { id: job.id }, request) })) return;
  notice(goesBack(job) ? "The job goes back." : "The job ends.");
}

async function finish(job) {
  const text = "It ends as soon as both sides have the same. Send no more writes to the side that is left.";
  const request = requestId();
  if (!await ask({ title: `Finish the ${job.kind}`, text, action: "Finish", danger: false, act: () => send("POST", "/jobs/finish", { id: job.id }, request) })) return;
  notice("The job ends when both sides are in step.");
}

async function pace(job) {
  const fields = [
    { name: "rate", label: "At most a second from each source to each target, as in 20mb; 0 is no limit", value: typeof job.rate_bytes === "number" ? sizeText(job.rate_bytes) : "" },
    { name: "priority", label: "Priority: of moves that wait, the greatest is next", type: "number", value: typeof job.priority === "number" ? String(job.priority) : "" },
  ];
  const act = (answer) => {
    const body = { id: job.id };
    if (answer.rate.trim() !== "") body.rate_bytes = size(answer.rate);
    if (answer.priority !== "") body.priority = Number(answer.priority);
    return send("POST", "/jobs/pace", body);
  };
  if (await ask({ title: "Pace of the slots that move", action: "Set", danger: false, fields, act })) notice("The pace is set.");
}

function events(list) {
  return table([
    { name: "at", title: "Time", cell: (it) => when(it.at_ms), sort: (it) => it.at_ms },
    { name: "machine", title: "Machine", cell: (it) => visible(it.machine), sort: (it) => it.machine },
    { name: "text", title: "Event", cell: (it) => visible(it.text) },
  ], list, { label: "Events", empty: "Nothing has happened yet." });
}

start();
