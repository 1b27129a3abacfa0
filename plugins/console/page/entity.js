// @ts-check
// One entity with its tabs.

import { entityPath, get, subscriptionParts } from "./api.js";
import { entityColumns, EntityHead, entityRows, useEntity } from "./entities.js";
import { duration, number, parseDuration, size, visible, words } from "./format.js";
import { Messages } from "./messages.js";
import { Empty, Facts, late, Moment, Problem, State, Text, usePageTitle } from "./parts.js";
import { preferences } from "./preferences.js";
import { usePages, useResource } from "./resource.js";
import { entityHref } from "./route.js";
import { Table } from "./table.js";
import { html } from "./view.js";

const [Rules, Filters] = ["Rules", "Filters"].map((name) => late(() => import("./rules.js"), name));
const [Locks, Sessions] = ["Locks", "Sessions"].map((name) => late(() => import("./holders.js"), name));
const Charts = late(() => import("./rates.js"), "Charts");
const Timeline = late(() => import("./schedule.js"), "Timeline");
const Workbench = late(() => import("./workbench.js"), "Workbench");
const [Tail, Send, Take] = ["Tail", "Send", "Take"].map((name) => late(() => import("./traffic.js"), name));

const defaultTab = (/** @type {string} */ kind) => (kind === "topic" ? "subscriptions" : "messages");

export function Entity({ kind, path, tab: given, query }) {
  const tab = given ?? defaultTab(kind);
  const name = { messages: "", "dead-letters": "Dead letters of ", "transfer-dead-letters": "Transfer dead letters of ", send: "Send to ", take: "Take from " }[tab] ?? `${tab[0].toUpperCase()}${tab.slice(1)} of `;
  usePageTitle(`${name}${path}`);
  const state = useEntity(kind, path);
  if (state.error?.status === 404 && !state.value) {
    // A link may have guessed the wrong kind.
    return html`<${OtherKind} kind=${kind} path=${path} error=${state.error} />`;
  }
  const { description } = state.value ?? {};
  const isFilled = /^(messages|dead-letters|transfer-dead-letters|scheduled|sessions|locks|subscriptions|tail|workbench)$/.test(tab);
  return html`<div class=${`page ${isFilled ? "fill" : ""}`}>
    <${EntityHead} kind=${kind} path=${path} tab=${tab} state=${state} />
    ${
      state.error?.code === "EntityNotFound"
        ? html`<p class="notice">This ${kind} is no longer here: it was deleted, or you may not read it any more. Below is its last known state.</p>`
        : html`<${Problem} error=${state.error} onRetry=${state.refresh} />`
    }
    <${Tab} kind=${kind} path=${path} tab=${tab} query=${query} description=${description} />
  </div>`;
}

function Tab({ kind, path, tab, query, description }) {
  switch (tab) {
    case "messages":
    case "dead-letters":
    case "transfer-dead-letters":
      return html`<${Messages} key=${tab} kind=${kind} path=${path} tab=${tab} query=${query} hasSessions=${description?.requiresSession === true} />`;
    case "workbench":
      return html`<${Workbench} kind=${kind} path=${path} query=${query} />`;
    case "scheduled":
      return html`<${Timeline} kind=${kind} path=${path} query=${query} />
        <${Messages} key=${tab} kind=${kind} path=${path} tab=${tab} query=${query} hasSessions=${false} />`;
    case "subscriptions":
      return html`<${Subscriptions} topic=${path} />`;
    case "sessions":
      return html`<${Sessions} kind=${kind} path=${path} query=${query} />`;
    case "locks":
      return html`<${Locks} kind=${kind} path=${path} query=${query} hasSessions=${description?.requiresSession === true} />`;
    case "tail":
      return html`<${Tail} kind=${kind} path=${path} query=${query} />`;
    case "send":
      return html`<${Send} kind=${kind} path=${path} query=${query} description=${description} />`;
    case "take":
      return html`<${Take} kind=${kind} path=${path} query=${query} description=${description} />`;
    case "rules":
      return html`<${Rules} path=${path} />`;
    case "filters":
      return html`<${Filters} topic=${path} query=${query} />`;
    case "charts":
      return html`<${Charts} kind=${kind} path=${path} query=${query} />`;
    case "settings":
      return html`<${Description} description=${description} />`;
    default:
      return html`<${Empty} title="There is no such tab" />`;
  }
}

