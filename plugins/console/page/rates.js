// @ts-check
// Series: values over time as charts with their tables, and by arrow keys. The chart library is loaded with the first
// chart. A value that is not known is a gap.

import { entityPath, get, now } from "./api.js";
import { clock, exact, number, rate, span, visible } from "./format.js";
import { Choice, Facts, Problem } from "./parts.js";
import { preferences } from "./preferences.js";
import { useResource } from "./resource.js";
import { setQuery } from "./route.js";
import { html, useEffect, useMemo, useRef, useState } from "./view.js";

/** Text of a duration in microseconds. */
const micros = (/** @type {number} */ value) => (value < 10_000 ? `${(value / 1000).toFixed(1)} ms` : value < 1_000_000 ? `${number(Math.round(value / 1000))} ms` : span(value / 1000));

/** Values with their unit for heads of tables, and their text. A rate is a count divided by the length of its slot. */
const RATE = { unit: "1/s", text: rate, isRate: true };
const COUNT = { unit: "", text: number, isRate: false };
const TIME = { unit: "", text: micros, isRate: false };

/** Lines of a chart: a column of the series, and its name. */
const RATES = { form: RATE, lines: [["accepted", "accepted"], ["delivered", "delivered"], ["completed", "completed"], ["failed", "failed"]] };
const CHARTS = [
  { title: "Messages", ...RATES },
  { title: "In the entity", form: COUNT, lines: [["active", "active"], ["locked", "locked"], ["scheduled", "scheduled"], ["deadLetters", "dead letters"]] },
  { title: "Wait until the first delivery", form: TIME, lines: [["waitP50Us", "p50"], ["waitP95Us", "p95"], ["waitP99Us", "p99"]] },
  { title: "Time under lock", form: TIME, lines: [["lockP50Us", "p50"], ["lockP95Us", "p95"], ["lockP99Us", "p99"]] },
];

/** Counts of the totals with their names, which the command line has too. */
const TOTALS = [
  ["accepted", "accepted"], ["duplicates", "dropped as duplicates"], ["delivered", "delivered"], ["completed", "completed"],
  ["failed", "failed deliveries"], ["expired", "expired"], ["forwardedIn", "forwarded in"], ["forwardedOut", "forwarded out"],
  ["deadLetteredExpired", "dead-lettered: expired"], ["deadLetteredDeliveryCount", "dead-lettered: delivery count"],
  ["deadLetteredApplication", "dead-lettered: receiver"], ["deadLetteredRule", "dead-lettered: rule"],
  ["deadLetteredHeaderSize", "dead-lettered: header size"], ["deadLetteredNoSession", "dead-lettered: no session"],
  ["deadLetteredForwarding", "dead-lettered: forwarding"], ["deadLetteredCopyCount", "dead-lettered: copies"],
  ["deadLetteredOperator", "dead-lettered: operator"],
];

/** Spans by their name in the address: minutes, and the text of the choice. */
const SPANS = { "10m": [10, "10 min"], "1h": [60, "1 h"], "6h": [360, "6 h"], "7d": [10_080, "7 d"] };

const TABLE_MAX = 60;
/** Number of known slots under which the last minutes are shown, and of these minutes. */
const FEW = 10;

/** Rates of all entities in the last hour. */
export const NamespaceRates = () => html`<${SeriesChart} base="" lines=${RATES.lines} form=${RATES.form} label="Rates of all entities" />`;

/** Reads columns of the last minutes. Of a broker that was just started, only seconds are known. */
async function recent(base, column, minutes, signal) {
  const read = (/** @type {number} */ past) => get(`${base}series`, { column, fromUtc: new Date(now() - past * 60_000).toISOString() }, signal);
  const answer = await read(minutes);
  return minutes > FEW && answer.columns.accepted.filter((count) => count !== null).length < FEW ? read(FEW) : answer;
}

