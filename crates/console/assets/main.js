// The frame around the pages: log-in, navigation, theme, and what is shown when the server is gone.

import { loadSession, logIn, logOut, on, session, watch } from "./api.js";
import { failure, fill, h, loading } from "./ui.js";
import { visible } from "./format.js";
import { login } from "./pages/login.js";
import * as now from "./pages/now.js";

// Each page: name, title, and its module, which has show(context) that returns an element and may set
// context.leave.
const pages = [
  ["now", "Now", () => now],
  ["keys", "Keys", () => import("./pages/keys.js")],
  ["clients", "Clients", () => import("./pages/clients.js")],
  ["slow", "Slow log", () => import("./pages/slow.js")],
  ["replication", "Replication", () => import("./pages/replication.js")],
  ["config", "Configuration", () => import("./pages/config.js")],
  ["users", "Users", () => import("./pages/users.js")],
  ["cli", "Command line", () => import("./pages/cli.js")],
  ["events", "Events", () => import("./pages/events.js")],
];

const app = document.getElementById("app");
const theme = {
  get choice() { try { return localStorage.getItem("theme"); } catch { return null; } },
  set choice(value) { try { localStorage.setItem("theme", value); } catch { /* it holds for this page */ } },
};
const system = matchMedia("(prefers-color-scheme: dark)");
function dress(choice = theme.choice) {
  const isDark = choice ? choice === "dark" : system.matches;
  document.documentElement.classList.toggle("dark", isDark);
  window.dispatchEvent(new Event("resize"));
}
dress();
system.addEventListener("change", () => dress());

let stop = () => {};
let leave = () => {};
// The last overview, and the pages that want the next one.
const live = { last: null, listeners: new Set() };

function frame() {
  const parts = {
    main: h("main", { id: "main", tabindex: "-1" }),
    problems: h("a", { class: "badge good", href: "#now" }, "…"),
    role: h("span", { class: "badge" }, "…"),
    name: h("span", { class: "name raw" }),
    lost: h("div", { class: "lost", role: "alert", hidden: true }),
    links: new Map(pages.map(([name, title]) => [name, h("a", { href: `#${name}` }, title)])),
  };
  const leaveButton = h("button", { type: "button", class: "quiet", onclick: async () => {
    try { await logOut(); } catch { /* it ends here in any case */ }
    showLogin("");
  } }, "Log out");
  const toggle = h("button", { type: "button", class: "quiet", title: "Dark or light", "aria-label": "Dark or light", onclick: () => {
    theme.choice = document.documentElement.classList.contains("dark") ? "light" : "dark";
    dress(theme.choice);
  } }, "◐");
  fill(app, h("div", { class: "frame" },
    h("header", { class: "top" },
      h("span", { class: "brand" }, h("img", { src: "assets/icon.svg", alt: "" }), "Dunlin"),
      parts.name, parts.role, parts.problems, parts.lost, h("span", { class: "space" }),
      h("span", { class: "dim who raw" }, visible(session.user)), toggle, leaveButton),
    h("nav", { "aria-label": "Pages" }, h("ul", {}, [...parts.links.values()].map((link) => h("li", {}, link)))),
    parts.main));
  parts.name.textContent = visible(session.server);
  return parts;
}

let parts = null;

function isLost(why) {
  if (!parts) return;
  parts.lost.hidden = !why;
  parts.lost.textContent = why || "";
}

on("lost", (why) => isLost(`${why} Trying again…`));
on("back", () => { isLost(null); if (parts && live.last) show(); });
on("login", (why) => showLogin(why));

function header(document_) {
  const { problems, facts } = document_;
  const worst = problems.find((problem) => problem.level !== "info");
  parts.problems.className = "badge " + (worst ? worst.level : "good");
  const count = problems.filter((problem) => problem.level !== "info").length;
  parts.problems.textContent = count ? `${count} ${count === 1 ? "problem" : "problems"}` : "all well";
  parts.role.textContent = facts.role === "slave" ? "replica" : facts.role ? "primary" : "?";
  const version = facts.dunlin_version ? `Dunlin ${facts.dunlin_version}` : facts.valkey_version ? `Valkey ${facts.valkey_version}` : `Redis ${facts.redis_version || ""}`;
  parts.name.textContent = visible(`${version} · ${session.server}`);
  document.title = (count ? `(${count}) ` : "") + "Dunlin console";
}

async function show() {
  if (!parts) return;
  const [name, rest] = (location.hash.slice(1) || "now").split(/\/(.*)/s);
  const page = pages.find(([other]) => other === name) || pages[0];
  parts.links.forEach((link, other) => (other === page[0] ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")));
  parts.links.get(page[0]).scrollIntoView({ block: "nearest", inline: "center" });
  leave();
  leave = () => {};
  const { main } = parts;
  const context = { main, rest: rest ? decodeURIComponent(rest) : "", live, leave: null };
  fill(main, h("div", { class: "title" }, h("h1", {}, page[1])), loading());
  const mine = (show.turn = (show.turn || 0) + 1);
  try {
    const module = await page[2]();
    const content = await module.show(context);
    if (mine !== show.turn) {
      if (context.leave) context.leave();
      return;
    }
    fill(main, content);
    leave = context.leave || (() => {});
  } catch (error) {
    if (mine === show.turn) fill(main, h("div", { class: "title" }, h("h1", {}, page[1])), failure(error));
  }
}

function showLogin(why) {
  stop();
  leave();
  leave = () => {};
  parts = null;
  live.last = null;
  fill(app, login(why, async (user, password) => {
    await logIn(user, password);
    begin();
  }));
  const first = app.querySelector("input");
  if (first) first.focus();
}

function begin() {
  parts = frame();
  stop = watch((document_, error) => {
    if (error) {
      // A user that may not see INFO can use the other pages nevertheless.
      if (error.status === 401) showLogin(error.message);
      else parts.problems.textContent = "no overview";
      return;
    }
    live.last = document_;
    header(document_);
    live.listeners.forEach((listener) => listener(document_));
  });
  show();
}

window.addEventListener("hashchange", () => {
  show();
  if (parts) parts.main.focus({ preventScroll: true });
});

// g and a letter go to a page; / goes to the search field.
let before = "";
window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !parts) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const field = parts.main.querySelector("input[type=search], .prompt");
    if (field) { event.preventDefault(); field.focus(); }
  } else if (before === "g") {
    const page = pages.find(([name]) => name[0] === event.key) || (event.key === "l" && pages.find(([name]) => name === "cli"));
    if (page) location.hash = page[0];
  }
  before = event.key;
});

async function start() {
  try {
    await loadSession();
    // Where no password is needed, there is a session all the same: its token guards changes.
    if (!session.kept) await logIn("", "");
    begin();
  } catch (error) {
    showLogin(error.status === 401 && error.code === "LOGIN" && error.message === "Log in first" ? "" : error.message);
  }
}
start();
