// @ts-check
// The API: requests, the session, and the stream of events.

// The page may be below a path of a reverse proxy.
export const base = new URL("../api/v1", import.meta.url).pathname;
// The copy of a database that requests are about, where the port is a node's.
let copy = null;
const server = () => (copy === null ? base : `${base}/copies/${copy}`);
export const session = { user: "", csrf: "", server: "", servers: [], server_at: 0, can: {} };
const listeners = { login: [], lost: [], back: [] };

export function on(name, listener) {
  listeners[name].push(listener);
}

function tell(name, detail) {
  for (const listener of listeners[name]) listener(detail);
}

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let isLost = false;
function reachable(yes, why) {
  if (yes === !isLost) return;
  isLost = !yes;
  tell(yes ? "back" : "lost", why);
}

// Parameters that may be empty: there can be a key without a name.
const NAMES = ["key", "prefix"];

async function request(method, path, query, body, signal) {
  const pairs = Object.entries(query || {}).filter(
    ([name, value]) =>
      value !== undefined && value !== null && (value !== "" || NAMES.includes(name)),
  );
  const search = pairs.length ? "?" + new URLSearchParams(pairs) : "";
  const headers = { "X-CSRF-Token": session.csrf };
  if (method !== "GET") headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(server() + path + search, {
      method,
      headers,
      signal,
      credentials: "same-origin",
      body: method === "GET" ? undefined : JSON.stringify(body || {}),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reachable(false, "The console does not answer.");
    throw new ApiError(0, "UNREACHABLE", "The console does not answer.");
  }
  let value = null;
  try {
    value = await answer.json();
  } catch {
    value = { error: { code: "INVALID", message: `Status ${answer.status}` } };
  }
  if (answer.ok) {
    if (path !== "/session") reachable(true);
    return value;
  }
  const { code, message } = value.error || {};
  if (answer.status === 401 && path !== "/session") tell("login", message);
  // A session that has ended, and a page that is still open.
  if (code === "FORGED" && path !== "/session") tell("login", "The session has ended.");
  throw new ApiError(answer.status, code, message);
}

// Tells the page that the log-in has ended.
export const endLogIn = (why) => tell("login", why);

export const get = (path, query, signal) => request("GET", path, query, undefined, signal);
export const post = (path, body) => request("POST", path, {}, body);
export const remove = (path, body) => request("DELETE", path, {}, body);

/**
 * Runs a command in a database. Returns its reply; one that is an error is thrown.
 * @param {number} db
 * @param {any[]} words
 * @returns {Promise<any>}
 */
export async function run(db, words) {
  const { reply } = await post("/command", { db, words });
  if (reply.type === "error") throw new ApiError(422, reply.value.split(" ")[0], reply.value);
  return reply;
}

/**
 * A reply without its types: strings, lists and null; a map is a list of its names and values.
 * @param {any} reply
 * @returns {any}
 */
export function plain(reply) {
  switch (reply.type) {
    case "array":
    case "set":
    case "push":
      return reply.value.map(plain);
    case "map":
      return reply.value.flatMap((pair) => pair.map(plain));
    case "null":
      return null;
    default:
      return reply.value;
  }
}

/**
 * A reply that is a list of names and values, as an object.
 * @param {any} list as `plain` makes it
 * @returns {Record<string, any>}
 */
export function fields(list) {
  /** @type {Record<string, any>} */
  const found = {};
  for (let at = 0; at + 1 < list.length; at += 2) found[list[at]] = list[at + 1];
  return found;
}

export async function loadSession() {
  copy = null;
  own = null;
  Object.assign(session, await get("/session"));
  return session;
}

// Without credentials: the session of a default user that needs no password.
export async function logIn(user, password) {
  copy = null;
  own = null;
  Object.assign(session, await post("/session", { user, password }));
  return session;
}

export async function logOut() {
  copy = null;
  await remove("/session");
}

// What the node's own session says, while a copy is shown.
let own = null;

// Requests are about a copy from now on, or about the node again if it is null. The log-in stays
// the node's: its token
// guards changes of copies, too.
export async function enter(name) {
  if (own === null) own = { ...session };
  copy = name;
  const { can: allowed, server: shown, user } = name === null ? own : await get("/session");
  Object.assign(session, { can: allowed || {}, server: shown, user });
}

export const can = (...commands) => commands.every((name) => session.can[name] !== false);

// How often a page that nobody sees asks for the overview: its title says what is wrong.
const HIDDEN_INTERVAL_MS = 10_000;

// The overview, each second. Connects again by itself; says so when the session has ended.
//
// A browser has six connections for all pages of a server, and keeps pages that were left with
// theirs for a minute. So only a page that is seen holds a stream.
export function watch(listener) {
  let source = null;
  let timer = 0;
  let isOver = false;
  function rest() {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  }
  function again(wait) {
    clearTimeout(timer);
    if (!isOver) timer = setTimeout(begin, wait);
  }
  // The overview once. Whether the session lives.
  async function look(isShown) {
    try {
      const now = await get("/now");
      if (isShown && !isOver) listener(now);
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        listener(null, error);
        return false;
      }
    }
    return true;
  }
  async function begin() {
    rest();
    if (document.hidden) {
      if ((await look(true)) && document.hidden) again(HIDDEN_INTERVAL_MS);
      return;
    }
    source = new EventSource(server() + "/stream");
    source.addEventListener("now", (event) => {
      reachable(true);
      listener(JSON.parse(event.data));
    });
    source.onerror = async () => {
      rest();
      if (!isOver && (await look(false))) again(1000);
    };
  }
  document.addEventListener("visibilitychange", begin);
  addEventListener("pagehide", rest);
  addEventListener("pageshow", shown);
  function shown(event) {
    if (event.persisted) begin();
  }
  begin();
  return () => {
    isOver = true;
    rest();
    document.removeEventListener("visibilitychange", begin);
    removeEventListener("pagehide", rest);
    removeEventListener("pageshow", shown);
  };
}

// A stream of messages, until it is stopped.
export function messages(path, query, listener, failed) {
  const source = new EventSource(server() + path + "?" + new URLSearchParams(query));
  source.addEventListener("message", (event) => listener(JSON.parse(event.data)));
  const end = () => {
    source.close();
    removeEventListener("pagehide", left);
  };
  const left = () => {
    end();
    failed();
  };
  source.onerror = left;
  addEventListener("pagehide", left);
  return end;
}
