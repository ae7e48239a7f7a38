// @ts-check
// What happened in the cluster.

import { visible } from "../format.js";
import { polled } from "../polling.js";
import { h, panel, table } from "../ui.js";
import { send } from "../cluster-api.js";
import { when } from "./cluster-parts.js";

export const show = (context) =>
  polled(context, async () => [
    h("h1", {}, "Events"),
    panel("The newest first", events(await send("GET", "/events"))),
  ]);

function events(list) {
  return table(
    [
      { name: "at", title: "Time", cell: (it) => when(it.at_ms), sort: (it) => it.at_ms },
      {
        name: "machine",
        title: "Machine",
        cell: (it) => visible(it.machine),
        sort: (it) => it.machine,
      },
      { name: "text", title: "Event", cell: (it) => visible(it.text) },
    ],
    list,
    { label: "Events", empty: "Nothing has happened yet." },
  );
}
