// @ts-check
// All entities in one table, with filter, conditions and order in the address; and the head of the pages of an entity: its
// path, state and numbers, and links to its tabs.

import { addressOf, change, entityPath, get, mayManage, standing, subscriptionParts } from "./api.js";
import { exact, number, quoted, rate, size, visible } from "./format.js";
import { useKeys } from "./keys.js";
import { Age, Choice, Commands, Empty, Figure, Problem, SearchField, State, Tabs, Text, usePageTitle } from "./parts.js";
import { preferences, togglePin } from "./preferences.js";
import { refreshAll, usePages, useResource } from "./resource.js";
import { entityHref, go, kindOfPath, setQuery } from "./route.js";
import { Table } from "./table.js";
import { html, useState } from "./view.js";

const KINDS = [["", "All"], ["queue", "Queues"], ["topic", "Topics"], ["subscription", "Subscriptions"]];
const CONDITIONS = {
  hasDeadLetters: "has dead letters",
  grows: "grows",
  hasNoReceiver: "has no receiver",
  isDisabled: "is disabled",
  isNearlyFull: "is nearly full",
};

/** Name of a condition with the tone of its weight. */
export const Condition = ({ name }) =>
  html`<span class=${`tag ${name === "hasDeadLetters" || name === "isNearlyFull" ? "bad" : "look"}`}>${CONDITIONS[name] ?? name}</span>`;

/** Rows of a page: the stream has room for as many. */
const PAGE = 200;

const zone = () => preferences.value.zone;
const count = (/** @type {string} */ name) => (row) => html`<${Count} value=${row[name]} />`;

/** A count; zero steps back. */
export const Count = ({ value, tone = "" }) => html`<span class=${value === 0 ? "zero" : tone}>${number(value)}</span>`;

const Rate = ({ value }) => html`<span class=${value ? "" : "zero"}>${rate(value)}</span>`;

export const entityColumns = [
  { id: "path", name: "Path", width: 260, isWide: true, sort: "path", mono: true, cell: (row) => html`<${Text} value=${row.path} />` },
  { id: "kind", name: "Kind", width: 104, rank: 6, sort: "kind", cell: (row) => row.kind },
  { id: "active", name: "Active", width: 88, rank: 1, align: "right", sort: "activeMessageCount", cell: count("activeMessageCount") },
  { id: "dead", name: "Dead letters", width: 112, rank: 2, align: "right", sort: "deadLetterMessageCount", cell: (row) => html`<${Count} value=${row.deadLetterMessageCount} tone="bad" />` },
  { id: "locked", name: "Locked", width: 84, rank: 8, align: "right", sort: "lockedMessageCount", cell: count("lockedMessageCount") },
  { id: "scheduled", name: "Scheduled", width: 100, rank: 9, align: "right", sort: "scheduledMessageCount", cell: count("scheduledMessageCount") },
  { id: "in", name: "In", unit: "1/s", width: 76, rank: 4, align: "right", sort: "acceptedPerSecond", cell: (row) => html`<${Rate} value=${row.acceptedPerSecond} />` },
  { id: "out", name: "Out", unit: "1/s", width: 76, rank: 4, align: "right", sort: "removedPerSecond", cell: (row) => html`<${Rate} value=${row.removedPerSecond} />` },
  {
    id: "oldest", name: "Oldest", width: 84, rank: 3, align: "right", sort: "oldestEnqueuedAtUtc",
    cell: (row) => html`<${Age} at=${row.oldestEnqueuedAtUtc} />`,
    exact: (row) => row.oldestEnqueuedAtUtc && exact(row.oldestEnqueuedAtUtc, zone()),
  },
  { id: "receivers", name: "Receivers", width: 98, rank: 5, align: "right", sort: "receiverCount", cell: count("receiverCount") },
  { id: "size", name: "Size", width: 92, rank: 10, align: "right", sort: "sizeInBytes", cell: (row) => size(row.sizeInBytes) },
  { id: "status", name: "Status", width: 130, rank: 7, sort: "status", cell: (row) => html`<${State} name=${row.status} />` },
];

export const entityRows = (answer) => ({ rows: answer.entities, next: answer.next, total: answer.total });

