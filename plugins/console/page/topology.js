// @ts-check
// Topology: entities by hop, with the ways of messages between them, as a picture and as a table. Checks: findings about
// entities and the broker, with their remedies (CON-38, CON-39, CON-50, CON-55).

import { asApiError, change, get, subscriptionParts } from "./api.js";
import { useMayOperate } from "./actions.js";
import { exact, number, rate, visible, words } from "./format.js";
import { Age, announce, Choice, Empty, Facts, Moment, Problem, SearchField, Text, Unknown, usePageTitle, usePanel } from "./parts.js";
import { preferences } from "./preferences.js";
import { refreshAll, useResource } from "./resource.js";
import { entityHref, go, href, kindOfPath, setQuery } from "./route.js";
import { Table } from "./table.js";
import { html, useMemo, useState } from "./view.js";

const PHONE = matchMedia("(max-width: 720px)");
const zone = () => preferences.value.zone;
/** Connected nodes beyond which the picture shows the neighbours of one entity only. */
const DRAWN_MAX = 100;
const [BOX_PX, GAP_PX, ROW_PX, BOX_HEIGHT] = [180, 124, 40, 26];
const NAME_CHARS = 22;
const EDGES = { subscription: "subscription", forward: "forwards to", deadLetterForward: "dead letters go to" };
const HOPS = [["1", "1 hop"], ["2", "2 hops"], ["4", "4 hops"]];

/** Returns the columns of connected nodes by their distance from a source, in an order with few crossings. */
function layered(nodes, edges) {
  const incoming = new Map();
  const outgoing = new Map();
  for (const edge of edges) {
    incoming.set(edge.to, [...(incoming.get(edge.to) ?? []), edge.from]);
    outgoing.set(edge.from, [...(outgoing.get(edge.from) ?? []), edge.to]);
  }
  const connected = nodes.map((_, place) => place).filter((place) => incoming.has(place) || outgoing.has(place));
  const layer = new Map(connected.map((place) => [place, 0]));
  // A circle ends after as many rounds as there are nodes.
  for (let round = 0, moved = true; moved && round < Math.min(connected.length, 32); round += 1) {
    moved = false;
    for (const { from, to } of edges) {
      if (from !== to && layer.get(to) <= layer.get(from) && layer.get(from) < 31) {
        layer.set(to, layer.get(from) + 1);
        moved = true;
      }
    }
  }
  const columns = [];
  for (const place of connected) {
    (columns[layer.get(place)] ??= []).push(place);
  }
  const shown = columns.filter(Boolean);
  const row = new Map();
  for (const column of shown) {
    const middle = (place) => {
      const rows = (incoming.get(place) ?? []).map((from) => row.get(from)).filter((one) => one !== undefined);
      return rows.length === 0 ? Infinity : rows.reduce((sum, one) => sum + one, 0) / rows.length;
    };
    column.sort((one, other) => middle(one) - middle(other) || nodes[one].name.localeCompare(nodes[other].name));
    column.forEach((place, at) => row.set(place, at));
  }
  return shown;
}

const FAULTS = { destinationMissing: "missing", destinationDisabled: "disabled" };
const pairOf = (/** @type {string} */ from, /** @type {string} */ to) => JSON.stringify([from.toLowerCase(), to.toLowerCase()]);

/** Entities with findings, and words for the faults of ways from an entity to its destination. */
function faultsOf(findings) {
  const entities = new Set();
  const ways = new Map();
  for (const { kind, path, weight, others = [] } of findings) {
    if (path !== undefined && weight !== "notice") {
      entities.add(path.toLowerCase());
      others.forEach((other) => kind in FAULTS && ways.set(pairOf(path, other), FAULTS[kind]));
    }
  }
  return { entities, ways };
}

/** Gives each edge its nodes and its fault, so that a row of the table needs no other answer than its own. */
function resolved({ nodes, edges, ...others }, findings = []) {
  const faults = faultsOf(findings);
  const fit = nodes.map((node) => ({ ...node, isIll: faults.entities.has(node.name.toLowerCase()) }));
  const ways = edges.map((edge) => {
    const [source, target] = [fit[edge.from], fit[edge.to]];
    const fault = edge.kind === "subscription" ? undefined : faults.ways.get(pairOf(source.name, target.name));
    target.isIll ||= fault !== undefined;
    return { ...edge, source, target, fault, isIll: edge.failed > 0 || fault !== undefined };
  });
  return { ...others, nodes: fit, edges: ways };
}

const hrefOf = (node) => (node.entity ? entityHref(node.kind, node.name) : undefined);

