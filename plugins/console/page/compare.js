// @ts-check
// Two messages as a difference of lines: their properties, then their bodies. Loaded with the first comparison.

import { get, getBytes } from "./api.js";
import { utf8 } from "./decode.js";
import { number } from "./format.js";
import { format, read } from "./json.js";
import { Empty, Problem, Text } from "./parts.js";
import { useResource } from "./resource.js";
import { html } from "./view.js";

const BODY_BYTES = 256 << 10;
/** Lines of a message beyond which a difference takes too long. */
const LINES_MAX = 3000;
/** Equal lines around a difference. */
const AROUND = 3;
/** Values that are different in any two messages. */
const OWN = new Set(["nowUtc", "enqueuedTimeUtc", "sequenceNumber", "enqueuedSequenceNumber", "bodyStart", "bodyStartBase64", "lock", "size", "headerSize"]);

/** Returns properties and body of a message as lines. */
async function linesOf(base, sequence, signal) {
  const path = `${base}/messages/${sequence}`;
  const [head, body] = await Promise.all([get(`${path}/head`, {}, signal), getBytes(`${path}/body`, 0, BODY_BYTES, signal)]);
  const { applicationProperties, ...system } = head;
  const values = (object) => Object.entries(object ?? {}).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`);
  const text = utf8(body.bytes, body.total > body.bytes.length);
  let bodyText = text ?? `${number(body.total)} bytes that are not text`;
  try {
    bodyText = text === undefined ? bodyText : format(read(text));
  } catch {
    // A body that is not JSON is compared as it is.
  }
  const properties = values(Object.fromEntries(Object.entries(system).filter(([name]) => !OWN.has(name)))).sort();
  return [...properties, ...values(applicationProperties).sort(), "", ...bodyText.split("\n")].slice(0, LINES_MAX);
}

/**
 * Returns the difference of two lists of lines: kept, removed and added ones in their order (Myers, O(ND)).
 * @param {string[]} before
 * @param {string[]} after
 * @returns {{ sign: " " | "-" | "+", text: string }[]}
 */
function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) {
    start += 1;
  }
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) {
    end += 1;
  }
  const kept = (text) => ({ sign: /** @type {" "} */ (" "), text });
  const middle = shortest(before.slice(start, before.length - end), after.slice(start, after.length - end));
  return [...before.slice(0, start).map(kept), ...middle, ...before.slice(before.length - end).map(kept)];
}

const EDITS_MAX = 1500;

function shortest(before, after) {
  const [n, m] = [before.length, after.length];
  const replaced = () => [...before.map((text) => ({ sign: "-", text })), ...after.map((text) => ({ sign: "+", text }))];
  let far = new Map([[1, 0]]);
  const trace = [];
  for (let edits = 0; edits <= n + m; edits += 1) {
    if (edits > EDITS_MAX) {
      return replaced();
    }
    trace.push(new Map(far));
    for (let k = -edits; k <= edits; k += 2) {
      const isDown = k === -edits || (k !== edits && (far.get(k - 1) ?? -1) < (far.get(k + 1) ?? -1));
      let x = isDown ? (far.get(k + 1) ?? 0) : (far.get(k - 1) ?? 0) + 1;
      while (x < n && x - k < m && before[x] === after[x - k]) {
        x += 1;
      }
      far.set(k, x);
      if (x >= n && x - k >= m) {
        return walked(before, after, trace);
      }
    }
  }
  return replaced();
}

function walked(before, after, trace) {
  const lines = [];
  let [x, y] = [before.length, after.length];
  for (let edits = trace.length - 1; edits >= 0; edits -= 1) {
    const far = trace[edits];
    const k = x - y;
    const isDown = k === -edits || (k !== edits && (far.get(k - 1) ?? -1) < (far.get(k + 1) ?? -1));
    const from = isDown ? k + 1 : k - 1;
    const fromX = edits === 0 ? 0 : (far.get(from) ?? 0);
    const fromY = fromX - from;
    while (x > fromX && y > (edits === 0 ? 0 : fromY) && x > 0 && y > 0 && before[x - 1] === after[y - 1]) {
      x -= 1;
      y -= 1;
      lines.push({ sign: " ", text: before[x] });
    }
    if (edits > 0) {
      if (isDown) {
        y -= 1;
        lines.push({ sign: "+", text: after[y] });
      } else {
        x -= 1;
        lines.push({ sign: "-", text: before[x] });
      }
    }
  }
  return lines.reverse();
}

/** Leaves out equal lines that are far from any difference. */
function shortened(lines) {
  const near = lines.map((_, place) => lines.slice(Math.max(0, place - AROUND), place + AROUND + 1).some(({ sign }) => sign !== " "));
  const shown = [];
  lines.forEach((line, place) => {
    if (near[place]) {
      shown.push(line);
    } else if (place === 0 || near[place - 1]) {
      shown.push({ sign: "…", text: "" });
    }
  });
  return shown;
}

export function Comparison({ base, sequence, otherBase, other }) {
  const state = useResource(`difference ${base} ${sequence} ${otherBase} ${other}`, async (signal) => {
    const [one, two] = await Promise.all([linesOf(otherBase, other, signal), linesOf(base, sequence, signal)]);
    return difference(one, two);
  }, { every: 0 });
  if (!state.value) {
    return html`<${Problem} error=${state.error} onRetry=${state.refresh} />${!state.error && html`<p class="quiet">Reading…</p>`}`;
  }
  const { value } = state;
  const lines = shortened(value);
  const count = (sign) => value.filter((line) => line.sign === sign).length;
  if (count("-") + count("+") === 0) {
    return html`<${Empty} title="There is no difference"><p>Properties and body are equal, but for number and instant.</p><//>`;
  }
  return html`<p class="quiet">${number(count("-"))} lines only in ${other}, ${number(count("+"))} only in ${sequence}.</p>
    <pre class="text difference" tabindex="0" aria-label=${`Difference of messages ${other} and ${sequence}`}>${lines.map(
      ({ sign, text }, place) => html`<span key=${place} class=${{ "-": "removed", "+": "added", "…": "quiet" }[sign] ?? ""}>${sign} <${Text} value=${text} />${"\n"}</span>`,
    )}</pre>`;
}
