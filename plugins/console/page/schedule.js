// @ts-check
// Messages by the instant at which they become available, or expire: bars for slots, of the namespace or an entity.

import { entityPath, get } from "./api.js";
import { exact, number, span } from "./format.js";
import { Choice, Empty, Problem, usePageTitle } from "./parts.js";
import { preferences } from "./preferences.js";
import { useResource } from "./resource.js";
import { entityHref, setQuery } from "./route.js";
import { entityColumns, entityRows } from "./entities.js";
import { Table } from "./table.js";
import { html, useState } from "./view.js";

/** Lengths of a slot in seconds, from the nearest view to the farthest. */
const SLOTS = [10, 60, 300, 900, 3600, 6 * 3600, 86_400];
const SLOT_COUNT = 60;
const slotName = (/** @type {number} */ seconds) => span(seconds * 1000);

export function Schedule({ query }) {
  usePageTitle("Schedule");
  const of = query.get("of") === "expiring" ? "expiring" : "scheduled";
  const list = useResource("scheduled entities", (signal) => get("entities", { sort: "scheduledMessageCount", descending: true, top: 100 }, signal));
  const rows = list.value ? entityRows(list.value).rows.filter((row) => row.scheduledMessageCount > 0) : [];
  const columns = ["path", "kind", "scheduled", "active"].map((id) => ({ .../** @type {any} */ (entityColumns.find((one) => one.id === id)), sort: undefined, rank: id === "path" || id === "scheduled" ? 1 : 3 }));
  return html`<div class="page">
    <h1>Schedule</h1>
    <${Timeline} query=${query} hasKinds=${true} />
    ${
      of === "scheduled" &&
      rows.length > 0 &&
      html`<h2>Entities with scheduled messages</h2>
      <${Table} short noun=${["entity", "entities"]} label="Entities with scheduled messages" columns=${columns} rows=${rows} keyOf=${(row) => row.path} scope="scheduled"
        hrefOf=${(row) => entityHref(row.kind, row.path, "scheduled")} />`
    }
    <${Problem} error=${list.error} onRetry=${list.refresh} />
  </div>`;
}

