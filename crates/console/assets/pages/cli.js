// @ts-check
// The command line: completion from the table of commands, and replies with their types.

import { get, messages, post } from "../api.js";
import { blob, bytes, blobSize, isCut, usec } from "../format.js";
import { button, copyText, fill, h } from "../ui.js";

// Lines that may have a password in them are not kept. A name may be in quotes.
const secret = /^\W*(auth|hello|migrate|acl|sentinel|config\W+set)\b/i;
const MAX_PAST = 200;
const PAST = "command-history";

/** @returns {string[]} */
function readPast() {
  try {
    const kept = JSON.parse(localStorage.getItem(PAST) || "[]");
    if (!Array.isArray(kept)) return [];
    const lines = kept.filter((line) => typeof line === "string" && !secret.test(line));
    // One with a password may have been kept by a version that did not know it as such.
    if (lines.length < kept.length) keep(lines);
    return lines;
  } catch {
    return [];
  }
}

/** @param {string[]} lines */
function keep(lines) {
  try {
    localStorage.setItem(PAST, JSON.stringify(lines));
  } catch {
    /* they are kept for this page */
  }
}

const past = readPast();

/** @param {string} line */
function remember(line) {
  if (secret.test(line)) return;
  if (past[past.length - 1] !== line) past.push(line);
  past.splice(0, past.length - MAX_PAST);
  keep(past);
}

const output = h("div", { class: "terminal", role: "log", tabindex: "0", "aria-label": "Replies" });
let db = 0;
let commands = null;

const dangerous = /^\s*(flushall|flushdb|shutdown|debug|replicaof|slaveof|failover|swapdb)\b/i;

export async function show(context) {
  const hint = h("div", { class: "hint", id: "hint", "aria-live": "polite" });
  const prompt = h("input", {
    type: "text",
    class: "prompt raw",
    "aria-label": "Command",
    "aria-describedby": "hint",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    placeholder: "Command, Tab completes, ↑ repeats",
  });
  let at = past.length;
  // What is being written, while lines of before are looked at.
  let draft = "";
  let stop = null;
  let armed = "";
  if (!commands) commands = await get("/commands").catch(() => []);

  const matching = () => {
    const text = prompt.value.trimStart().toLowerCase();
    return text ? commands.filter((command) => command.name.startsWith(text)) : [];
  };
  const current = () => {
    const text = prompt.value.trimStart().toLowerCase() + " ";
    return commands
      .filter((command) => text.startsWith(command.name + " "))
      .sort((a, b) => b.name.length - a.name.length)[0];
  };

  function help() {
    const command = current();
    if (command)
      hint.textContent = `${command.name.toUpperCase()} ${command.arguments} — ${command.summary}`;
    else
      hint.textContent = matching()
        .slice(0, 12)
        .map((other) => other.name)
        .join("   ");
  }

  async function run(line) {
    remember(line);
    at = past.length;
    const endless = line.trim().split(/\s+/);
    const name = endless[0].toLowerCase();
    if (stop) {
      stop();
      stop = null;
    }
    output.append(h("div", { class: "said" }, `${db}> ${line}`));
    if (name === "clear") {
      fill(output);
      return;
    }
    if (name === "monitor" || name === "psubscribe" || name === "subscribe") {
      const path = name === "monitor" ? "/monitor" : "/subscribe";
      const ended = () => print(h("span", { class: "dim" }, "It has ended."));
      stop = messages(
        path,
        name === "monitor" ? {} : { pattern: endless[1] || "*" },
        (value) => print(render(value, "")),
        ended,
      );
      print(h("span", { class: "dim" }, "Until the next command."));
      return;
    }
    try {
      const outcome = await post("/command", { line });
      db = outcome.db;
      outcome.messages.forEach((message) => print(render(message, "")));
      print(
        render(outcome.reply, ""),
        h("span", { class: "type" }, ` ${outcome.reply.type} · ${usec(outcome.usec)}`),
      );
    } catch (error) {
      print(h("span", { class: "error" }, error.message));
    }
  }

  function print(...content) {
    output.append(h("pre", {}, content));
    while (output.children.length > 2000) /** @type {ChildNode} */ (output.firstChild).remove();
    output.scrollTop = output.scrollHeight;
  }

  prompt.addEventListener("keydown", async (event) => {
    if (event.key === "Enter" && prompt.value.trim()) {
      const line = prompt.value;
      if (dangerous.test(line) && armed !== line) {
        armed = line;
        hint.textContent = "This can lose data or stop the service. Press Enter again to run it.";
        return;
      }
      armed = "";
      prompt.value = "";
      help();
      await run(line);
    } else if (event.key === "Tab" && !event.shiftKey && matching().length && prompt.value.trim()) {
      event.preventDefault();
      const names = matching().map((command) => command.name);
      let common = names[0];
      while (!names.every((name) => name.startsWith(common))) common = common.slice(0, -1);
      prompt.value = common + (names.length === 1 ? " " : "");
      help();
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      if (at === past.length) draft = prompt.value;
      at = Math.max(0, Math.min(past.length, at + (event.key === "ArrowUp" ? -1 : 1)));
      prompt.value = at === past.length ? draft : past[at];
      help();
    }
  });
  prompt.addEventListener("input", () => {
    armed = "";
    help();
  });
  context.leave = () => {
    if (stop) stop();
  };
  setTimeout(() => prompt.focus(), 0);
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Command line"),
      h("span", { class: "space" }),
      button("Clear", () => fill(output)),
      button("History…", () => chooseFromPast(prompt)),
      button("Copy", () => copyText(output.innerText)),
    ),
    output,
    h("div", { class: "row" }, prompt),
    hint,
  ];
}

