// Requests to a node's interface.

// A name for a request that is to be made once, however often it is sent.
export const requestId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export async function send(method, path, body, id) {
  const options = { method, headers: {}, cache: "no-store" };
  if (id) options.headers["idempotency-key"] = id;
  if (body) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch("/api/v1/cluster" + path, options);
  } catch {
    throw new Error("The node does not answer.");
  }
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(value.error ? value.error.message : `The node answers with status ${answer.status}.`);
  return value;
}
