// @ts-check
// Connected clients with their links.

import { get } from "./api.js";
import { exact, number, visible } from "./format.js";
import { Age, Empty, Facts, Moment, Problem, SearchField, Text, usePageTitle } from "./parts.js";
import { preferences } from "./preferences.js";
import { usePages } from "./resource.js";
import { entityHref, href, kindOfPath, setQuery } from "./route.js";
import { Table } from "./table.js";
import { html } from "./view.js";

const PAGE = 200;
const zone = () => preferences.value.zone;
const sum = (client, name) => client.links.reduce((total, link) => total + Number(link[name]), 0);

const columns = [
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
    <${Table} noun=${["client", "clients"]} label="Clients" columns=${columns} rows=${list.rows} total=${list.total} keyOf=${(row) => String(row.clientId)} scope=${key}
      hrefOf=${(row) => href(["clients"], { ...asked, client: row.clientId })} selected=${selected || undefined}
      hasMore=${list.hasMore} loadMore=${list.loadMore} isLoading=${list.isLoading && list.at === 0}
      empty=${list.error ? null : html`<${Empty} title=${isFiltered ? "No client matches" : "No client is connected"}>${isFiltered && html`<p><button type="button" onClick=${() => setQuery({ name: "", path: "", transport: "" })}>Show all clients</button></p>`}<//>`} />
  </div>`;
}

function Client({ id, client, isRead }) {
  if (!client) {
    return isRead ? html`<p class="notice">Client ${visible(id)} is not connected. <button type="button" onClick=${() => setQuery({ client: "" })}>Close</button></p>` : null;
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
