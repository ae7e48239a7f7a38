// @ts-check
// Where the page is: what the part of the address after # says.
//
//   keys/REST                   a page of the server, where the port is a server's
//   databases/NAME              a page of the cluster, where the port is a node's
//   db/NAME/COPY/keys/REST      a page of a copy of a database; COPY is - for whichever leads

export const shows = document.documentElement.dataset.shows === "cluster" ? "cluster" : "server";

// The copy that is meant if none is named.
export const LEADER = "-";

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const encoded = encodeURIComponent;

export function parse(hash = location.hash) {
  const parts = hash.replace(/^#/, "").split("/");
  if (shows === "cluster" && parts[0] === "db" && parts[1]) {
    const [, database, copy, name, ...rest] = parts;
    return {
      database: decoded(database),
      copy: copy || LEADER,
      name: name || "now",
      rest: decoded(rest.join("/")),
    };
  }
  const [name, ...rest] = parts;
  return { database: null, copy: null, name, rest: decoded(rest.join("/")) };
}

// The address of a page of a copy of a database.
export const ofCopy = (database, copy, name) => `#db/${encoded(database)}/${copy}/${name}`;

// The address of another page of the same server.
export function link(name, rest) {
  const { database, copy } = parse();
  const page = rest === undefined ? name : `${name}/${encoded(rest)}`;
  return database === null ? `#${page}` : ofCopy(database, copy, page);
}
