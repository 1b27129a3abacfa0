// @ts-check
// Messages that come and go. The tail shows them as an entity accepts them; it takes no message, and runs in the event stream
// of the page while it is open. *Send* and *Take* are a producer and a consumer by hand (CON-47, CON-54).

import { counted, useMayOperate } from "./actions.js";
import { ApiError, asApiError, change, entityPath, getBytes, getTyped, now, segment } from "./api.js";
import { whenForgotten } from "./credential.js";
import { utf8 } from "./decode.js";
import { number, parseDuration, propertyText, propertyType, size, visible } from "./format.js";
import { useKeys } from "./keys.js";
import { columnsOf } from "./messages.js";
import { announce, Choice, Empty, Facts, Left, Problem, saveAs, SearchField, Text, Unknown, useNow } from "./parts.js";
import { preferences, Store } from "./preferences.js";
import { refreshAll } from "./resource.js";
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

/** Texts of a message, with their labels. */
const FIELDS = [
  ["subject", "Subject"],
  ["messageId", "Message id", "The broker gives one if it is empty"],
  ["sessionId", "Session"],
  ["correlationId", "Correlation id"],
  ["contentType", "Content type"],
  ["to", "To"],
  ["replyTo", "Reply to"],
];
const TYPES = ["string", "bool", "i32", "i64", "u64", "f64", "uuid", "timestamp", "binary"];
const UNITS = { seconds: ["S", 1000], minutes: ["M", 60_000], hours: ["H", 3_600_000], days: ["D", 86_400_000] };
/** Largest body in the text field, and largest body of a file or message. */
const [TEXT_BYTES, BODY_BYTES] = [256 << 10, 1 << 20];
const PROPERTIES_MAX = 64;
const LIVE_MAX = 99_999;
const [COUNT_MAX, RATE_MAX] = [1000, 50];
const [TEMPLATES, TEMPLATES_MAX, TEMPLATES_CHARS] = ["peeklock.templates", 20, 256 << 10];
const BLANK = { body: "", fields: {}, properties: /** @type {any[]} */ ([]), live: "", unit: "minutes", due: "", bytes: /** @type {Uint8Array | undefined} */ (undefined), source: "" };

/** Templates of messages, which this browser keeps. */
const templates = {
  all: () => {
    try {
      const kept = JSON.parse(localStorage.getItem(TEMPLATES) ?? "{}");
      return new Map(Object.entries(kept !== null && typeof kept === "object" ? kept : {}));
    } catch {
      return new Map();
    }
  },
  /** Keeps these templates. Returns why that is impossible, or nothing. */
  keep: (/** @type {Map<string, any>} */ all) => {
    const text = JSON.stringify(Object.fromEntries(all));
    if (all.size > TEMPLATES_MAX || text.length > TEMPLATES_CHARS) {
      return `A browser keeps at most ${TEMPLATES_MAX} templates of ${size(TEMPLATES_CHARS)} together. Delete one first.`;
    }
    try {
      localStorage.setItem(TEMPLATES, text);
      return undefined;
    } catch {
      return "This browser keeps no data for the page.";
    }
  },
};

/** The values of the form for a body; text that a field would change is kept as bytes. */
function bodyOf(/** @type {Uint8Array} */ bytes, /** @type {string} */ source) {
  const text = bytes.length <= TEXT_BYTES ? utf8(bytes) : undefined;
  return text === undefined || text.includes("\r") ? { body: "", bytes, source } : { body: text, bytes: undefined, source: "" };
}

/** Texts of a message that the form does not have. */
const UNSENT = { partitionKey: "partition key", transactionPartitionKey: "transaction partition key", replyToSessionId: "reply-to session" };
/** A longer time to live is unlimited. */
const LIVE_MS_MAX = 86_400_000 * 365 * 1000;

