// @ts-check
// The form that asks for a name and a password.

import { base } from "../api.js";
import { fill, h } from "../ui.js";

const hints = {
  server: "Log in as an ACL user of the server. Each action runs as that user's commands do.",
  cluster:
    "Log in as the administrator of the cluster: the user is admin, the password the node's.",
};

export function login(why, shows, submit) {
  const user = h("input", {
    type: "text",
    name: "username",
    autocomplete: "username",
    placeholder: shows === "cluster" ? "admin" : "default",
    spellcheck: "false",
    autocapitalize: "off",
  });
  const password = h("input", {
    type: "password",
    name: "password",
    autocomplete: "current-password",
  });
  const message = h("p", { class: "failure", role: "alert" }, why || "");
  const send = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h(
    "form",
    {},
    h(
      "div",
      { class: "brand" },
      h("img", { src: "assets/icon.svg", alt: "" }),
      h("h1", {}, shows === "cluster" ? "Dunlin cluster" : "Dunlin console"),
    ),
    h("label", {}, "User", user),
    h("label", {}, "Password", password),
    send,
    message,
    h("p", { class: "dim" }, hints[shows]),
    // The port shows several servers: each has users of its own.
    /\/server\/\d+\/api\/v1$/.test(base) && h("a", { href: "../../" }, "‹ The first server"),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    fill(message);
    try {
      await submit(user.value, password.value);
    } catch (error) {
      fill(
        message,
        error.code === "WRONGPASS" || error.code === "LOGIN"
          ? "The server does not accept this name and password."
          : error.message,
      );
      password.select();
    }
    send.disabled = false;
  });
  return h("div", { class: "login" }, h("div", { class: "panel" }, form));
}
