// @ts-check
// Heads of messages in a table, and the selected message next to it where there is room.

import { addressOf, entityPath, get, getBytes, now, standing, subscriptionParts } from "./api.js";
import { format, read, readPath, utf8, valueAt } from "./decode.js";
import { exact, number, propertyText, quoted, size, visible } from "./format.js";
import { useKeys } from "./keys.js";
import { MessageView } from "./message.js";
import { Age, Choice, Commands, Copy, Empty, late, Lock, Problem, SearchField, State, Text } from "./parts.js";
import { preferences, prefer, Store } from "./preferences.js";
import { usePages } from "./resource.js";
import { entityHref, go, href, setQuery } from "./route.js";
import { Table, useMarks } from "./table.js";
import { html, useEffect, useRef, useState } from "./view.js";

const STATES = ["active", "locked", "deferred", "delayed", "scheduled", "expired", "transferring"];
const BESIDE = matchMedia("(min-width: 1180px)");
const PREVIEW_CHARS = 160;

/** Names of one row, and of many, by tab. */
const NOUNS = {
  messages: ["message", "messages"],
  "dead-letters": ["dead letter", "dead letters"],
  "transfer-dead-letters": ["transfer dead letter", "transfer dead letters"],
  scheduled: ["scheduled message", "scheduled messages"],
};

/** Names of columns for an application property, and for a value in a JSON body. */
const PROPERTY = "property:";
const PATH = "path:";

/** Bodies of rows as JSON, for columns by path; null for a body that is no JSON or too large. */
const documents = new Map();
const DOCUMENTS_MAX = 500;
const DOCUMENT_BYTES_MAX = 64 << 10;
const LOADS_MAX = 4;
/** @type {(() => Promise<void>)[]} */
const waiting = [];
let loadCount = 0;

function parsed(/** @type {string | undefined} */ text) {
  try {
    return text === undefined ? null : read(text);
  } catch {
    return null;
  }
}

function loadNext() {
  while (loadCount < LOADS_MAX && waiting.length > 0) {
    loadCount += 1;
    waiting.pop()?.().finally(() => {
      loadCount -= 1;
      loadNext();
    });
  }
}

