// @ts-check
// State of the broker, the things that need somebody, rates of all entities, and entities with dead letters.

import { get, getRoot } from "./api.js";
import { Condition, entityColumns, NoEntities } from "./entities.js";
import { number, rate, visible, words } from "./format.js";
import { Age, Figure, late, Problem, Text, usePageTitle } from "./parts.js";
import { useResource } from "./resource.js";
import { entityHref, href } from "./route.js";
import { Table } from "./table.js";
import { html, useEffect, useState } from "./view.js";

const NamespaceRates = late(() => import("./rates.js"), "NamespaceRates");

const SUMMED_MAX = 500;

/** Conditions that need a person, heaviest first. `many` completes "3 entities ...". */
const NEEDS = [
  { id: "full", tone: "bad", query: { condition: ["isNearlyFull"], sort: "sizeInBytes", descending: true }, one: "is nearly full", many: "are nearly full", advice: "New messages are refused when an entity is full." },
  { id: "dead", tone: "bad", query: { condition: ["hasDeadLetters"], sort: "deadLetterMessageCount", descending: true }, one: "has dead letters", many: "have dead letters", advice: "Each names the reason that its consumer gave." },
  { id: "grows", tone: "look", query: { condition: ["grows", "hasNoReceiver"], sort: "activeMessageCount", descending: true }, one: "grows and has no receiver", many: "grow and have no receiver", advice: "Start a consumer." },
  { id: "disabled", tone: "look", query: { condition: ["isDisabled"] }, one: "is disabled", many: "are disabled", advice: "Clients get an error until it is active again." },
];

async function load(signal) {
  const [health, namespace, checks, accepted, removed, ...needs] = await Promise.all([
    getRoot("health", signal),
    get("namespace", {}, signal).catch(() => undefined),
    get("checks", { muted: false }, signal).catch(() => undefined),
    get("entities", { sort: "acceptedPerSecond", descending: true, top: SUMMED_MAX }, signal),
    get("entities", { sort: "removedPerSecond", descending: true, top: SUMMED_MAX }, signal),
    ...NEEDS.map(({ query }) => get("entities", { ...query, top: 50 }, signal)),
  ]);
  return { health, namespace, checks, accepted, removed, needs };
}

/** Adds up a column of rows that are in its order; undefined while no row has a rate. */
function sum(answer, column) {
  const values = answer.entities.map((row) => row[column]).filter((value) => value !== undefined);
  return values.length === 0 ? undefined : values.reduce((total, value) => total + value, 0);
}

