// @ts-check
// The audit trail: actions of operators with their results, the trail as a file, and its verification in the browser: each
// line has the hash of the line before it (CON-23, CON-55).

import { ApiError, asApiError, get, getFile, now } from "./api.js";
import { exact, number, visible, words } from "./format.js";
import { Age, announce, Choice, Copy, Empty, Facts, Moment, Problem, saveAs, SearchField, Text, usePageTitle, usePanel } from "./parts.js";
import { preferences } from "./preferences.js";
import { usePages } from "./resource.js";
import { href, setQuery } from "./route.js";
import { Table } from "./table.js";
import { html, useRef, useState } from "./view.js";

const PAGE = 200;
const FAULTS_MAX = 20;
const zone = () => preferences.value.zone;

const OPERATIONS = [
  "createEntity", "updateEntity", "deleteEntity", "createRule", "updateRule", "deleteRule", "createPolicy", "updatePolicy", "replacePolicies", "deletePolicy",
  "readKeys", "regenerateKey", "apply", "act", "breakLocks", "breakSession", "setSessionState", "closeClient", "createJob", "controlJob", "endJob",
  "deleteMessages", "send", "cancelScheduled", "search", "signIn", "signOut", "unlock", "readBody", "trimTrail", "mendTrail",
  "muteFinding", "unmuteFinding",
];
const RESULTS = [["", "All"], ["done", "Done"], ["unknown", "Unknown"]];
const SPANS = { "1h": [3_600_000, "1 h"], "24h": [86_400_000, "24 h"], "7d": [7 * 86_400_000, "7 d"] };

/**
 * Joins the two entries of an action; the list has the newest first, so the end comes before the begin. An entry whose partner
 * was not read stays as it is.
 */
function actionsOf(/** @type {any[]} */ entries) {
  const ends = new Map();
  const rows = [];
  for (const entry of entries) {
    const key = `${entry.operation} ${entry.trackingId}`;
    const end = entry.stage === "begin" && entry.trackingId !== undefined ? ends.get(key) : undefined;
    if (end) {
      // The request is in the first entry, the result in the last.
      Object.assign(end, { ...entry, ...end, begin: entry.number, request: entry.request ?? end.request });
      ends.delete(key);
      continue;
    }
    const row = { ...entry };
    rows.push(row);
    if (entry.stage === "end" && entry.trackingId !== undefined) {
      ends.set(key, row);
    }
  }
  return rows;
}

const resultOf = ({ stage, result }) => (stage === "begin" ? "no result yet" : stage === "trail" ? "" : (result ?? ""));
const toneOf = (row) => (row.result === "done" || row.stage === "trail" ? "quiet" : row.stage === "begin" || row.result === "unknown" ? "look" : "bad");
const Result = ({ row }) => html`<span class=${toneOf(row)}><${Text} value=${resultOf(row)} max=${60} /></span>`;

const columns = [
  { id: "time", name: "Time", width: 92, align: "right", rank: 2, cell: (row) => html`<${Age} at=${row.atUtc} />`, exact: (row) => exact(row.atUtc, zone()) },
  { id: "operation", name: "Operation", width: 148, rank: 1, cell: (row) => visible(words(row.operation)) },
  { id: "resource", name: "Entity", width: 180, rank: 2, mono: true, cell: (row) => row.resource !== undefined && html`<${Text} value=${row.resource} max=${120} />` },
  { id: "result", name: "Result", width: 124, rank: 1, cell: (row) => html`<${Result} row=${row} />` },
  { id: "count", name: "Count", width: 76, align: "right", rank: 5, cell: (row) => (row.count === undefined ? "" : number(row.count)) },
  { id: "policy", name: "Policy", width: 120, rank: 4, cell: (row) => row.policy !== undefined && html`<${Text} value=${row.policy} max=${60} />` },
  { id: "address", name: "Address", width: 130, rank: 6, mono: true, cell: (row) => row.address !== undefined && html`<${Text} value=${row.address} max=${60} />` },
  { id: "request", name: "Request", width: 220, isWide: true, rank: 3, mono: true, cell: (row) => row.request !== undefined && html`<${Text} value=${row.request} max=${200} />` },
  { id: "number", name: "Number", width: 84, align: "right", rank: 7, mono: true, cell: (row) => String(row.begin ?? row.number) },
];

