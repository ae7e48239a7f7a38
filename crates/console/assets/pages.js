// @ts-check
// The pages: name, title, and what loads the module.

import * as now from "./pages/now.js";

/**
 * What a page is given. It may set `leave`, which is called when it is left.
 * @typedef {object} Context
 * @property {HTMLElement} main
 * @property {string} rest of the address
 * @property {{ last: any, listeners: Set<(overview: any) => unknown> }} live the server's overview
 * @property {(() => unknown) | null} leave
 * @property {(why: string | null) => void} lose says that what is shown is old
 * @property {(status: any) => void} describe says how the cluster is
 *
 * @typedef {{ show(context: Context): any }} PageModule
 * @typedef {[string, string, () => PageModule | Promise<PageModule>]} Page
 */

/** @type {Page[]} */
export const serverPages = [
  ["now", "Overview", () => now],
  ["keys", "Keys", () => import("./pages/keys.js")],
  ["clients", "Clients", () => import("./pages/clients.js")],
  ["slow", "Slow log", () => import("./pages/slow.js")],
  ["analysis", "Analysis", () => import("./pages/analysis.js")],
  ["replication", "Replication", () => import("./pages/replication.js")],
  ["config", "Configuration", () => import("./pages/config.js")],
  ["users", "Users", () => import("./pages/users.js")],
  ["cli", "Command line", () => import("./pages/cli.js")],
  ["pubsub", "Pub/sub", () => import("./pages/pubsub.js")],
  ["profiler", "Profiler", () => import("./pages/profiler.js")],
  ["events", "Events", () => import("./pages/events.js")],
];

/** @type {Page[]} */
export const clusterPages = [
  ["overview", "Overview", () => import("./pages/cluster-overview.js")],
  ["databases", "Databases", () => import("./pages/cluster-databases.js")],
  ["machines", "Machines", () => import("./pages/cluster-machines.js")],
  ["jobs", "Jobs", () => import("./pages/cluster-jobs.js")],
  ["hashing", "Hashing rules", () => import("./pages/cluster-hashing.js")],
  ["backups", "Backups", () => import("./pages/cluster-backups.js")],
  ["events", "Events", () => import("./pages/cluster-events.js")],
];

// Pages of the cluster that other pages lead to.
/** @type {Page[]} */
export const innerPages = [
  ["create", "Create a database", () => import("./pages/cluster-create.js")],
  ["change", "Change", () => import("./pages/cluster-change.js")],
  ["slots", "Slots", () => import("./pages/cluster-slots.js")],
];
