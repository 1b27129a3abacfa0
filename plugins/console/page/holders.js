// @ts-check
// Locks and sessions of an entity with their holders.

import { entityPath, get, getBytes, SUB_QUEUES } from "./api.js";
import { utf8 } from "./decode.js";
import { exact, number, shortSpan, size, visible } from "./format.js";
import { Count } from "./entities.js";
import { Age, Choice, Empty, Facts, Moment, Problem, Text, useNow } from "./parts.js";
import { preferences } from "./preferences.js";
import { usePages, useResource } from "./resource.js";
import { entityHref, href, setQuery } from "./route.js";
import { Table } from "./table.js";
import { html } from "./view.js";

const zone = () => preferences.value.zone;
const STATE_BYTES = 64 << 10;

/** Name of the holder of a lock: its own name, else its address, else its transport. */
function holderName({ holder }) {
  return holder ? (holder.name ?? holder.address ?? holder.transport) : undefined;
}

function Holder({ lock }) {
  const name = holderName(lock);
  if (name === undefined) {
    return html`<span class="quiet">unknown</span>`;
  }
  const { clientId, isConnected } = lock.holder;
  const text = html`<${Text} value=${name} max=${80} />`;
  return isConnected ? html`<a href=${href(["clients"], { client: clientId })} tabindex="-1">${text}</a>` : html`${text} <span class="look">gone</span>`;
}

/** Time that is left of a lock, as a number and a bar that shrinks. */
function Left({ lock }) {
  const time = useNow();
  const end = Date.parse(lock.lockedUntilUtc);
  const start = Date.parse(lock.takenAtUtc);
  const left = end - time;
  if (left <= 0) {
    return html`<span class="quiet">ended</span>`;
  }
  // A renewal moves the end; the bar then counts from the last full length that is known.
  const whole = lock.renewalCount > 0 ? Math.max(left, (end - start) / (lock.renewalCount + 1)) : end - start;
  return html`<span class="left"><span class="left-text">${shortSpan(left)}</span><span class=${`left-bar ${left < whole / 5 ? "soon" : ""}`} aria-hidden="true"><span style=${{ width: `${Math.min(100, Math.max(2, (left / Math.max(1, whole)) * 100))}%` }}></span></span></span>`;
}

/** A lock in one line, or with all that is known. */
export function Lock({ lock, isLong = false }) {
  if (!isLong) {
    return html`<${Left} lock=${lock} /> <${Holder} lock=${lock} />`;
  }
  const { holder } = lock;
  return html`<${Left} lock=${lock} /> left${lock.renewalCount > 0 ? `, ${number(lock.renewalCount)} renewals` : ""}, held by <${Holder} lock=${lock} />
    ${holder && html`<br /><span class="quiet">${[visible(holder.transport), holder.address && visible(holder.address), holder.policy && `policy ${visible(holder.policy)}`].filter(Boolean).join(", ")}</span>`}
    <br />taken <${Moment} at=${lock.takenAtUtc} />`;
}

const lockColumns = (hasSessions) => [
  hasSessions
    ? { id: "session", name: "Session", width: 150, rank: 1, mono: true, cell: (row) => html`<${Text} value=${row.sessionId ?? ""} max=${120} />` }
    : { id: "number", name: "Number", width: 92, align: "right", rank: 1, mono: true, cell: (row) => String(row.sequenceNumber) },
  ...(hasSessions ? [{ id: "messages", name: "Messages", width: 94, align: "right", rank: 3, cell: (row) => number(row.messageCount) }] : []),
  { id: "left", name: "Left", width: 118, sort: "end", rank: 1, cell: (row) => html`<${Left} lock=${row.lock} />`, exact: (row) => exact(row.lock.lockedUntilUtc, zone()) },
  { id: "held", name: "Held for", width: 92, align: "right", sort: "age", rank: 2, cell: (row) => html`<${Age} at=${row.lock.takenAtUtc} />`, exact: (row) => exact(row.lock.takenAtUtc, zone()) },
  { id: "renewals", name: "Renewals", width: 92, align: "right", rank: 4, cell: (row) => number(row.lock.renewalCount) },
  { id: "tries", name: "Tries", width: 64, align: "right", rank: 5, cell: (row) => number(row.deliveryCount) },
  { id: "holder", name: "Holder", width: 130, isWide: true, rank: 1, cell: (row) => html`<${Holder} lock=${row.lock} />` },
  { id: "transport", name: "Transport", width: 100, rank: 6, cell: (row) => visible(row.lock.holder?.transport ?? "–") },
  { id: "address", name: "Address", width: 160, rank: 7, mono: true, cell: (row) => visible(row.lock.holder?.address ?? "–") },
  { id: "policy", name: "Policy", width: 130, rank: 8, cell: (row) => html`<${Text} value=${row.lock.holder?.policy ?? "–"} max=${60} />` },
];