export function Audit({ query }) {
  usePageTitle("Audit");
  const [operation, resource, policy, result, span, selected] = ["operation", "resource", "policy", "result", "span", "entry"].map((name) => query.get(name) ?? "");
  const filter = { operation, resource, policy, result };
  const key = `audit ${JSON.stringify(filter)} ${span}`;
  const since = () => (span in SPANS ? new Date(now() - SPANS[span][0]).toISOString() : undefined);
  const first = useRef(/** @type {string | undefined} */ (undefined));
  const list = usePages(key, async (after, signal) => {
    // All pages of a reading have the same begin.
    first.current = after === undefined ? since() : first.current;
    const answer = await get("audit", { ...filter, since: first.current, top: PAGE, after }, signal);
    return { rows: answer.entries, next: answer.next };
  });
  const rows = actionsOf(list.rows);
  const row = rows.find((one) => String(one.number) === selected || String(one.begin) === selected);
  const isFiltered = Object.values(filter).some((value) => value !== "") || span !== "";
  const change = (part) => setQuery({ entry: "", ...part });
  return html`<div class="page fill">
    <h1>Audit</h1>
    <div class="tools">
      <label>Operation <select value=${operation} onChange=${(event) => change({ operation: event.currentTarget.value })}>
        <option value="" selected=${operation === ""}>all</option>
        ${[...new Set([...OPERATIONS, ...(operation ? [operation] : [])])].map((one) => html`<option key=${one} value=${one} selected=${one === operation}>${visible(words(one))}</option>`)}</select></label>
      <${SearchField} label="Path of an entity" value=${resource} onChange=${(value) => change({ resource: value })} />
      <${SearchField} label="Policy" value=${policy} onChange=${(value) => change({ policy: value })} />
      <${Choice} label="Result" value=${result} options=${RESULTS} onChange=${(value) => change({ result: value })} />
      <${Choice} label="Time" value=${span} options=${[["", "All times"], ...Object.entries(SPANS).map(([id, [, name]]) => [id, name])]} onChange=${(value) => change({ span: value })} />
    </div>
    <${Trail} filter=${() => ({ ...filter, since: since() })} isFiltered=${isFiltered} />
    <${Problem} error=${list.error} onRetry=${list.refresh} />
    ${row && html`<${Entry} row=${row} />`}
    <${Table} noun=${["action", "actions"]} label="Actions of operators" columns=${columns} rows=${rows} keyOf=${(one) => String(one.number)} scope=${key}
      hrefOf=${(one) => href(["audit"], { ...filter, span, entry: one.number })} selected=${row ? String(row.number) : undefined}
      hasMore=${list.hasMore} loadMore=${list.loadMore} isLoading=${list.isLoading && list.at === 0}
      empty=${list.error ? null : html`<${Empty} title=${isFiltered ? "No action matches" : "No action yet"}><p>${isFiltered ? html`<button type="button" onClick=${() => change({ operation: "", resource: "", policy: "", result: "", span: "" })}>Show all actions</button>` : "Each change of an operator has an entry here: entities, rules, policies, locks, jobs, searches and sign-ins."}</p><//>`} />
  </div>`;
}

/** An action with all that its entries have. */
function Entry({ row }) {
  const { number: last, begin, previous, atUtc, trackingId, operation, resource, policy, address, byProxy, role, request, result, count, changes, errorTrackingId, begins, stage } = row;
  const element = usePanel();
  return html`<section class="panel" aria-label="Action" ref=${element}>
    <div class="beside-head"><h2>${visible(words(operation))} <${Result} row=${row} /></h2><button type="button" onClick=${() => setQuery({ entry: "" })}>Close</button></div>
    <div class="columns"><${Facts} rows=${[
      ["Time", html`<${Moment} at=${atUtc} />`],
      ["Entity", resource !== undefined && html`<a class="mono" href=${href(["entities"], { path: resource })}><${Text} value=${resource} /></a>`],
      ["Request", request !== undefined && html`<span class="mono"><${Text} value=${request} /></span>`],
      ["Result", stage === "end" && result !== undefined && html`<${Text} value=${result} />`],
      ["Count", count !== undefined && number(count)],
      ["Begins with", begins !== undefined && number(begins)],
    ].map(([name, value]) => [name, value === false ? undefined : value])} />
    <${Facts} rows=${[
      ["Policy", policy !== undefined && html`<${Text} value=${policy} />`],
      ["Role", role],
      ["Address", address !== undefined && html`<span class="mono">${visible(address)}</span>${byProxy ? " of a proxy" : ""}`],
      ["Tracking id", trackingId !== undefined && html`<span class="mono">${visible(trackingId)}</span> <${Copy} text=${trackingId} what="tracking id" />`],
      ["Error", errorTrackingId !== undefined && html`<span class="mono">${visible(errorTrackingId)}</span>`],
      ["Entries", begin === undefined ? String(last) : `${begin} and ${last}`],
      ["Hash before", html`<span class="mono">${visible(previous)}</span>`],
    ].map(([name, value]) => [name, value === false ? undefined : value])} /></div>
    ${
      changes?.length > 0 &&
      html`<div class="table-scroll small-scroll" role="region" tabindex="0" aria-label="Changed values"><table class="plain"><thead><tr><th scope="col">Property</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
      <tbody>${changes.map((one) => html`<tr key=${one.property}><th scope="row"><${Text} value=${one.property} /></th><td class="mono">${one.before === undefined ? html`<span class="quiet">none</span>` : html`<${Text} value=${one.before} />`}</td><td class="mono">${one.after === undefined ? html`<span class="quiet">none</span>` : html`<${Text} value=${one.after} />`}</td></tr>`)}</tbody></table></div>`
    }
  </section>`;
}

const ZEROS = "0".repeat(64);
const hexOf = (/** @type {ArrayBuffer} */ bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/**
 * Verifies the file of the whole trail, as `peeklock audit verify` does. It is read in parts, because it can be large.
 * @param {Blob} file
 */
async function verified(file) {
  const faults = [];
  let [count, faultCount] = [0, 0];
  const fault = (/** @type {string} */ text) => {
    faultCount += 1;
    if (faults.length < FAULTS_MAX) {
      faults.push(text);
    }
  };
  /** @type {Map<number, string>} */
  const hashOf = new Map();
  let [first, last, hash] = /** @type {any[]} */ ([]);
  const take = async (/** @type {string[]} */ lines) => {
    const hashes = await Promise.all(lines.map((line) => crypto.subtle.digest("SHA-256", new TextEncoder().encode(line)).then(hexOf)));
    lines.forEach((line, place) => {
      count += 1;
      let entry;
      try {
        entry = JSON.parse(line);
      } catch {
        fault(`line ${count} is not an entry`);
      }
      if (entry) {
        if (first === undefined) {
          first = entry.number;
          if ((first === 1) !== (entry.previous === ZEROS)) {
            fault(`entry ${first} does not have the hash of an earlier one`);
          }
        } else if (entry.number !== last + 1) {
          fault(`entries between ${last} and ${entry.number} are missing`);
        } else if (entry.previous !== hash) {
          fault(`entry ${last} was changed: entry ${entry.number} has the hash of another text`);
        }
        last = entry.number;
        hashOf.set(last, hashes[place]);
      }
      hash = hashes[place];
    });
  };
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop() ?? "";
    await take(lines);
  }
  if (rest !== "") {
    fault("the export was cut");
  }
  return { first, last, hash, hashOf, faults, faultCount, count };
}

/** Saves the trail, and verifies it. */
function Trail({ filter, isFiltered }) {
  const [busy, setBusy] = useState("");
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const [report, setReport] = useState(/** @type {any} */ (undefined));
  const [noted, setNoted] = useState("");
  const run = (name, work) => async () => {
    setBusy(name);
    setError(undefined);
    try {
      await work();
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy("");
  };
  const save = run("save", async () => saveAs(await getFile("audit/export", filter(), AbortSignal.timeout(600_000)), "audit.jsonl"));
  const verify = run("verify", async () => {
    if (!globalThis.crypto?.subtle) {
      throw new ApiError("", { code: "NotSecure", detail: "this browser verifies only pages from https:// or from its own machine; use peeklock audit verify" });
    }
    const found = await verified(await getFile("audit/export", {}, AbortSignal.timeout(600_000)));
    setReport({ ...found, at: new Date(now()).toISOString() });
    announce(found.faultCount > 0 ? "The trail is damaged" : found.count === 0 ? "The trail has no entry yet" : "The trail is sound");
  });
  const [, wantedNumber, wantedHash] = /^\s*(\d+):([0-9a-f]{64})\s*$/i.exec(noted) ?? [];
  return html`<div class="tools">
      <button type="button" disabled=${busy !== ""} onClick=${save}>${busy === "save" ? "Reading…" : isFiltered ? "Save these entries" : "Save the trail"}</button>
      <button type="button" disabled=${busy !== ""} onClick=${verify}>${busy === "verify" ? "Verifying…" : "Verify the trail"}</button>
      ${!report && html`<span class="quiet">Each entry has the hash of the entry before it, so a changed or missing entry is found.</span>`}
    </div>
    <${Problem} error=${error} />
    ${report && html`<${Report} report=${report} noted=${noted} onNoted=${setNoted} wanted=${wantedNumber && { number: Number(wantedNumber), hash: wantedHash.toLowerCase() }} />`}`;
}

function Report({ report, noted, onNoted, wanted }) {
  const { first, last, hash, hashOf, faults, faultCount, count, at } = report;
  const found = wanted && (hashOf.get(wanted.number) === undefined ? "missing" : hashOf.get(wanted.number) === wanted.hash ? "unchanged" : "changed");
  return html`<section class="panel" aria-label="Verification">
    <p>${faultCount === 0 && count === 0 ? "The trail has no entry yet" : faultCount === 0 ? html`<span class="good"><span aria-hidden="true">✓</span> Sound</span>` : html`<span class="bad"><span aria-hidden="true">✕</span> Damaged</span>`}${count > 0 ? `: ${number(count)} entries` : ""}${first === undefined ? "" : `, ${first} to ${last}`}, verified <${Age} at=${at} suffix=" ago" />.</p>
    ${faults.length > 0 && html`<ul class="plain-list">${faults.map((fault) => html`<li key=${fault}>${fault}</li>`)}${faultCount > faults.length && html`<li key="more">and ${number(faultCount - faults.length)} more</li>`}</ul>`}
    ${last !== undefined && html`<p>Last entry <span class="mono">${last}:${hash}</span> <${Copy} text=${`${last}:${hash}`} what="number and hash of the last entry" /> <span class="quiet">Note it elsewhere: entries that are cut off later are missed only by it.</span></p>`}
    <div class="tools"><label>Noted before <input type="text" class="mono noted" placeholder="NUMBER:HASH" autocomplete="off" spellcheck=${false} value=${noted} onInput=${(event) => onNoted(event.currentTarget.value)} /></label>
      <span aria-live="polite">${found && html`<span class=${found === "unchanged" ? "good" : "bad"}>The noted entry is ${found}.</span>`}</span></div>
  </section>`;
}
