// @ts-check
// The frame around the pages: what is shown, whether it is well, the way to other pages, logging
// out.

import { session } from "./api.js";
import { send } from "./cluster-api.js";
import { visible } from "./format.js";
import { clusterPages, serverPages } from "./pages.js";
import { link, ofCopy, shows } from "./place.js";
import { themeButton } from "./theme.js";
import { fill, h } from "./ui.js";

const encoded = encodeURIComponent;

// Where pages of a cluster that are not in the list belong.
const homes = { create: "databases", change: "databases", slots: "databases" };

// Pages that are about one database.
const isOfDatabase = ({ name, rest }) => ["databases", "change", "slots"].includes(name) && rest;

export function makeFrame(app, logOut) {
  const parts = {
    main: h("main", { id: "main", tabindex: "-1" }),
    problems: h("a", { class: "badge", href: "#" }, "…"),
    role: h("span", { class: "badge", hidden: true }),
    name: h("span", { class: "name raw" }),
    copies: h("select", { class: "copies", "aria-label": "Copy", hidden: true }),
    lost: h("div", { class: "lost", role: "alert", hidden: true }),
    list: h("ul"),
    user: h("span", { class: "dim who raw" }),
    leave: h("button", { type: "button", class: "quiet", onclick: logOut }, "Log out"),
  };
  const brand = shows === "cluster" ? "Dunlin cluster" : "Dunlin";
  fill(
    app,
    h(
      "div",
      { class: "frame" },
      parts.lost,
      h(
        "header",
        { class: "top" },
        h("a", { class: "brand", href: "#" }, h("img", { src: "assets/icon.svg", alt: "" }), brand),
        parts.name,
        parts.copies,
        parts.role,
        parts.problems,
        h("span", { class: "space" }),
        parts.user,
        themeButton(),
        parts.leave,
      ),
      h("nav", { "aria-label": "Pages" }, parts.list),
      parts.main,
    ),
  );
  let links = new Map();

  function item(name, title, href) {
    const element = h("a", { href }, title);
    links.set(name, element);
    return h("li", {}, element);
  }

  // The list of pages: those of the cluster, or those of a database with the way back.
  function draw(place) {
    links = new Map();
    const database = place.database === null ? isOfDatabase(place) : place.database;
    if (shows === "server") {
      fill(
        parts.list,
        serverPages.map(([name, title]) => item(name, title, `#${name}`)),
      );
    } else if (database) {
      const copy = place.copy || "-";
      fill(
        parts.list,
        h("li", {}, h("a", { class: "back", href: "#databases" }, "‹ All databases")),
        h("li", { class: "heading", title: visible(database) }, visible(database)),
        item("databases", "Database", `#databases/${encoded(database)}`),
        item("slots", "Slots", `#slots/${encoded(database)}`),
        serverPages.map(([name, title]) => item(`db/${name}`, title, ofCopy(database, copy, name))),
      );
    } else {
      fill(
        parts.list,
        clusterPages.map(([name, title]) => item(name, title, `#${name}`)),
      );
    }
  }

  function mark(place, page) {
    const name = place.database === null ? page : `db/${page}`;
    const here = links.get(name) || links.get(homes[name]);
    links.forEach((element) =>
      element === here
        ? element.setAttribute("aria-current", "page")
        : element.removeAttribute("aria-current"),
    );
    if (here) here.scrollIntoView({ block: "nearest", inline: "center" });
  }

  parts.copies.addEventListener("change", () => {
    // Another copy is another place of this page, another server is a page of its own.
    if (shows === "cluster") location.hash = parts.copies.value;
    else location.href = parts.copies.value + location.hash;
  });

  // Lets another server of the port be chosen.
  function chooseServer() {
    const { servers, server_at: here } = session;
    parts.copies.hidden = servers.length < 2;
    parts.copies.setAttribute("aria-label", "Server");
    const root = here ? "../../" : "./";
    fill(
      parts.copies,
      servers.map((name, at) =>
        h(
          "option",
          { value: root + (at ? `server/${at}/` : ""), selected: at === here },
          visible(name),
        ),
      ),
    );
  }

  return {
    ...parts,
    // Shows that the page is at this place.
    show(place, page) {
      draw(place);
      mark(place, page);
      parts.user.textContent = visible(session.user);
      parts.leave.hidden = !session.csrf;
      if (shows === "server") chooseServer();
      else if (place.database === null) parts.copies.hidden = true;
    },
    // Lets a copy of the database be chosen.
    choose(place, page, database) {
      const options = [["-", "the primary of shard 1"]];
      for (const shard of database.shards) {
        for (const copy of shard.copies)
          options.push([
            copy.id,
            `shard ${shard.number}, ` +
              `${copy.role === "none" ? "not there" : copy.role}, ${copy.machine}`,
          ]);
      }
      fill(
        parts.copies,
        options.map(([copy, title]) =>
          h(
            "option",
            { value: ofCopy(place.database, copy, page), selected: copy === place.copy },
            visible(title),
          ),
        ),
      );
      parts.copies.hidden = false;
    },
    // Says what the overview of a server says.
    describeServer({ problems, facts }) {
      const count = problems.filter((problem) => problem.level !== "info").length;
      const worst = problems.find((problem) => problem.level !== "info");
      parts.problems.className = `badge ${worst ? worst.level : "good"}`;
      parts.problems.textContent = count
        ? `${count} ${count === 1 ? "problem" : "problems"}`
        : "all well";
      parts.problems.href = link("now");
      parts.role.hidden = false;
      parts.role.textContent = facts.role === "slave" ? "replica" : facts.role ? "primary" : "?";
      parts.name.textContent = visible(`${version(facts)} · ${session.server}`);
      document.title = (count ? `(${count}) ` : "") + "Dunlin console";
    },
    // Says what the overview of a cluster says.
    describeCluster(status) {
      const count = status.problems.length;
      parts.problems.className = `badge ${count ? "warning" : "good"}`;
      parts.problems.textContent = count ? `${count} to look at` : "all well";
      parts.problems.href = "#overview";
      parts.role.hidden = true;
      parts.name.textContent = visible(`${status.cluster} · machine ${status.machine}`);
      document.title = (count ? `(${count}) ` : "") + "Dunlin cluster";
    },
    // Says that nothing is known of what is shown.
    describeNothing(text) {
      parts.problems.className = "badge";
      parts.problems.textContent = text;
      parts.role.hidden = true;
      parts.name.textContent = visible(session.server);
    },
    lose(why) {
      parts.lost.hidden = !why;
      parts.lost.textContent = visible(why || "");
    },
  };
}

function version(facts) {
  if (facts.dunlin_version) return `Dunlin ${facts.dunlin_version}`;
  return facts.valkey_version
    ? `Valkey ${facts.valkey_version}`
    : `Redis ${facts.redis_version || ""}`;
}

// How often a page that is not the overview asks how the cluster is.
const STATUS_INTERVAL_MS = 10_000;

// Tells how the cluster is, now and again, until it is stopped.
export function watchCluster(listener) {
  let timer = 0;
  let isOver = false;
  async function look() {
    if (!document.hidden) {
      try {
        const status = await send("GET", "");
        if (!isOver) listener(status);
      } catch {
        /* the page says so */
      }
    }
    if (!isOver) timer = setTimeout(look, STATUS_INTERVAL_MS);
  }
  look();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