function Picture({ topology, around }) {
  const { nodes, edges } = topology;
  const columns = useMemo(() => layered(nodes, edges), [topology]);
  const at = new Map();
  columns.forEach((column, x) => column.forEach((place, y) => at.set(place, { x: 8 + x * (BOX_PX + GAP_PX), y: 8 + y * ROW_PX })));
  const width = 16 + columns.length * (BOX_PX + GAP_PX) - GAP_PX;
  const height = 12 + Math.max(...columns.map((column) => column.length)) * ROW_PX;
  const circled = new Set(topology.circles.flat());
  const cut = (/** @type {string} */ name) => (visible(name).length > NAME_CHARS ? `…${visible(name).slice(1 - NAME_CHARS)}` : visible(name));
  return html`<div class="map table-scroll" role="region" tabindex="0" aria-label="Picture of the topology"><svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
    ${edges.map((edge, place) => {
      const [from, to] = [at.get(edge.from), at.get(edge.to)];
      if (!from || !to) {
        return null;
      }
      const isBack = to.x <= from.x;
      const [x1, y1, x2, y2] = [isBack ? from.x + BOX_PX / 2 : from.x + BOX_PX, from.y + (isBack ? BOX_HEIGHT : BOX_HEIGHT / 2), isBack ? to.x + BOX_PX / 2 : to.x, to.y + (isBack ? 0 : BOX_HEIGHT / 2)];
      const text = edge.failed > 0 ? `${number(edge.failed)} failed` : [edge.perSecond > 0 && `${rate(edge.perSecond)}/s`, edge.waiting > 0 && `${number(edge.waiting)} wait`].filter(Boolean).join(", ");
      // Where many lines meet, a number stands at the other end.
      const [ways, others] = [edges.filter(({ from: one }) => one === edge.from).length, edges.filter(({ to: one }) => one === edge.to).length];
      const isAtStart = others > ways || (others === ways && to.x - from.x > BOX_PX + GAP_PX);
      const [x, y] = isAtStart ? [x1 + 6, y1 + ((y2 - y1) * 6) / Math.max(6, x2 - x1)] : [x2 - 6, y2 - ((y2 - y1) * 6) / Math.max(6, x2 - x1)];
      return html`<g key=${`e${place}`} class=${`map-edge ${edge.kind} ${edge.isIll ? "ill" : ""}`}><line x1=${x1} y1=${y1} x2=${x2} y2=${y2} />
        ${text && html`<text x=${x} y=${y - 4} text-anchor=${isAtStart ? "start" : "end"}>${text}</text>`}</g>`;
    })}
    ${columns.flat().map((place) => {
      const node = nodes[place];
      const { x, y } = at.get(place);
      const isFault = node.isIll || circled.has(node.name);
      return html`<g key=${`n${place}`} class=${`map-node ${node.kind} ${isFault ? "ill" : ""} ${node.name === around ? "active" : ""}`} onClick=${() => hrefOf(node) && go(/** @type {string} */ (hrefOf(node)))}>
        <rect x=${x} y=${y} width=${BOX_PX} height=${BOX_HEIGHT} rx="3" /><text x=${x + 8} y=${y + 17}>${cut(subscriptionParts(node.name)?.name ?? node.name)}</text><title>${`${visible(node.name)}, ${node.kind}`}</title></g>`;
    })}
  </svg></div>`;
}

/** Name of a node; an entity has a link. */
const Node = ({ node }) => {
  const name = html`<${Text} value=${node.name} max=${160} />`;
  return hrefOf(node) ? html`<a href=${hrefOf(node)} tabindex="-1">${name}</a>` : name;
};

const edgeColumns = () => [
  { id: "from", name: "From", width: PHONE.matches ? 130 : 320, rank: 1, mono: true, cell: (edge) => html`<${Node} node=${edge.source} />` },
  { id: "kind", name: "Way", width: 170, rank: 3, cell: (edge) => EDGES[edge.kind] ?? visible(edge.kind) },
  { id: "to", name: "To", width: 150, isWide: true, rank: 1, mono: true, cell: ({ target, fault }) => html`<span class=${fault ? "bad" : ""}><${Node} node=${target} />${fault ? ` (${fault})` : target.kind === "unknown" ? " (unknown)" : ""}</span>` },
  { id: "rate", name: "Rate", unit: "1/s", width: 84, align: "right", rank: 2, cell: (edge) => rate(edge.perSecond) },
  { id: "waiting", name: "Waiting", width: 88, align: "right", rank: 2, cell: (edge) => (edge.waiting === undefined ? "" : html`<span class=${edge.waiting === 0 ? "zero" : "look"}>${number(edge.waiting)}</span>`) },
  { id: "failed", name: "Failed", width: 84, align: "right", rank: 2, cell: (edge) => (edge.failed === undefined ? "" : html`<span class=${edge.failed === 0 ? "zero" : "bad"}>${number(edge.failed)}</span>`) },
];