function Subscriptions({ topic }) {
  const prefix = `${topic}/subscriptions/`.toLowerCase();
  const list = usePages(`subscriptions ${topic}`, async (after, signal) => {
    const answer = await get("entities", { path: `${topic}/Subscriptions/`, kind: "subscription", top: 500, after }, signal);
    return { ...entityRows(answer), rows: answer.entities.filter((row) => row.path.toLowerCase().startsWith(prefix)), total: undefined };
  });
  const columns = entityColumns.filter(({ id }) => id !== "kind").map((column) => ({ ...column, sort: undefined }));
  columns[0] = { ...columns[0], name: "Name", cell: (row) => html`<${Text} value=${subscriptionParts(row.path)?.name ?? row.path} />` };
  const empty = html`<${Empty} title="No subscription"><p>A topic keeps no message that no subscription selects. Make one: <code>peeklock subscription create</code></p><//>`;
  return html`<${Problem} error=${list.error} onRetry=${list.refresh} />
    <${Table} noun=${["subscription", "subscriptions"]} label=${`Subscriptions of ${visible(topic)}`} columns=${columns} rows=${list.rows} keyOf=${(row) => row.path} scope=${topic}
      hrefOf=${(row) => entityHref("subscription", row.path)} hasMore=${list.hasMore} loadMore=${list.loadMore}
      isLoading=${list.isLoading && list.at === 0} empty=${list.error ? null : empty} />`;
}

function Description({ description }) {
  const { zone } = preferences.use();
  if (!description) {
    return null;
  }
  const { runtime = {}, ...settings } = description;
  const valueOf = (name, value) => {
    if (value === null || value === undefined) {
      return undefined;
    }
    if (typeof value === "boolean") {
      return value ? "yes" : "no";
    }
    if (typeof value === "number" || typeof value === "bigint") {
      const unit = [["Megabytes", 1 << 20], ["Kilobytes", 1 << 10], ["Bytes", 1]].find(([end]) => name.endsWith(String(end)));
      return unit ? size(Number(value) * Number(unit[1])) : number(value);
    }
    if (typeof value === "object") {
      return html`<span class="mono"><${Text} value=${JSON.stringify(value)} /></span>`;
    }
    if (name === "status") {
      return html`<${State} name=${value} />`;
    }
    if (parseDuration(value) !== undefined) {
      return html`<span title=${value}>${duration(value)}</span>`;
    }
    if (/^\d{4}-\d\d-\d\dT/.test(value)) {
      return html`<${Moment} at=${value} />`;
    }
    return html`<span class="mono"><${Text} value=${value} /></span>`;
  };
  const rows = (part) => Object.entries(part).map(([name, value]) => [words(name), valueOf(name, value)]);
  return html`<div class="columns" data-zone=${zone}>
    <section><h2>Properties</h2><${Facts} rows=${rows(settings)} /></section>
    <section><h2>Now</h2><${Facts} rows=${rows(runtime)} /></section>
  </div>`;
}

/** Looks for an entity of another kind with the same path. */
function OtherKind({ kind, path, error }) {
  const others = ["queue", "topic", "subscription"].filter((one) => one !== kind);
  const found = useResource(`kind ${path}`, async (signal) => {
    const answer = await get("entities", { path, top: 500 }, signal);
    return answer.entities.find((row) => row.path.toLowerCase() === path.toLowerCase() && others.includes(row.kind));
  }, { every: 0 });
  return html`<div class="page"><h1 class="mono"><${Text} value=${path} /></h1>
    ${found.value ? html`<p>It is a ${found.value.kind}: <a href=${entityHref(found.value.kind, found.value.path)}>open it</a></p>` : html`<${Problem} error=${error} />`}
    <p class="quiet">This was the address of a ${kind}. <a href="#/entities">All entities</a></p>
  </div>`;
}
