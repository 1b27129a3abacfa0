// @ts-check
// Head of the pages of an entity: its path, state and numbers, and links to its tabs.

import { entityPath, get, subscriptionParts } from "./api.js";
import { Condition } from "./entities.js";
import { number, rate, size, visible } from "./format.js";
import { useKeys } from "./keys.js";
import { Age, Figure, State, Tabs, Text } from "./parts.js";
import { preferences, togglePin } from "./preferences.js";
import { useResource } from "./resource.js";
import { entityHref, kindOfPath } from "./route.js";
import { html } from "./view.js";

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

function tabsOf(kind, description, row, tab) {
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
    rules: ["Rules"],
    charts: ["Charts"],
    settings: ["Settings"],
  };
  const hasTransfers = counts.transferDeadLetterMessageCount > 0 || tab === "transfer-dead-letters";
  const hasDead = hasTransfers || counts.deadLetterMessageCount > 0 || tab === "workbench";
  const names = {
    queue: ["messages", "dead-letters", hasTransfers && "transfer-dead-letters", hasDead && "workbench", "scheduled", description?.requiresSession && "sessions", "locks", "tail", "charts", "settings"],
    subscription: ["messages", "dead-letters", hasTransfers && "transfer-dead-letters", hasDead && "workbench", description?.requiresSession && "sessions", "locks", "rules", "tail", "charts", "settings"],
    topic: ["subscriptions", hasTransfers && "transfer-dead-letters", hasDead && "workbench", "scheduled", "tail", "charts", "settings"],
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
  const tabs = tabsOf(kind, description, row, tab);
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
