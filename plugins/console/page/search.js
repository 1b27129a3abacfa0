// @ts-check
// Search: conditions as a line and as a form, hits or groups as they come, and searches that are kept by name. The address has
// the whole search, so a link repeats it.

import { ApiError, asApiError, openStream, standing } from "./api.js";
import { exact, number, size, visible, words } from "./format.js";
import { Acts, JobPanel, placeOf } from "./jobs.js";
import { useKeys } from "./keys.js";
import { Age, announce, Choice, Empty, Problem, State, Text, usePageTitle } from "./parts.js";
import { prefer, preferences } from "./preferences.js";
import { entityHref, href, route, setQuery } from "./route.js";
import { events } from "./stream.js";
import { Table, useMarks } from "./table.js";
import { html, useEffect, useRef, useState } from "./view.js";

const HITS_KEPT = 5000;
const KEPT_MAX = 50;
const LINE_MAX = 4096;
const zone = () => preferences.value.zone;

const CONTAINS = [[":", "contains"], ["~", "contains exactly"]];
const COMPARES = [["=", "is"], ["!=", "is not"], ["<", "is less than"], ["<=", "is at most"], [">", "is greater than"], [">=", "is at least"]];
const TEXT = [...CONTAINS, COMPARES[0]];
const ANY = [[":", "is"]];