export function Entities({ query }) {
  usePageTitle("Entities");
  const [path, kind, sort] = ["path", "kind", "sort"].map((name) => query.get(name) ?? "");
  const conditions = query.getAll("condition");
  const isDescending = query.get("descending") === "true";
  const asked = { path, kind, condition: conditions, sort, descending: isDescending };
  const key = `entities ${JSON.stringify(asked)}`;
  const list = usePages(key, async (after, signal) => entityRows(await get("entities", { ...asked, top: PAGE, after }, signal)), {
    kind: "entities",
    subject: { name: "entities", query: { ...(path && { path }), ...(kind && { kind }), conditions, ...(sort && { sort }), descending: isDescending, top: PAGE } },
  });
  const toggle = (name) => setQuery({ condition: conditions.includes(name) ? conditions.filter((one) => one !== name) : [...conditions, name] });
  const isFiltered = path !== "" || kind !== "" || conditions.length > 0;
  const empty = isFiltered
    ? html`<${Empty} title="No entity matches"><p><button type="button" onClick=${() => setQuery({ path: "", kind: "", condition: [] })}>Show all entities</button></p><//>`
    : html`<${NoEntities} />`;
  return html`<div class="page fill">
    <h1>Entities</h1>
    <div class="tools">
      <${SearchField} label="Part of the path" value=${path} onChange=${(text) => setQuery({ path: text })} />
      <${Choice} label="Kind" value=${kind} options=${KINDS} onChange=${(value) => setQuery({ kind: value })} />
      <fieldset class="choice loose"><legend class="hidden">Conditions</legend>
        ${Object.entries(CONDITIONS).map(([id, name]) => html`<button type="button" key=${id} aria-pressed=${conditions.includes(id)} onClick=${() => toggle(id)}>${name}</button>`)}
      </fieldset>
    </div>
    <${Problem} error=${list.error} onRetry=${list.refresh} />
    <${Table} noun=${["entity", "entities"]} label="Entities" columns=${entityColumns} rows=${list.rows} keyOf=${(row) => row.path} total=${list.total} scope=${key}
      hrefOf=${(row) => entityHref(row.kind, row.path)} sort=${sort || "path"} isDescending=${isDescending}
      onSort=${(name, descending) => setQuery({ sort: name, descending })}
      hasMore=${list.hasMore} loadMore=${list.loadMore} isLoading=${list.isLoading && list.at === 0} empty=${list.error ? null : empty} />
  </div>`;
}

const FIRST = "hello";

/** How to make the first entity and to send a message to it, as commands and with a button. */
export function NoEntities() {
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const [isBusy, setBusy] = useState(false);
  standing.use();
  const to = addressOf(`queues/${FIRST}`);
  const json = "-H 'Content-Type: application/json' -d";
  const create = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await change("PUT", `queues/${FIRST}`, {});
      await change("POST", `queues/${FIRST}/messages`, { body: "two coffees" });
      refreshAll();
      go(entityHref("queue", FIRST));
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  return html`<${Empty} title="There are no entities yet">
    <p>Queues, topics and their subscriptions are listed here, with counts, rates and clients.</p>
    ${mayManage() && html`<p><button type="button" disabled=${isBusy} onClick=${create}>Create the queue ${FIRST} and send a message to it</button></p>`}
    <${Problem} error=${error} />
    <${Commands} title="The same with the command line" list=${[`peeklock queue create ${FIRST}`, `peeklock send ${FIRST} 'two coffees'`]} />
    <${Commands} title="The same with curl" list=${[`curl -X PUT ${quoted(to)}`, `curl ${quoted(`${to}/messages`)} ${json} '{"body": "two coffees"}'`]} />
  <//>`;
}

/** Reads the exact description of an entity, and its row of the list, which has rates and receivers. */
export function useEntity(kind, path) {
  return useResource(`entity ${kind} ${path}`, async (signal) => {
    const [description, list] = await Promise.all([
      get(entityPath(kind, path), {}, signal),
      get("entities", { path, kind, top: 500 }, signal).catch(() => undefined),
    ]);
    const row = list?.entities.find((one) => one.path.toLowerCase() === path.toLowerCase());
    return { description, row, nowUtc: list?.nowUtc };
  }, {
    subject: { name: "entity", path },
    fromState: (description, before) => before && { ...before, description },
    isPartial: true,
  });
}

function tabsOf(kind, description, row, tab, isViewer) {
  const runtime = description?.runtime ?? {};
  const counts = { ...row, ...runtime };
  const all = {
    subscriptions: ["Subscriptions", runtime.subscriptionCount],
    messages: ["Messages", counts.activeMessageCount],
    "dead-letters": ["Dead letters", counts.deadLetterMessageCount, "bad"],
    "transfer-dead-letters": ["Transfer dead letters", counts.transferDeadLetterMessageCount, "bad"],
    workbench: ["Workbench"],
    scheduled: ["Scheduled", counts.scheduledMessageCount],
    sessions: ["Sessions", runtime.sessionCount],
    locks: ["Locks", row?.lockedMessageCount],
    tail: ["Tail"],
    send: ["Send"],
    take: ["Take"],
    rules: ["Rules"],
    filters: ["Filters"],
    charts: ["Charts"],
    settings: ["Settings"],
  };
  const hasTransfers = counts.transferDeadLetterMessageCount > 0 || tab === "transfer-dead-letters";
  const hasDead = hasTransfers || counts.deadLetterMessageCount > 0 || tab === "workbench";
  const names = {
    queue: ["messages", "dead-letters", hasTransfers && "transfer-dead-letters", hasDead && "workbench", "scheduled", description?.requiresSession && "sessions", "locks", "tail", !isViewer && "send", !isViewer && "take", "charts", "settings"],
    subscription: ["messages", "dead-letters", hasTransfers && "transfer-dead-letters", hasDead && "workbench", description?.requiresSession && "sessions", "locks", "rules", "tail", !isViewer && "take", "charts", "settings"],
    topic: ["subscriptions", hasTransfers && "transfer-dead-letters", hasDead && "workbench", "filters", "scheduled", "tail", !isViewer && "send", "charts", "settings"],
  }[kind];
  return names.filter(Boolean).map((id) => ({ id, name: all[id][0], count: all[id][1] ? number(all[id][1]) : undefined, tone: all[id][2] }));
}

