// @ts-check
// What a change would do, drawn before it is done: copies, slots, bytes, minutes.

import { bytes, exact, visible } from "../format.js";
import { h, raw, table } from "../ui.js";

const minutes = (value) => (value < 1 ? "less than a minute" : `about ${Math.ceil(value)} minutes`);

export function drawPlan(plan) {
  const parts = plan.warnings.map((warning) => h("p", { class: "warning-text" }, visible(warning)));
  if (plan.copies.length) {
    const ofSeveral = plan.copies.some((it) => it.database);
    parts.push(
      h("h3", {}, "New copies"),
      table(
        [
          ...(ofSeveral
            ? [{ name: "database", title: "Database", cell: (it) => visible(it.database) }]
            : []),
          { name: "shard", title: "Shard", number: true, cell: (it) => it.shard },
          { name: "role", title: "Role", cell: (it) => it.role },
          { name: "machine", title: "Machine", cell: (it) => visible(it.machine) },
          { name: "zone", title: "Zone", cell: (it) => visible(it.zone || "–") },
          {
            name: "address",
            title: "Address",
            cell: (it) => raw(visible(`${it.host}:${it.port}`)),
          },
          { name: "memory", title: "Memory", number: true, cell: (it) => bytes(it.memory_bytes) },
        ],
        plan.copies,
        { label: "New copies" },
      ),
    );
  }
  if (plan.removed.length) {
    parts.push(
      h("h3", {}, "Copies that go"),
      table(
        [
          { name: "shard", title: "Shard", number: true, cell: (it) => it.shard },
          { name: "machine", title: "Machine", cell: (it) => visible(it.machine) },
          {
            name: "address",
            title: "Address",
            cell: (it) => raw(visible(`${it.host}:${it.port}`)),
          },
        ],
        plan.removed,
        { label: "Copies that go" },
      ),
    );
  }
  if (plan.moves.length) {
    parts.push(
      h("h3", {}, "Slots that move"),
      table(
        [
          { name: "from", title: "From shard", number: true, cell: (it) => it.from },
          { name: "to", title: "To shard", number: true, cell: (it) => it.to },
          { name: "slots", title: "Slots", number: true, cell: (it) => exact(it.slots) },
          { name: "keys", title: "Keys", number: true, cell: (it) => exact(it.keys) },
          { name: "bytes", title: "Bytes", number: true, cell: (it) => bytes(it.bytes) },
        ],
        plan.moves,
        { label: "Slots that move" },
      ),
    );
  }
  const isQuiet =
    !plan.warnings.length && !plan.copies.length && !plan.removed.length && !plan.moves.length;
  const memory = plan.copies.reduce((sum, copy) => sum + copy.memory_bytes, 0);
  const said = [
    isQuiet ? "No copy comes or goes, and no slot moves." : "",
    memory ? `New copies may have ${bytes(memory)} of memory in all.` : "",
    plan.bytes
      ? `About ${bytes(plan.bytes)} are sent, which takes ` +
        `${minutes(plan.minutes)}. Clients go on meanwhile.`
      : plan.moves.length
        ? "Clients go on meanwhile."
        : "",
  ];
  parts.push(h("p", { class: "summary" }, said.filter(Boolean).join(" ")));
  return parts;
}
