// @ts-check
// Rules of a subscription as they are, and their verdicts on a message that is not sent. The filters of a topic: its last
// messages, the verdicts of all rules, and the effect of a changed rule before it is saved.

import { ApiError, asApiError, change, entityPath, get, mayManage, parse, segment, toJson } from "./api.js";
import { cut, number, propertyText, propertyType, visible, words } from "./format.js";
import { Age, announce, Empty, Problem, Text, Unknown } from "./parts.js";
import { refreshAll, useResource } from "./resource.js";
import { entityHref, setQuery } from "./route.js";
import { html, useState } from "./view.js";

const PAGE = 100;
const RULES_MAX = 2000;

async function load(base, signal) {
  const rules = [];
  for (;;) {
    const page = await get(`${base}/rules`, { skip: rules.length, top: PAGE }, signal);
    rules.push(...page.rules);
    if (page.rules.length === 0 || rules.length >= RULES_MAX) {
      return rules;
    }
  }
}

export function Rules({ path }) {
  const base = entityPath("subscription", path);
  const state = useResource(`rules ${base}`, (signal) => load(base, signal));
  const rules = state.value;
  return html`<${Problem} error=${state.error} onRetry=${state.refresh} />
    ${rules?.length === 0 && html`<${Empty} title="No rule"><p>A subscription without a rule gets no message. Make one: <code>peeklock rule add</code></p><//>`}
    ${rules && rules.length > 0 && html`<p class="quiet">${rules.length === 1 ? "1 rule" : `${number(rules.length)} rules`}. A message that several rules select comes once for each rule with an action, and once for all others.</p>`}
    ${rules && rules.length > 0 && html`<${Trial} base=${base} rules=${rules} />`}
    <ul class="rules">${rules?.map(
      (rule) => html`<li key=${rule.name}>
        <h2><span class="mono"><${Text} value=${rule.name} /></span> <span class="quiet">${kindOf(rule.filter)}${rule.createdAt ? html`, made <${Age} at=${rule.createdAt} suffix=" ago" />` : null}</span></h2>
        <${Filter} filter=${rule.filter} />
        ${rule.action?.sql && html`<p class="quiet">Then it does</p><pre class="text"><${Text} value=${rule.action.sql} lines=${true} /></pre><${Parameters} parameters=${rule.action.parameters} />`}
      </li>`,
    )}</ul>`;
}

const SAMPLE = '{"subject": "order", "applicationProperties": {"region": "eu"}}';

/** Verdicts of a rule in words; the first two select the message. */
const VERDICTS = {
  matches: "selects it",
  actionFailed: "selects it, and its action fails",
  doesNotMatch: "does not select it",
  unknown: "does not select it: a property in it is missing",
  filterFailed: "fails",
  notAsked: "is not evaluated",
};
const selects = ({ verdict }) => verdict === "matches" || verdict === "actionFailed";

/** Number of copies in words: one for each rule with an action, and one for all others. */
function copiesOf(/** @type {any[]} */ explained, /** @type {any[]} */ rules) {
  const chosen = explained.filter(selects);
  const acting = chosen.filter(({ rule }) => rules.find(({ name }) => name === rule)?.action?.sql).length;
  const count = acting + (chosen.length > acting ? 1 : 0);
  return count === 0 ? "No rule selects it, so there is no copy." : count === 1 ? "The subscription gets 1 copy." : `The subscription gets ${number(count)} copies.`;
}

/** Reads a message; a whole number that JavaScript would round keeps its digits. */
function messageOf(/** @type {string} */ text) {
  try {
    return JSON.parse(JSON.stringify(parse(text), (_, value) => (typeof value === "bigint" ? { type: "i64", value: String(value) } : value)));
  } catch (error) {
    throw new ApiError("", { code: "NotJson", detail: /** @type {Error} */ (error).message });
  }
}

/** Asks the broker for the verdicts of the rules on a message. */
function Trial({ base, rules }) {
  const [text, setText] = useState(SAMPLE);
  const [explained, setExplained] = useState(/** @type {any[] | undefined} */ (undefined));
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    // The button stays enabled, so that it keeps the focus.
    if (isBusy) {
      return;
    }
    setBusy(true);
    setError(undefined);
    setExplained(undefined);
    try {
      const answer = await change("POST", `${base}/explain`, { message: messageOf(text) });
      setExplained(answer.rules);
      announce(copiesOf(answer.rules, rules));
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  return html`<form class="trial" aria-label="Test a message" onSubmit=${submit}>
    <label class="block">Test a message without sending it, as JSON<textarea class="mono" rows="3" required spellcheck=${false} value=${text} onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>
    <div class="tools"><button>Test</button></div>
    <${Problem} error=${error} />
    ${explained && html`<section aria-label="Result of the test"><p><strong>${copiesOf(explained, rules)}</strong></p>
      <ul class="plain-list">${explained.map((one) => html`<li key=${one.rule}><${Verdict} explained=${one} /></li>`)}</ul></section>`}
  </form>`;
}

const TRUTH = (/** @type {boolean | null} */ result) => (result === null ? "unknown" : String(result));

/** The verdict of a rule, its tests with the values that they saw, and the changes of its action. */
function Verdict({ explained }) {
  const { rule, verdict, error, selectedBy, tests, reads, changes } = explained;
  const missing = reads.filter(({ value }) => value === null);
  return html`<p class=${selects(explained) ? "good" : "look"}><span aria-hidden="true">${selects(explained) ? "✓" : "✕"}</span> <span class="mono"><${Text} value=${rule} max=${100} /></span> ${VERDICTS[verdict] ?? visible(verdict)}${error !== undefined && html`: <${Text} value=${error} max=${1000} />`}${selectedBy !== undefined && html`: the subscription <span class="mono"><${Text} value=${selectedBy} /></span> selects it`}</p>
    ${
      tests.length > 0 &&
      html`<table class="plain"><thead><tr><th scope="col">Test</th><th scope="col">Result</th><th scope="col">Values</th></tr></thead>
      <tbody>${tests.map((test, place) => html`<tr key=${place}><th scope="row" class="mono"><${Text} value=${test.text} max=${1000} /></th><td>${TRUTH(test.result)}</td><td class="mono"><${Text} value=${test.operands.join(" and ")} max=${1000} /></td></tr>`)}</tbody></table>`
    }
    ${missing.length > 0 && html`<p class="quiet">Not in the message: <span class="mono"><${Text} value=${missing.map(({ name }) => name).join(", ")} max=${1000} /></span></p>`}
    ${changes.length > 0 && html`<p class="quiet">Its action: <span class="mono"><${Text} value=${changes.join("; ")} max=${2000} /></span></p>`}`;
}

const plural = (/** @type {number} */ count, /** @type {string} */ noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A whole number of an address. One that a `number` would round is a `bigint`, as in answers. */
const wholeOf = (/** @type {string} */ digits) => (Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits));

/** Application properties of a message in one line. */
const propertiesOf = ({ applicationProperties = {} }) => Object.entries(applicationProperties).map(([name, value]) => `${name}=${propertyText(value)}`).join(" ");

/** A message in a row: its number, subject or id, and properties. */
const Brief = ({ sample: { sequenceNumber, message } }) => html`<span class="mono">${String(sequenceNumber)}</span> <${Text} value=${message.subject ?? message.messageId ?? ""} max=${60} /> <span class="quiet mono"><${Text} value=${propertiesOf(message)} max=${160} /></span>`;

/** The filter playground of a topic: a message, all rules on it, and what a changed rule would select (CON-51). */
export function Filters({ topic, query }) {
  const base = entityPath("topic", topic);
  const samples = useResource(`samples ${base}`, (signal) => get(`${base}/samples`, { top: 256 }, signal), { every: 0 });
  const list = samples.value?.samples;
  const chosen = query.get("sample") ?? (list?.length > 0 ? String(list[0].sequenceNumber) : undefined);
  const [typed, setTyped] = useState(SAMPLE);
  const [asked, setAsked] = useState(/** @type {any} */ (undefined));
  const question = asked ?? (chosen !== undefined && /^\d+$/.test(chosen) ? { sequenceNumber: wholeOf(chosen) } : undefined);
  const key = question && `explain ${base} ${toJson(question)}`;
  const explained = useResource(key, () => change("POST", `${base}/explain`, question), { every: 0 });
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const choose = (sequenceNumber) => {
    setAsked(undefined);
    setQuery({ sample: sequenceNumber });
  };
  const test = (event) => {
    event.preventDefault();
    setError(undefined);
    try {
      setAsked({ message: messageOf(typed) });
    } catch (thrown) {
      setError(asApiError(thrown));
    }
  };
  return html`<div class="columns">
    <section aria-label="Message"><h2>Message</h2>
      <${Problem} error=${samples.error} onRetry=${samples.refresh} />
      ${list?.length === 0 && html`<p class="quiet">The topic has published no message since the broker started. Send one, or write one below.</p>`}
      ${list?.length > 0 && html`<p class="quiet">The last ${plural(list.length, "message")} of ${number(samples.value.total)} that the broker remembers, without bodies. <button type="button" onClick=${() => void samples.refresh()}>Read again</button></p>
        <ul class="plain-list samples">${list.map((sample) => html`<li key=${sample.sequenceNumber}>
          <button type="button" aria-pressed=${question?.sequenceNumber === sample.sequenceNumber} onClick=${() => choose(sample.sequenceNumber)}><${Brief} sample=${sample} /> <span class=${sample.copyCount === 0 ? "look" : "quiet"}>${sample.copyCount === 0 ? "no copy" : sample.copyCount === 1 ? "1 copy" : `${number(sample.copyCount)} copies`}, <${Age} at=${sample.enqueuedTimeUtc} suffix=" ago" /></span></button></li>`)}</ul>`}
      <form class="trial" aria-label="Write a message" onSubmit=${test}>
        <label class="block">Or a message that is not sent, as JSON<textarea class="mono" rows="3" required spellcheck=${false} value=${typed} onInput=${(event) => setTyped(event.currentTarget.value)}></textarea></label>
        <div class="tools"><button>Test</button></div>
        <${Problem} error=${error} />
      </form>
    </section>
    <section aria-label="Rules on it"><h2>Rules on it</h2>
      <${Problem} error=${explained.error} onRetry=${explained.refresh} />
      ${!question && html`<p class="quiet">Choose a message to see which rules select it, and why.</p>`}
      ${explained.value && html`<${Explained} topic=${topic} explained=${explained.value} />`}
    </section>
    <${Change} base=${base} topic=${topic} query=${query} onChoose=${choose} />
  </div>`;
}

/** Each subscription with the verdicts of its rules, and the copies that it would get. */
function Explained({ topic, explained: { subscriptions, refused, hiddenCount, isCut } }) {
  // The answer ends within its last subscription, so the number of its copies is not known.
  const copiesText = (copies, place) => (isCut && place === subscriptions.length - 1 ? "" : copies.length === 0 ? "gets no copy" : copies.length === 1 ? "gets 1 copy" : `gets ${number(copies.length)} copies`);
  return html`${refused && html`<p class="bad"><${Text} value=${refused} max=${1000} /></p>`}
    ${subscriptions.length === 0 && !isCut && html`<p class="quiet">The topic has no subscription that you may read.</p>`}
    ${subscriptions.map(({ subscription, rules, copies }, place) => html`<section key=${subscription} aria-label=${visible(subscription)}>
      <h3><a class="mono" href=${entityHref("subscription", `${topic}/Subscriptions/${subscription}`, "rules")}><${Text} value=${subscription} /></a> <span class="quiet">${copiesText(copies, place)}</span></h3>
      <ul class="plain-list">${rules.map((one) => html`<li key=${one.rule}><${Verdict} explained=${one} />
        <p><button type="button" aria-label=${`Change rule ${visible(one.rule)} of ${visible(subscription)}`} onClick=${() => setQuery({ subscription, rule: one.rule, sql: undefined, action: undefined, remove: undefined })}>Change</button></p></li>`)}</ul>
      ${copies.filter(({ deadLetterReason }) => deadLetterReason).map(({ deadLetterReason, deadLetterErrorDescription }, place) => html`<p key=${place} class="bad">A copy goes into the dead-letter queue: <${Text} value=${deadLetterReason} max=${200} />: <${Text} value=${deadLetterErrorDescription ?? ""} max=${1000} /></p>`)}
    </section>`)}
    ${isCut && html`<p class="look">Further rules and copies are left out, since the answer is full.</p>`}
    ${hiddenCount > 0 && html`<p class="quiet">${plural(hiddenCount, "subscription")} that you may not read.</p>`}`;
}

const named = (/** @type {any[] | undefined} */ rules, /** @type {string} */ name) => rules?.find((rule) => rule.name.toLowerCase() === name.toLowerCase());

/** A rule as text, to notice that somebody else has changed it; empty without a rule. */
const textOfRule = (/** @type {any} */ rule) => (rule ? toJson([rule.filter ?? null, rule.action ?? null, rule.createdAt ?? null]) : "");

/** A changed rule: tried on the last messages, then saved. Its text is in the address. */
function Change({ base, topic, query, onChoose }) {
  const names = useResource(`subscriptions of ${base}`, (signal) => get(`${base}/subscriptions`, { top: PAGE }, signal), { every: 0 });
  const all = (names.value?.subscriptions ?? []).map(({ name }) => name);
  const subscription = query.get("subscription") ?? all[0];
  const of = subscription === undefined ? undefined : entityPath("subscription", `${topic}/Subscriptions/${subscription}`);
  const rules = useResource(of && `rules ${of}`, (signal) => load(of, signal), { every: 0 });
  // An address has no empty values, so a blank stands for a text that was cleared.
  const given = (/** @type {string} */ key) => (query.get(key) === " " ? "" : query.get(key) ?? undefined);
  const keep = (/** @type {string} */ key) => (event) => setQuery({ [key]: event.currentTarget.value || " " });
  const name = given("rule") ?? "$Default";
  const present = named(rules.value, name);
  const sql = given("sql") ?? present?.filter?.sql ?? "";
  const action = given("action") ?? present?.action?.sql ?? "";
  const isRemoved = query.get("remove") === "1";
  const [tried, setTried] = useState(/** @type {{ key: string, found: any, before: string } | undefined} */ (undefined));
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const [isBusy, setBusy] = useState(false);
  const isOther = present?.filter !== undefined && present.filter.sql === undefined && given("sql") === undefined;
  const textOf = (/** @type {string} */ text, /** @type {any} */ before) => ({ sql: text, ...(before?.parameters && { parameters: before.parameters }) });
  const rule = {
    name: present?.name ?? name,
    filter: isOther ? present.filter : sql.trim() === "" ? { type: "true" } : { type: "sql", ...textOf(sql, present?.filter) },
    ...(action.trim() !== "" && { action: textOf(action, present?.action) }),
  };
  const changed = isRemoved ? { subscription, remove: rule.name } : { subscription, rule };
  const key = toJson(changed);
  const act = async (/** @type {() => Promise<void>} */ work) => {
    // The button stays enabled, so that it keeps the focus.
    if (isBusy || subscription === undefined) {
      return;
    }
    setBusy(true);
    setError(undefined);
    try {
      await work();
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  const attempt = (event) => {
    event.preventDefault();
    void act(async () => {
      const before = textOfRule(present);
      const found = await change("POST", `${base}/what-if`, { changes: [changed] });
      setTried({ key, found, before });
      announce(differing(found));
    });
  };
  const save = () => act(async () => {
    const address = `${of}/rules/${segment(rule.name)}`;
    // The rule may have changed since it was read, perhaps hours ago.
    if (textOfRule(named(await load(of, undefined), rule.name)) !== tried?.before) {
      setTried(undefined);
      void rules.refresh();
      throw new ApiError("", { code: "RuleChanged", detail: "the rule has changed since this page read it; look at it, and try your change again" });
    }
    await (isRemoved ? change("DELETE", address) : change(present ? "PATCH" : "PUT", address, rule));
    setTried(undefined);
    setQuery({ sql: undefined, action: undefined, remove: undefined });
    announce(isRemoved ? "The rule is removed." : "The rule is saved.");
    refreshAll();
  });
  const found = tried?.key === key ? tried.found : undefined;
  return html`<section aria-label="Changed rule"><h2>Changed rule</h2>
    <${Problem} error=${names.error ?? rules.error} onRetry=${names.error ? names.refresh : rules.refresh} />
    <form class="trial" aria-label="Change a rule" onSubmit=${attempt}>
      <div class="tools">
        <label>Subscription <select value=${subscription} onChange=${(event) => setQuery({ subscription: event.currentTarget.value, rule: undefined, sql: undefined, action: undefined, remove: undefined })}>
          ${[...new Set([...(subscription === undefined ? [] : [subscription]), ...all])].map((one) => html`<option key=${one} value=${one}>${visible(cut(one, 60))}</option>`)}
        </select></label>
        <label>Rule <input class="mono" required maxlength="50" value=${name} onInput=${keep("rule")} /></label>
        <span class="quiet">${rules.value && (present ? "replaces the rule of this name" : "is a new rule")}${all.length >= PAGE ? `; the list has the first ${PAGE} subscriptions, “Change” at a rule chooses any` : ""}${isOther && present.filter.type === "correlation" ? "; a text here replaces its correlation filter" : ""}</span>
      </div>
      <label class="block">Selects messages with (SQL; empty: every message)<textarea class="mono" rows="3" spellcheck=${false} disabled=${isRemoved} value=${sql} onInput=${keep("sql")}></textarea></label>
      <label class="block">Then changes the copy (SQL; empty: not at all)<textarea class="mono" rows="2" spellcheck=${false} disabled=${isRemoved} value=${action} onInput=${keep("action")}></textarea></label>
      <label><input type="checkbox" checked=${isRemoved} onChange=${(event) => setQuery({ remove: event.currentTarget.checked && "1" })} /> Remove the rule instead</label>
      <div class="tools"><button>Try</button>
        ${mayManage() && found && html`<button type="button" onClick=${save}>${isRemoved ? "Remove the rule" : "Save the rule"}</button>`}
        <span class="quiet">Trying changes nothing.${mayManage() && !found ? " Try it to save it." : ""}</span></div>
      <${Problem} error=${error} /><${Unknown} error=${error} />
    </form>
    ${found && html`<${Found} found=${found} onChoose=${onChoose} />`}
  </section>`;
}

/** The result of a trial in words. */
const differing = (/** @type {any} */ { sampleCount, messageCount, differenceCount }) =>
  `${differenceCount === 0 ? "No message differs" : differenceCount === 1 ? "1 message differs" : `${number(differenceCount)} messages differ`}, of ${plural(sampleCount, "sample")} and ${plural(messageCount, "message")} of subscriptions.`;

const SIDES = /** @type {const} */ ([["gained", "gets it"], ["lost", "loses it"], ["changed", "gets another copy"]]);

/** Counts of each subscription before and after a change, and the messages that change sides. */
function Found({ found, onChoose }) {
  const { subscriptions, differences, differenceCount, isCut, hiddenCount } = found;
  return html`<section aria-label="Effect of the change"><p><strong>${differing(found)}</strong></p>
    <table class="plain"><thead><tr><th scope="col">Subscription</th>${["Before", "After", "Gains", "Loses", "Differ"].map((head) => html`<th scope="col" class="right" key=${head}>${head}</th>`)}</tr></thead>
    <tbody>${subscriptions.map(({ subscription, before, after, gained, lost, changed }) => html`<tr key=${subscription}><th scope="row" class="mono"><${Text} value=${subscription} /></th>${[before, after, gained, lost, changed].map((count, place) => html`<td class="right" key=${place}>${number(count)}</td>`)}</tr>`)}</tbody></table>
    ${differences.length > 0 && html`<ul class="plain-list samples">${differences.map((one, place) => html`<li key=${place}>
      ${one.sample.subscription === undefined ? html`<button type="button" onClick=${() => onChoose(one.sample.sequenceNumber)}><${Brief} sample=${one.sample} /></button>` : html`<p><${Brief} sample=${one.sample} /> <span class="quiet">in <${Text} value=${one.sample.subscription} /></span></p>`}
      ${SIDES.map(([side, text]) => one[side].length > 0 && html`<p key=${side} class=${side === "lost" ? "look" : "good"}><span class="mono"><${Text} value=${one[side].join(", ")} max=${300} /></span> ${text}</p>`)}</li>`)}</ul>`}
    ${differenceCount > differences.length && html`<p class="quiet">${number(differences.length)} of ${number(differenceCount)} messages are shown.</p>`}
    ${isCut && html`<p class="look">Further messages are left out, since the memory or the time was used up.</p>`}
    ${hiddenCount > 0 && html`<p class="quiet">${plural(hiddenCount, "subscription")} that you may not read.</p>`}
  </section>`;
}

const kindOf = (filter) => ({ sql: "SQL", correlation: "correlation", true: "every message", false: "no message" })[filter?.type] ?? "every message";

function Filter({ filter }) {
  if (!filter || filter.type === "true" || filter.type === "false") {
    return null;
  }
  if (filter.sql !== undefined) {
    return html`<pre class="text"><${Text} value=${filter.sql} lines=${true} /></pre><${Parameters} parameters=${filter.parameters} />`;
  }
  const { type, properties, sql, parameters, ...system } = filter;
  const rows = [...Object.entries(system).map(([name, value]) => [words(name), value, "string"]), ...Object.entries(properties ?? {}).map(([name, value]) => [name, propertyText(value), propertyType(value)])];
  return html`<${Values} rows=${rows} />`;
}

const Parameters = ({ parameters }) =>
  parameters ? html`<${Values} rows=${Object.entries(parameters).map(([name, value]) => [name, propertyText(value), propertyType(value)])} />` : null;

const Values = ({ rows }) => html`<table class="plain properties"><tbody>
  ${rows.map(([name, value, type]) => html`<tr key=${name}><th scope="row" class="mono"><${Text} value=${name} /></th><td class="mono"><${Text} value=${value} /></td><td class="quiet">${type}</td></tr>`)}
</tbody></table>`;
