// @ts-check
// Light or dark: as the system, or as it was chosen.

import { h } from "./ui.js";

const system = matchMedia("(prefers-color-scheme: dark)");

// A browser may keep nothing: then the choice holds for this page.
let chosen = null;

function choice() {
  try {
    return localStorage.getItem("theme") || chosen;
  } catch {
    return chosen;
  }
}

function choose(theme) {
  chosen = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    /* it holds for this page */
  }
  dress();
}

// Charts and maps draw themselves anew when the window is resized.
function dress() {
  const theme = choice();
  const isDark = theme ? theme === "dark" : system.matches;
  document.documentElement.classList.toggle("dark", isDark);
  window.dispatchEvent(new Event("resize"));
}

export function wear() {
  dress();
  system.addEventListener("change", dress);
}

export const themeButton = () =>
  h(
    "button",
    {
      type: "button",
      class: "quiet",
      title: "Dark or light",
      "aria-label": "Dark or light",
      onclick: () => choose(document.documentElement.classList.contains("dark") ? "light" : "dark"),
    },
    "◐",
  );
