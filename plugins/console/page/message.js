// @ts-check
// One message: its body first, then its properties. It is read without being received.

import { addressOf, entityPath, get, getBytes, standing, SUB_QUEUES, subscriptionParts } from "./api.js";
import { Body } from "./body.js";
import { format, read, utf8 } from "./decode.js";
import { EntityHead, useEntity } from "./entities.js";
import { duration, number, propertyText, propertyType, quoted, size, span, visible, words } from "./format.js";
import { useKeys } from "./keys.js";
import { announce, copy, Copy, Empty, Facts, Holder, late, Lock, Moment, Problem, SearchField, State, Text, usePageTitle } from "./parts.js";
import { useResource } from "./resource.js";
import { entityHref, go, href, kindOfPath, setQuery } from "./route.js";
import { html, useState } from "./view.js";

const subQueueOf = (/** @type {string} */ tab) => (tab in SUB_QUEUES ? tab : "");

/** Writes a head as JSON; integers that a number would round keep their digits. */
function headAsJson(head) {
  const { nowUtc, bodyStart, bodyStartBase64, ...rest } = head;
  const marks = [];
  const text = JSON.stringify(rest, (_, value) => (typeof value === "bigint" ? `\u0000${marks.push(value)}` : value), 2);
  return text.replace(/"\\u0000(\d+)"/g, (_, place) => String(marks[place - 1]));
}