/** The bars. Without a path they count the whole namespace. */
export function Timeline({ kind, path, query, hasKinds = false }) {
  const { zone } = preferences.use();
  const of = hasKinds && query.get("of") === "expiring" ? "expiring" : "scheduled";
  const given = Number(query.get("slot"));
  const slot = SLOTS.includes(given) ? given : 60;
  const from = query.get("start") ?? undefined;
  const base = path === undefined ? "timeline" : `${entityPath(kind, path)}/timeline`;
  const asked = { of, slotSeconds: slot, slots: SLOT_COUNT, fromUtc: from };
  const state = useResource(`${base} ${JSON.stringify(asked)}`, (signal) => get(base, asked, signal), {
    subject: { name: "timeline", ...(path !== undefined && { path }), query: asked },
    fromState: (value) => value,
  });
  const [active, setActive] = useState(/** @type {number | undefined} */ (undefined));
  const zoom = (step, place = active) => {
    const to = SLOTS[SLOTS.indexOf(slot) + step];
    if (to === undefined) {
      return;
    }
    const start = place === undefined || !state.value ? from : new Date(Date.parse(state.value.fromUtc) + place * slot * 1000).toISOString();
    setActive(undefined);
    setQuery({ slot: to, start: step < 0 ? start : undefined });
  };
  const shift = (step) => {
    const start = Date.parse(state.value.fromUtc) + step * SLOT_COUNT * slot * 1000;
    setActive(undefined);
    setQuery({ start: new Date(start).toISOString() });
  };
  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const at = active ?? 0;
    const acts = {
      ArrowRight: () => setActive(Math.min(SLOT_COUNT - 1, active === undefined ? 0 : at + 1)),
      ArrowLeft: () => setActive(Math.max(0, at - 1)),
      Home: () => setActive(0),
      End: () => setActive(SLOT_COUNT - 1),
      "+": () => zoom(-1),
      "-": () => zoom(1),
      PageDown: () => shift(1),
      PageUp: () => shift(-1),
      Enter: () => zoom(-1),
    };
    if (event.key in acts) {
      event.preventDefault();
      acts[event.key]();
    }
  };
  const { value } = state;
  const most = Math.max(1, ...(value?.counts ?? [1]));
  const startOf = (place) => Date.parse(value.fromUtc) + place * slot * 1000;
  const isOneDay = value && exact(startOf(0), zone).slice(0, 10) === exact(startOf(SLOT_COUNT), zone).slice(0, 10);
  const tick = (at) => exact(at, zone).slice(isOneDay ? 11 : 5, 19).replace("T", " ");
  const total = value ? value.counts.reduce((sum, count) => sum + count, 0) : 0;
  const describe = (place) => `${exact(startOf(place), zone).replace("T", " ").slice(0, 19)}, ${slotName(slot)}: ${number(value.counts[place])} messages`;
  const word = of === "scheduled" ? "become available" : "expire";
  return html`<div class="tools">
      ${hasKinds && html`<${Choice} label="Instants" value=${of} options=${[["scheduled", "Scheduled"], ["expiring", "Expiring"]]} onChange=${(next) => setQuery({ of: next === "scheduled" ? "" : next })} />`}
      <${Choice} label="Length of a bar" value=${String(slot)} options=${SLOTS.map((seconds) => [String(seconds), slotName(seconds)])} onChange=${(next) => setQuery({ slot: next, start: "" })} />
      <button type="button" disabled=${!value} onClick=${() => shift(-1)}>Earlier</button>
      <button type="button" disabled=${!value} onClick=${() => shift(1)}>Later</button>
      ${from && html`<button type="button" onClick=${() => setQuery({ start: "" })}>From now</button>`}
    </div>
    <${Problem} error=${state.error} onRetry=${state.refresh} />
    ${
      value &&
      html`<figure class="bars">
      <div class="bars-box" role="slider" tabindex="0" aria-label=${`Messages that ${word}, by slot`} aria-valuemin="0" aria-valuemax=${SLOT_COUNT - 1} aria-valuenow=${active ?? 0}
        aria-valuetext=${describe(active ?? 0)} onKeyDown=${onKeyDown}>
        <svg viewBox=${`0 0 ${SLOT_COUNT * 10} 100`} preserveAspectRatio="none" aria-hidden="true">
          ${value.counts.map((count, place) => html`<g key=${place} class=${`bar-slot ${place === active ? "active" : ""}`} onClick=${() => setActive(place)}>
            <rect class="bar-room" x=${place * 10} y="0" width="10" height="100" />
            <rect class="bar-fill" x=${place * 10 + 1} y=${100 - (count === 0 ? 0 : Math.max(2, (count / most) * 98))} width="8" height=${count === 0 ? 0 : Math.max(2, (count / most) * 98)} />
          </g>`)}
        </svg>
      </div>
      <div class="bars-axis" aria-hidden="true">${[0, SLOT_COUNT / 2, SLOT_COUNT].map((place) => html`<span key=${place}>${tick(startOf(place))}</span>`)}</div>
      <figcaption>${active === undefined ? html`${number(total)} messages ${word} in ${slotName(slot * SLOT_COUNT)}, at most ${number(Math.max(...value.counts))} in one bar.` : describe(active)}
        <span class="quiet"> ${number(value.before)} before, ${number(value.later)} later.${value.omittedEntities ? ` ${number(value.omittedEntities)} entities are not counted.` : ""} Keys: arrows choose a bar, + and - zoom.</span></figcaption>
      ${total + value.before + value.later === 0 && html`<${Empty} title=${of === "scheduled" ? "Nothing is scheduled" : "Nothing expires"}><p>${of === "scheduled" ? "Messages with a scheduled time in the future are counted here." : "Messages with a time to live are counted here."}</p><//>`}
    </figure>`
    }
    ${
      value &&
      total > 0 &&
      html`<details class="values"><summary>Table of the bars</summary><div class="table-scroll chart-table" role="region" tabindex="0" aria-label="Bars"><table class="plain numbers"><thead><tr><th scope="col">From</th><th scope="col" class="right">Messages</th></tr></thead>
      <tbody>${value.counts.map((count, place) => (count > 0 ? html`<tr key=${place}><th scope="row">${exact(startOf(place), zone)}</th><td class="right">${number(count)}</td></tr>` : null))}</tbody></table></div></details>`
    }`;
}
