// @ts-check
// Line charts on a canvas, drawn anew with each sample.

import { h } from "./ui.js";
import { time } from "./format.js";

// How far a chart can look back, in seconds.
/** @type {[number, string][]} */
export const windows = [
  [60, "1 min"],
  [300, "5 min"],
  [900, "15 min"],
  [3600, "1 h"],
  [21600, "6 h"],
  [86400, "24 h"],
];

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Steps of an axis are 1, 2 or 5 of a power of ten, and of bytes of a power of two.
function niceStep(range, count, isBytes) {
  const rough = range / count;
  if (isBytes) return Math.max(1, 2 ** Math.ceil(Math.log2(rough)));
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = rough / power;
  return power * (unit <= 1 ? 1 : unit <= 2 ? 2 : unit <= 5 ? 5 : 10);
}

// Width of the labels of the axis.
const LEFT = 74;

/**
 * A line of a chart: its column of the samples, and its colour.
 * @typedef {{ name: string, column: string, color: string, fill?: boolean }} Line
 *
 * Rows of values, one for each moment, in seconds since 1970.
 * @typedef {object} Samples
 * @property {number[]} at
 * @property {string[]} columns
 * @property {number[][]} rows
 * @property {number} window in seconds
 * @property {number} [step] in seconds
 */

/**
 * Makes a chart. `format` writes a value of the axis.
 * @typedef {(value: number) => string} Format
 *
 * @param {{ title: string, series: Line[], format: Format, log?: boolean }} chart
 */
export function chart({ title, series, format, log = false }) {
  const canvas = h("canvas", { role: "img", tabindex: "0", "aria-label": title });
  const legend = h("div", { class: "legend" });
  const root = h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", {}, title), legend),
    canvas,
  );
  const swatches = series.map((line) => {
    const value = h("b");
    const dot = h("i", { class: `dot ${line.color}` });
    legend.append(h("span", { class: "key" }, dot, line.name, " ", value));
    return value;
  });
  /** @type {Samples} */
  let data = { at: [], columns: [], rows: [], window: 300 };
  /** @type {number | null} */
  let hover = null;

  // A limit of 0 is none.
  const values = (line) => {
    const at = data.columns.indexOf(line.column);
    return data.rows.map((row) => (line.isLimit && row[at] === 0 ? NaN : row[at]));
  };

  function draw() {
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const cx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    cx.scale(ratio, ratio);
    cx.font = "11px system-ui, sans-serif";
    const all = series.map(values);
    const most = Math.max(0, ...all.flat().filter(Number.isFinite));
    const [left, right, top, bottom] = [LEFT, 6, 6, 18];
    const end = data.at.length ? data.at[data.at.length - 1] : Date.now() / 1000;
    const start = end - data.window;
    const x = (at) => left + ((at - start) / data.window) * (width - left - right);
    const scale = (value) => (log ? Math.log10(1 + value) : value);
    const high = scale(most) || 1;
    const step = log ? 0 : niceStep(most || 1, 3, /B/.test(format(1)));
    const peak = log ? high * 1.05 : Math.ceil((most || 1) / step) * step;
    const y = (value) => height - bottom - (scale(value) / peak) * (height - top - bottom);
    cx.strokeStyle = color("--line");
    cx.fillStyle = color("--dim");
    cx.lineWidth = 1;
    cx.textAlign = "right";
    cx.textBaseline = "middle";
    const ticks = log
      ? [0, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].filter((tick) => tick <= most * 1.2)
      : Array.from({ length: Math.round(peak / step) + 1 }, (_, at) => at * step);
    for (const tick of ticks) {
      const at = Math.round(y(tick)) + 0.5;
      cx.beginPath();
      cx.moveTo(left, at);
      cx.lineTo(width - right, at);
      cx.stroke();
      cx.fillText(tick ? format(tick) : "0", left - 6, at);
    }
    cx.textBaseline = "alphabetic";
    const count = Math.max(2, Math.floor((width - left) / 110));
    for (let tick = 0; tick <= count; tick += 1) {
      const at = start + (data.window * tick) / count;
      cx.textAlign = tick === 0 ? "left" : tick === count ? "right" : "center";
      cx.fillText(time(at, false).slice(0, data.window > 900 ? 5 : 8), x(at), height - 4);
    }
    series.forEach((line, number) => {
      cx.strokeStyle = color(`--${line.color}`);
      cx.lineWidth = 1.5;
      cx.lineJoin = "round";
      cx.beginPath();
      let isOpen = false;
      let from = 0;
      let to = 0;
      all[number].forEach((value, at) => {
        if (!Number.isFinite(value) || data.at[at] < start) return;
        // A gap in the samples is a gap in the line.
        if (isOpen && data.at[at] - data.at[at - 1] > 4 * (data.step || 1)) isOpen = false;
        const place = x(data.at[at]);
        if (isOpen) cx.lineTo(place, y(value));
        else {
          cx.moveTo(place, y(value));
          from = place;
        }
        to = place;
        isOpen = true;
      });
      cx.stroke();
      if (line.fill && isOpen) {
        cx.lineTo(to, height - bottom);
        cx.lineTo(from, height - bottom);
        cx.globalAlpha = 0.12;
        cx.fillStyle = color(`--${line.color}`);
        cx.fill();
        cx.globalAlpha = 1;
      }
    });
    let shown = data.at.length - 1;
    if (hover !== null && data.at.length) {
      const at = start + ((hover - left) / (width - left - right)) * data.window;
      shown = data.at.reduce(
        (best, other, index) =>
          Math.abs(other - at) < Math.abs(data.at[best] - at) ? index : best,
        0,
      );
      const place = Math.round(x(data.at[shown])) + 0.5;
      cx.strokeStyle = color("--dim");
      cx.setLineDash([3, 3]);
      cx.beginPath();
      cx.moveTo(place, top);
      cx.lineTo(place, height - bottom);
      cx.stroke();
      cx.setLineDash([]);
      cx.fillStyle = color("--text");
      cx.textAlign = place > width / 2 ? "right" : "left";
      cx.fillText(time(data.at[shown], false), place + (place > width / 2 ? -6 : 6), top + 10);
    }
    swatches.forEach((swatch, number) => {
      const value = all[number][shown];
      swatch.textContent = value === undefined ? "–" : format(value);
    });
  }

  canvas.addEventListener("pointermove", (event) => {
    hover = event.offsetX;
    draw();
  });
  canvas.addEventListener("pointerleave", () => {
    hover = null;
    draw();
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -8, ArrowRight: 8 }[event.key];
    if (!step) return;
    event.preventDefault();
    hover = Math.max(
      LEFT,
      Math.min(canvas.clientWidth - 6, (hover === null ? canvas.clientWidth - 6 : hover) + step),
    );
    draw();
  });
  canvas.addEventListener("blur", () => {
    hover = null;
    draw();
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return {
    root,
    show(next) {
      data = next;
      draw();
    },
  };
}