const text = (value) => (isCut(value) ? `${blob(value)} (${bytes(blobSize(value))})` : blob(value));

// A text with its lines, whichever ends they have.
const lines = (value) =>
  blob(typeof value === "string" ? value.replaceAll("\r\n", "\n") : value, true);

/**
 * Shows the lines of before, of which one can be taken.
 * @param {HTMLInputElement} prompt
 */
function chooseFromPast(prompt) {
  const list = h("div", { class: "past" });
  const search = h("input", { type: "search", "aria-label": "Search", placeholder: "Part of it" });
  const dialog = h(
    "dialog",
    { "aria-label": "History", class: "wide" },
    h("h2", {}, "History"),
    search,
    list,
    h(
      "div",
      { class: "actions" },
      button("Forget all", () => {
        past.length = 0;
        localStorage.removeItem(PAST);
        draw();
      }),
      button("Close", () => dialog.close()),
    ),
  );
  function draw() {
    const wanted = search.value.toLowerCase();
    const found = [...new Set([...past].reverse())].filter((line) =>
      line.toLowerCase().includes(wanted),
    );
    const take = (/** @type {string} */ line) => {
      prompt.value = line;
      dialog.close();
      prompt.focus();
    };
    fill(
      list,
      found.map((line) =>
        h("button", { type: "button", class: "link raw", onclick: () => take(line) }, line),
      ),
      found.length ? null : h("p", { class: "dim" }, "No command yet."),
    );
  }
  search.addEventListener("input", draw);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  draw();
  dialog.showModal();
  search.focus();
}

// A value as redis-cli shows it with RESP3.
function render(value, indent) {
  const rows = (list, mark) =>
    list.map((item, at) => [at ? `\n${indent}` : "", `${mark(at)} `, render(item, indent + "   ")]);
  switch (value.type) {
    case "simple":
      return text(value.value);
    case "error":
      return h("span", { class: "error" }, `(error) ${value.value}`);
    case "integer":
      return `(integer) ${value.value}`;
    case "double":
      return `(double) ${value.value}`;
    case "number":
      return `(big number) ${value.value}`;
    case "boolean":
      return `(${value.value})`;
    case "null":
      return "(nil)";
    case "bulk":
      // A report of several lines is shown as it is written: INFO is one with RESP2.
      if (/^# \w+\r\n/.test(value.value)) return lines(value.value);
      return `"${text(value.value)}"`;
    case "verbatim":
      return lines(value.value);
    case "more":
      return `… and ${value.value} more`;
    case "map":
      return value.value.length
        ? value.value.map(([key, item], at) => [
            at ? `\n${indent}` : "",
            `${at + 1}# `,
            render(key, indent + "   "),
            " => ",
            render(item, indent + "   "),
          ])
        : "(empty map)";
    case "set":
      return value.value.length ? rows(value.value, (at) => `${at + 1}~`) : "(empty set)";
    case "push":
      return rows(value.value, (at) => `${at + 1}>`);
    default:
      return value.value.length ? rows(value.value, (at) => `${at + 1})`) : "(empty array)";
  }
}
