// @ts-check
// Rules of a subscription as they are, and their verdicts on a message that is not sent.

import { ApiError, asApiError, change, entityPath, get, parse } from "./api.js";
import { number, propertyText, propertyType, visible, words } from "./format.js";
import { Age, announce, Empty, Problem, Text } from "./parts.js";
import { useResource } from "./resource.js";
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