/** Returns the body of a row. A body that the head has only in part is read when its row is shown. */
function documentOf(base, head) {
  const key = `${base} ${head.sequenceNumber}`;
  const known = documents.get(key);
  if (known) {
    return known;
  }
  const store = new Store(/** @type {any} */ (undefined));
  documents.set(key, store);
  if (documents.size > DOCUMENTS_MAX) {
    documents.delete(documents.keys().next().value);
  }
  const start = head.bodyStart;
  if (start === undefined || !/^\s*[[{]/.test(start) || head.bodySize > DOCUMENT_BYTES_MAX) {
    store.value = null;
  } else if (new TextEncoder().encode(start).length >= head.bodySize) {
    store.value = parsed(start);
  } else {
    waiting.push(async () => {
      if (store.listenerCount === 0) {
        documents.delete(key);
        return;
      }
      const part = await getBytes(`${base}/messages/${head.sequenceNumber}/body`, 0, DOCUMENT_BYTES_MAX).catch(() => undefined);
      store.set(part ? parsed(utf8(part.bytes)) : null);
    });
    setTimeout(loadNext);
  }
  return store;
}

/** Value at a path in the body of a row. */
function PathCell({ base, head, steps }) {
  const node = documentOf(base, head).use();
  const value = node && valueAt(node, steps);
  if (node === undefined) {
    return html`<span class="quiet">…</span>`;
  }
  return value ? html`<${Text} value=${value.type === "string" ? value.text : format(value).replace(/\s+/g, " ")} max=${PREVIEW_CHARS} />` : "";
}

const property = (name) => (head) => {
  const value = head.applicationProperties?.[name];
  return value === undefined ? "" : html`<${Text} value=${propertyText(value)} max=${PREVIEW_CHARS} />`;
};
const text = (name) => (head) => (head[name] === undefined ? "" : html`<${Text} value=${head[name]} max=${PREVIEW_CHARS} />`);

/** First bytes of a body as one line. */
function Preview({ head }) {
  if (head.unreadable) {
    return html`<span class="bad">cannot be read</span>`;
  }
  if (head.bodySize === 0) {
    return html`<span class="zero">empty</span>`;
  }
  if (head.bodyStart !== undefined) {
    return html`<${Text} value=${head.bodyStart.replace(/\s+/g, " ")} max=${PREVIEW_CHARS} />`;
  }
  const bytes = atob(head.bodyStartBase64 ?? "");
  return html`<span class="quiet">${Array.from(bytes.slice(0, 24), (byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join(" ")}</span>`;
}

const zone = () => preferences.value.zone;
const instant = (name) => ({ cell: (head) => html`<${Age} at=${head[name]} />`, exact: (head) => head[name] && exact(head[name], zone()) });

const ALL = [
  { id: "number", name: "Number", width: 92, align: "right", mono: true, rank: 1, cell: (head) => String(head.sequenceNumber) },
  { id: "state", name: "State", width: 118, rank: 3, cell: (head) => html`<${State} name=${head.isExpired ? "expired" : head.state} />` },
  { id: "enqueued", name: "Enqueued", width: 92, align: "right", rank: 4, ...instant("enqueuedTimeUtc") },
  { id: "due", name: "Due", width: 92, align: "right", rank: 2, ...instant("scheduledEnqueueTimeUtc") },
  { id: "reason", name: "Reason", width: 208, rank: 2, cell: property("DeadLetterReason") },
  { id: "description", name: "Description", width: 280, rank: 5, cell: property("DeadLetterErrorDescription") },
  { id: "source", name: "Source", width: 120, rank: 9, mono: true, cell: (head) => html`<${Text} value=${head.deadLetterSource ?? head.applicationProperties?.DeadLetterSource ?? ""} />` },
  { id: "subject", name: "Subject", width: 130, rank: 4, cell: text("subject") },
  { id: "id", name: "Message id", width: 130, rank: 6, mono: true, cell: text("messageId") },
  { id: "session", name: "Session", width: 120, rank: 5, mono: true, cell: text("sessionId") },
  { id: "correlation", name: "Correlation id", width: 130, rank: 9, mono: true, cell: text("correlationId") },
  { id: "tries", name: "Tries", width: 62, align: "right", rank: 6, cell: (head) => number(head.deliveryCount) },
  { id: "lock", name: "Lock", width: 200, rank: 7, cell: (head) => (head.lock ? html`<${Lock} lock=${head.lock} />` : "") },
  { id: "expires", name: "Expires", width: 92, align: "right", rank: 8, ...instant("expiresAtUtc") },
  { id: "size", name: "Size", width: 84, align: "right", rank: 7, cell: (head) => size(head.size) },
  { id: "type", name: "Content type", width: 130, rank: 9, cell: text("contentType") },
  { id: "body", name: "Body", width: 150, isWide: true, rank: 2, mono: true, cell: (head) => html`<${Preview} head=${head} />` },
];

const DEFAULTS = {
  messages: ["number", "state", "enqueued", "subject", "id", "tries", "lock", "size", "body"],
  sessions: ["number", "state", "enqueued", "session", "subject", "tries", "size", "body"],
  "dead-letters": ["number", "enqueued", "reason", "description", "subject", "tries", "size", "body"],
  scheduled: ["number", "due", "subject", "id", "size", "body"],
};

const isOwn = (/** @type {string} */ id) => id.startsWith(PROPERTY) || id.startsWith(PATH);
const nameOf = (/** @type {string} */ id) => id.slice(id.indexOf(":") + 1);
const pathColumn = (path, base) => {
  const steps = readPath(path) ?? [];
  return { mono: true, cell: (head) => html`<${PathCell} key=${`${base} ${head.sequenceNumber}`} base=${base} head=${head} steps=${steps} />` };
};

/** Columns by their names; `time` is the instant of a tail. */
export const columnsOf = (/** @type {string[]} */ ids) => ids.map((id) =>
  id === "time" ? { id, name: "Accepted", width: 110, rank: 3, mono: true, cell: (head) => exact(head.enqueuedTimeUtc, zone()).slice(11, 23) } : /** @type {any} */ (ALL.find((one) => one.id === id)),
);

function useColumns(set, base) {
  const { columns } = preferences.use();
  const ids = columns[set] ?? DEFAULTS[set];
  const known = ALL.filter(({ id }) => ids.includes(id));
  const properties = ids.filter(isOwn).map((id) => ({ id, name: visible(nameOf(id)), width: 140, rank: 3, ...(id.startsWith(PATH) ? pathColumn(nameOf(id), base) : { cell: property(nameOf(id)) }) }));
  const at = known.findIndex(({ id }) => id === "body");
  return { ids, list: at < 0 ? [...known, ...properties] : [...known.slice(0, at), ...properties, ...known.slice(at)] };
}

const [Acts, JobPanel] = ["Acts", "JobPanel"].map((name) => late(() => import("./jobs.js"), name, true));
const [BreakLocks, CancelScheduled, Outcome] = ["BreakLocks", "CancelScheduled", "Outcome"].map((name) => late(() => import("./actions.js"), name, true));
const Totals = late(() => import("./rates.js"), "Totals", true);
const byNumber = (one, other) => (BigInt(one) < BigInt(other) ? -1 : 1);

/** Numbers of selected messages that have a lock of their own. */
const lockedIn = (rows, marked) => rows.filter(({ sequenceNumber, lock }) => lock && !lock.isOfSession && marked.has(String(sequenceNumber))).map(({ sequenceNumber }) => sequenceNumber);

/** A head in one line of JSON; a number that JavaScript would round is a text. */
const headLine = (head) => JSON.stringify(head, (_, value) => (typeof value === "bigint" ? String(value) : value));

/** Conditions of a list as a line. */
function whereOf({ from, fromUtc, session, isDescending, isScheduled }) {
  const sign = isDescending ? "<=" : ">=";
  const text = session.replace(/["\\]/g, "\\$&");
  return [from !== undefined && `number${sign}${from}`, fromUtc !== undefined && `${isScheduled ? "scheduled" : "enqueued"}${sign}${fromUtc}`, session !== "" && `session="${text}"`].filter(Boolean).join(" ");
}

export function Messages({ kind, path, tab, query, hasSessions }) {
  const set = tab === "scheduled" ? "scheduled" : tab.includes("dead") ? "dead-letters" : hasSessions ? "sessions" : "messages";
  const isDead = set === "dead-letters";
  const isScheduled = set === "scheduled";
  const states = query.getAll("state");
  const [from, session, order, selected, job] = ["from", "session", "order", "at", "job"].map((name) => query.get(name) ?? "");
  const isDescending = order === "newest" || (order === "" && isDead);
  const asked = {
    state: isScheduled ? ["scheduled"] : states,
    sort: isScheduled ? "scheduledTime" : undefined,
    from: /^\d+$/.test(from) ? from : undefined,
    fromUtc: query.get("fromUtc") ?? undefined,
    sessionId: session,
    descending: isDescending,
  };
  const subQueue = isDead ? tab : "";
  const base = entityPath(kind, path, subQueue);
  const { ids, list: columns } = useColumns(set, base);
  const key = `heads ${base} ${JSON.stringify(asked)}`;
  const [marked, setMarked] = useMarks(key);
  const [whole, setWhole] = useState("");
  // Another list has another selection.
  const isWhole = whole === key;
  const mark = (keys = undefined) => {
    setWhole("");
    setMarked(keys);
  };
  const list = usePages(key, async (after, signal) => {
    const start = after === undefined ? {} : { from: undefined, fromUtc: undefined };
    const answer = await get(`${base}/heads`, { ...asked, ...start, count: 200, after }, signal);
    return { rows: answer.heads, next: answer.next };
  });
  // A selection without end is for jobs, which a viewer may not make.
  const maySelectAll = standing.use()?.role !== "viewer" && list.rows.length > 0;
  const [isWide, setWide] = useState(BESIDE.matches);
  useEffect(() => {
    const change = () => setWide(BESIDE.matches);
    BESIDE.addEventListener("change", change);
    return () => BESIDE.removeEventListener("change", change);
  }, []);
  const hrefOf = (head) => entityHref(kind, path, tab, Object.fromEntries(["order", "session"].map((name) => [name, query.get(name)]).filter(([, value]) => value)), head.sequenceNumber);
  const isBeside = isWide && selected !== "";
  useKeys([
    { keys: "v", does: "Show the message beside the list", act: () => isBeside ? setQuery({ at: "" }) : list.rows[0] && setQuery({ at: active.current ?? list.rows[0].sequenceNumber }) },
    ...(isBeside ? [{ keys: "Escape", does: "Close the message", act: () => setQuery({ at: "" }) }] : []),
    ...(maySelectAll ? [{ keys: "A", does: "Select everything that matches", act: () => setWhole(isWhole ? "" : key) }] : []),
    ...((marked.size > 0 || isWhole) && !isBeside ? [{ keys: "Escape", does: "Select nothing", act: () => mark() }] : []),
  ]);
  const active = useRef(/** @type {any} */ (undefined));
  const onActive = (head) => {
    active.current = head.sequenceNumber;
    if (isBeside) {
      setQuery({ at: head.sequenceNumber });
    }
  };
  const onOpen = (head) => {
    if (isWide && String(head.sequenceNumber) !== selected) {
      setQuery({ at: head.sequenceNumber });
    } else {
      go(hrefOf(head));
    }
  };
  const toggle = (name) => setQuery({ state: states.includes(name) ? states.filter((one) => one !== name) : [...states, name], at: "" });
  const isFiltered = states.length > 0 || from !== "" || session !== "";
  const noun = NOUNS[tab];
  const empty = isFiltered
    ? html`<${Empty} title="No message matches"><p><button type="button" onClick=${() => setQuery({ state: [], from: "", session: "", fromUtc: "" })}>Show all</button></p><//>`
    : html`<${NoMessages} kind=${kind} path=${path} tab=${tab} />`;
  return html`<div class="tools">
      ${!isScheduled && html`<${SearchField} label="From number" value=${from} onChange=${(value) => setQuery({ from: value.replace(/\D/g, ""), at: "" })} />`}
      ${hasSessions && html`<${SearchField} label="Session" value=${session} onChange=${(value) => setQuery({ session: value, at: "" })} />`}
      <${Choice} label="Order" value=${isDescending ? "newest" : "oldest"} options=${isScheduled ? [["oldest", "Next first"], ["newest", "Last first"]] : [["oldest", "Oldest first"], ["newest", "Newest first"]]}
        onChange=${(value) => setQuery({ order: value, at: "" })} />
      ${
        !isScheduled &&
        !isDead &&
        html`<fieldset class="choice loose"><legend class="hidden">States</legend>
        ${STATES.map((name) => html`<button type="button" key=${name} aria-pressed=${states.includes(name)} onClick=${() => toggle(name)}>${name}</button>`)}
      </fieldset>`
      }
      ${maySelectAll && html`<button type="button" aria-pressed=${isWhole} onClick=${() => setWhole(isWhole ? "" : key)}>Select everything</button>`}
      ${isDead && html`<a class="button" href=${entityHref(kind, path, "workbench", { sub: tab === "dead-letters" ? "" : tab })}>Groups</a>`}
      <a class="button" href=${href(["search"], { entity: path, sub: { "dead-letters": "deadLetter", "transfer-dead-letters": "transferDeadLetter" }[tab] })}>Search</a>
      <${ColumnChoice} set=${set} ids=${ids} />
    </div>
    ${job && html`<${JobPanel} key=${job} id=${job} />`}
    ${
      (marked.size > 0 || isWhole) &&
      html`<div class="tools selection" role="group" aria-label="Selection">
        <span>${isWhole ? `Everything ${isFiltered ? "that matches" : "in this list"} selected` : `${number(marked.size)} ${marked.size === 1 ? noun[0] : noun[1]} selected`}</span>
        ${!isWhole && html`<span class="quiet">Copy</span> <${Copy} label="Numbers" what="numbers of the selection" text=${() => [...marked].sort(byNumber).join("\n")} />
        <${Copy} label="NDJSON" what="heads of the selection" text=${() => list.rows.filter((head) => marked.has(String(head.sequenceNumber))).map(headLine).join("\n")} />`}
        <button type="button" onClick=${() => mark()}>Select nothing</button>
        ${
          isWhole
            ? html`<${Acts} kind=${kind} path=${path} tab=${tab} where=${whereOf({ from: asked.from, fromUtc: asked.fromUtc, session, isDescending, isScheduled })} states=${asked.state} onDone=${mark} />`
            : html`<${Acts} kind=${kind} path=${path} tab=${tab} numbers=${[...marked].sort(byNumber)} without=${isScheduled ? ["delete"] : []} onDone=${mark} />
              ${
                isScheduled
                  ? html`<${CancelScheduled} kind=${kind} path=${path} numbers=${[...marked].sort(byNumber)} place=${key} onDone=${mark} />`
                  : html`<${BreakLocks} kind=${kind} path=${path} subQueue=${subQueue} numbers=${lockedIn(list.rows, marked)} place=${key} onDone=${mark} />`
              }`
        }
      </div>`
    }
    <${Outcome} place=${key} />
    <${Problem} error=${list.error} onRetry=${list.refresh} except="EntityNotFound" />
    <div class=${`split ${isBeside ? "open" : ""}`}>
      <${Table} noun=${noun} label=${`${noun[1]} of ${visible(path)}`} columns=${columns} rows=${list.rows} keyOf=${(head) => String(head.sequenceNumber)}
        marked=${marked} onMark=${mark} scope=${key} hrefOf=${hrefOf} onOpen=${onOpen} onActive=${onActive} selected=${selected || undefined}
        hasMore=${list.hasMore} loadMore=${list.loadMore} isLoading=${list.isLoading && list.at === 0} empty=${list.error ? null : empty} />
      ${
        isBeside &&
        html`<aside class="beside" aria-label=${`Message ${selected}`}>
        <div class="beside-head"><h2>Message <span class="mono">${selected}</span></h2>
          <a class="button" href=${hrefOf({ sequenceNumber: selected })}>Open</a>
          <button type="button" onClick=${() => setQuery({ at: "" })}>Close</button></div>
        <${MessageView} kind=${kind} path=${path} tab=${tab} sequence=${selected} isNarrow=${true} />
      </aside>`
      }
    </div>`;
}

/** Empty list: the usual content, and how to get it. */
function NoMessages({ kind, path, tab }) {
  const target = kind === "subscription" ? (subscriptionParts(path)?.topic ?? path) : path;
  const to = addressOf(`${entityPath(kind === "queue" ? "queue" : "topic", target)}/messages`);
  const json = "-H 'Content-Type: application/json' -d";
  switch (tab) {
    case "dead-letters":
      return html`<${Empty} title="No dead letters"><p>Messages come here when consumers give up on them, or when they expire in an entity that dead-letters expired messages.</p>
        <${Commands} title="To see one, receive a message and dead-letter it" list=${[`peeklock receive ${quoted(path)} --settle dead-letter`]} /><//>`;
    case "transfer-dead-letters":
      return html`<${Empty} title="No transfer dead letters"><p>Messages come here when they cannot be moved to the destination of this entity: it is missing, disabled, or too many hops away.</p><//>`;
    case "scheduled": {
      const schedule = `curl ${quoted(`${to}/schedule`)} ${json} '{"scheduledEnqueueTimeUtc": "${new Date(now() + 3_600_000).toISOString().slice(0, 19)}Z", "messages": [{"body": "hello"}]}'`;
      return html`<${Empty} title="Nothing is scheduled"><p>Messages with a scheduled time in the future wait here until then.</p>
        <${Commands} title="Send one that becomes available in an hour" list=${[`peeklock send ${quoted(target)} hello --at +1h`, schedule]} /><//>`;
    }
    default:
      return html`<${Empty} title="No messages"><p>${kind === "subscription" ? "They come here when something sends to the topic and a rule selects them." : "They come here when something sends to this queue. A consumer that completes them removes them again."}</p>
        <${Totals} kind=${kind} path=${path} heading=${html`<p>In the last hour:</p>`} />
        <${Commands} title="Send one" list=${[`peeklock send ${quoted(target)} hello`, `curl ${quoted(to)} ${json} '{"body": "hello"}'`]} /><//>`;
  }
}

/** Chooses the columns of a set; any application property, or value in a JSON body, can be one. */
function ColumnChoice({ set, ids }) {
  const [name, setName] = useState("");
  const [flaw, setFlaw] = useState("");
  const change = (next) => prefer({ columns: { ...preferences.value.columns, [set]: next } });
  const properties = ids.filter(isOwn);
  const add = (event) => {
    event.preventDefault();
    const isPath = name.startsWith("$");
    if (isPath && readPath(name) === undefined) {
      setFlaw("A path names one value, such as $.order.lines[0].sku");
      return;
    }
    setFlaw("");
    const id = (isPath ? PATH : PROPERTY) + name;
    if (name !== "" && !ids.includes(id)) {
      change([...ids, id]);
    }
    setName("");
  };
  const box = (id, shown) => html`<label key=${id}><input type="checkbox" checked=${ids.includes(id)}
    onChange=${() => change(ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id])} /> ${shown}</label>`;
  return html`<details class="menu-box" onKeyDown=${(event) => {
    if (event.key === "Escape" && event.currentTarget.open) {
      event.preventDefault();
      event.currentTarget.open = false;
      event.currentTarget.querySelector("summary")?.focus();
    }
  }}><summary>Columns</summary><div class="menu-inside">
    <form onSubmit=${add}><label class="block">Application property, or path in a JSON body
        <input type="text" value=${name} placeholder="$.customer.name" aria-invalid=${flaw !== ""} aria-describedby="column-flaw" autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.currentTarget.value)} /></label>
      <p class="bad small" id="column-flaw" role="alert">${flaw}</p>
      <button>Add column</button></form>
    ${ALL.filter(({ id }) => id !== "number").map(({ id, name }) => box(id, name))}
    ${properties.map((id) => box(id, html`<span class="mono"><${Text} value=${nameOf(id)} /></span>`))}
    <button type="button" onClick=${() => change(DEFAULTS[set])}>Default columns</button>
  </div></details>`;
}
