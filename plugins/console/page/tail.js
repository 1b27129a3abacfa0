// @ts-check
// Messages as an entity accepts them. The tail takes no message; it runs in the event stream of the page while it is open.

import { number, propertyText, visible } from "./format.js";
import { useKeys } from "./keys.js";
import { columnsOf } from "./messages.js";
import { announce, Empty, saveAs, SearchField } from "./parts.js";
import { preferences } from "./preferences.js";
import { entityHref, setQuery } from "./route.js";
import { addTap, isPaused } from "./stream.js";
import { Table } from "./table.js";
import { html, useEffect, useRef, useState } from "./view.js";

const TAIL_COLUMNS = columnsOf(["number", "time", "subject", "id", "correlation", "session", "size", "body"]);
const ROWS_MAX = 500;
const RUN_MS = 15 * 60_000;
const NOTHING = { rows: /** @type {any[]} */ ([]), waiting: /** @type {any[]} */ ([]), shown: 0, omitted: 0, gaps: 0 };

/** Whether a head has a text in one of its properties or in the beginning of its body. */
function has(/** @type {any} */ head, /** @type {string} */ text) {
  const { applicationProperties = {}, ...rest } = head;
  const pairs = Object.entries(applicationProperties).map(([name, value]) => `${name}=${propertyText(value)}`);
  return [...Object.values(rest).map(String), ...pairs].some((value) => value.toLowerCase().includes(text));
}

/** Saves rows as lines of JSON. */
function save(/** @type {any[]} */ rows, /** @type {string} */ path) {
  const text = rows.map((row) => JSON.stringify(row, (_, value) => (typeof value === "bigint" ? String(value) : value))).join("\n");
  saveAs(new Blob([text, "\n"], { type: "application/x-ndjson" }), `${path.replace(/[^\w.-]+/g, "-")}.ndjson`);
}

export function Tail({ kind, path, query }) {
  preferences.use();
  const allPaused = isPaused.use();
  const [isRunning, setRunning] = useState(false);
  const [isHeld, setHeld] = useState(false);
  const [note, setNote] = useState("");
  const [state, setState] = useState(NOTHING);
  const held = useRef(false);
  held.current = isHeld;
  const text = query.get("text") ?? "";
  const end = (/** @type {string} */ reason) => {
    setRunning(false);
    setHeld(false);
    setNote(reason);
    announce(reason);
  };
  useEffect(() => {
    if (!isRunning) {
      return undefined;
    }
    const remove = addTap({ name: "tap", path }, {
      heads: ({ heads, omitted }) =>
        setState((was) => {
          const place = held.current ? "waiting" : "rows";
          return { ...was, [place]: [...heads.reverse(), ...was[place]].slice(0, ROWS_MAX), shown: was.shown + heads.length, omitted: was.omitted + Number(omitted) };
        }),
      gap: () => setState((was) => ({ ...was, gaps: was.gaps + 1 })),
      error: (code) => end(code === "EntityNotFound" ? "Stopped: the entity is no longer here" : `Stopped: ${visible(code)}`),
    });
    const timer = setTimeout(() => end("Stopped after 15 minutes"), RUN_MS);
    const onHidden = () => document.visibilityState === "hidden" && end("Stopped while the page was hidden");
    document.addEventListener("visibilitychange", onHidden);
    // It may have been hidden before this ran.
    onHidden();
    return () => {
      remove();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onHidden);
    };
  }, [isRunning, path]);
  const toggle = () => {
    if (isRunning) {
      end("Stopped");
    } else {
      isPaused.set(false);
      setState(NOTHING);
      setNote("");
      setRunning(true);
      announce("Tail started");
    }
  };
  const hold = () => {
    if (isHeld) {
      setState((was) => ({ ...was, rows: [...was.waiting, ...was.rows].slice(0, ROWS_MAX), waiting: [] }));
    }
    setHeld(!isHeld);
  };
  useKeys([
    { keys: "t", does: "Start or stop the tail", act: toggle },
    ...(isRunning ? [{ keys: "h", does: "Hold the rows, or continue", act: hold }] : []),
  ]);
  const wanted = text.trim().toLowerCase();
  const rows = wanted === "" ? state.rows : state.rows.filter((row) => has(row, wanted));
  const facts = [
    isRunning ? (allPaused ? "Paused with the page" : isHeld ? `Held, ${number(state.waiting.length)} waiting` : "Running") : note,
    state.shown > 0 && `${number(state.shown)} shown`,
    state.omitted > 0 && `${number(state.omitted)} not shown`,
    state.gaps > 0 && `${number(state.gaps)} ${state.gaps === 1 ? "interruption" : "interruptions"}, during which messages are missing`,
    state.shown > ROWS_MAX && `the last ${number(ROWS_MAX)} are kept`,
  ].filter(Boolean);
  const empty = isRunning
    ? html`<${Empty} title="No message yet"><p>Messages appear here as this ${kind} accepts them. The tail takes none.</p><//>`
    : state.rows.length > 0
      ? html`<${Empty} title="No row has this text" />`
      : html`<${Empty} title="The tail is stopped"><p>It shows messages as this ${kind} accepts them, at most 50 a second, and takes none. It stops by itself after 15 minutes, and when the page is hidden.</p><//>`;
  return html`<div class="tools">
      <button type="button" aria-pressed=${isRunning} onClick=${toggle}>${isRunning ? "Stop" : "Start"} <kbd>t</kbd></button>
      ${isRunning && html`<button type="button" aria-pressed=${isHeld} onClick=${hold}>${isHeld ? "Continue" : "Hold"} <kbd>h</kbd></button>`}
      <${SearchField} label="Text in a row" value=${text} onChange=${(value) => setQuery({ text: value })} />
      <span class="quiet tail-state">${facts.join(", ")}</span>
      <span class="gap"></span>
      <button type="button" disabled=${rows.length === 0} onClick=${() => save(rows, path)}>Save as NDJSON</button>
    </div>
    <${Table} noun=${["message", "messages"]} label=${`Tail of ${visible(path)}`} columns=${TAIL_COLUMNS} rows=${rows} scope=${`tail ${path}`}
      keyOf=${(head) => String(head.sequenceNumber)} hrefOf=${kind === "topic" ? undefined : (head) => entityHref(kind, path, "messages", {}, head.sequenceNumber)}
      empty=${empty} />`;
}