export function Topology({ query }) {
  usePageTitle("Topology");
  const [around, hops] = [query.get("around") ?? "", query.get("hops") ?? "1"];
  const asked = { around, hops: around ? hops : undefined };
  const state = useResource(`topology ${JSON.stringify(asked)}`, (signal) => get("topology", asked, signal));
  const checks = useResource("checks of topology", (signal) => get("checks", { muted: false }, signal), { every: 30_000 });
  const value = useMemo(() => state.value && resolved(state.value, checks.value?.findings), [state.value, checks.value]);
  const { nodes = [], edges = [], longestChain, circles = [], hopCountMax, nodeCount } = value ?? {};
  const connectedCount = new Set(edges.flatMap(({ from, to }) => [from, to])).size;
  const loneCount = nodes.length - connectedCount;
  const isOver = longestChain && longestChain.hops > hopCountMax;
  const columns = useMemo(edgeColumns, []);
  const kindOf = nodes.find((node) => node.entity && node.name.toLowerCase() === around.toLowerCase())?.kind;
  return html`<div class="page fill">
    <h1>Topology</h1>
    <div class="tools">
      <${SearchField} label="Path of an entity" value=${around} onChange=${(path) => setQuery({ around: path })} />
      ${around && html`<${Choice} label="Distance" value=${hops} options=${HOPS} onChange=${(value) => setQuery({ hops: value })} /><button type="button" onClick=${() => setQuery({ around: "", hops: "" })}>Whole namespace</button>`}
      ${kindOf && html`<a class="button" href=${entityHref(kindOf, around)}>Open the entity</a>`}
      ${checks.error && html`<span class="look">Findings of the checks are unknown.</span>`}
    </div>
    <${Problem} error=${state.error} onRetry=${state.refresh} />
    ${!value && !state.error && html`<p class="quiet">Reading…</p>`}
    ${circles.map((names, place) => html`<p key=${place} class="notice bad">These entities forward in a circle: <span class="mono"><${Text} value=${names.join(" → ")} max=${400} /></span></p>`)}
    ${longestChain && html`<p class=${isOver ? "bad" : "quiet"}>The longest chain has ${longestChain.hops === 1 ? "1 hop" : `${number(longestChain.hops)} hops`}${isOver ? `, over the limit of ${number(hopCountMax)}: messages are dead-lettered on the way` : ` of at most ${number(hopCountMax)}`}.</p>`}
    ${value && edges.length > 0 && (connectedCount <= DRAWN_MAX ? html`<${Picture} topology=${value} around=${around} />` : html`<p class="notice">${number(connectedCount)} connected entities are too many for a picture. Enter the path of one, or choose a row.</p>`)}
    ${
      value &&
      html`<${Table} noun=${["way", "ways"]} label="Ways of messages" columns=${columns} rows=${edges} keyOf=${(edge) => JSON.stringify([edge.source.name, edge.target.name, edge.kind])} scope=${`topology ${around} ${hops}`}
      onOpen=${(edge) => go(href(["topology"], { around: edge.source.name, hops: around ? hops : "" }))} empty=${html`<${Empty} title="No entity passes messages on"><p>Topics with subscriptions, and entities that forward messages or dead letters, are shown here.</p><//>`} />`
    }
    ${value && html`<p class="quiet">${loneCount > 0 ? `${number(loneCount)} entities without a connection are not shown.` : ""}${nodeCount > nodes.length ? ` ${number(nodeCount - nodes.length)} more entities are left out.` : ""}</p>`}
  </div>`;
}

const WEIGHTS = { error: ["▲", "bad", "error"], warning: ["◆", "look", "warning"], notice: ["●", "quiet", "notice"] };

function Weight({ name }) {
  const [shape, tone, word] = WEIGHTS[name] ?? WEIGHTS.notice;
  return html`<span class=${`state ${tone}`}><span aria-hidden="true">${shape}</span> ${word}</span>`;
}

const checkColumns = [
  { id: "weight", name: "Weight", width: 104, rank: 1, cell: (one) => html`<${Weight} name=${one.weight} />` },
  { id: "finding", name: "Finding", width: 210, rank: 1, cell: (one) => visible(words(one.kind)) },
  { id: "path", name: "Entity", width: 190, rank: 2, mono: true, cell: (one) => (one.path === undefined ? html`<span class="quiet">the broker</span>` : html`<${Text} value=${one.path} max=${160} />`) },
  { id: "since", name: "Since", width: 88, align: "right", rank: 4, cell: (one) => html`<${Age} at=${one.sinceUtc} />`, exact: (one) => exact(one.sinceUtc, zone()) },
  { id: "muted", name: "Muted", width: 80, rank: 5, cell: (one) => (one.muted ? html`<span class="quiet">muted</span>` : "") },
  { id: "detail", name: "Detail", width: 260, isWide: true, rank: 3, cell: (one) => html`<${Text} value=${one.detail} max=${300} />` },
];

