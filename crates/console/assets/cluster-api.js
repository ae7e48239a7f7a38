// @ts-check
// Requests to a node's interface.

import { base, endLogIn, session } from "./api.js";

// A name for a request that is to be made once, however often it is sent.
export const requestId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

/**
 * Sends a request. `id` names one that is to be done once, however often it is sent.
 * @param {string} method
 * @param {string} path below /cluster
 * @param {unknown} [body]
 * @param {string} [id]
 * @returns {Promise<any>}
 */
export async function send(method, path, body, id) {
  /** @type {RequestInit & { headers: Record<string, string> }} */
  const options = { method, headers: { "x-csrf-token": session.csrf }, cache: "no-store" };
  if (id) options.headers["idempotency-key"] = id;
  if (body) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(base + "/cluster" + path, options);
  } catch {
    throw Object.assign(new Error("The node does not answer."), { isAway: true });
  }
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const { code, message } = value.error || {};
    if (answer.status === 401 || code === "FORGED") endLogIn("The session has ended.");
    const text = message || `The node answers with status ${answer.status}.`;
    throw Object.assign(new Error(text), { isAway: answer.status >= 502 });
  }
  // What is shown may be of before.
  if (method !== "GET") window.dispatchEvent(new Event("changed"));
  return value;
}

/** @type {Promise<any> | undefined} */
let kept;

// The OpenAPI document of the interface, read once.
export async function documentOf() {
  kept ??= fetch(base + "/openapi.json", { headers: { "x-csrf-token": session.csrf } }).then(
    (answer) => {
      if (!answer.ok) throw new Error(`The node answers with status ${answer.status}.`);
      return answer.json();
    },
  );
  try {
    return await kept;
  } catch (error) {
    kept = undefined;
    throw error;
  }
}