export function Overview() {
  usePageTitle("Overview");
  const [hasRates, setHasRates] = useState(false);
  // Rates need two readings.
  const state = useResource("overview", load, { every: hasRates ? 10_000 : 2000 });
  const { value } = state;
  const total = value?.accepted.total;
  const rateIn = value && sum(value.accepted, "acceptedPerSecond");
  const rateOut = value && sum(value.removed, "removedPerSecond");
  useEffect(() => {
    setHasRates(rateIn !== undefined || total === 0);
  }, [value]);
  if (!value) {
    return html`<div class="page"><h1>Overview</h1><${Problem} error=${state.error} onRetry=${state.refresh} />${!state.error && html`<p class="quiet">Reading…</p>`}</div>`;
  }
  const { health, namespace, checks, needs } = value;
  const findings = checks?.findings.filter(({ weight }) => weight !== "notice") ?? [];
  // Notices come last, so an answer without any may leave out others.
  const findingCount = checks && findings.length === checks.findings.length ? checks.total : findings.length;
  const found = NEEDS.map((need, place) => ({ ...need, count: needs[place].total, rows: needs[place].entities })).filter(({ count }) => count > 0);
  const isIll = health.status !== "ok";
  const thingCount = found.length + (isIll ? 1 : 0) + (findings.length > 0 ? 1 : 0);
  const active = value.accepted.entities.reduce((count, row) => count + row.activeMessageCount, 0);
  const dead = found.find(({ id }) => id === "dead");
  return html`<div class="page">
    <h1>${total === 0 && thingCount === 0 ? "Nothing here yet" : thingCount === 0 ? (checks ? "All well" : "Nothing known needs you") : thingCount === 1 ? "1 thing needs you" : `${number(thingCount)} things need you`}</h1>
    <p class="quiet facts-line">
      ${namespace && html`<span>Namespace <span class="mono">${visible(namespace.name)}</span>, ${visible(namespace.tier)}</span>`}
      ${!checks && html`<span class="look">findings of the checks unknown</span>`}
      ${health.version && html`<span>version ${visible(health.version)}</span>`}
      ${health.startedAtUtc && html`<span>up for <${Age} at=${health.startedAtUtc} /></span>`}
      ${health.store && html`<span>store ${visible(health.store)}, ${health.durable ? "durable" : html`<strong class="look">not durable: messages end with the process</strong>`}</span>`}
    </p>
    <${Problem} error=${state.error} onRetry=${state.refresh} />
    ${
      thingCount > 0 &&
      html`<ul class="findings" aria-label="Things that need you">
      ${
        isIll &&
        html`<li class="bad"><span aria-hidden="true">▲</span><div><strong>The broker is ${visible(health.status)}</strong> <span class="quiet">${visible(health.shortage ?? "The log of the broker has the reason.")}</span></div></li>`
      }
      ${found.map(({ id, tone, count, one, many, advice, query, rows }) => {
        const single = count === 1 ? rows[0] : undefined;
        const to = single ? entityHref(single.kind, single.path, id === "dead" ? "dead-letters" : undefined) : href(["entities"], query);
        return html`<li key=${id} class=${tone}><span aria-hidden="true">${tone === "bad" ? "▲" : "◆"}</span>
          <div><a href=${to}>${single ? html`<span class="mono"><${Text} value=${single.path} /></span> ${one}` : `${number(count)} entities ${many}`}</a> <span class="quiet">${advice}</span></div></li>`;
      })}
      ${
        findings.length > 0 &&
        html`<li class=${findings.some(({ weight }) => weight === "error") ? "bad" : "look"}><span aria-hidden="true">◆</span>
          <div><a href="#/checks">${findingCount === 1 ? "1 finding" : `${number(findingCount)} findings`} of the checks</a> <span class="quiet">${[...new Set(findings.map(({ kind }) => words(kind).toLowerCase()))].slice(0, 4).join(", ")}.</span></div></li>`
      }
    </ul>`
    }
    <div class="figures">
      <${Figure} name="entities" value=${number(total)} href="#/entities" />
      <${Figure} name="active messages" value=${`${total > SUMMED_MAX ? "≥ " : ""}${number(active)}`} href=${href(["entities"], { sort: "activeMessageCount", descending: true })} />
      <${Figure} name="accepted per second" value=${rate(rateIn)} href=${href(["entities"], { sort: "acceptedPerSecond", descending: true })} />
      <${Figure} name="removed per second" value=${rate(rateOut)} href=${href(["entities"], { sort: "removedPerSecond", descending: true })} />
    </div>
    ${
      total === 0
        ? html`<${NoEntities} />`
        : html`
      <section aria-labelledby="rates"><h2 id="rates">Rates <span class="quiet">of all entities, the last hour</span></h2>
        <${NamespaceRates} />
      </section>
      <section aria-labelledby="dead"><h2 id="dead">Entities with dead letters</h2>
        ${
          dead
            ? html`<${Table} short noun=${["entity", "entities"]} label="Entities with dead letters" columns=${deadColumns} rows=${dead.rows} total=${dead.count} keyOf=${(row) => row.path} scope="overview"
              hrefOf=${(row) => entityHref(row.kind, row.path, "dead-letters")} />`
            : html`<p class="quiet">No entity has dead letters. Messages come here when consumers give up on them or they expire.</p>`
        }
      </section>`
    }
  </div>`;
}

const column = (id) => /** @type {any} */ (entityColumns.find((one) => one.id === id));
const deadColumns = [
  column("path"),
  { ...column("dead"), sort: undefined, rank: 1 },
  { ...column("active"), sort: undefined, rank: 2 },
  { ...column("receivers"), sort: undefined, rank: 3 },
  { id: "conditions", name: "Conditions", width: 220, rank: 4, cell: (row) => row.conditions.filter((name) => name !== "hasDeadLetters").map((name) => html`<${Condition} key=${name} name=${name} /> `) },
];
