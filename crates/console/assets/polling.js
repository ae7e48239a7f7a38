// @ts-check
// Pages that are drawn anew every two seconds, without what somebody does on them being lost.

import { time } from "./format.js";
import { failure, fill } from "./ui.js";

const INTERVAL_MS = 2000;

const sentence = (text) => (text.endsWith(".") ? text : text + ".");

/**
 * Draws a page now and again until it is left. `draw` asks, and returns the elements. What `kept`
 * has ends then, too.
 * @param {any} context
 * @param {() => Promise<any>} draw
 * @param {{ end: () => void } | null} [kept]
 */
export async function polled(context, draw, kept) {
  const { main } = context;
  let timer = 0;
  let isOver = false;
  let seen = 0;
  let turn = 0;

  async function again() {
    clearTimeout(timer);
    const mine = (turn += 1);
    try {
      const parts = await draw();
      if (isOver || mine !== turn) return;
      // What somebody is about to do stays where it is.
      if (!document.querySelector("dialog[open], main [aria-busy]") && !isMarked(main))
        redraw(main, parts);
      seen = Date.now();
      context.lose(null);
    } catch (error) {
      if (isOver || mine !== turn) return;
      if (error.isAway && seen)
        context.lose(`${sentence(error.message)} What is shown is of ${time(seen / 1000)}.`);
      else fill(main, failure(error));
    }
    timer = setTimeout(again, INTERVAL_MS);
  }

  context.leave = () => {
    isOver = true;
    if (kept) kept.end();
    clearTimeout(timer);
    window.removeEventListener("changed", again);
  };
  // What was changed is seen at once.
  window.addEventListener("changed", again);
  let first;
  try {
    first = await draw();
    seen = Date.now();
  } catch (error) {
    first = failure(error);
  }
  if (!isOver) timer = setTimeout(again, INTERVAL_MS);
  return first;
}

// Returns whether a text of the page is marked, perhaps to be copied.
function isMarked(main) {
  const marked = getSelection();
  return Boolean(marked && !marked.isCollapsed && main.contains(marked.anchorNode));
}

// Puts these parts in place of those that there are. One that is there already is not taken out
// meanwhile: a chart keeps the pointer.
function replace(main, parts) {
  const wanted = [parts].flat(9).filter((part) => part instanceof Node);
  [...main.childNodes].filter((part) => !wanted.includes(part)).forEach((part) => part.remove());
  let at = main.firstChild;
  for (const part of wanted) {
    if (part === at) at = part.nextSibling;
    else main.insertBefore(part, at);
  }
}

// Draws a page anew: the focus, and what was scrolled, stay where they were.
function redraw(main, parts) {
  const reachable = () => [...main.querySelectorAll("a, button, [tabindex]")];
  // Buttons of the same name are told apart by the first cells of their rows, which do not change.
  const known = (element) => {
    const row = element.closest("tbody tr");
    return [
      element.innerText,
      ...(row ? [...row.cells].slice(0, 3).map((cell) => cell.innerText) : []),
    ].join("\n");
  };
  const before = reachable();
  const at = before.indexOf(document.activeElement);
  const wanted = at < 0 ? "" : known(before[at]);
  const scrolled = [...main.querySelectorAll(".scroll")].map((part) => [
    part.scrollLeft,
    part.scrollTop,
  ]);
  replace(main, parts);
  main.querySelectorAll(".scroll").forEach((part, number) => {
    if (scrolled[number]) [part.scrollLeft, part.scrollTop] = scrolled[number];
  });
  if (at < 0) return;
  /** @type {(pair: any[]) => number} */
  const distance = ([, number]) => Math.abs(number - at);
  const same = reachable()
    .map((element, number) => [element, number])
    .filter(([element]) => known(element) === wanted);
  same.sort((one, other) => distance(one) - distance(other));
  if (same.length) same[0][0].focus({ preventScroll: true });
}
