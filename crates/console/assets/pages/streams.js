// @ts-check
// Consumer groups of a stream: their consumers, entries that wait for a confirmation, and claiming.

import { can, fields, plain, run } from "../api.js";
import { blob, duration, exact, readDuration, sameBlob, writeDuration } from "../format.js";
import { ask, button, fill, h, notice, raw, table } from "../ui.js";

// Entries of the list of what waits.
const MAX_PENDING = 100;

/**
 * The groups of a stream.
 * @param {number} db
 * @param {any} key
 */
export async function groupsOf(db, key) {
  const root = h("div");

  /**
   * @param {any} [opened] the group whose pending entries are shown
   */
  async function load(opened) {
    const groups = plain(await run(db, ["XINFO", "GROUPS", key])).map(fields);
    fill(
      root,
      h("div", { class: "row" }, h("h3", {}, "Consumer groups"), create()),
      groups.length ? await list(groups, opened) : h("p", { class: "dim" }, "There is no group."),
    );
  }

  function create() {
    if (!can("xgroup|create")) return null;
    return button("Create a group…", async () => {
      const act = (/** @type {Record<string, string>} */ given) =>
        run(db, ["XGROUP", "CREATE", key, given.name, given.from]);
      const isDone = await ask({
        title: "A consumer group",
        action: "Create",
        danger: false,
        fields: [
          { name: "name", label: "Name", required: true },
          {
            name: "from",
            label: "It begins",
            options: [
              ["$", "with entries that come from now on"],
              ["0", "with the first entry of the stream"],
            ],
          },
        ],
        act,
      });
      if (isDone) await load();
    });
  }

  /**
   * @param {any[]} groups
   * @param {any} opened
   */
  async function list(groups, opened) {
    const of = h("div");
    const open = async (/** @type {any} */ name) => fill(of, await group(name));
    const columns = [
      { title: "Group", cell: (it) => raw(blob(it.name)) },
      { title: "Consumers", number: true, cell: (it) => exact(it.consumers) },
      { title: "Pending", number: true, cell: (it) => exact(it.pending) },
      {
        title: "Lag",
        number: true,
        cell: (it) => (it.lag === null || it.lag === undefined ? "–" : exact(it.lag)),
      },
      { title: "Last delivered", cell: (it) => raw(blob(it["last-delivered-id"])) },
      {
        title: "",
        class: "does",
        cell: (it) =>
          h("div", { class: "actions" }, [
            button("Pending", () => open(it.name), { kind: "quiet" }),
            can("xgroup|destroy")
              ? button("Delete", () => drop(it), { kind: "quiet", title: "Delete the group" })
              : null,
          ]),
      },
    ];
    if (groups.some((it) => opened !== undefined && sameBlob(it.name, opened))) await open(opened);
    return [table(columns, groups, { label: "Consumer groups" }), of];
  }

  /** @param {any} it */
  async function drop(it) {
    const text = `Its place and its ${exact(it.pending)} pending entries are lost.`;
    const act = () => run(db, ["XGROUP", "DESTROY", key, it.name]);
    const isDone = await ask({ title: "Delete the group?", action: "Delete it", text, act });
    if (isDone) await load();
  }

  /**
   * The consumers of a group, and what waits for their confirmation.
   * @param {any} name
   */
  async function group(name) {
    const consumers = plain(await run(db, ["XINFO", "CONSUMERS", key, name])).map(fields);
    const pending = plain(await run(db, ["XPENDING", key, name, "-", "+", String(MAX_PENDING)]));
    const again = () => load(name);
    const idle = (/** @type {any} */ ms) => duration(Number(ms) / 1000);
    return [
      h("h3", {}, "Consumers of ", raw(blob(name))),
      table(
        [
          { title: "Consumer", cell: (it) => raw(blob(it.name)) },
          { title: "Pending", number: true, cell: (it) => exact(it.pending) },
          { title: "Idle", number: true, cell: (it) => idle(it.idle) },
        ],
        consumers,
        { label: "Consumers", empty: "No consumer has read yet." },
      ),
      h("h3", {}, "Pending: delivered, not confirmed"),
      table(
        [
          { title: "Entry", cell: (it) => raw(blob(it[0])) },
          { title: "Consumer", cell: (it) => raw(blob(it[1])) },
          { title: "Since", number: true, cell: (it) => idle(it[2]) },
          { title: "Deliveries", number: true, cell: (it) => exact(it[3]) },
          {
            title: "",
            class: "does",
            cell: (it) =>
              h("div", { class: "actions" }, [
                can("xclaim") ? claimButton(name, it, again) : null,
                can("xack") ? confirmButton(name, it, again) : null,
              ]),
          },
        ],
        pending,
        { label: "Pending entries", empty: "Nothing is pending." },
      ),
      pending.length === MAX_PENDING
        ? h("p", { class: "dim" }, `The first ${MAX_PENDING} are shown.`)
        : null,
    ];
  }

  /**
   * @param {any} name
   * @param {any} entry
   * @param {() => Promise<void>} again
   */
  function claimButton(name, [id, consumer, idle], again) {
    return button(
      "Claim…",
      async () => {
        const act = async (/** @type {Record<string, string>} */ given) => {
          const least = String(readDuration(given.least));
          const words = ["XCLAIM", key, name, given.consumer, least, id, "JUSTID"];
          const claimed = plain(await run(db, words));
          if (!claimed.length) throw new Error("It was not claimed: it is not idle for that long.");
        };
        const isDone = await ask({
          title: `Claim ${id}`,
          action: "Claim",
          danger: false,
          text: `It is with ${blob(consumer)}, for ${writeDuration(Number(idle))}.`,
          fields: [
            { name: "consumer", label: "Give it to the consumer", required: true },
            { name: "least", label: "If it is idle for at least", value: "0 s" },
          ],
          act,
        });
        if (!isDone) return;
        notice("The entry is claimed.");
        await again();
      },
      { kind: "quiet" },
    );
  }

  /**
   * @param {any} name
   * @param {any} entry
   * @param {() => Promise<void>} again
   */
  function confirmButton(name, [id], again) {
    return button(
      "Confirm…",
      async () => {
        const text = "The group takes it as done: no consumer gets it again.";
        const act = () => run(db, ["XACK", key, name, id]);
        const question = {
          title: `Confirm ${id}?`,
          action: "Confirm it",
          danger: false,
          text,
          act,
        };
        if (await ask(question)) await again();
      },
      { kind: "quiet" },
    );
  }

  await load();
  return root;
}