export function Locks({ kind, path, query, hasSessions }) {
  const sort = query.get("sort") === "age" ? "age" : "end";
  const subQueue = query.get("sub") ?? "";
  const base = entityPath(kind, path, subQueue);
  const key = `locks ${base} ${sort}`;
  const list = usePages(key, async (after, signal) => {
    const answer = await get(`${base}/locks`, { sort, top: 200, after }, signal);
    return { rows: answer.locks, next: answer.next, total: answer.total };
  }, { kind: "locks", subject: { name: "locks", path: path + SUB_QUEUES[subQueue], query: { sort, top: 200 } } });
  const hrefOf = (row) => (hasSessions && subQueue === "" ? entityHref(kind, path, "sessions", { session: row.sessionId }) : entityHref(kind, path, subQueue || "messages", {}, row.sequenceNumber));
  const where = subQueue === "" ? "" : " in the dead-letter queue";
  return html`<div class="tools">
      <${Choice} label="Order" value=${sort} options=${[["end", "First to end"], ["age", "Held longest"]]} onChange=${(value) => setQuery({ sort: value })} />
      <${Choice} label="Sub-queue" value=${subQueue} options=${[["", "Main"], ["dead-letters", "Dead letters"]]} onChange=${(value) => setQuery({ sub: value })} />
    </div>
    <${Problem} error=${list.error} onRetry=${list.refresh} except="EntityNotFound" />
    <${Table} noun=${["lock", "locks"]} label=${`Locks of ${visible(path)}`} columns=${lockColumns(hasSessions && subQueue === "")} rows=${list.rows} total=${list.total} scope=${key}
      keyOf=${(row) => `${row.sessionId ?? ""} ${row.sequenceNumber}`} hrefOf=${hrefOf} sort=${sort} onSort=${(name) => setQuery({ sort: name })}
      hasMore=${list.hasMore} loadMore=${list.loadMore} isLoading=${list.isLoading && list.at === 0}
      empty=${list.error ? null : html`<${Empty} title="Nothing is locked${where}"><p>A consumer that receives under lock holds its messages here until it settles them.</p><//>`} />`;
}

const sessionColumns = [
  { id: "session", name: "Session", width: 150, isWide: true, rank: 1, sort: "sessionId", mono: true, cell: (row) => html`<${Text} value=${row.sessionId} max=${200} />` },
  { id: "active", name: "Active", width: 82, align: "right", rank: 1, sort: "activeMessageCount", cell: (row) => html`<${Count} value=${row.activeMessageCount} />` },
  { id: "deferred", name: "Deferred", width: 94, align: "right", rank: 5, sort: "deferredMessageCount", cell: (row) => html`<${Count} value=${row.deferredMessageCount} />` },
  { id: "scheduled", name: "Scheduled", width: 102, align: "right", rank: 6, sort: "scheduledMessageCount", cell: (row) => html`<${Count} value=${row.scheduledMessageCount} />` },
  { id: "oldest", name: "Oldest", width: 88, align: "right", rank: 2, sort: "oldestEnqueuedAtUtc", cell: (row) => html`<${Age} at=${row.oldestEnqueuedAtUtc} />`, exact: (row) => row.oldestEnqueuedAtUtc && exact(row.oldestEnqueuedAtUtc, zone()) },
  { id: "stuck", name: "Stuck", width: 76, rank: 3, cell: (row) => (row.isStuck ? html`<span class="tag look">stuck</span>` : "") },
  { id: "left", name: "Lock left", width: 118, rank: 3, sort: "lockedUntilUtc", cell: (row) => (row.lock ? html`<${Left} lock=${row.lock} />` : html`<span class="zero">free</span>`), exact: (row) => row.lock && exact(row.lock.lockedUntilUtc, zone()) },
  { id: "holder", name: "Holder", width: 160, rank: 4, cell: (row) => (row.lock ? html`<${Holder} lock=${row.lock} />` : "") },
  { id: "state", name: "State", width: 86, align: "right", rank: 7, sort: "stateSize", cell: (row) => (row.stateSize === undefined ? html`<span class="zero">none</span>` : size(row.stateSize)) },
  { id: "set", name: "State set", width: 92, align: "right", rank: 8, sort: "stateSetAtUtc", cell: (row) => html`<${Age} at=${row.stateSetAtUtc} />`, exact: (row) => row.stateSetAtUtc && exact(row.stateSetAtUtc, zone()) },
];

