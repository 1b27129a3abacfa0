// @ts-check
// Series: values over time as charts with their tables, and by arrow keys. The chart library is loaded with the first
// chart. A value that is not known is a gap.

import { get, now } from "./api.js";
import { clock, exact, number, rate, span } from "./format.js";
import { Problem } from "./parts.js";
import { preferences } from "./preferences.js";
import { useResource } from "./resource.js";
import { html, useEffect, useMemo, useRef, useState } from "./view.js";

/** Text of a duration in microseconds. */
const micros = (/** @type {number} */ value) => (value < 10_000 ? `${(value / 1000).toFixed(1)} ms` : value < 1_000_000 ? `${number(Math.round(value / 1000))} ms` : span(value / 1000));

/** Values with their unit for heads of tables, and their text. A rate is a count divided by the length of its slot. */
const RATE = { unit: "1/s", text: rate, isRate: true };
const COUNT = { unit: "", text: number, isRate: false };
const TIME = { unit: "", text: micros, isRate: false };

/** Lines of a chart: a column of the series, and its name. */
export const RATES = { form: RATE, lines: [["accepted", "accepted"], ["delivered", "delivered"], ["completed", "completed"], ["failed", "failed"]] };
export const CHARTS = [
  { title: "Messages", ...RATES },
  { title: "In the entity", form: COUNT, lines: [["active", "active"], ["locked", "locked"], ["scheduled", "scheduled"], ["deadLetters", "dead letters"]] },
  { title: "Wait until the first delivery", form: TIME, lines: [["waitP50Us", "p50"], ["waitP95Us", "p95"], ["waitP99Us", "p99"]] },
  { title: "Time under lock", form: TIME, lines: [["lockP50Us", "p50"], ["lockP95Us", "p95"], ["lockP99Us", "p99"]] },
];

/** Spans by their name in the address: minutes, and the text of the choice. */
export const SPANS = { "10m": [10, "10 min"], "1h": [60, "1 h"], "6h": [360, "6 h"], "7d": [10_080, "7 d"] };

const TABLE_MAX = 60;
/** Number of known slots under which the last minutes are shown, and of these minutes. */
const FEW = 10;

/** A chart of `lines`. Charts of the same `base` and `minutes` share a reading. */
export function SeriesChart({ base, minutes = 60, lines, form, label }) {
  const column = [...new Set(CHARTS.flatMap((chart) => chart.lines.map(([id]) => id)))];
  const state = useResource(`${base} series ${minutes}`, async (signal) => {
    const read = (/** @type {number} */ past) => get(`${base}series`, { column, fromUtc: new Date(now() - past * 60_000).toISOString() }, signal);
    const answer = await read(minutes);
    // Of a broker that was just started, only seconds are known.
    return minutes > FEW && answer.columns.accepted.filter((count) => count !== null).length < FEW ? read(FEW) : answer;
  });
  const { value } = state;
  const points = useMemo(() => {
    const seconds = value?.resolutionSeconds;
    const first = Date.parse(value?.fromUtc);
    const columns = lines.map(([id]) => value?.columns[id] ?? []);
    return (columns[0] ?? []).map((_, place) => ({
      at: first + place * seconds * 1000,
      values: columns.map((column) => (column[place] === null ? null : Number(column[place]) / (form.isRate ? seconds : 1))),
    }));
  }, [value]);
  const isKnown = points.some(({ values }) => values.some((one) => one !== null));
  if (!isKnown) {
    return html`${value === undefined && state.error?.code !== "InvalidOperation" && html`<${Problem} error=${state.error} onRetry=${state.refresh} />`}
      ${state.error?.code === "InvalidOperation" && html`<p class="quiet">Series are switched off: <code>console.series</code>.</p>`}
      ${value && html`<p class="quiet">No value of this time is known.</p>`}`;
  }
  return html`<${Chart} points=${points} names=${lines.map(([, name]) => name)} form=${form} label=${label} />`;
}

function Chart({ points, names, form, label }) {
  const { zone, scheme } = preferences.use();
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const chart = useRef(/** @type {any} */ (undefined));
  const latest = useRef(points);
  latest.current = points;
  const [place, setPlace] = useState(/** @type {number | undefined} */ (undefined));
  useEffect(() => {
    const element = box.current;
    if (!element) {
      return undefined;
    }
    let isOver = false;
    import("./chart.js").then(({ Chart: Lines }) => {
      if (!isOver) {
        chart.current = new Lines(element, names, form.text, zone);
        chart.current.show(latest.current);
      }
    });
    return () => {
      isOver = true;
      chart.current?.end();
      chart.current = undefined;
    };
  }, [zone, scheme]);
  useEffect(() => chart.current?.show(points), [points]);
  useEffect(() => chart.current?.mark(place), [place, points]);
  const last = points.length - 1;
  const at = Math.min(place ?? last, last);
  const onKeyDown = (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      setPlace(Math.max(0, Math.min(last, to)));
    }
  };
  const shown = (one) => (one === null ? "–" : form.text(one));
  const unit = form.isRate ? " per second" : "";
  const point = points[at];
  const text = `${exact(point.at, zone).slice(0, 19)}: ${names.map((name, index) => `${name} ${point.values[index] === null ? "not known" : form.text(point.values[index]) + unit}`).join(", ")}`;
  return html`<div class="chart">
    <div class="chart-box" ref=${box} role="slider" tabindex="0" aria-label=${label} aria-valuemin="0" aria-valuemax=${last}
      aria-valuenow=${at} aria-valuetext=${text} onKeyDown=${onKeyDown} onFocusOut=${() => setPlace(undefined)}></div>
    <p class="chart-value">${text}</p>
    <details><summary>Table of the values</summary>
      <div class="table-scroll chart-table" role="region" tabindex="0" aria-label=${`Values: ${label}`}><table class="plain numbers"><thead><tr><th scope="col">Time</th>${names.map((name) => html`<th key=${name} scope="col" class="right">${name} <span class="unit">${form.unit}</span></th>`)}</tr></thead>
        <tbody>${points.slice(-TABLE_MAX).reverse().map((one) => html`<tr key=${one.at}><th scope="row">${clock(one.at, zone)}</th>${one.values.map((value, index) => html`<td key=${index} class="right">${shown(value)}</td>`)}</tr>`)}</tbody></table></div>
    </details>
  </div>`;
}