/** A property of a message as a row of the form. `getTyped` also marks the value of a typed number. */
function propertyRow([name, value]) {
  const inner = value?.value;
  const plain = inner?.type === "f64" ? { ...value, value: inner.value } : value;
  return { name, type: propertyType(plain), text: propertyText(plain) };
}

/** Reads a message, as values of the form, with the parts that the form cannot send. */
async function readMessage(/** @type {string} */ path) {
  const [head, part] = await Promise.all([getTyped(`${path}/head`), getBytes(`${path}/body`, 0, BODY_BYTES)]);
  const isValue = /value|sequence/.test(part.kind ?? "");
  const bodyFlaw = isValue ? "Its body is an AMQP value, which this page cannot send; the other properties are here." : part.total > part.bytes.length ? `Its body has more than ${size(BODY_BYTES)}; the other properties are here.` : "";
  const live = parseDuration(head.timeToLive) ?? Infinity;
  const isTimed = Number.isFinite(live) && live <= LIVE_MS_MAX;
  const unit = Object.keys(UNITS).reverse().find((name) => live % Number(UNITS[name][1]) === 0);
  const properties = Object.entries(head.applicationProperties ?? {}).filter(([name]) => !/^DeadLetter(Reason|ErrorDescription|Source)$/.test(name));
  // A year is longer than any message of a form lives.
  const isKept = unit !== undefined && live > 0 && live < 366 * 86_400_000 && live / Number(UNITS[unit][1]) <= LIVE_MAX;
  const unsent = Object.keys(UNSENT).filter((name) => head[name] !== undefined && !(name === "partitionKey" && head[name] === head.sessionId));
  const lost = [
    ...unsent.map((name) => `its ${UNSENT[name]}`),
    isTimed && !isKept && `its time to live (${visible(head.timeToLive)})`,
    properties.length > PROPERTIES_MAX && counted(properties.length - PROPERTIES_MAX, "more property", "more properties"),
  ].filter(Boolean);
  return {
    flaw: [bodyFlaw, lost.length > 0 && `The form leaves out ${lost.join(", ")}.`].filter(Boolean).join(" "),
    values: {
      ...BLANK,
      ...(bodyFlaw === "" && bodyOf(part.bytes, `body of message ${head.sequenceNumber}`)),
      fields: Object.fromEntries(FIELDS.filter(([name]) => name !== "messageId" && head[name] !== undefined).map(([name]) => [name, head[name]])),
      properties: properties.slice(0, PROPERTIES_MAX).map(propertyRow),
      ...(isKept && { live: String(live / Number(UNITS[unit][1])), unit }),
    },
  };
}

/** Value of a property in the form of the API. */
function valueOf({ name, type, text }) {
  if (type === "string") {
    return text;
  }
  const isWhole = /^[iu]\d+$/.test(type);
  const trimmed = text.trim();
  if (isWhole && !/^-?\d+$/.test(trimmed)) {
    throw new RangeError(`The property ${visible(name)} must be a whole number.`);
  }
  if (/^f\d+$/.test(type) && (trimmed === "" || Number.isNaN(Number(trimmed))) && trimmed !== "NaN") {
    throw new RangeError(`The property ${visible(name)} must be a number.`);
  }
  const isTicks = /^(timestamp|dateTimeOffset|timeSpan)$/.test(type) && /^-?\d+$/.test(trimmed);
  const number = /^f\d+$/.test(type) && Number.isFinite(Number(trimmed)) ? Number(trimmed) : trimmed;
  return { type, value: isWhole || isTicks ? BigInt(trimmed) : type === "bool" ? trimmed === "true" : type === "null" ? null : type === "char" ? text : number };
}

function base64(/** @type {Uint8Array} */ bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(text);
}

