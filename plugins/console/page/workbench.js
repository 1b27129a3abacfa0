// @ts-check
// Workbench for dead letters: groups by cause on the left, messages of the chosen group in the middle, a message on the
// right. A job acts on selected messages or on the whole group, and is followed on the same page (CON-11, CON-48).

import { ApiError, openStream } from "./api.js";
import { number, visible } from "./format.js";
import { Acts, JobPanel } from "./jobs.js";
import { useKeys } from "./keys.js";
import { MessageView } from "./message.js";
import { columnsOf } from "./messages.js";
import { Age, Choice, Empty, Problem, Text } from "./parts.js";
import { useResource } from "./resource.js";
import { entityHref, go, href, route, setQuery } from "./route.js";
import { useSearch, writeLine } from "./search.js";
import { events } from "./stream.js";
import { Table, useMarks } from "./table.js";
import { html, useEffect, useRef, useState } from "./view.js";

const WIDE = matchMedia("(min-width: 1180px)");
const GROUPS_SHOWN = 100;
/** Marks in the fingerprint of a description. */
const MARK = /(\{(?:text|guid|hex|n)\})/;

const clause = (/** @type {string} */ field, /** @type {string} */ sign, /** @type {string} */ value) => writeLine([{ not: false, field, path: "", sign, value }]);
const sqlText = (/** @type {string} */ text) => `'${text.replaceAll("'", "''")}'`;

/** The broker cuts longer values, and marks that. */
const VALUE_CHARS = 256;
const isCut = (/** @type {string} */ value) => value.endsWith("…") && [...value].length === VALUE_CHARS;

