// @ts-check
// The only user of uPlot: lines over time, in the colours of the scheme, named at their ends.

import { clock, exact } from "./format.js";
import uPlot from "./vendor/uplot.js";

const HEIGHT = 180;
const LABEL_PX = 74;
/** A chart that has just begun is not stretched, so that no two ticks have the same time. */
const SPAN_MIN_S = 60;
/** Dashes distinguish the lines without colour. */
const DASHES = [undefined, [6, 4], [2, 3], [10, 3, 2, 3]];
/** Span after which the axis shows days. */
const DAYS_S = 86_400;

export class Chart {
  #plot;
  #observer;
  #element;

  /**
   * @param {HTMLElement} element
   * @param {string[]} names
   * @param {(value: number) => string} text of a value
   * @param {"local" | "utc"} zone
   */
  constructor(element, names, text, zone) {
    this.#element = element;
    const style = getComputedStyle(element);
    const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: color("--quiet"), font, ticks: { stroke: color("--line"), width: 1 }, grid: { stroke: color("--line"), width: 1 } };
    const strokes = ["--accent", "--text", "--good", "--bad"].map(color);
    const time = (/** @type {number} */ at, /** @type {number} */ span) => (span > DAYS_S ? exact(at, zone).slice(5, 16) : clock(at, zone));
    this.#plot = new /** @type {any} */ (uPlot)(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
        padding: [12, LABEL_PX, 0, 0],
        scales: { x: { time: true, range: (_, first, last) => [Math.min(first, last - SPAN_MIN_S), last] }, y: { range: (_, __, most) => [0, Math.max(1, (most ?? 0) * 1.1)] } },
        axes: [
          { ...axis, values: (_, times) => times.map((at) => time(at * 1000, times.at(-1) - times[0])), space: 90 },
          { ...axis, values: (_, values) => values.map(text), size: 64 },
        ],
        series: [{}, ...names.map((label, place) => ({ label, stroke: strokes[place], width: 1.5, dash: DASHES[place], points: { show: false } }))],
        hooks: { draw: [(plot) => nameLines(plot, names, strokes, font)] },
      },
      [[], ...names.map(() => [])],
      element,
    );
    this.#observer = new ResizeObserver(() => this.#plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    this.#observer.observe(element);
  }

  /** @param {{ at: number, values: (number | null)[] }[]} points null is a gap */
  show(points) {
    const count = this.#plot.series.length - 1;
    const lines = Array.from({ length: count }, (_, place) => points.map(({ values }) => values[place]));
    this.#plot.setData([points.map(({ at }) => at / 1000), ...lines]);
  }

  /** Marks a point, or none. */
  mark(/** @type {number | undefined} */ place) {
    const time = place === undefined ? undefined : this.#plot.data[0][place];
    this.#plot.setCursor({ left: time === undefined ? -10 : this.#plot.valToPos(time, "x"), top: 0 });
  }

  end() {
    this.#observer.disconnect();
    this.#plot.destroy();
    this.#element.replaceChildren();
  }
}

/** Writes the name of each line at its end; names that would overlap move apart. */
function nameLines(plot, names, strokes, font) {
  const { ctx, data } = plot;
  const ratio = devicePixelRatio;
  const last = data[0].length - 1;
  if (last < 0) {
    return;
  }
  const ends = names.map((name, place) => ({ name, stroke: strokes[place], y: plot.valToPos(data[place + 1].findLast((value) => value !== null) ?? 0, "y", true) }));
  ends.sort((one, other) => one.y - other.y);
  for (let place = 1; place < ends.length; place += 1) {
    ends[place].y = Math.max(ends[place].y, ends[place - 1].y + 14 * ratio);
  }
  const below = Math.max(0, (ends.at(-1)?.y ?? 0) - plot.bbox.top - plot.bbox.height);
  ctx.save();
  ctx.font = font.replace("12px", `${12 * ratio}px`);
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const { name, stroke, y } of ends) {
    ctx.fillStyle = stroke;
    ctx.fillText(name, plot.valToPos(data[0][last], "x", true) + 6 * ratio, y - below);
  }
  ctx.restore();
}