/** Adds up the known counts of the last minutes: whole slots, then shorter ones for the time after them. */
async function totalsOf(base, minutes, signal) {
  const column = TOTALS.map(([id]) => id);
  const totals = new Map();
  for (let part = await recent(base, column, minutes, signal); ; ) {
    const { fromUtc, resolutionSeconds, columns } = part;
    for (const id of column) {
      for (const count of columns[id].filter((one) => one !== null)) {
        totals.set(id, (totals.get(id) ?? 0) + Number(count));
      }
    }
    const slots = columns.accepted.length;
    if (resolutionSeconds === 1 || slots === 0) {
      return totals;
    }
    part = await get(`${base}series`, { column, fromUtc: new Date(Date.parse(fromUtc) + slots * resolutionSeconds * 1000).toISOString() }, signal);
  }
}

/** Numbers of messages of an entity in the last minutes, under a heading; nothing while none is known. */
export function Totals({ kind, path, minutes = 60, heading }) {
  const base = `${entityPath(kind, path)}/`;
  const { value } = useResource(`${base} totals ${minutes}`, (signal) => totalsOf(base, minutes, signal));
  if (!value?.has("accepted")) {
    return null;
  }
  const shown = TOTALS.filter(([id]) => id === "accepted" || value.get(id) > 0);
  return html`<section class="totals" aria-label="Totals">${heading}<${Facts} rows=${shown.map(([id, name]) => [name, number(value.get(id))])} /></section>`;
}

/** A chart of `lines`. Charts of the same `base` and `minutes` share a reading. */
function SeriesChart({ base, minutes = 60, lines, form, label }) {
  const column = [...new Set(CHARTS.flatMap((chart) => chart.lines.map(([id]) => id)))];
  const state = useResource(`${base} series ${minutes}`, (signal) => recent(base, column, minutes, signal));
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
    import("./vendor/uplot.js").then(({ default: uPlot }) => {
      if (!isOver) {
        chart.current = new Lines(uPlot, element, names, form.text, zone);
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

/** Charts of an entity. */
export function Charts({ kind, path, query }) {
  const given = query.get("span") ?? "1h";
  const name = given in SPANS ? given : "1h";
  const minutes = SPANS[name][0];
  // A topic delivers nothing itself.
  const charts = kind === "topic" ? CHARTS.slice(0, 2) : CHARTS;
  return html`<${Choice} label="Time" value=${name} options=${Object.entries(SPANS).map(([id, [, text]]) => [id, text])} onChange=${(id) => setQuery({ span: id })} />
    <${Totals} key=${name} kind=${kind} path=${path} minutes=${minutes} heading=${html`<h2>Totals</h2>`} />
    ${charts.map(({ title, lines, form }) => html`<section key=${`${title} ${name}`}><h2>${title}</h2>
      <${SeriesChart} base=${`${entityPath(kind, path)}/`} minutes=${minutes} lines=${lines} form=${form} label=${`${title}: ${visible(path)}`} /></section>`)}`;
}

const HEIGHT = 180;
const LABEL_PX = 74;
/** A chart that has just begun is not stretched, so that no two ticks have the same time. */
const SPAN_MIN_S = 60;
/** Dashes distinguish the lines without colour. */
const DASHES = [undefined, [6, 4], [2, 3], [10, 3, 2, 3]];
/** Span after which the axis shows days. */
const DAYS_S = 86_400;

/** Lines over time in the colours of the scheme, named at their ends. */
class Lines {
  #plot;
  #observer;
  #element;

  /**
   * @param {any} uPlot the chart library
   * @param {HTMLElement} element
   * @param {string[]} names
   * @param {(value: number) => string} text of a value
   * @param {"local" | "utc"} zone
   */
  constructor(uPlot, element, names, text, zone) {
    this.#element = element;
    const style = getComputedStyle(element);
    const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: color("--quiet"), font, ticks: { stroke: color("--line"), width: 1 }, grid: { stroke: color("--line"), width: 1 } };
    const strokes = ["--accent", "--text", "--good", "--bad"].map(color);
    const time = (/** @type {number} */ at, /** @type {number} */ span) => (span > DAYS_S ? exact(at, zone).slice(5, 16) : clock(at, zone));
    this.#plot = new uPlot(
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
