// @ts-check
// Locks and sessions of an entity with their holders, and clients with their links.

import { entityPath, get, getBytes, SUB_QUEUES } from "./api.js";
import { BreakLocks, BreakSession, ChangeState, CloseClient, Outcome, useMayOperate } from "./actions.js";
import { utf8 } from "./decode.js";
import { Count } from "./entities.js";
import { exact, number, size, visible } from "./format.js";
import { Age, Choice, Empty, Facts, Holder, Left, Lock, Moment, Problem, SearchField, Text, usePageTitle } from "./parts.js";
import { preferences } from "./preferences.js";
import { usePages, useResource } from "./resource.js";
import { entityHref, href, kindOfPath, setQuery } from "./route.js";
import { Table, useMarks } from "./table.js";
import { html } from "./view.js";

const zone = () => preferences.value.zone;
const STATE_BYTES = 64 << 10;

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
  const hasOwn = !(hasSessions && subQueue === "");
  const mayOperate = useMayOperate(path);
  const [marked, setMarked] = useMarks(key);
  const chosen = [...marked];
  return html`<div class="tools">
      <${Choice} label="Order" value=${sort} options=${[["end", "First to end"], ["age", "Held longest"]]} onChange=${(value) => setQuery({ sort: value })} />
      <${Choice} label="Sub-queue" value=${subQueue} options=${[["", "Main"], ["dead-letters", "Dead letters"]]} onChange=${(value) => setQuery({ sub: value })} />
    </div>
    ${
      chosen.length > 0 &&
      html`<div class="tools selection" role="group" aria-label="Selection">
        <span>${number(chosen.length)} ${chosen.length === 1 ? "lock" : "locks"} selected</span>
        <button type="button" onClick=${() => setMarked()}>Select nothing</button>
        <${BreakLocks} kind=${kind} path=${path} subQueue=${subQueue} numbers=${chosen} place=${key} onDone=${setMarked} />
      </div>`
    }
    <${Outcome} place=${key} />
    <${Problem} error=${list.error} onRetry=${list.refresh} except="EntityNotFound" />
    <${Table} noun=${["lock", "locks"]} label=${`Locks of ${visible(path)}`} columns=${lockColumns(hasSessions && subQueue === "")} rows=${list.rows} total=${list.total} scope=${key}
      keyOf=${(row) => (hasOwn ? String(row.sequenceNumber) : row.sessionId)} hrefOf=${hrefOf} marked=${marked} onMark=${hasOwn && mayOperate ? setMarked : undefined} sort=${sort} onSort=${(name) => setQuery({ sort: name })}
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
  const place = `${base} ${id}`;
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
    <${Outcome} place=${place} />
    ${row?.lock && html`<${BreakSession} kind=${kind} path=${path} id=${id} messageCount=${row.activeMessageCount} place=${place} />`}
    ${row && html`<${ChangeState} kind=${kind} path=${path} id=${id} stateSize=${row.stateSize} isHeld=${Boolean(row.lock)} place=${place} />`}
    <${Problem} error=${state.error} onRetry=${state.refresh} />
    ${state.value && (text === undefined ? html`<p class="quiet">The state is ${size(state.value.total)} of bytes that are not text.</p>` : html`<pre class="text state-text" tabindex="0" aria-label="State"><${Text} value=${text} lines=${true} /></pre>`)}
    ${state.value && state.value.total > state.value.bytes.length && html`<p class="quiet">The first ${size(state.value.bytes.length)} of ${size(state.value.total)}.</p>`}
  </section>`;
}

const PAGE = 200;
const sum = (client, name) => client.links.reduce((total, link) => total + Number(link[name]), 0);

const clientColumns = [
  { id: "id", name: "Client", width: 76, align: "right", rank: 4, mono: true, cell: (row) => String(row.clientId) },
  { id: "name", name: "Name", width: 230, isWide: true, rank: 1, cell: (row) => html`<${Text} value=${row.name ?? "–"} max=${120} />` },
  { id: "transport", name: "Transport", width: 100, rank: 2, cell: (row) => visible(row.transport) },
  { id: "address", name: "Address", width: 190, rank: 5, mono: true, cell: (row) => html`${visible(row.address ?? "–")}${row.isByProxy ? html` <span class="quiet">proxy</span>` : null}` },
  { id: "policy", name: "Policy", width: 110, rank: 7, cell: (row) => html`<${Text} value=${row.policy ?? "–"} max=${60} />` },
  { id: "since", name: "Connected", width: 100, align: "right", rank: 3, cell: (row) => html`<${Age} at=${row.connectedAtUtc} />`, exact: (row) => exact(row.connectedAtUtc, zone()) },
  { id: "last", name: "Last active", width: 104, align: "right", rank: 3, cell: (row) => html`<${Age} at=${row.lastActivityUtc} />`, exact: (row) => exact(row.lastActivityUtc, zone()) },
  { id: "links", name: "Links", width: 72, align: "right", rank: 4, cell: (row) => number(row.linkCount) },
  { id: "hand", name: "In hand", width: 84, align: "right", rank: 3, cell: (row) => number(sum(row, "unsettledCount")) },
  { id: "credit", name: "Credit", width: 80, align: "right", rank: 6, cell: (row) => number(sum(row, "credit")) },
];