export function Sessions({ kind, path, query }) {
  const sort = query.get("sort") ?? "sessionId";
  const isDescending = query.get("descending") === "true";
  const isActiveOnly = query.get("active") === "true";
  const selected = query.get("session") ?? "";
  const base = entityPath(kind, path);
  const asked = { sort, descending: isDescending, withActiveMessages: isActiveOnly };
  const key = `sessions ${base} ${JSON.stringify(asked)}`;
  const list = usePages(key, async (after, signal) => {
    const answer = await get(`${base}/sessions/details`, { ...asked, top: 200, after }, signal);
    return { rows: answer.sessions, next: answer.next, total: answer.total };
  }, { kind: "sessions", subject: { name: "sessions", path, query: { ...asked, top: 200 } } });
  const row = list.rows.find((one) => one.sessionId === selected);
  return html`<div class="tools">
      <${Choice} label="Sessions" value=${isActiveOnly ? "active" : ""} options=${[["", "All"], ["active", "With active messages"]]} onChange=${(value) => setQuery({ active: value === "active" })} />
    </div>
    <${Problem} error=${list.error} onRetry=${list.refresh} except="EntityNotFound" />
    ${selected && html`<${Session} kind=${kind} path=${path} id=${selected} row=${row} />`}
    <${Table} noun=${["session", "sessions"]} label=${`Sessions of ${visible(path)}`} columns=${sessionColumns} rows=${list.rows} total=${isActiveOnly ? undefined : list.total} scope=${key}
      keyOf=${(one) => one.sessionId} hrefOf=${(one) => entityHref(kind, path, "sessions", { ...(sort === "sessionId" ? {} : { sort }), descending: isDescending, active: isActiveOnly, session: one.sessionId })}
      selected=${selected || undefined} sort=${sort} isDescending=${isDescending} onSort=${(name, descending) => setQuery({ sort: name, descending })}
      hasMore=${list.hasMore} loadMore=${list.loadMore} isLoading=${list.isLoading && list.at === 0}
      empty=${list.error ? null : html`<${Empty} title="No session"><p>A session begins with its first message or its first state.</p><//>`} />`;
}

/** One session: its lock, and its state, which is read without the lock. */
function Session({ kind, path, id, row }) {
  const base = entityPath(kind, path);
  const hasState = row?.stateSize > 0;
  const state = useResource(hasState ? `state ${base} ${id} ${row.stateSetAtUtc}` : undefined, (signal) => getBytes(`${base}/sessions/${encodeURIComponent(id)}/state`, 0, STATE_BYTES, signal), { every: 0 });
  const text = state.value && utf8(state.value.bytes, state.value.total > state.value.bytes.length);
  return html`<section class="panel" aria-label="Session">
    <div class="beside-head"><h2>Session <span class="mono"><${Text} value=${id} max=${200} /></span></h2>
      <a class="button" href=${entityHref(kind, path, "messages", { session: id })}>Messages</a>
      <button type="button" onClick=${() => setQuery({ session: "" })}>Close</button></div>
    <${Facts} rows=${[
      ["Lock", row?.lock ? html`<${Lock} lock=${row.lock} isLong=${true} />` : row && "free"],
      ["State set", row?.stateSetAtUtc && html`<${Moment} at=${row.stateSetAtUtc} />`],
      ["State", row && !hasState ? "none" : undefined],
    ]} />
    <${Problem} error=${state.error} onRetry=${state.refresh} />
    ${state.value && (text === undefined ? html`<p class="quiet">The state is ${size(state.value.total)} of bytes that are not text.</p>` : html`<pre class="text state-text" tabindex="0" aria-label="State"><${Text} value=${text} lines=${true} /></pre>`)}
    ${state.value && state.value.total > state.value.bytes.length && html`<p class="quiet">The first ${size(state.value.bytes.length)} of ${size(state.value.total)}.</p>`}
  </section>`;
}