/** Fields of the form: the word in a line, its name, and its signs. `$` stands for a JSON path. */
const FIELDS = /** @type {[string, string, string[][]][]} */ ([
  ["text", "Body or any property", CONTAINS],
  ["body", "Body", CONTAINS],
  ["$", "JSON path in the body", [...CONTAINS, ...COMPARES, ["", "exists"]]],
  ["property", "Any property", CONTAINS],
  ["sql", "SQL filter", ANY],
  ["subject", "Subject", TEXT],
  ["id", "Message id", TEXT],
  ["correlation", "Correlation id", TEXT],
  ["session", "Session", TEXT],
  ["reason", "Dead-letter reason", TEXT],
  ["description", "Dead-letter description", TEXT],
  ["source", "Dead-letter source", TEXT],
  ["after", "Enqueued after", ANY],
  ["before", "Enqueued before", ANY],
  ["enqueued", "Enqueued", COMPARES],
  ["scheduled", "Scheduled for", COMPARES],
  ["expires", "Expires", COMPARES],
  ["number", "Sequence number", COMPARES],
  ["tries", "Deliveries", COMPARES],
  ["size", "Size in bytes", COMPARES],
]);
const PATH = /^body\.\$(\.\.?([\w\u0080-\uffff]+|\*)|\.?\.?\[("(\\.|[^"\\])*"|'(\\.|[^'\\])*'|[^\]"'])*\])*/;
const BY = [["", "messages"], ["reason", "groups by reason"], ["description", "groups by description"], ["source", "groups by source"], ["subject", "groups by subject"], ["property:", "groups by property"], ["json:", "groups by JSON path"], ["slot:3600", "groups by hour"], ["slot:86400", "groups by day"]];
const SUB_QUEUES = [["main", "Messages"], ["deadLetter", "Dead letters"], ["transferDeadLetter", "Transfer dead letters"]];
const BOUNDS = { time: "60 s of work", bytes: "2 GiB that were read", hits: "1,000 hits" };

/**
 * @typedef {{ not: boolean, field: string, path: string, sign: string, value: string }} Row a condition of the form; `value` has
 * its quotes where a JSON value has some
 */

/**
 * Reads a line as rows of the form. The broker decides what a line means, and whether it is right.
 * @returns {Row[]}
 */
export function readLine(/** @type {string} */ line) {
  const rows = [];
  let rest = line.trim();
  const take = (/** @type {RegExp} */ pattern) => {
    const found = pattern.exec(rest)?.[0] ?? "";
    rest = rest.slice(found.length);
    return found;
  };
  while (rest !== "") {
    const not = take(/^not\s+(?=\S)/) !== "";
    const path = take(PATH).slice("body.".length);
    const field = path === "" ? take(/^[A-Za-z]+(?=[:~=<>]|!=)/) : "$";
    const sign = field === "" ? ":" : take(/^([:~=]|!=|[<>]=?)/);
    const written = field === "$" && sign === "" ? "" : take(/^("(\\["\\]|[^"\\])*"(?=\s|$)|\S*)/);
    const isScalar = field === "$" && !/^[:~]$/.test(sign);
    rows.push({ not, field: field || "text", path, sign, value: isScalar ? written : unquoted(written) });
    rest = rest.trimStart();
  }
  return rows;
}

const unquoted = (/** @type {string} */ text) => (/^".*"$/s.test(text) ? text.slice(1, -1).replace(/\\(["\\])/g, "$1") : text);
const isPlain = (/** @type {string} */ text) => text !== "" && !/^"|\s/.test(text);
const isQuoted = (/** @type {string} */ text) => /^"(\\["\\]|[^"\\])*"$/.test(text);

/** Writes rows of the form as a line. */
export function writeLine(/** @type {Row[]} */ rows) {
  return rows
    .map(({ not, field, path, sign, value }) => {
      const isScalar = field === "$" && !/^[:~]$/.test(sign);
      const written = isPlain(value) || (isScalar && isQuoted(value)) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`;
      return `${not ? "not " : ""}${field === "$" ? `body.${path}` : field}${sign}${sign === "" ? "" : written}`;
    })
    .join(" ");
}

const INTERRUPTED = new ApiError("POST /$api/v1/search", { code: "Interrupted", detail: "the stream of the search was interrupted", retryable: true });

/** The search in an address. */
function fromQuery(/** @type {URLSearchParams} */ query) {
  return {
    where: query.get("where") ?? "",
    entities: query.getAll("entity"),
    subQueues: query.getAll("sub"),
    descending: query.get("order") === "newest",
    groupBy: query.get("by") ?? "",
  };
}

/** A running or ended search; `start` begins it, or goes on from a position. */
export function useSearch() {
  const [state, setState] = useState(/** @type {any} */ ({ status: "idle", hits: [] }));
  const abort = useRef(/** @type {AbortController | undefined} */ (undefined));
  const stop = () => abort.current?.abort();
  useEffect(() => stop, []);
  const start = async (asked, /** @type {any} */ before = undefined) => {
    stop();
    const mine = (abort.current = new AbortController());
    /** @type {any} */
    let current = before ? { ...before, status: "running", end: undefined, error: undefined, earlier: sumOf(before) } : { status: "running", hits: [], startedAt: Date.now() };
    const set = (change) => {
      current = { ...current, ...change };
      if (abort.current === mine) {
        setState(current);
      }
    };
    set({});
    let isSilent = false;
    const { groupBy, ...rest } = asked;
    try {
      const body = await openStream("search", { ...rest, ...(groupBy && { groupBy }), ...(before && { after: before.end.next }) }, mine.signal);
      for await (const [name, event] of events(body, () => mine.abort((isSilent = true)))) {
        if (name === "begin") {
          set({ where: event.where });
        } else if (name === "page") {
          const hits = event.hits.length > 0 ? [...current.hits, ...event.hits].slice(-HITS_KEPT) : current.hits;
          set({ hits, progress: event.progress, ...(event.end && { end: event.end, status: "ended" }) });
        } else if (name === "error") {
          throw new ApiError("POST /$api/v1/search", { code: event.code, detail: "the search has ended before its end", trackingId: event.trackingId });
        }
      }
      if (current.status === "running") {
        throw INTERRUPTED;
      }
      announce(groupBy ? `${number(current.end.groups?.length ?? 0)} groups` : `${number(current.hits.length)} messages found`);
    } catch (error) {
      if (mine.signal.aborted && !isSilent) {
        set({ status: "stopped" });
      } else {
        const found = isSilent ? INTERRUPTED : error;
        set({ status: "failed", error: asApiError(found) });
      }
    }
  };
  return { state, start, stop };
}

/** Sums of the parts of a search until now. */
function sumOf({ progress, earlier = { messages: 0, bytes: 0, hits: 0, undecided: 0, unreadable: 0 } }) {
  return Object.fromEntries(Object.keys(earlier).map((name) => [name, earlier[name] + (progress?.[name] ?? 0)]));
}

const hrefOf = ({ path, sequenceNumber }) => {
  const { entity, kind, tab } = placeOf(path);
  return entityHref(kind, entity, tab, {}, sequenceNumber);
};

const hitColumns = [
  { id: "entity", name: "Entity", width: 200, rank: 1, mono: true, cell: (hit) => html`<${Text} value=${hit.path} max=${120} />` },
  { id: "number", name: "Number", width: 92, align: "right", rank: 1, mono: true, cell: (hit) => String(hit.sequenceNumber) },
  { id: "state", name: "State", width: 118, rank: 4, cell: (hit) => html`<${State} name=${hit.isExpired ? "expired" : hit.state} />` },
  { id: "enqueued", name: "Enqueued", width: 92, align: "right", rank: 3, cell: (hit) => html`<${Age} at=${hit.enqueuedTimeUtc} />`, exact: (hit) => exact(hit.enqueuedTimeUtc, zone()) },
  { id: "subject", name: "Subject", width: 130, rank: 5, cell: (hit) => html`<${Text} value=${hit.subject ?? ""} max=${80} />` },
  { id: "match", name: "Match", width: 220, isWide: true, rank: 2, mono: true, cell: (hit) => hit.match && html`${hit.match.property !== undefined && html`<span class="quiet"><${Text} value=${hit.match.property} max=${40} /> </span>`}<${Text} value=${hit.match.excerpt.replace(/\s+/g, " ")} />` },
  { id: "size", name: "Size", width: 84, align: "right", rank: 6, cell: (hit) => size(hit.size) },
];

export function Search({ query }) {
  usePageTitle("Search");
  const asked = fromQuery(query);
  const [line, setLine] = useState(asked.where);
  const { state, start, stop } = useSearch();
  const job = query.get("job") ?? "";
  const key = JSON.stringify(asked);
  const startedKey = useRef("");
  // An address with conditions is a search; one that comes later replaces it.
  useEffect(() => {
    setLine(asked.where);
    if (key !== startedKey.current) {
      startedKey.current = key;
      // A group without its name is not complete.
      if (!asked.groupBy.endsWith(":") && (asked.where !== "" || asked.groupBy !== "" || state.status !== "idle")) {
        void start(asked);
      }
    }
  }, [key]);
  const submit = (event) => {
    event?.preventDefault();
    const changed = { ...asked, where: line.trim() };
    startedKey.current = JSON.stringify(changed);
    setQuery({ where: changed.where });
    void start(changed);
  };
  const isRunning = state.status === "running";
  useKeys(isRunning ? [{ keys: "Escape", does: "Stop the search", act: stop }] : []);
  const rows = readLine(line);
  const edit = (next) => setLine(writeLine(next));
  return html`<div class="page fill">
    <h1>Search</h1>
    <form class="search-form" onSubmit=${submit}>
      <div class="search-line">
        <input type="text" class="mono" aria-label="Conditions in one line" data-filter placeholder="reason:timeout body.$.order.id=17 after:-2h" maxlength=${LINE_MAX}
          autocomplete="off" spellcheck=${false} value=${line} onInput=${(event) => setLine(event.currentTarget.value)} />
        ${isRunning ? html`<button key="stop" type="button" onClick=${stop}>Stop</button>` : html`<button key="begin">Search</button>`}
      </div>
      <${Conditions} rows=${rows} onChange=${edit} />
      <${Scope} asked=${asked} onChange=${(part) => setQuery({ where: line.trim(), ...part })} />
    </form>
    <${Kept} />
    <${Problem} error=${state.error} onRetry=${() => submit()} />
    ${job && html`<${JobPanel} key=${job} id=${job} />`}
    <${Progress} state=${state} onContinue=${() => start({ ...asked, where: state.where ?? asked.where }, state)} />
    <${Results} state=${state} asked=${asked} />
  </div>`;
}

/** The conditions as a form, which shows the line. */
function Conditions({ rows, onChange }) {
  const change = (place, part) => onChange(rows.map((row, at) => (at === place ? { ...row, ...part } : row)));
  const setField = (place, field) => {
    const [, , signs] = FIELDS.find(([word]) => word === field) ?? FIELDS[0];
    const sign = signs.some(([one]) => one === rows[place].sign) ? rows[place].sign : signs[0][0];
    change(place, { field, sign, path: field === "$" ? rows[place].path || "$.id" : "" });
  };
  const name = (place) => `condition ${place + 1}`;
  return html`<details class="conditions" open=${rows.length > 0 ? true : undefined}><summary>Conditions as a form</summary>
    ${rows.map((row, place) => {
      const known = FIELDS.find(([word]) => word === row.field);
      if (!known) {
        return html`<p key=${place} class="quiet">The form cannot show <span class="mono"><${Text} value=${writeLine([row])} max=${200} /></span>.</p>`;
      }
      const [, , signs] = known;
      return html`<div key=${place} class="condition" role="group" aria-label=${`Condition ${place + 1}`}>
        <label class="not"><input type="checkbox" checked=${row.not} onChange=${() => change(place, { not: !row.not })} />not</label>
        <select aria-label=${`Field of ${name(place)}`} value=${row.field} onChange=${(event) => setField(place, event.currentTarget.value)}>
          ${FIELDS.map(([word, shown]) => html`<option key=${word} value=${word} selected=${word === row.field}>${shown}</option>`)}</select>
        ${row.field === "$" && html`<input type="text" class="mono" aria-label=${`JSON path of ${name(place)}`} value=${row.path} autocomplete="off" spellcheck=${false} onChange=${(event) => change(place, { path: event.currentTarget.value.trim().replace(/^(?!\$)/, "$.") })} />`}
        ${signs.length > 1 && html`<select class="test" aria-label=${`Test of ${name(place)}`} value=${row.sign} onChange=${(event) => change(place, { sign: event.currentTarget.value })}>
          ${signs.map(([sign, shown]) => html`<option key=${sign} value=${sign} selected=${sign === row.sign}>${shown}</option>`)}</select>`}
        ${row.sign !== "" && html`<input type="text" class="mono value" aria-label=${`Value of ${name(place)}`} value=${row.value} autocomplete="off" spellcheck=${false} onInput=${(event) => change(place, { value: event.currentTarget.value })} />`}
        <button type="button" aria-label=${`Remove ${name(place)}`} onClick=${() => onChange(rows.filter((_, at) => at !== place))}>Remove</button>
      </div>`;
    })}
    <button type="button" onClick=${() => onChange([...rows, { not: false, field: "text", path: "", sign: ":", value: "" }])}>Add a condition</button>
  </details>`;
}

/** Entities, sub-queues, order and kind of the answer. A change begins the search again. */
function Scope({ asked, onChange }) {
  const [entities, setEntities] = useState(asked.entities.join(", "));
  const shown = asked.entities.join(", ");
  useEffect(() => setEntities(shown), [shown]);
  const split = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);
  const subs = asked.subQueues.length === 0 ? ["main"] : asked.subQueues;
  const toggle = (id) => {
    const next = subs.includes(id) ? subs.filter((one) => one !== id) : [...subs, id];
    onChange({ sub: next.length === 0 || (next.length === 1 && next[0] === "main") ? "" : next });
  };
  const [kind, name = ""] = /^(property:|json:)(.*)$/s.exec(asked.groupBy)?.slice(1) ?? [asked.groupBy];
  return html`<div class="tools">
    <label class="scope">In <input type="text" class="mono" placeholder="all entities" aria-label="Paths of entities, with commas" value=${entities} autocomplete="off" spellcheck=${false}
      onInput=${(event) => setEntities(event.currentTarget.value)} onChange=${(event) => onChange({ entity: split(event.currentTarget.value) })} /></label>
    <fieldset class="choice loose"><legend class="hidden">Sub-queues</legend>
      ${SUB_QUEUES.map(([id, shown]) => html`<button type="button" key=${id} aria-pressed=${subs.includes(id)} onClick=${() => toggle(id)}>${shown}</button>`)}</fieldset>
    <${Choice} label="Order" value=${asked.descending ? "newest" : ""} options=${[["", "Oldest first"], ["newest", "Newest first"]]} onChange=${(value) => onChange({ order: value })} />
    <label>Show <select value=${kind} onChange=${(event) => onChange({ by: event.currentTarget.value })}>
      ${BY.map(([id, shown]) => html`<option key=${id} value=${id} selected=${id === kind}>${shown}</option>`)}</select></label>
    ${/:$/.test(kind) && html`<input type="text" class="mono" aria-label=${kind === "json:" ? "JSON path" : "Name of the property"} placeholder=${kind === "json:" ? "$.order.id" : "region"} value=${name} autocomplete="off" spellcheck=${false} onChange=${(event) => onChange({ by: kind + event.currentTarget.value })} />`}
  </div>`;
}

/** Searches that were kept by name in this browser. */
function Kept() {
  const { searches } = preferences.use();
  const { text } = route.use();
  const [name, setName] = useState("");
  const keep = (event) => {
    event.preventDefault();
    const { [name.trim()]: _, ...others } = searches;
    prefer({ searches: Object.fromEntries([...Object.entries(others), [name.trim(), text]].slice(-KEPT_MAX)) });
    setName("");
  };
  const drop = (gone) => prefer({ searches: Object.fromEntries(Object.entries(searches).filter(([one]) => one !== gone)) });
  return html`<div class="tools kept">
    ${Object.entries(searches).map(([one, address]) => html`<span key=${one} class="kept-one"><a href=${`#${address}`} aria-current=${address === text ? "page" : undefined}><${Text} value=${one} max=${60} /></a>
      <button type="button" class="copy" aria-label=${`Forget the search ${visible(one)}`} onClick=${() => drop(one)}>×</button></span>`)}
    ${
      text.includes("?") &&
      html`<form class="tools" onSubmit=${keep}><input type="text" aria-label="Name of this search" placeholder="Name of this search" maxlength="60" value=${name} autocomplete="off" onInput=${(event) => setName(event.currentTarget.value)} />
      <button disabled=${name.trim() === ""}>Keep</button></form>`
    }
  </div>`;
}

/** Words for the work until now, and the way to go on. */
function Progress({ state, onContinue }) {
  const { status, progress, end } = state;
  if (status === "idle") {
    return null;
  }
  const { messages, bytes, undecided, unreadable } = sumOf(state);
  const done = end?.bound ? `The search has met its bound of ${BOUNDS[end.bound]}.` : status === "ended" ? "All messages were looked at." : status === "stopped" ? "Stopped." : "";
  return html`<div class="tools progress">
    <span>Looked at ${number(messages)} ${messages === 1 ? "message" : "messages"}, ${size(bytes)}${progress?.rest > 0 && status !== "ended" ? html`, about ${number(progress.rest)} left` : ""}. ${done}
      ${status === "running" && progress?.path !== undefined && html`<span class="quiet">Now at <span class="mono"><${Text} value=${progress.path} max=${80} /></span> ${String(progress.sequenceNumber ?? "")}</span>`}
      ${undecided > 0 && html` <span class="look">${number(undecided)} could not be decided: their body is too long.</span>`}
      ${unreadable > 0 && html` <span class="bad">${number(unreadable)} could not be read.</span>`}</span>
    ${status === "running" && html`<progress aria-label="Progress of the search" max=${messages + (progress?.rest ?? 1)} value=${messages}></progress>`}
    ${end?.next && html`<button type="button" onClick=${onContinue}>Go on from here</button>`}
  </div>`;
}

const keyOf = (hit) => `${hit.path} ${hit.sequenceNumber}`;

function Results({ state, asked }) {
  const { status, hits, end, startedAt } = state;
  const [marked, setMarked] = useMarks(`search ${startedAt}`);
  const [whole, setWhole] = useState(0);
  const isWhole = whole === startedAt && startedAt !== undefined;
  const mark = (keys = undefined) => {
    setWhole(0);
    setMarked(keys);
  };
  const canSelect = standing.use()?.role !== "viewer" && asked.groupBy === "" && hits.length > 0;
  useKeys([
    ...(canSelect ? [{ keys: "A", does: "Select everything that matches", act: () => setWhole(isWhole ? 0 : startedAt) }] : []),
    ...(status !== "running" && (marked.size > 0 || isWhole) ? [{ keys: "Escape", does: "Select nothing", act: () => mark() }] : []),
  ]);
  if (status === "idle") {
    return html`<${Empty} title="Find messages by content, properties, time or cause"><p>A text alone is found in bodies and properties. <code>reason:timeout</code>, <code>body.$.order.id=17</code>, <code>after:-2h</code> and <code>not subject=test</code> are conditions; all of them must hold. A search changes nothing.</p><//>`;
  }
  if (end?.groups) {
    return html`<${Groups} end=${end} by=${asked.groupBy} />`;
  }
  if (asked.groupBy !== "" || (hits.length === 0 && status === "running")) {
    return null;
  }
  return html`${canSelect && html`<${Selection} state=${state} asked=${asked} marked=${marked} isWhole=${isWhole} onWhole=${() => setWhole(isWhole ? 0 : startedAt)} onDone=${mark} />`}
    <${Table} noun=${["message", "messages"]} label="Messages found" columns=${hitColumns} rows=${hits} keyOf=${keyOf} scope=${`search ${startedAt}`}
    marked=${marked} onMark=${canSelect ? mark : undefined} hrefOf=${hrefOf} empty=${status === "failed" ? null : html`<${Empty} title="No message matches" />`} />`;
}

/** What can be done with the selected hits, or with everything that matches: a job has the messages of one place. */
function Selection({ state, asked, marked, isWhole, onWhole, onDone }) {
  const { hits } = state;
  const [chosen, setChosen] = useState("");
  const button = html`<button type="button" aria-pressed=${isWhole} onClick=${onWhole}>Select everything that matches</button>`;
  if (!isWhole && marked.size === 0) {
    return html`<div class="tools">${button}</div>`;
  }
  const rows = isWhole ? hits : hits.filter((hit) => marked.has(keyOf(hit)));
  const counts = new Map();
  for (const { path } of rows) {
    counts.set(path, (counts.get(path) ?? 0) + 1);
  }
  const paths = [...counts.keys()];
  const path = counts.has(chosen) ? chosen : paths[0];
  const { entity, kind, tab } = placeOf(path);
  const numbers = isWhole ? undefined : rows.filter((hit) => hit.path === path).map(({ sequenceNumber }) => String(sequenceNumber));
  return html`<div class="tools selection" role="group" aria-label="Selection">
    <span>${isWhole ? "Everything that matches" : `${number(marked.size)} ${marked.size === 1 ? "message" : "messages"} selected`}</span>
    ${
      paths.length > 1
        ? html`<label>In <select value=${path} onChange=${(event) => setChosen(event.currentTarget.value)}>
          ${paths.map((one) => html`<option key=${one} value=${one} selected=${one === path}>${visible(one)}${isWhole ? "" : ` (${number(counts.get(one))})`}</option>`)}</select></label>`
        : html`<span>in <span class="mono"><${Text} value=${path} max=${120} /></span></span>`
    }
    ${isWhole ? button : html`<button type="button" onClick=${() => onDone()}>Select nothing</button>`}
    <${Acts} key=${path} kind=${kind} path=${entity} tab=${tab === "messages" ? "found" : tab} numbers=${numbers} where=${state.where ?? asked.where} onDone=${onDone} />
  </div>`;
}

/** Groups with their count, first and last instant, and samples. */
function Groups({ end, by }) {
  const narrow = (value) => (/^(reason|source|subject)$/.test(by) ? href(["search"], { ...paramsOf(), by: "", where: `${route.value.query.get("where") ?? ""} ${writeLine([{ not: false, field: by, path: "", sign: "=", value }])}`.trim() }) : undefined);
  const valueOf = (value) => {
    const text = by.startsWith("slot:") ? exact(value, zone()) : value;
    return html`<${Text} value=${text} max=${300} />`;
  };
  const cells = (group, name) => html`<td class="right">${number(group.count)}</td><th scope="row" class="mono">${name}</th>
    <td><${Age} at=${group.firstUtc} /></td><td><${Age} at=${group.lastUtc} /></td>
    <td class="mono">${group.samples.map((sample, place) => html`<span key=${place}>${place > 0 && ", "}<a href=${hrefOf(sample)}>${String(sample.sequenceNumber)}</a></span>`)}</td>`;
  if (end.groups.length === 0) {
    return html`<${Empty} title="No message matches" />`;
  }
  return html`<div class="table-scroll groups" role="region" tabindex="0" aria-label="Groups"><table class="plain">
    <thead><tr><th scope="col" class="right">Messages</th><th scope="col"><${Text} value=${by.startsWith("slot:") ? "From" : /:/.test(by) ? by.replace(/^\w+:/, "") : words(by)} max=${80} /></th><th scope="col">First</th><th scope="col">Last</th><th scope="col">Samples</th></tr></thead>
    <tbody>${end.groups.map((group, place) => {
      const to = group.value === undefined ? undefined : narrow(group.value);
      const name = group.value === undefined ? html`<span class="quiet">none</span>` : to ? html`<a href=${to}>${valueOf(group.value)}</a>` : valueOf(group.value);
      return html`<tr key=${place}>${cells(group, name)}</tr>`;
    })}
    ${end.other && html`<tr>${cells(end.other, html`<span class="quiet">other values</span>`)}</tr>`}</tbody></table></div>`;
}

function paramsOf() {
  const { query } = route.value;
  return Object.fromEntries([...new Set(query.keys())].map((name) => [name, query.getAll(name)]));
}
