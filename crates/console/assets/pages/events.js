// @ts-check
// What happened when.

import { get } from "../api.js";
import { moment, time, visible } from "../format.js";
import { fill, h } from "../ui.js";

export async function show(context) {
  const list = h("ul", { class: "timeline" });
  let events = [];
  async function load() {
    const last = events.length ? events[events.length - 1].id : 0;
    events = events.concat(await get("/events", { since: last })).slice(-500);
    fill(
      list,
      [...events]
        .reverse()
        .map((event) =>
          h(
            "li",
            {},
            h("span", { class: "dim" }, h("time", { title: time(event.at) }, moment(event.at))),
            h("span", { class: `badge ${event.level}` }, event.level),
            h("span", {}, visible(event.text)),
          ),
        ),
      events.length
        ? null
        : h("li", { class: "empty" }, "Nothing has happened since the console started."),
    );
  }
  await load();
  const update = () => load().catch(() => {});
  context.live.listeners.add(update);
  context.leave = () => context.live.listeners.delete(update);
  return [h("div", { class: "title" }, h("h1", {}, "Events")), h("div", { class: "panel" }, list)];
}