const keyOf = (one) => `${one.kind} ${one.path ?? ""}`;

export function Checks({ query }) {
  usePageTitle("Checks");
  const [path, muted, selected] = ["path", "muted", "finding"].map((name) => query.get(name) ?? "");
  const asked = { path, muted };
  const state = useResource(`checks ${JSON.stringify(asked)}`, (signal) => get("checks", asked, signal));
  const { value } = state;
  const rows = value?.findings ?? [];
  const chosen = rows.find((one) => keyOf(one) === selected);
  const empty = html`<${Empty} title=${path || muted === "true" ? "No such finding" : "Nothing found"}><p>The broker looks every minute for entities and settings that need a person.</p><//>`;
  return html`<div class="page fill">
    <h1>Checks</h1>
    <div class="tools">
      <${SearchField} label="Part of the path" value=${path} onChange=${(text) => setQuery({ path: text, finding: "" })} />
      <${Choice} label="Muted findings" value=${muted} options=${[["", "All"], ["false", "Not muted"], ["true", "Muted"]]} onChange=${(word) => setQuery({ muted: word, finding: "" })} />
      ${value?.checkedAtUtc && html`<span class="quiet">Checked <${Age} at=${value.checkedAtUtc} suffix=" ago" />${value.mutedCount > 0 ? `, ${number(value.mutedCount)} muted` : ""}${value.leftOutCount > 0 ? `, ${number(value.leftOutCount)} more findings had no room` : ""}</span>`}
    </div>
    <${Problem} error=${state.error} onRetry=${state.refresh} />
    ${!value && !state.error && html`<p class="quiet">Reading…</p>`}
    ${chosen && html`<${Finding} key=${selected} finding=${chosen} />`}
    ${value && html`<${Table} noun=${["finding", "findings"]} label="Findings" columns=${checkColumns} rows=${rows} total=${value.total} keyOf=${keyOf} scope=${JSON.stringify(asked)}
      hrefOf=${(one) => href(["checks"], { path, muted, finding: keyOf(one) })} selected=${chosen ? selected : undefined} empty=${empty} />`}
  </div>`;
}

/** A finding with its remedy, and its muting. */
function Finding({ finding }) {
  const { kind, path, sinceUtc, detail, remedy, others = [], muted, weight } = finding;
  const mayOperate = useMayOperate(path ?? "");
  const [reason, setReason] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const element = usePanel();
  const run = (operation, body) => async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await change("POST", `checks/${operation}`, { kind, ...(path !== undefined && { path }), ...body });
      announce(operation === "mute" ? "The finding is muted" : "The finding is no longer muted");
      setReason("");
      // The form or button goes.
      element.current?.focus({ preventScroll: true });
      refreshAll();
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  const link = (one) => html`<a class="mono" href=${entityHref(kindOfPath(one), one)}><${Text} value=${one} max=${200} /></a>`;
  // A destination that does not exist, or is elsewhere, has no page.
  const other = (/** @type {string} */ one) => (kind === "destinationMissing" || one.includes("://") ? html`<span class="mono"><${Text} value=${one} max=${200} /></span>` : link(one));
  return html`<section class="panel" aria-label="Finding" tabindex="-1" ref=${element}>
    <div class="beside-head"><h2>${visible(words(kind))} <${Weight} name=${weight} /></h2><button type="button" onClick=${() => setQuery({ finding: "" })}>Close</button></div>
    <p><${Text} value=${detail} max=${1000} /></p>
    <p><strong>Remedy:</strong> <${Text} value=${remedy} max=${1000} /></p>
    <${Facts} rows=${[
      ["Entity", path === undefined ? "the broker" : link(path)],
      ["With", others.length > 0 ? others.map((one, place) => html`<span key=${one}>${place > 0 && ", "}${other(one)}</span>`) : undefined],
      ["Since", html`<${Moment} at=${sinceUtc} />`],
      ["Muted", muted && html`<${Text} value=${muted.reason} max=${256} />, <${Age} at=${muted.atUtc} suffix=" ago" />`],
    ]} />
    <${Problem} error=${error} />
    <${Unknown} error=${error} />
    ${
      mayOperate &&
      (muted
        ? html`<button type="button" disabled=${isBusy} onClick=${run("unmute", {})}>Unmute</button>`
        : html`<form class="tools" aria-label="Mute the finding" onSubmit=${run("mute", { reason: reason.trim() })}><label>Reason <input type="text" maxlength="256" autocomplete="off" value=${reason} onInput=${(event) => setReason(event.currentTarget.value)} /></label>
          <button disabled=${isBusy || reason.trim() === ""}>Mute</button></form>`)
    }
  </section>`;
}
