// @ts-check
// The primary, its replicas, and handing the role over.

import { can, get, post } from "../api.js";
import { bytes, duration, exact, visible } from "../format.js";
import { parse } from "../place.js";
import { ask, button, cut, failure, fill, h, notice, panel, raw } from "../ui.js";

// The roles of a database's copies are given by the cluster: its page of the database changes them.
const mayChange = () => parse().database === null;

export async function show(context) {
  const body = h("div", { class: "topology" });
  let timer = 0;
  let isOver = false;

  async function load() {
    const place = await get("/replication");
    if (!isOver) fill(body, draw(place, load));
  }

  async function again() {
    try {
      await load();
    } catch (error) {
      fill(body, failure(error));
    }
    if (!isOver) timer = setTimeout(again, 2000);
  }

  await load();
  timer = setTimeout(again, 2000);
  context.leave = () => {
    isOver = true;
    clearTimeout(timer);
  };
  return [h("div", { class: "title" }, h("h1", {}, "Replication")), body];
}

function draw(place, load) {
  const isPrimary = place.role === "primary";
  const self = h(
    "div",
    { class: "node self" },
    h("b", {}, "This server"),
    h("span", { class: "badge" }, place.role),
    h("span", {}, "position ", h("span", { class: "raw" }, exact(place.offset))),
    actions(place, load),
  );
  const replicas = h(
    "div",
    { class: "children" },
    place.replicas.map((replica) => node(replica, isPrimary, load)),
    place.replicas.length ? null : h("p", { class: "dim" }, "No replica is connected."),
  );
  const busy =
    place.failover !== "no-failover" && place.failover
      ? h(
          "div",
          { class: "node" },
          h("b", { class: "warning-text" }, "The role is being handed over"),
          h("span", {}, visible(place.failover)),
          can("failover")
            ? button("Stop it", async () => {
                await post("/replication/abort", {});
                await load();
              })
            : null,
        )
      : null;
  const up =
    place.primary &&
    h(
      "div",
      { class: "node" },
      h("b", {}, "Primary"),
      raw(visible(place.primary.address)),
      h(
        "span",
        { class: "badge " + (place.primary.is_up ? "good" : "alarm") },
        place.primary.is_up
          ? "link up"
          : place.primary.is_syncing
            ? "receiving the data set"
            : "link down",
      ),
      place.primary.heard_s >= 0
        ? h("span", { class: "dim" }, `heard ${duration(place.primary.heard_s)} ago`)
        : null,
    );
  const tree = up ? [up, h("div", { class: "children" }, self, replicas)] : [self, replicas];
  return [
    busy,
    ...tree,
    panel(
      "History",
      h(
        "dl",
        { class: "facts" },
        [
          ["Id", cut(visible(place.history))],
          ["Position", exact(place.offset)],
          ["Kept for replicas that come back", bytes(place.backlog_bytes)],
        ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
      ),
    ),
  ];
}

function node(replica, isPrimary, load) {
  const isWell = replica.state === "online" && replica.lag_s <= 10;
  return h(
    "div",
    { class: "node" },
    h("b", {}, "Replica"),
    raw(visible(`${replica.host}:${replica.port}`)),
    h("span", { class: "badge " + (isWell ? "good" : "warning") }, visible(replica.state)),
    h("span", {}, `${bytes(replica.behind_bytes)} behind`),
    h("span", { class: "dim" }, `heard ${duration(replica.lag_s)} ago`),
    isPrimary && replica.state === "online" && can("failover") && mayChange()
      ? button("Make it the primary", () => failOver(replica, load))
      : null,
  );
}

async function failOver(replica, load) {
  const isWanted = await ask({
    title: "Hand the role to this replica?",
    action: "Hand it over",
    danger: false,
    text:
      "1. Writes to this server wait (up to 10 s) until " +
      `${visible(replica.host)}:${replica.port} has everything; it lacks ` +
      `${bytes(replica.behind_bytes)} now.\n2. It becomes the primary, and this ` +
      "server its replica.\n3. Other replicas follow this server, and so the new " +
      "primary.\n\nNo write that was acknowledged is lost. Clients that write have " +
      "to connect to the new primary, by Sentinel or by hand. If the replica does " +
      "not catch up in 10 s, all stays as it is.",
  });
  if (!isWanted) return;
  await post("/replication/failover", { host: replica.host, port: replica.port });
  notice("The hand-over has begun.");
  await load();
}

function actions(place, load) {
  if (!mayChange()) return null;
  if (!can("replicaof")) return null;
  const promote =
    place.role === "replica"
      ? button("Make it a primary", async () => {
          const isWanted = await ask({
            title: "Make this server a primary?",
            action: "Make it a primary",
            text:
              `It stops following ${visible(place.primary.address)}. Writes that ` +
              "it has not received are not here, and from then on the two differ. " +
              "Use a hand-over at the primary instead if that one is alive.",
          });
          if (!isWanted) return;
          await post("/replication/follow", {});
          await load();
        })
      : null;
  const follow = button("Follow another server…", async () => {
    const wanted = await ask({
      title: "Follow another server?",
      action: "Follow it",
      word: "replace",
      text:
        "This server becomes a replica. ALL ITS DATA ARE REPLACED by those of the " +
        "other server.",
      fields: [
        { name: "host", label: "Host" },
        { name: "port", label: "Port", type: "number", value: "6379" },
      ],
    });
    if (!wanted) return;
    await post("/replication/follow", { host: wanted.host, port: Number(wanted.port) });
    await load();
  });
  return h("span", { class: "row" }, promote, follow);
}
