// @ts-check
// Rates since the page was opened: a chart, its table, and its values by arrow keys. The chart library is loaded with the
// first chart.

import { clock, rate } from "./format.js";
import { preferences, Store } from "./preferences.js";
import { html, useEffect, useRef, useState } from "./view.js";

const POINTS_MAX = 360;

/** Points of an hour, one each 10 s. */
export class History extends Store {
  constructor() {
    super(/** @type {{ at: number, values: number[] }[]} */ ([]));
  }

  add(/** @type {number} */ at, /** @type {number[]} */ values) {
    if (at > (this.value.at(-1)?.at ?? 0)) {
      this.set([...this.value.slice(1 - POINTS_MAX), { at, values }]);
    }
  }
}

/** Histories of entities by their address. */
const histories = new Map();
const HISTORIES_MAX = 30;

export function historyOf(/** @type {string} */ address) {
  const found = histories.get(address) ?? new History();
  histories.delete(address);
  histories.set(address, found);
  if (histories.size > HISTORIES_MAX) {
    histories.delete(histories.keys().next().value);
  }
  return found;
}

/** A chart of rates. `names` are the names of the lines. */
export function RateChart({ history, names, label }) {
  const points = history.use();
  const { zone, scheme } = preferences.use();
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const chart = useRef(/** @type {any} */ (undefined));
  const [place, setPlace] = useState(/** @type {number | undefined} */ (undefined));
  const hasPoints = points.length > 1;
  useEffect(() => {
    const element = box.current;
    if (!element || !hasPoints) {
      return undefined;
    }
    let isOver = false;
    import("./chart.js").then(({ Chart }) => {
      if (!isOver) {
        chart.current = new Chart(element, names, zone);
        chart.current.show(history.value);
      }
    });
    return () => {
      isOver = true;
      chart.current?.end();
      chart.current = undefined;
    };
  }, [hasPoints, zone, scheme]);
  useEffect(() => chart.current?.show(points), [points]);
  useEffect(() => chart.current?.mark(place), [place, points]);
  if (!hasPoints) {
    return html`<p class="quiet">A chart begins with the second reading, 10 s after the first.</p>`;
  }
  const at = Math.min(place ?? points.length - 1, points.length - 1);
  const onKeyDown = (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: points.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      setPlace(Math.max(0, Math.min(points.length - 1, to)));
    }
  };
  const point = points[at];
  const text = `${clock(point.at, zone)}: ${names.map((name, index) => `${name} ${rate(point.values[index])} per second`).join(", ")}`;
  return html`<div class="chart">
    <div class="chart-box" ref=${box} role="slider" tabindex="0" aria-label=${label} aria-valuemin="0" aria-valuemax=${points.length - 1}
      aria-valuenow=${at} aria-valuetext=${text} onKeyDown=${onKeyDown} onFocusOut=${() => setPlace(undefined)}></div>
    <p class="chart-value">${text}</p>
    <details><summary>Table of the values</summary>
      <div class="table-scroll chart-table" role="region" tabindex="0" aria-label="Values"><table class="plain numbers"><thead><tr><th scope="col">Time</th>${names.map((name) => html`<th key=${name} scope="col" class="right">${name} <span class="unit">1/s</span></th>`)}</tr></thead>
        <tbody>${points.slice(-60).reverse().map((one) => html`<tr key=${one.at}><th scope="row">${clock(one.at, zone)}</th>${one.values.map((value, index) => html`<td key=${index} class="right">${rate(value)}</td>`)}</tr>`)}</tbody></table></div>
    </details>
  </div>`;
}