export function Clients({ query }) {
  usePageTitle("Clients");
  const [name, path, transport, selected] = ["name", "path", "transport", "client"].map((key) => query.get(key) ?? "");
  const asked = { name, path, transport };
  const key = `clients ${JSON.stringify(asked)}`;
  const list = usePages(key, async (after, signal) => {
    const answer = await get("clients", { ...asked, top: PAGE, after }, signal);
    return { rows: answer.clients, next: answer.next, total: answer.total };
  }, { kind: "clients", subject: { name: "clients", query: { ...(name && { name }), ...(path && { path }), ...(transport && { transport }), top: PAGE } } });
  const client = list.rows.find((row) => String(row.clientId) === selected);
  const isFiltered = name !== "" || path !== "" || transport !== "";
  return html`<div class="page fill">
    <h1>Clients</h1>
    <div class="tools">
      <${SearchField} label="Part of the name" value=${name} onChange=${(value) => setQuery({ name: value, client: "" })} />
      <${SearchField} label="Path of an entity" value=${path} onChange=${(value) => setQuery({ path: value, client: "" })} />
      <label>Transport <select value=${transport} onChange=${(event) => setQuery({ transport: event.currentTarget.value, client: "" })}>
        ${["", "amqp", "http", "websocket", "inproc"].map((one) => html`<option key=${one} value=${one} selected=${one === transport}>${one || "all"}</option>`)}
      </select></label>
    </div>
    <${Problem} error=${list.error} onRetry=${list.refresh} />
    ${selected && html`<${Client} id=${selected} client=${client} isRead=${list.at > 0} />`}
    <${Table} noun=${["client", "clients"]} label="Clients" columns=${clientColumns} rows=${list.rows} total=${list.total} keyOf=${(row) => String(row.clientId)} scope=${key}
      hrefOf=${(row) => href(["clients"], { ...asked, client: row.clientId })} selected=${selected || undefined}
      hasMore=${list.hasMore} loadMore=${list.loadMore} isLoading=${list.isLoading && list.at === 0}
      empty=${list.error ? null : html`<${Empty} title=${isFiltered ? "No client matches" : "No client is connected"}>${isFiltered && html`<p><button type="button" onClick=${() => setQuery({ name: "", path: "", transport: "" })}>Show all clients</button></p>`}<//>`} />
  </div>`;
}

function Client({ id, client, isRead }) {
  const place = `client ${id}`;
  if (!client) {
    return isRead ? html`<${Outcome} place=${place} /><p class="notice">Client ${visible(id)} is not connected. <button type="button" onClick=${() => setQuery({ client: "" })}>Close</button></p>` : null;
  }
  const { links, linkCount } = client;
  return html`<section class="panel" aria-label="Client">
    <div class="beside-head"><h2>Client ${client.clientId} <span class="mono"><${Text} value=${client.name ?? ""} max=${200} /></span></h2>
      <button type="button" onClick=${() => setQuery({ client: "" })}>Close</button></div>
    <${Facts} rows=${[
      ["Transport", visible(client.transport)],
      ["Address", client.address && html`<span class="mono">${visible(client.address)}</span>${client.isByProxy ? " of a proxy" : ""}`],
      ["Policy", client.policy && html`<${Text} value=${client.policy} />`],
      ["Connected", html`<${Moment} at=${client.connectedAtUtc} />`],
      ["Last active", html`<${Moment} at=${client.lastActivityUtc} />`],
    ]} />
    <${Outcome} place=${place} />
    <${CloseClient} client=${client} unsettledCount=${sum(client, "unsettledCount")} place=${place} />
    ${
      links.length > 0 &&
      html`<div class="table-scroll small-scroll" role="region" tabindex="0" aria-label="Links"><table class="plain">
      <thead><tr><th scope="col">Entity</th><th scope="col">Role</th><th scope="col">Mode</th><th scope="col">Session</th><th scope="col" class="right">Credit</th><th scope="col" class="right">Delivered</th><th scope="col" class="right">In hand</th></tr></thead>
      <tbody>${links.map(
        (link, place) => html`<tr key=${place}><th scope="row" class="mono"><a href=${entityHref(kindOfPath(link.path), link.path.replace(/\/\$.*$/, ""))}><${Text} value=${link.path} /></a></th>
          <td>${link.role}</td><td>${{ peekLock: "under lock", receiveAndDelete: "receive and delete" }[link.mode] ?? "–"}</td><td class="mono"><${Text} value=${link.sessionId ?? "–"} max=${80} /></td>
          <td class="right">${number(link.credit)}</td><td class="right">${number(link.deliveredCount)}</td><td class="right">${number(link.unsettledCount)}</td></tr>`,
      )}</tbody></table></div>`
    }
    ${links.length === 0 && html`<p class="quiet">It has no link to an entity that you may read.</p>`}
    ${linkCount > links.length && links.length > 0 && html`<p class="quiet">${number(links.length)} of ${number(linkCount)} links.</p>`}
  </section>`;
}
