// The pages: name, title, and what loads the module, which has show(context) that returns elements. It may set
// context.leave, which is called when the page is left.

import * as now from "./pages/now.js";

export const serverPages = [
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
export const innerPages = [
  ["create", "Create a database", () => import("./pages/cluster-create.js")],
  ["change", "Change", () => import("./pages/cluster-change.js")],
  ["slots", "Slots", () => import("./pages/cluster-slots.js")],
];
