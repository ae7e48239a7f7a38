// @ts-check
// The console: logging in, the frame, and the way from an address to a page.

import { enter, loadSession, logIn, logOut, on, session, watch } from "./api.js";
import { send } from "./cluster-api.js";
import { makeFrame, watchCluster } from "./frame.js";
import { login } from "./pages/login.js";
import { clusterPages, innerPages, serverPages } from "./pages.js";
import { LEADER, link, parse, shows } from "./place.js";
import { wear } from "./theme.js";
import { failure, fill, h, loading } from "./ui.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app"));

let frame = null;
let leave = () => {};
let stop = () => {};
// What is watched: "cluster", or the address of a server. Pages that are about the same share it.
let watched = null;
// The database whose copy is watched.
let shown = null;
// The last overview of the server, and the pages that want the next one.
const live = { last: null, listeners: new Set() };

function leavePage() {
  leave();
  leave = () => {};
}

function unwatch() {
  stop();
  stop = () => {};
  watched = null;
  live.last = null;
  live.listeners.clear();
}

function watchServer() {
  stop = watch((document_, error) => {
    if (!frame) return;
    if (error) {
      // A user that may not see INFO can use the other pages nevertheless.
      if (error.status === 401) showLogin(error.message);
      else frame.describeNothing("no overview");
      return;
    }
    live.last = document_;
    frame.describeServer(document_);
    live.listeners.forEach((listener) => listener(document_));
  });
}

// The copy that leads the first shard that has a leader.
function leader(database) {
  const copies = database.shards.flatMap((shard) => shard.copies);
  const found = copies.find((copy) => copy.role === "primary") || copies[0];
  if (!found) throw new Error("The database has no copy yet.");
  return found.id;
}

// Prepares for a place: what is shown above the page is about it.
async function arrive(place, mine) {
  const wanted = place.database !== null ? `${place.database}/${place.copy}` : shows;
  if (wanted === watched) return;
  unwatch();
  frame.describeNothing("…");
  if (place.database !== null) {
    const database = await send("GET", "/database?name=" + encodeURIComponent(place.database));
    if (mine !== turn) return;
    await enter(place.copy === LEADER ? leader(database) : place.copy);
    if (mine !== turn) return;
    shown = database;
    watchServer();
  } else {
    if (shows === "cluster") {
      await enter(null);
      if (mine !== turn) return;
      stop = watchCluster(frame.describeCluster);
    } else watchServer();
  }
  watched = wanted;
}

const heading = (title) => h("div", { class: "title" }, h("h1", {}, title));

function pageOf(place) {
  const list =
    place.database !== null || shows === "server" ? serverPages : [...clusterPages, ...innerPages];
  return list.find(([name]) => name === place.name) || list[0];
}

// Counts the pages that were opened: what a page before the last one brings late is dropped.
let turn = 0;

async function show() {
  if (!frame) return;
  const mine = (turn += 1);
  leavePage();
  // No dialog of the page before can be taken for one of this.
  for (const dialog of /** @type {NodeListOf<HTMLDialogElement>} */ (
    document.querySelectorAll("dialog[open]")
  ))
    dialog.close();
  const place = parse();
  const page = pageOf(place);
  frame.show(place, page[0]);
  frame.lose(null);
  const { main } = frame;
  fill(main);
  const patience = setTimeout(() => {
    if (mine === turn) fill(main, heading(page[1]), loading());
  }, 150);
  /** @type {import("./pages.js").Context} */
  const context = {
    main,
    rest: place.rest,
    live,
    leave: null,
    lose: frame.lose,
    describe: frame.describeCluster,
  };
  const leaveContext = () => {
    if (context.leave) context.leave();
  };
  try {
    const [module] = await Promise.all([page[2](), arrive(place, mine)]);
    if (mine !== turn) return;
    if (place.database !== null) frame.choose(place, page[0], shown);
    const content = await module.show(context);
    if (mine !== turn) {
      leaveContext();
      return;
    }
    fill(main, content);
    leave = leaveContext;
  } catch (error) {
    leaveContext();
    if (mine === turn) fill(main, heading(page[1]), failure(error));
  } finally {
    clearTimeout(patience);
  }
}

function showLogin(why) {
  unwatch();
  leavePage();
  turn += 1;
  frame = null;
  fill(
    app,
    login(why, shows, async (user, password) => {
      await logIn(user, password);
      begin();
    }),
  );
  const first = app.querySelector("input");
  if (first) first.focus();
}

function begin() {
  frame = makeFrame(app, async () => {
    try {
      await logOut();
    } catch {
      /* it ends here in any case */
    }
    showLogin("");
  });
  show();
}

on("lost", (why) => {
  if (frame) frame.lose(`${why} Trying again…`);
});
on("back", () => {
  if (!frame) return;
  frame.lose(null);
  if (live.last) show();
});
on("login", (why) => showLogin(why));

window.addEventListener("hashchange", () => {
  show();
  if (frame) frame.main.focus({ preventScroll: true });
});

// g and a letter go to a page; / goes to the search field.
let before = "";
window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !frame) return;
  if (
    /^(INPUT|TEXTAREA|SELECT)$/.test(/** @type {Element} */ (event.target).tagName) ||
    document.querySelector("dialog[open]")
  )
    return;
  if (event.key === "/") {
    const field = frame.main.querySelector("input[type=search], .prompt");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (before === "g") {
    const isOfServer = parse().database !== null || shows === "server";
    const list = isOfServer ? serverPages : clusterPages;
    const page =
      list.find(([name]) => name[0] === event.key) ||
      (event.key === "l" && list.find(([name]) => name === "cli"));
    if (page) location.hash = isOfServer ? link(page[0]) : page[0];
  }
  before = event.key;
});

async function start() {
  wear();
  try {
    await loadSession();
    // Where no password is needed, there is a session all the same: its token guards changes.
    if (!session.kept) await logIn("", "");
    begin();
  } catch (error) {
    showLogin(
      error.status === 401 && error.code === "LOGIN" && error.message === "Log in first"
        ? ""
        : error.message,
    );
  }
}
start();
