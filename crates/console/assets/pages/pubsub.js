// @ts-check
// Publish and subscribe: messages of channels as they come, and sending one.

import { can, messages, plain, run } from "../api.js";
import { blob, exact, time } from "../format.js";
import { button, failure, fill, h, notice, raw, table } from "../ui.js";

// Messages that are shown; the oldest goes when one more comes.
const MAX_SHOWN = 500;

// Channels that are listed.
const MAX_CHANNELS = 200;

let pattern = "*";

export async function show(context) {
  const list = h("tbody");
  const state = h("span", { class: "badge" }, "not subscribed");
  const wanted = h("input", { type: "text", value: pattern, spellcheck: "false" });
  const subscribe = h("button", { type: "submit", class: "primary" }, "Subscribe");
  let count = 0;
  /** @type {(() => void) | null} */
  let end = null;

  function stop() {
    if (end) end();
    end = null;
    state.className = "badge";
    state.textContent = count ? `${exact(count)} received; stopped` : "not subscribed";
    subscribe.textContent = "Subscribe";
  }

  /** @param {any} message as RESP3 has it: pmessage, pattern, channel, text */
  function add(message) {
    const [kind, , channel, text] = plain(message);
    if (kind !== "pmessage") return;
    count += 1;
    state.textContent = `${exact(count)} ${count === 1 ? "message" : "messages"}`;
    list.prepend(
      h(
        "tr",
        {},
        h("td", { class: "moment" }, time(Date.now() / 1000, false)),
        h("td", {}, raw(blob(channel))),
        h("td", {}, h("span", { class: "whole" }, raw(blob(text)))),
      ),
    );
    while (list.children.length > MAX_SHOWN && list.lastChild) list.lastChild.remove();
  }

  function begin() {
    stop();
    pattern = wanted.value || "*";
    count = 0;
    fill(list);
    end = messages("/subscribe", { pattern }, add, () => {
      end = null;
      stop();
      notice("The subscription has ended.", "alarm");
    });
    state.className = "badge good";
    state.textContent = `subscribed to ${pattern}`;
    subscribe.textContent = "Stop";
  }

  const form = h("form", { class: "row end" });
  fill(form, h("label", { class: "wide" }, "Channels, as a pattern", wanted), subscribe, state);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (end) stop();
    else begin();
  });
  context.leave = stop;
  const head = ["Time", "Channel", "Message"].map((title) => h("th", { scope: "col" }, title));
  return [
    h("div", { class: "title" }, h("h1", {}, "Publish and subscribe")),
    h(
      "div",
      { class: "panel" },
      form,
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Messages" },
        h("table", {}, h("thead", {}, h("tr", {}, head)), list),
      ),
    ),
    can("publish") ? publishing() : null,
    channels(),
  ];
}

function publishing() {
  const channel = h("input", { type: "text", spellcheck: "false", required: true });
  const text = h("textarea", { rows: 2, spellcheck: "false" });
  const form = h(
    "form",
    { class: "panel" },
    h("h2", {}, "Send a message"),
    h("label", {}, "Channel", channel),
    h("label", {}, "Message", text),
    h("div", { class: "actions" }, h("button", { type: "submit" }, "Publish")),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const got = plain(await run(0, ["PUBLISH", channel.value, text.value]));
      notice(`Sent to ${exact(got)} subscribers of this server.`);
    } catch (error) {
      notice(error.message, "alarm");
    }
  });
  return form;
}

function channels() {
  const list = h("div");
  async function load() {
    const all = plain(await run(0, ["PUBSUB", "CHANNELS"])).slice(0, MAX_CHANNELS);
    const counts = all.length ? plain(await run(0, ["PUBSUB", "NUMSUB", ...all])) : [];
    const patterns = plain(await run(0, ["PUBSUB", "NUMPAT"]));
    const rows = all.map((name, at) => ({ name, count: Number(counts[2 * at + 1]) }));
    fill(
      list,
      table(
        [
          { name: "name", title: "Channel", cell: (it) => raw(blob(it.name)) },
          {
            name: "count",
            title: "Subscribers",
            number: true,
            cell: (it) => exact(it.count),
            sort: (it) => it.count,
          },
        ],
        rows,
        { label: "Channels", empty: "No client subscribes to a channel." },
      ),
      h("p", { class: "dim" }, `${exact(patterns)} patterns are subscribed to.`),
    );
  }
  load().catch((error) => fill(list, failure(error)));
  const title = h("div", { class: "row" }, h("h2", {}, "Channels"), button("Refresh", load));
  return h("section", { class: "panel" }, title, list);
}