/** The message of the form, as the API takes it. */
function messageOf(values) {
  const { body, bytes, fields, properties, live, unit, due } = values;
  const named = properties.filter(({ name }) => name !== "");
  if (new Set(named.map(({ name }) => name)).size < named.length) {
    throw new RangeError("Two properties have the same name.");
  }
  const [letter] = UNITS[unit];
  const instant = due && new Date(preferences.value.zone === "utc" ? `${due}Z` : due).toISOString();
  return {
    ...(bytes ? { bodyBase64: base64(bytes) } : { body }),
    ...Object.fromEntries(Object.entries(fields).filter(([, text]) => text !== "")),
    ...(named.length > 0 && { applicationProperties: Object.fromEntries(named.map((one) => [one.name, valueOf(one)])) }),
    ...(live && { timeToLive: letter === "D" ? `P${live}D` : `PT${live}${letter}` }),
    ...(instant && { scheduledEnqueueTimeUtc: instant }),
  };
}

const COPIED = /^(queues|topics)\/[^?#]+\/messages\/\d+$/;

/** Sends messages of a form, filled from a template, a file or any message. */
export function Send({ kind, path, query, description }) {
  const mayOperate = useMayOperate(path);
  const copied = query.get("copy") ?? "";
  const [values, setValues] = useState(/** @type {any} */ (BLANK));
  const [flaw, setFlaw] = useState("");
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const [isFilling, setFilling] = useState(false);
  useEffect(() => {
    if (!COPIED.test(copied)) {
      return undefined;
    }
    let isShown = true;
    setFilling(true);
    readMessage(copied)
      .then((found) => isShown && (setValues(found.values), setFlaw(found.flaw)), (thrown) => isShown && setError(asApiError(thrown)))
      .finally(() => isShown && setFilling(false));
    return () => void (isShown = false);
  }, [copied]);
  if (!mayOperate) {
    return html`<p class="quiet">Sending needs the role operator and the right Send here.</p>`;
  }
  const put = (changes) => {
    setValues({ ...values, ...changes });
    setFlaw("");
  };
  const field = (name) => (event) => put({ fields: { ...values.fields, [name]: event.currentTarget.value } });
  const property = (place, changes) => put({ properties: values.properties.map((one, at) => (at === place ? { ...one, ...changes } : one)) });
  const choose = async (event) => {
    const [file] = event.currentTarget.files;
    if (file?.size > BODY_BYTES) {
      setFlaw(`The file has ${size(file.size)}; at most ${size(BODY_BYTES)} are possible here. Use peeklock send.`);
    } else if (file) {
      put(bodyOf(new Uint8Array(await file.arrayBuffer()), file.name));
    }
  };
  return html`<div class="send">
    <${Templates} values=${values} onChoose=${(kept) => put({ ...BLANK, ...kept })} />
    ${isFilling && html`<p class="quiet">Reading…</p>`}
    <${Problem} error=${error} />
    <${Sending} kind=${kind} path=${path} values=${values} flaw=${flaw} onFlaw=${setFlaw}>
      ${
        values.bytes
          ? html`<p><strong>Body:</strong> <${Text} value=${values.source} max=${120} />, ${size(values.bytes.length)}, is sent as it is. <button type="button" onClick=${() => put({ bytes: undefined, source: "" })}>Write text instead</button></p>`
          : html`<label class="block">Body<textarea class="mono" rows="8" spellcheck=${false} maxlength=${TEXT_BYTES} value=${values.body} onInput=${(event) => put({ body: event.currentTarget.value })}></textarea></label>`
      }
      <div class="tools"><label>Body from a file <input type="file" onChange=${choose} /></label></div>
      <div class="fields">${FIELDS.map(([name, label, hint]) => html`<label key=${name} class="block">${label}${name === "sessionId" && description?.requiresSession ? " (needed here)" : ""}
        <input type="text" autocomplete="off" spellcheck=${false} maxlength="4096" required=${name === "sessionId" && description?.requiresSession === true} placeholder=${hint ?? ""} value=${values.fields[name] ?? ""} onInput=${field(name)} /></label>`)}</div>
      <fieldset class="properties-of"><legend>Application properties</legend>
        ${values.properties.map(
          ({ name, type, text }, place) => html`<div key=${place} class="tools"><input type="text" aria-label=${`Name of property ${place + 1}`} autocomplete="off" spellcheck=${false} maxlength="1024" value=${name} onInput=${(event) => property(place, { name: event.currentTarget.value })} />
            <select aria-label=${`Type of property ${place + 1}`} value=${type} onChange=${(event) => property(place, { type: event.currentTarget.value, text: event.currentTarget.value === "bool" ? "true" : text })}>${[...new Set([...TYPES, type])].map((one) => html`<option key=${one} value=${one} selected=${one === type}>${visible(one)}</option>`)}</select>
            ${
              type === "bool"
                ? html`<select aria-label=${`Value of property ${place + 1}`} value=${text} onChange=${(event) => property(place, { text: event.currentTarget.value })}>${["true", "false"].map((one) => html`<option key=${one} value=${one} selected=${one === text}>${one}</option>`)}</select>`
                : html`<input type="text" aria-label=${`Value of property ${place + 1}`} autocomplete="off" spellcheck=${false} maxlength="32768" value=${text} onInput=${(event) => property(place, { text: event.currentTarget.value })} />`
            }
            <button type="button" aria-label=${`Remove property ${place + 1}`} onClick=${() => put({ properties: values.properties.filter((_, at) => at !== place) })}>Remove</button></div>`,
        )}
        <button type="button" disabled=${values.properties.length >= PROPERTIES_MAX} onClick=${() => put({ properties: [...values.properties, { name: "", type: "string", text: "" }] })}>Add a property</button>
      </fieldset>
      <div class="tools"><label>Time to live <input type="number" min="1" max=${LIVE_MAX} value=${values.live} onInput=${(event) => put({ live: event.currentTarget.value })} /></label>
        <select aria-label="Unit of the time to live" value=${values.unit} onChange=${(event) => put({ unit: event.currentTarget.value })}>${Object.keys(UNITS).map((unit) => html`<option key=${unit} value=${unit} selected=${unit === values.unit}>${unit}</option>`)}</select>
        <label>Not before (${preferences.value.zone === "utc" ? "UTC" : "local time"}) <input type="datetime-local" step="1" value=${values.due} onInput=${(event) => put({ due: event.currentTarget.value })} /></label></div>
    <//>
  </div>`;
}

/** Templates to choose, keep and delete. */
function Templates({ values, onChoose }) {
  const [all, setAll] = useState(templates.all);
  const [chosen, setChosen] = useState("");
  const [name, setName] = useState("");
  const [flaw, setFlaw] = useState("");
  const store = (changed) => {
    const flaw = templates.keep(changed);
    setFlaw(flaw ?? "");
    if (flaw === undefined) {
      setAll(changed);
    }
    return flaw === undefined;
  };
  const choose = (event) => {
    const to = event.currentTarget.value;
    setChosen(to);
    setName(to);
    if (all.has(to)) {
      onChoose(all.get(to));
    }
  };
  const keep = (event) => {
    event.preventDefault();
    const { bytes, source, ...rest } = values;
    if (bytes) {
      setFlaw("A body of bytes is not kept in a template.");
    } else if (store(new Map([...all, [name.trim(), rest]]))) {
      setChosen(name.trim());
      announce("The template is kept in this browser");
    }
  };
  const remove = () => {
    const others = new Map(all);
    others.delete(chosen);
    if (store(others)) {
      setChosen("");
      announce("The template is deleted");
    }
  };
  return html`<form class="tools" aria-label="Templates" onSubmit=${keep}>
    <label>Template <select value=${chosen} onChange=${choose}><option value="" selected=${chosen === ""}>none</option>${[...all.keys()].map((one) => html`<option key=${one} value=${one} selected=${one === chosen}>${visible(one)}</option>`)}</select></label>
    <label>Name <input type="text" maxlength="60" autocomplete="off" spellcheck=${false} value=${name} onInput=${(event) => setName(event.currentTarget.value)} /></label>
    <button disabled=${name.trim() === ""}>Keep as template</button>
    ${chosen !== "" && html`<button type="button" onClick=${remove}>Delete the template</button>`}
    <span class="quiet">Templates stay in this browser, also after a sign-out.</span>
    ${flaw && html`<span class="look">${flaw}</span>`}
  </form>`;
}

/** The form around the values: number, rate, sending and its result. */
function Sending({ kind, path, values, flaw, onFlaw, children }) {
  const [count, setCount] = useState("1");
  const [perSecond, setPerSecond] = useState("10");
  const [isBusy, setBusy] = useState(false);
  const [done, setDone] = useState(/** @type {any} */ (undefined));
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const stop = useRef(false);
  useEffect(() => () => void (stop.current = true), []);
  const send = async (event) => {
    event.preventDefault();
    let message;
    try {
      message = messageOf(values);
    } catch (thrown) {
      onFlaw(thrown instanceof RangeError ? thrown.message : String(thrown));
      return;
    }
    const total = Number(count);
    const pause = 1000 / Number(perSecond);
    let result = { sent: 0, dropped: 0, last: /** @type {any} */ (undefined), total };
    stop.current = false;
    onFlaw("");
    setError(undefined);
    setBusy(true);
    setDone(result);
    try {
      const begin = performance.now();
      for (let place = 0; place < total && !stop.current; place += 1) {
        const wait = begin + place * pause - performance.now();
        if (wait > 0) {
          await new Promise((resolve) => setTimeout(resolve, wait));
        }
        if (stop.current) {
          break;
        }
        const { sequenceNumber } = await change("POST", `${entityPath(kind, path)}/messages`, message);
        const isDropped = Number(sequenceNumber) === 0;
        result = { ...result, sent: result.sent + (isDropped ? 0 : 1), dropped: result.dropped + (isDropped ? 1 : 0), last: isDropped ? result.last : sequenceNumber };
        setDone(result);
      }
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
    announce(`${counted(result.sent, "message")} sent`);
    refreshAll();
  };
  const link = done?.last !== undefined && kind !== "topic" && html`, the last as <a href=${entityHref(kind, path, values.due ? "scheduled" : "messages", {}, done.last)}>${String(done.last)}</a>`;
  return html`<form class="sending" aria-label="Message" onSubmit=${send}>
    ${children}
    <div class="tools"><label>Send <input type="number" min="1" max=${COUNT_MAX} required value=${count} onInput=${(event) => setCount(event.currentTarget.value)} /> times</label>
      ${Number(count) > 1 && html`<label>at <input type="number" min="1" max=${RATE_MAX} required value=${perSecond} onInput=${(event) => setPerSecond(event.currentTarget.value)} /> per second</label>`}</div>
    ${flaw && html`<p class="problem">${flaw}</p>`}
    <${Problem} error=${error} />
    <${Unknown} error=${error}>the broker may have stored the last message.<//>
    <div class="tools"><button class="primary" disabled=${isBusy}>${isBusy ? "Sending…" : Number(count) > 1 ? `Send ${counted(Number(count), "message")}` : "Send"}</button>
      ${isBusy && html`<button type="button" onClick=${() => (stop.current = true)}>Stop</button>`}
      ${done && html`<span>${number(done.sent)} of ${counted(done.total, "message")} sent${link}${done.dropped > 0 ? `; ${number(done.dropped)} dropped as duplicates` : ""}.</span>`}</div>
  </form>`;
}

/** Messages that this page has taken; the newest is first. They are gone with the page or a sign-out, and their locks end. */
const taken = new Store(/** @type {any[]} */ ([]));
whenForgotten(() => taken.set([]));
const TAKEN_MAX = 20;
const BODY_CHARS = 4000;
const SETTLED = { complete: "Completed: it is removed.", abandon: "Abandoned: it is available again, and the delivery counts as failed.", defer: "Deferred: only its number finds it now.", "dead-letter": "Dead-lettered." };

/** Takes messages under lock, and settles them. */
export function Take({ kind, path, query, description }) {
  const mayOperate = useMayOperate(path);
  const all = taken.use();
  const tab = query.get("of") === "dead-letters" ? "dead-letters" : "messages";
  const [isBusy, setBusy] = useState(false);
  const [isNone, setNone] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (undefined));
  if (!mayOperate) {
    return html`<p class="quiet">Taking messages needs the role operator and the right Listen here.</p>`;
  }
  const base = entityPath(kind, path, tab === "messages" ? "" : tab);
  const here = all.filter((one) => one.base === base);
  const needsSession = description?.requiresSession === true && tab === "messages";
  const take = async () => {
    setBusy(true);
    setNone(false);
    setError(undefined);
    try {
      const { messages } = await change("POST", `${base}/messages/receive`, { maxCount: 1 });
      const [message] = messages;
      setNone(message === undefined);
      if (message) {
        const { lockToken, lockedUntilUtc, ...shown } = message;
        const lock = { lockedUntilUtc, takenAtUtc: new Date(now()).toISOString(), renewalCount: 0 };
        taken.set([{ base, kind, path, tab, message: shown, token: lockToken, lock, result: "" }, ...taken.value]);
        announce(`Message ${message.sequenceNumber} is locked`);
      } else {
        announce("No message is available");
      }
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
    refreshAll();
  };
  return html`<div class="take">
    <p>Taking a message <strong>counts as a delivery</strong>: a consumer gets it only after you settle it or its lock ends. When the lock ends, or you abandon the message, a failed delivery counts${description?.maxDeliveryCount && tab === "messages" ? `; after ${number(description.maxDeliveryCount)} the message is dead-lettered` : ""}. To look only, open the tab Messages.</p>
    <div class="tools"><${Choice} label="Messages of" value=${tab} options=${[["messages", "Messages"], ["dead-letters", "Dead letters"]]} onChange=${(of) => setQuery({ of: of === "messages" ? "" : of })} />
      <button type="button" class="primary" disabled=${isBusy || needsSession || all.length >= TAKEN_MAX} onClick=${take}>${isBusy ? "Waiting for the broker…" : "Take a message"}</button>
      ${isNone && html`<span class="quiet">No message is available.</span>`}
      ${all.length >= TAKEN_MAX && html`<span class="look">The page holds ${TAKEN_MAX} messages. Settle or close one first.</span>`}</div>
    ${needsSession && html`<p class="notice">This entity has sessions, and a page cannot hold a session. Use <code>peeklock session receive</code>.</p>`}
    <${Problem} error=${error} />
    <${Unknown} error=${error}>the broker may have locked a message, whose lock ends by itself.<//>
    ${here.map((one) => html`<${Taken} key=${`${one.base} ${one.token}`} one=${one} />`)}
  </div>`;
}

/** Changes what the page knows of a message that it has taken. */
function note(one, changes) {
  taken.set(taken.value.map((other) => (other.token === one.token ? { ...other, ...changes } : other)));
}

/** A message under lock, with its time left and its settlement. */
function Taken({ one }) {
  const { base, kind, path, tab, message, token, lock, result } = one;
  const time = useNow();
  const [isBusy, setBusy] = useState(false);
  const [asks, setAsks] = useState(false);
  const [reason, setReason] = useState("");
  const [detail, setDetail] = useState("");
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const hasEnded = Date.parse(lock.lockedUntilUtc) <= time;
  const isOpen = result === "" && !hasEnded;
  const run = async (operation, body = {}) => {
    setBusy(true);
    setError(undefined);
    try {
      const answer = await change("POST", `${base}/locks/${segment(token)}/${operation}`, body);
      if (operation === "renew") {
        note(one, { lock: { lockedUntilUtc: answer.lockedUntilUtc, takenAtUtc: new Date(now()).toISOString(), renewalCount: 0 } });
        announce("The lock is renewed");
      } else {
        note(one, { result: SETTLED[operation] });
        announce(SETTLED[operation]);
        refreshAll();
      }
    } catch (thrown) {
      // The request and the text of the broker have the lock token, which no page shows (CON-75).
      const { asked, code, message: text, status, trackingId, retryable } = asApiError(thrown);
      const hidden = (/** @type {string} */ value) => value.replaceAll(token, "…");
      setError(new ApiError(hidden(asked), { code, detail: hidden(text), status, trackingId, retryable }));
    }
    setBusy(false);
  };
  const close = () => taken.set(taken.value.filter((other) => other.token !== token));
  const deadLetter = (event) => {
    event.preventDefault();
    void run("dead-letter", { ...(reason && { reason }), ...(detail && { description: detail }) });
  };
  const properties = Object.entries(message.applicationProperties ?? {});
  return html`<section class="panel" aria-label=${`Message ${message.sequenceNumber}`}>
    <div class="beside-head"><h2>Message <span class="mono">${String(message.sequenceNumber)}</span></h2>${!isOpen && html`<button type="button" onClick=${close}>Close</button>`}</div>
    <p>${result !== "" ? html`<strong>${result}</strong>` : hasEnded ? html`<strong class="look">The lock has ended: the message is available again, and a failed delivery counts.</strong>` : html`<${Left} lock=${lock} /> left`}</p>
    <${Facts} rows=${[
      ["Subject", message.subject !== undefined && html`<span class="mono"><${Text} value=${message.subject} max=${200} /></span>`],
      ["Message id", message.messageId !== undefined && html`<span class="mono"><${Text} value=${message.messageId} max=${200} /></span>`],
      ["Session", message.sessionId !== undefined && html`<span class="mono"><${Text} value=${message.sessionId} max=${200} /></span>`],
      ["Deliveries", number(message.deliveryCount)],
      ...properties.slice(0, PROPERTIES_MAX).map(([name, value]) => [html`<span class="mono"><${Text} value=${name} max=${100} /></span>`, html`<span class="mono"><${Text} value=${propertyText(value)} max=${400} /></span>`]),
    ].map(([name, value]) => [name, value === false ? undefined : value])} />
    ${message.body !== undefined ? html`<pre class="text" tabindex="0" aria-label="Body"><${Text} value=${message.body} lines=${true} max=${BODY_CHARS} /></pre>` : html`<p class="quiet">The body is not text.</p>`}
    ${isOpen && html`<p><a href=${entityHref(kind, path, tab, {}, message.sequenceNumber)}>All of the message</a></p>`}
    <${Problem} error=${error} />
    <${Unknown} error=${error} />
    ${
      isOpen &&
      html`<div class="tools">
        <button type="button" class="primary" disabled=${isBusy} onClick=${() => run("complete")}>Complete</button>
        <button type="button" disabled=${isBusy} onClick=${() => run("abandon")}>Abandon</button>
        <button type="button" disabled=${isBusy} onClick=${() => run("defer")}>Defer</button>
        ${tab === "messages" && html`<button type="button" disabled=${isBusy} aria-expanded=${asks} onClick=${() => setAsks(!asks)}>Dead-letter…</button>`}
        <button type="button" disabled=${isBusy} onClick=${() => run("renew")}>Renew the lock</button></div>
      ${asks && html`<form class="action" aria-label="Dead-letter" onSubmit=${deadLetter}>
        <label class="block">Reason<input type="text" maxlength="4096" autocomplete="off" value=${reason} onInput=${(event) => setReason(event.currentTarget.value)} /></label>
        <label class="block">Description<input type="text" maxlength="4096" autocomplete="off" value=${detail} onInput=${(event) => setDetail(event.currentTarget.value)} /></label>
        <div class="tools"><button disabled=${isBusy}>Dead-letter</button></div></form>`}`
    }
  </section>`;
}
