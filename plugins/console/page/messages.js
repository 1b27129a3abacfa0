// @ts-check
// Heads of messages in a table, and the selected message next to it where there is room.

import { entityPath, get } from "./api.js";
import { exact, number, propertyText, size, visible } from "./format.js";
import { Lock } from "./holders.js";
import { useKeys } from "./keys.js";
import { MessageView } from "./message.js";
import { Age, Choice, Empty, Problem, SearchField, State, Text } from "./parts.js";
import { preferences, prefer } from "./preferences.js";
import { usePages } from "./resource.js";
import { entityHref, go, setQuery } from "./route.js";
import { Table } from "./table.js";
import { html, useEffect, useRef, useState } from "./view.js";

const STATES = ["active", "locked", "deferred", "delayed", "scheduled", "expired", "transferring"];
const BESIDE = matchMedia("(min-width: 1180px)");
const PREVIEW_CHARS = 160;

/** Name of a column for an application property. */
const PROPERTY = "property:";

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
  { id: "reason", name: "Reason", width: 180, rank: 2, cell: property("DeadLetterReason") },
  { id: "description", name: "Description", width: 200, rank: 5, cell: property("DeadLetterErrorDescription") },
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

function useColumns(set) {
  const { columns } = preferences.use();
  const ids = columns[set] ?? DEFAULTS[set];
  const known = ALL.filter(({ id }) => ids.includes(id));
  const properties = ids.filter((id) => id.startsWith(PROPERTY)).map((id) => ({ id, name: id.slice(PROPERTY.length), width: 140, rank: 3, cell: property(id.slice(PROPERTY.length)) }));
  const at = known.findIndex(({ id }) => id === "body");
  return { ids, list: at < 0 ? [...known, ...properties] : [...known.slice(0, at), ...properties, ...known.slice(at)] };
}

export function Messages({ kind, path, tab, query, hasSessions }) {
  const set = tab === "scheduled" ? "scheduled" : tab.includes("dead") ? "dead-letters" : hasSessions ? "sessions" : "messages";
  const { ids, list: columns } = useColumns(set);
  const isDead = set === "dead-letters";
  const isScheduled = set === "scheduled";
  const states = query.getAll("state");
  const [from, session, order, selected] = ["from", "session", "order", "at"].map((name) => query.get(name) ?? "");
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
  const key = `heads ${base} ${JSON.stringify(asked)}`;
  const list = usePages(key, async (after, signal) => {
    const start = after === undefined ? {} : { from: undefined, fromUtc: undefined };
    const answer = await get(`${base}/heads`, { ...asked, ...start, count: 200, after }, signal);
    return { rows: answer.heads, next: answer.next };
  });
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
  const titles = {
    messages: ["No messages", "They come here when something sends to this entity."],
    "dead-letters": ["No dead letters", "Messages come here when consumers give up on them or they expire."],
    "transfer-dead-letters": ["No transfer dead letters", "Messages come here when they cannot be forwarded."],
    scheduled: ["Nothing is scheduled", "Messages with a scheduled time in the future wait here."],
  };
  const empty = isFiltered
    ? html`<${Empty} title="No message matches"><p><button type="button" onClick=${() => setQuery({ state: [], from: "", session: "", fromUtc: "" })}>Show all</button></p><//>`
    : html`<${Empty} title=${titles[tab][0]}><p>${titles[tab][1]}</p><//>`;
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
      <${ColumnChoice} set=${set} ids=${ids} />
    </div>
    <${Problem} error=${list.error} onRetry=${list.refresh} except="EntityNotFound" />
    <div class=${`split ${isBeside ? "open" : ""}`}>
      <${Table} label=${`${titles[tab][0].replace(/^No(thing is)? /, "")} of ${visible(path)}`} columns=${columns} rows=${list.rows} keyOf=${(head) => String(head.sequenceNumber)}
        scope=${key} hrefOf=${hrefOf} onOpen=${onOpen} onActive=${onActive} selected=${selected || undefined}
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

/** Chooses the columns of a set; any application property can be one. */
function ColumnChoice({ set, ids }) {
  const [name, setName] = useState("");
  const change = (next) => prefer({ columns: { ...preferences.value.columns, [set]: next } });
  const properties = ids.filter((id) => id.startsWith(PROPERTY));
  const add = (event) => {
    event.preventDefault();
    const id = PROPERTY + name;
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
    ${ALL.filter(({ id }) => id !== "number").map(({ id, name }) => box(id, name))}
    ${properties.map((id) => box(id, html`<span class="mono"><${Text} value=${id.slice(PROPERTY.length)} /></span>`))}
    <form onSubmit=${add}><label class="block">Application property <input type="text" value=${name} onInput=${(event) => setName(event.currentTarget.value)} /></label>
      <button>Add column</button></form>
    <button type="button" onClick=${() => change(DEFAULTS[set])}>Default columns</button>
  </div></details>`;
}