/** Returns a condition for a property with this value, in which marks of a fingerprint stand for any text. */
function like(/** @type {string} */ property, /** @type {string} */ value, hasMarks = false) {
  const whole = isCut(value) ? value.slice(0, -1).replace(/\{[a-z]{0,4}$/, "") : value;
  const parts = hasMarks ? whole.split(MARK) : [whole];
  const pattern = parts.map((part, place) => (place % 2 === 1 ? "%" : part.replace(/[%_!]/g, "!$&"))).join("") + (isCut(value) ? "%" : "");
  return clause("sql", ":", `${property} LIKE ${sqlText(pattern)} ESCAPE '!'`);
}

/**
 * Ways to group: `line` has the conditions of a group, `missing` those of messages without the value. A description is longer
 * than its fingerprint, so its group is selected by a pattern.
 */
const BY = {
  description: { name: "Description", line: (value) => like("DeadLetterErrorDescription", value, true), missing: clause("sql", ":", "DeadLetterErrorDescription IS NULL") },
  reason: { name: "Reason", line: (value) => (isCut(value) ? like("DeadLetterReason", value) : clause("reason", "=", value)), missing: clause("sql", ":", "DeadLetterReason IS NULL") },
  source: { name: "Source", line: (value) => clause("source", "=", value), missing: undefined },
  subject: { name: "Subject", line: (value) => (isCut(value) ? like("sys.Label", value) : clause("subject", "=", value)), missing: clause("sql", ":", "sys.Label IS NULL") },
};

const SUBS = { "dead-letters": ["deadLetter", "Dead letters"], "transfer-dead-letters": ["transferDeadLetter", "Transfer dead letters"] };

/** Counts groups; resolves to the end of the search. */
async function grouped(request, /** @type {AbortSignal} */ signal) {
  const body = await openStream("search", { ...request, where: "" }, signal);
  for await (const [name, event] of events(body)) {
    if (name === "page" && event.end) {
      return event.end;
    }
    if (name === "error") {
      throw new ApiError("POST /$api/v1/search", { code: event.code, detail: "the count has ended before its end", trackingId: event.trackingId });
    }
  }
  throw new ApiError("POST /$api/v1/search", { code: "Interrupted", detail: "the count was interrupted", retryable: true });
}

/** The value of a group; marks stand for parts that vary. */
const Value = ({ value }) =>
  value === undefined
    ? html`<span class="quiet">none</span>`
    : value.split(MARK).map((part, place) => (place % 2 === 1 ? html`<span key=${place} class="variable">${part.slice(1, -1)}</span>` : html`<${Text} key=${place} value=${part} />`));

export function Workbench({ kind, path, query }) {
  const by = query.get("by") ?? "";
  const way = by in BY ? by : "description";
  const sub = kind === "topic" || query.get("sub") === "transfer-dead-letters" ? "transfer-dead-letters" : "dead-letters";
  const [at, job] = ["at", "job"].map((name) => query.get(name) ?? "");
  const request = { entities: [path], subQueues: [SUBS[sub][0]], groupBy: way };
  const state = useResource(`groups ${kind} ${JSON.stringify(request)}`, (signal) => grouped(request, signal), { every: 0 });
  const groups = state.value?.groups ?? [];
  const chosen = query.has("none") ? groups.find(({ value }) => value === undefined) : query.has("group") ? groups.find(({ value }) => value === query.get("group")) : groups[0];
  const toGroup = (group) => ({ by: by && way, sub: sub === "dead-letters" ? "" : sub, ...(group.value === undefined ? { none: 1 } : { group: group.value }), job });
  const step = (by) => {
    const next = groups[groups.indexOf(chosen) + by];
    if (next) {
      setQuery({ group: undefined, none: undefined, at: "", ...toGroup(next) });
    }
  };
  // Another count may have another order, and the chosen group stays.
  const isUnnamed = chosen && !query.has("group") && !query.has("none");
  useEffect(() => {
    if (isUnnamed) {
      setQuery(toGroup(chosen));
    }
  }, [isUnnamed, way, sub]);
  const [isWide, setWide] = useState(WIDE.matches);
  useEffect(() => {
    const change = () => setWide(WIDE.matches);
    WIDE.addEventListener("change", change);
    return () => WIDE.removeEventListener("change", change);
  }, []);
  useKeys([
    { keys: "J", does: "Next group", act: () => step(1) },
    { keys: "K", does: "Previous group", act: () => step(-1) },
    ...(at !== "" ? [{ keys: "Escape", does: "Close the message", act: () => setQuery({ at: "" }) }] : []),
  ]);
  return html`<div class="tools">
      <${Choice} label="Groups by" value=${way} options=${Object.entries(BY).map(([id, { name }]) => [id, name])} onChange=${(value) => go(href(route.value.parts, { by: value, sub: sub === "dead-letters" ? "" : sub, job }), { replace: true })} />
      ${kind !== "topic" && html`<${Choice} label="Sub-queue" value=${sub} options=${Object.entries(SUBS).map(([id, [, name]]) => [id, name])} onChange=${(value) => go(href(route.value.parts, { by, sub: value }), { replace: true })} />`}
      <button type="button" onClick=${state.refresh}>Count again</button>
    </div>
    ${job && html`<${JobPanel} key=${job} id=${job} />`}
    <${Problem} error=${state.error} onRetry=${state.refresh} />
    ${!state.value && !state.error && html`<p class="quiet">Reading…</p>`}
    ${state.value?.bound && html`<p class="notice">Only a part was counted: the search has met a bound. Narrow it down on the page Search.</p>`}
    ${
      groups.length > 0 &&
      html`<div class=${`bench ${isWide && at ? "open" : ""}`}>
      <nav class="bench-groups" aria-label="Groups"><ul>${groups.slice(0, GROUPS_SHOWN).map((group, place) => html`<li key=${place}><a href=${href(route.value.parts, toGroup(group))} aria-current=${group === chosen ? "true" : undefined}>
          <span class="bench-count">${number(group.count)}</span><span><${Value} value=${group.value} /><span class="quiet bench-time">first <${Age} at=${group.firstUtc} suffix=" ago" />, last <${Age} at=${group.lastUtc} suffix=" ago" /></span></span></a></li>`)}</ul>
        ${groups.length > GROUPS_SHOWN && html`<p class="quiet">The ${number(GROUPS_SHOWN)} largest of ${number(groups.length)} groups.</p>`}
        ${state.value.other && html`<p class="quiet">${number(state.value.other.count)} messages have further values.</p>`}</nav>
      ${chosen ? html`<${Group} key=${`${sub} ${way} ${chosen.value}`} kind=${kind} path=${path} sub=${sub} group=${chosen} line=${chosen.value === undefined ? BY[way].missing : BY[way].line(chosen.value)} countedAt=${state.at} at=${at} isWide=${isWide} />` : html`<${Empty} title="This group has no message any more"><p>Choose another one.</p><//>`}
    </div>`
    }
    ${state.value && groups.length === 0 && html`<${Empty} title="No dead letters"><p>Messages come here when consumers give up on them, or when they expire in an entity that dead-letters expired messages.</p><//>`}`;
}

/** Columns that distinguish messages of a group come first. */
const RANKS = { number: 1, description: 1, enqueued: 2, reason: 3, subject: 4, tries: 5, body: 6 };
const COLUMNS = columnsOf(["number", "enqueued", "reason", "description", "subject", "tries", "body"]).map((column) => ({ ...column, rank: RANKS[column.id], isWide: column.id === "description", width: column.id === "reason" ? 130 : column.width }));

/** Messages of a group, and the jobs for these. */
function Group({ kind, path, sub, group, line, countedAt, at, isWide }) {
  const { state, start } = useSearch();
  const [marked, setMarked] = useMarks(`${sub} ${line}`);
  const active = useRef("");
  useEffect(() => {
    if (line !== undefined) {
      void start({ where: line, entities: [path], subQueues: [SUBS[sub][0]], descending: true });
    }
  }, [line, countedAt]);
  const hrefOf = ({ sequenceNumber }) => entityHref(kind, path, sub, {}, sequenceNumber);
  const isBeside = isWide && at !== "";
  useKeys(marked.size > 0 ? [{ keys: "Escape", does: "Select nothing", act: () => setMarked() }] : []);
  if (line === undefined) {
    return html`<${Empty} title="These messages have no source"><p>Choose another way to group.</p><//>`;
  }
  const onOpen = (hit) => {
    if (isWide && String(hit.sequenceNumber) !== at) {
      setQuery({ at: hit.sequenceNumber });
    } else {
      go(hrefOf(hit));
    }
  };
  const onActive = (hit) => {
    active.current = String(hit.sequenceNumber);
    if (isBeside) {
      setQuery({ at: hit.sequenceNumber });
    }
  };
  const bound = state.end?.bound;
  // Messages may have come or left, and a pattern may take other descriptions too.
  const count = state.status === "ended" && !bound ? state.hits.length : group.count;
  return html`<section class="bench-messages" aria-label="Messages of the group">
      <div class="tools selection" role="group" aria-label="Selection">
        <span>${marked.size > 0 ? `${number(marked.size)} of ${number(count)} selected` : `All ${number(count)} of the group`}</span>
        ${marked.size > 0 && html`<button type="button" onClick=${() => setMarked()}>The whole group</button>`}
        <a class="button" href=${href(["search"], { entity: path, sub: SUBS[sub][0], where: line })}>Search</a>
        <${Acts} key=${marked.size > 0 ? "some" : "all"} kind=${kind} path=${path} tab=${sub} numbers=${marked.size > 0 ? [...marked] : undefined} where=${line} what=${`all ${number(count)} of the group`} onDone=${setMarked} />
      </div>
      ${count !== group.count && html`<p class="look">The group had ${number(group.count)} when it was counted. Messages came or left, or other descriptions are like these.</p>`}
      <${Problem} error=${state.error} />
      <${Table} noun=${["message", "messages"]} label="Messages of the group" columns=${COLUMNS} rows=${state.hits} scope=${`${sub} ${line}`} keyOf=${(hit) => String(hit.sequenceNumber)}
        total=${bound ? group.count : undefined} marked=${marked} onMark=${setMarked} hrefOf=${hrefOf} onOpen=${onOpen} onActive=${onActive} selected=${at || undefined}
        isLoading=${/^(idle|running)$/.test(state.status)} empty=${state.status === "ended" ? html`<${Empty} title="No message is left in this group" />` : null} />
      ${bound && html`<p class="quiet">The newest ${number(state.hits.length)} are listed. A job on the whole group takes the others too.</p>`}
    </section>
    ${
      isBeside &&
      html`<aside class="beside" aria-label=${`Message ${visible(at)}`}>
      <div class="beside-head"><h2>Message <span class="mono">${visible(at)}</span></h2>
        <a class="button" href=${hrefOf({ sequenceNumber: at })}>Open</a>
        <button type="button" onClick=${() => setQuery({ at: "" })}>Close</button></div>
      <div class="tools" role="group" aria-label="Message"><${Acts} key=${at} kind=${kind} path=${path} tab=${sub} numbers=${[at]} /></div>
      <${MessageView} kind=${kind} path=${path} tab=${sub} sequence=${at} isNarrow=${true} />
    </aside>`
    }`;
}
