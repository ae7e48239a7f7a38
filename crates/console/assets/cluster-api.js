// Requests to a node's interface.

export async function send(method, path, body) {
  const options = { method, headers: {}, cache: "no-store" };
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