function copies(kind, path, tab, head) {
  const base = entityPath(kind, path, subQueueOf(tab));
  const entity = path + SUB_QUEUES[subQueueOf(tab)];
  return [
    ["JSON", "properties as JSON", () => headAsJson(head)],
    ["curl", "curl command for the body", () => `curl ${quoted(addressOf(`${base}/messages/${head.sequenceNumber}/body`))}`],
    ["command", "peeklock command", () => `peeklock inspect ${quoted(entity)} --from ${head.sequenceNumber} -n 1`],
    ["link", "link to this page", () => location.href.replace(/#.*/, "") + entityHref(kind, path, tab, {}, head.sequenceNumber)],
  ];
}

/** Address of the form that sends a copy of a message. One of a subscription is sent to its topic. */
function sendHref(kind, path, copy) {
  const topic = subscriptionParts(path)?.topic;
  return topic === undefined ? entityHref(kind, path, "send", { copy }) : entityHref("topic", topic, "send", { copy });
}

const BreakLocks = late(() => import("./actions.js"), "BreakLocks", true);
const Outcome = late(() => import("./actions.js"), "Outcome", true);

/** Body and properties of a message. */
export function MessageView({ kind, path, tab, sequence, isNarrow = false }) {
  const role = standing.use()?.role;
  const base = entityPath(kind, path, subQueueOf(tab));
  const state = useResource(`head ${base} ${sequence}`, (signal) => get(`${base}/messages/${sequence}/head`, {}, signal));
  const head = state.value;
  if (!head) {
    return html`<${Problem} error=${state.error} onRetry=${state.refresh} />${!state.error && html`<p class="quiet">Reading…</p>`}
      ${["MessageNotFound", "EntityNotFound"].includes(state.error?.code ?? "") && html`<${Journey} address=${`${base}/messages/${sequence}/journey`} path=${path} sequence=${sequence} />`}`;
  }
  const properties = Object.entries(head.applicationProperties ?? {});
  const reason = head.applicationProperties?.DeadLetterReason;
  const description = head.applicationProperties?.DeadLetterErrorDescription;
  const place = `${base} ${sequence}`;
  const text = (value) => (value === undefined ? undefined : html`<span class="mono"><${Text} value=${value} /></span>`);
  const isGone = state.error?.code === "MessageNotFound";
  return html`
    ${isGone ? html`<p class="notice">This message is no longer here: it was settled, moved or deleted, or it has expired. Below is its last known state.</p>` : html`<${Problem} error=${state.error} onRetry=${state.refresh} />`}
    ${
      reason !== undefined &&
      html`<p class="reason"><strong class="bad"><${Text} value=${propertyText(reason)} max=${300} /></strong>
      ${description !== undefined && html`<span><${Text} value=${propertyText(description)} max=${4000} /></span>`}</p>`
    }
    <${Outcome} place=${place} />
    <div class=${`message ${isNarrow ? "narrow" : ""}`}>
      <section class="message-body" aria-label="Body"><${Body} key=${`${base} ${sequence}`} path=${base} head=${head} /></section>
      <section class="message-facts" aria-label="Properties">
        <${Facts} rows=${[
          ["State", html`<${State} name=${head.isExpired ? "expired" : head.state} />`],
          ["Lock", head.lock && html`<${Lock} lock=${head.lock} isLong=${true} />
            ${head.lock.isOfSession ? html`<p><a href=${entityHref(kind, path, "sessions", { session: head.sessionId })}>Session</a></p>` : html`<${BreakLocks} kind=${kind} path=${path} subQueue=${subQueueOf(tab)} numbers=${[head.sequenceNumber]} place=${place} />`}`],
          ["Enqueued", html`<${Moment} at=${head.enqueuedTimeUtc} />`],
          ["Due", head.scheduledEnqueueTimeUtc && html`<${Moment} at=${head.scheduledEnqueueTimeUtc} />`],
          ["Delayed until", head.delayedUntilUtc && html`<${Moment} at=${head.delayedUntilUtc} />`],
          ["Expires", head.expiresAtUtc && html`<${Moment} at=${head.expiresAtUtc} />`],
          ["Message id", head.messageId !== undefined && html`<a href=${href(["journey"], { id: head.messageId })}>${text(head.messageId)}</a>`],
          ["Subject", text(head.subject)],
          ["Session", head.sessionId !== undefined && html`<a href=${entityHref(kind, path, "messages", { session: head.sessionId })}>${text(head.sessionId)}</a>`],
          ["Correlation id", text(head.correlationId)],
          ["Content type", text(head.contentType)],
          ["To", text(head.to)],
          ["Reply to", text(head.replyTo)],
          ["Reply to session", text(head.replyToSessionId)],
          ["Partition key", text(head.partitionKey)],
          ["Transaction key", text(head.transactionPartitionKey)],
          ["Time to live", head.timeToLive && html`<span title=${head.timeToLive}>${duration(head.timeToLive)}</span>`],
          ["Dead-lettered in", text(head.deadLetterSource)],
          ["Destination", text(head.viaDestination)],
          ["Deliveries", number(head.deliveryCount)],
          ["Hops", head.hops > 0 ? number(head.hops) : undefined],
          ["First number", head.enqueuedSequenceNumber ? String(head.enqueuedSequenceNumber) : undefined],
          ["Size", `${size(head.size)}, of which ${size(head.bodySize)} body`],
          ["Kind of body", head.bodyKind && { data: "bytes", value: "AMQP value", sequence: "AMQP sequence" }[head.bodyKind]],
        ].map(([name, value]) => [name, value === false ? undefined : value])} />
        <h3>Application properties</h3>
        ${properties.length === 0 ? html`<p class="quiet">None.</p>` : html`<table class="plain properties"><thead class="hidden"><tr><th scope="col">Name</th><th scope="col">Value</th><th scope="col">Type</th></tr></thead>
          <tbody>${properties.map(([name, value]) => html`<tr key=${name}><th scope="row" class="mono"><${Text} value=${name} max=${200} /></th>
            <td class="mono"><${Text} value=${propertyText(value)} max=${4000} /></td><td class="quiet">${propertyType(value)}</td></tr>`)}</tbody></table>`}
        <p class="copies"><span class="quiet">Copy as</span> ${copies(kind, path, tab, head).map(([label, what, make]) => html`<${Copy} key=${label} label=${label} what=${what} text=${make} />`)}${role !== "viewer" && html` <a class="button" href=${sendHref(kind, path, `${base}/messages/${sequence}`)}>Send a copy…</a>`}</p>
      </section>
    </div>
    <${Journey} address=${`${base}/messages/${sequence}/journey`} path=${path} sequence=${sequence} />`;
}

/** Words of stations; others are made of their names. */
const STATIONS = {
  pending: "Waits for its transfer",
  duplicate: "Duplicate dropped",
  materialisedTo: "Became active as",
  materialisedFrom: "Was scheduled as",
  renewed: "Lock renewed",
  deadLettered: "Dead-lettered",
  forwardedOut: "Forwarded out of the broker",
  forwardedIn: "Came from another broker",
  droppedAt: "Dropped as a duplicate at",
  received: "Received and deleted",
  undeferred: "Active again",
};
const FAILED = new Set(["deadLettered", "lockEnded", "abandoned", "expired", "droppedAt"]);
/** Stations before which a message was nowhere. */
const FIRST = new Set(["accepted", "published", "scheduled", "pending", "forwardedIn"]);

/** Returns the link to each message of a journey: its page, or its topic, which keeps no published message. */
function linksOf(stations) {
  const tabs = new Map();
  for (const { station, path, sequenceNumber, otherPath } of stations) {
    const topic = { published: path, copiedTo: path, copiedFrom: otherPath }[station];
    if (topic !== undefined) {
      tabs.set(topic, "topic");
    }
    if (station === "deadLettered") {
      tabs.set(`${path} ${sequenceNumber}`, "dead-letters");
    }
  }
  return (path, sequence) => {
    const kind = tabs.get(path) ?? kindOfPath(path);
    return kind === "topic" || !(sequence > 0) ? entityHref(kind, path) : entityHref(kind, path, tabs.get(`${path} ${sequence}`) ?? "messages", {}, sequence);
  };
}

/** The journey of all messages with an id, sent to one entity or to any. */
export function Journeys({ query }) {
  const [id, path] = ["id", "path"].map((name) => query.get(name) ?? "");
  usePageTitle(id === "" ? "Journey" : `Journey of ${id}`);
  return html`<div class="page">
    <h1>Journey</h1>
    <div class="tools">
      <${SearchField} label="Message id" value=${id} onChange=${(value) => setQuery({ id: value })} />
      <${SearchField} label="Sent to queue or topic" value=${path} onChange=${(value) => setQuery({ path: value })} />
    </div>
    ${id === "" ? html`<p class="quiet">Enter the id of a message. It may be gone.</p>` : html`<${Journey} address="journeys" asked=${{ messageId: id, path: path || undefined }} isAlone=${true} />`}
  </div>`;
}

/** Stations of a message, also in other entities, with the times between them. */
function Journey({ address, asked = {}, path = "", sequence = "", isAlone = false }) {
  const state = useResource(`journey ${address} ${JSON.stringify(asked)}`, (signal) => get(address, asked, signal));
  const { value, error } = state;
  const isOff = error?.code === "InvalidOperation";
  const { stations = [], completeSinceUtc, isCut, hiddenCount } = value ?? {};
  const isEarlier = stations.length > 0 && Date.parse(stations[0].atUtc) < Date.parse(completeSinceUtc);
  const isWhole = FIRST.has(stations[0]?.station) && !isEarlier;
  const link = linksOf(stations);
  return html`<section class="journey" aria-label="Journey">${!isAlone && html`<h3>Journey</h3>`}
    ${isOff ? html`<p class="quiet"><${Text} value=${error.message} /></p>` : html`<${Problem} error=${error} onRetry=${state.refresh} />`}
    ${!value && !error && html`<p class="quiet">Reading…</p>`}
    ${value && html`<p class="quiet">${stations.length === 0 ? "No station is known. " : ""}${isWhole ? "From the first station on, none is forgotten." : html`${isEarlier ? "Other stations" : "Stations"} before <${Moment} at=${completeSinceUtc} /> are forgotten.`}${isCut ? " Further stations are left out." : ""}${hiddenCount > 0 ? ` Not shown: ${number(hiddenCount)} ${hiddenCount === 1 ? "link" : "links"} to entities that you may not read or that no longer exist.` : ""}</p>
      <ol class=${isWhole ? "" : "forgotten"}>${stations.map((station, place) => html`<${Station} key=${place} station=${station} before=${stations[place - 1]} here=${path} own=${sequence} link=${link} />`)}</ol>`}
  </section>`;
}

function Place({ path, number: sequence, link }) {
  return html`<a href=${link(path, sequence)}><${Text} value=${path} max=${120} />${sequence > 0 ? ` ${sequence}` : ""}</a>`;
}

/** Time since the station before. */
function gap(station, before) {
  const after = before ? Date.parse(station.atUtc) - Date.parse(before.atUtc) : 0;
  return after >= 1000 ? `+ ${span(after)}` : after > 0 ? `+ ${after} ms` : "";
}

/** Number of renewals, or of failed deliveries. */
function counted(name, count) {
  if (name === "renewed") {
    return count === 1 ? "once" : `${number(count)} times`;
  }
  return `${name === "delivered" ? "after " : ""}${number(count)} failed ${count === 1 ? "delivery" : "deliveries"}`;
}

function Station({ station, before, here, own, link }) {
  const { station: name, count, cause, lockEnd, rule, path, otherPath } = station;
  const isHere = path.toLowerCase() === here.toLowerCase() && String(station.sequenceNumber) === String(own);
  const lower = (text) => words(text).toLowerCase();
  const facts = [
    rule !== undefined && html`rule <a href=${entityHref("subscription", name === "copiedTo" ? otherPath : path, "rules")}><${Text} value=${rule} max=${80} /></a>`,
    station.hop > 0 && `hop ${station.hop}`,
    cause && lower(cause),
    lockEnd && lower(lockEnd),
    count > 0 && counted(name, count),
    station.job && html`<a href=${href(["jobs"], { job: station.job })} class="mono">${visible(station.job)}</a>`,
    station.dueAtUtc && html`due <${Moment} at=${station.dueAtUtc} />`,
    station.client && html`by <${Holder} lock=${{ holder: station.client }} tabIndex=${0} />`,
  ].filter(Boolean);
  return html`<li class=${FAILED.has(name) ? "failed" : ""}><span class="quiet small">${gap(station, before)}</span>
    <strong class=${FAILED.has(name) ? "bad" : ""}>${STATIONS[name] ?? words(name)}</strong>
    ${otherPath !== undefined && html` <${Place} path=${otherPath} number=${station.otherSequenceNumber} link=${link} />`}
    ${facts.map((fact, place) => html`<span key=${place}>${place > 0 || otherPath !== undefined ? ", " : " "}${fact}</span>`)}
    <span class="quiet small"><${Moment} at=${station.atUtc} />${isHere ? "" : html`, in <${Place} path=${path} number=${station.sequenceNumber} link=${link} />`}</span></li>`;
}

export function Message({ kind, path, tab, sequence, query }) {
  usePageTitle(`Message ${sequence} of ${path}`);
  const entity = useEntity(kind, path);
  const base = entityPath(kind, path, subQueueOf(tab));
  const [isSearching, setSearching] = useState(false);
  const session = query.get("session") ?? undefined;
  const step = async (isNext) => {
    if (isSearching) {
      return;
    }
    setSearching(true);
    try {
      const from = isNext ? BigInt(sequence) + 1n : BigInt(sequence) - 1n;
      const { heads } = from < 0n ? { heads: [] } : await get(`${base}/heads`, { from, descending: !isNext, count: 1, sessionId: session, state: tab === "scheduled" ? "scheduled" : undefined });
      if (heads[0]) {
        go(entityHref(kind, path, tab, { session }, heads[0].sequenceNumber), { replace: true });
      } else {
        announce(isNext ? "This is the last message" : "This is the first message");
      }
    } catch (error) {
      announce(/** @type {Error} */ (error).message);
    } finally {
      setSearching(false);
    }
  };
  const other = query.get("with") ?? "";
  // By default the message is compared with the nearest active one of the same subject.
  const compare = async () => {
    try {
      const { subject } = await get(`${base}/messages/${sequence}/head`);
      const { heads } = await get(`${entityPath(kind, path)}/heads`, { state: "active", descending: true, count: 200 });
      const others = heads.filter((head) => String(head.sequenceNumber) !== sequence);
      const found = others.find((head) => head.subject === subject) ?? others[0];
      if (found) {
        setQuery({ with: found.sequenceNumber });
      } else {
        announce("There is no other message to compare with");
      }
    } catch (error) {
      announce(/** @type {Error} */ (error).message);
    }
  };
  useKeys([
    { keys: "d", does: "Compare with another message", act: () => (other === "" ? compare() : setQuery({ with: "" })) },
    { keys: "j, ArrowRight", does: "Next message", act: () => step(true) },
    { keys: "k, ArrowLeft", does: "Previous message", act: () => step(false) },
    { keys: "u, Escape", does: "Back to the list", act: () => go(entityHref(kind, path, tab)) },
    { keys: "c", does: "Copy the link to this message", act: () => copy(location.href, "link to this page") },
  ]);
  return html`<div class="page">
    <${EntityHead} kind=${kind} path=${path} tab=${tab} state=${entity} hasFigures=${false} />
    <div class="title message-title"><h2>Message <span class="mono">${visible(sequence)}</span></h2>
      <button type="button" onClick=${() => step(false)}>Previous <kbd>k</kbd></button>
      <button type="button" onClick=${() => step(true)}>Next <kbd>j</kbd></button>
      <button type="button" aria-pressed=${other !== ""} onClick=${() => (other === "" ? compare() : setQuery({ with: "" }))}>Compare <kbd>d</kbd></button>
      ${other !== "" && html`<${SearchField} label="With message number" value=${other} onChange=${(value) => setQuery({ with: value.replace(/\D/g, "") })} />`}</div>
    ${other !== "" && html`<${Comparison} base=${base} sequence=${sequence} otherBase=${entityPath(kind, path)} other=${other} />`}
    <${MessageView} kind=${kind} path=${path} tab=${tab} sequence=${sequence} />
  </div>`;
}

/** Bytes of a body that are compared. */
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

function Comparison({ base, sequence, otherBase, other }) {
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