/** The destination of forwarding; one of this broker has a link. */
const Destination = ({ way, to }) => html`<span class="quiet">${way} ${/^[a-z][a-z\d+.-]*:\/\//i.test(to) ? html`<span class="mono"><${Text} value=${to} /></span>` : html`<a class="mono" href=${entityHref(kindOfPath(to), to)}><${Text} value=${to} /></a>`}</span>`;

/** Path, kind, status and numbers of an entity, with the tabs. */
export function EntityHead({ kind, path, tab, state, hasFigures = true }) {
  const { pinned } = preferences.use();
  const address = entityHref(kind, path).slice(1);
  const isPinned = pinned.includes(address);
  const { description, row } = state.value ?? {};
  const runtime = description?.runtime ?? {};
  const topic = kind === "subscription" ? subscriptionParts(path)?.topic : undefined;
  useKeys([{ keys: "p", does: isPinned ? "Unpin this entity" : "Pin this entity", act: () => togglePin(address) }]);
  const to = (name) => entityHref(kind, path, name);
  const tabs = tabsOf(kind, description, row, tab, standing.use()?.role === "viewer");
  return html`
    <div class="title">
      <h1 class="mono"><a href=${entityHref(kind, path)}><${Text} value=${path} /></a></h1>
      <span class="quiet">${kind}${topic ? html` of <a class="mono" href=${entityHref("topic", topic)}><${Text} value=${topic} /></a>` : null}</span>
      ${description?.forwardTo && html`<${Destination} way="forwards to" to=${description.forwardTo} />`}
      ${description?.forwardDeadLetteredMessagesTo && html`<${Destination} way="dead letters go to" to=${description.forwardDeadLetteredMessagesTo} />`}
      ${description?.status && html`<${State} name=${description.status} />`}
      ${row?.conditions?.map((name) => html`<${Condition} key=${name} name=${name} />`)}
      <button type="button" class="pin-button" aria-pressed=${isPinned} onClick=${() => togglePin(address)}>${isPinned ? "Unpin" : "Pin"}</button>
    </div>
    ${
      description &&
      hasFigures &&
      html`<div class="figures">
      ${kind !== "topic" && html`<${Figure} name="active" value=${number(runtime.activeMessageCount)} href=${to("messages")} />`}
      ${kind !== "topic" && html`<${Figure} name="dead letters" tone=${runtime.deadLetterMessageCount ? "bad" : ""} value=${number(runtime.deadLetterMessageCount)} href=${to("dead-letters")} />`}
      ${kind !== "topic" && html`<${Figure} name="locked" value=${number(row?.lockedMessageCount)} href=${to("locks")} />`}
      ${kind !== "topic" && html`<${Figure} tone="minor" name="deferred" value=${number(runtime.deferredMessageCount)} href=${entityHref(kind, path, "messages", { state: "deferred" })} />`}
      ${kind !== "subscription" && html`<${Figure} name="scheduled" value=${number(runtime.scheduledMessageCount)} href=${to("scheduled")} />`}
      ${kind === "topic" && html`<${Figure} name="subscriptions" value=${number(runtime.subscriptionCount)} href=${to("subscriptions")} />`}
      <${Figure} tone="minor" name="accepted per second" value=${rate(row?.acceptedPerSecond)} href=${to("charts")} />
      ${kind !== "topic" && html`<${Figure} tone="minor" name="removed per second" value=${rate(row?.removedPerSecond)} href=${to("charts")} />`}
      ${kind !== "topic" && html`<${Figure} name="oldest" value=${html`<${Age} at=${row?.oldestEnqueuedAtUtc} />`} />`}
      ${kind !== "topic" && html`<${Figure} name="receivers" tone=${row?.conditions?.includes("hasNoReceiver") ? "look" : ""} value=${number(row?.receiverCount)} href=${`#/clients?path=${encodeURIComponent(path)}`} />`}
      <${Figure} tone="minor" name=${row?.maxSizeInBytes ? `of ${size(row.maxSizeInBytes)}` : "size"} value=${size(runtime.sizeInBytes)} />
    </div>`
    }
    <${Tabs} label=${`Parts of ${visible(path)}`} current=${tab} tabs=${tabs.map((one) => ({ ...one, href: to(one.id) }))} />`;
}
