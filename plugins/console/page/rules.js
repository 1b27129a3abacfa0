// @ts-check
// Rules of a subscription, as they are.

import { entityPath, get } from "./api.js";
import { number, propertyText, propertyType, words } from "./format.js";
import { Age, Empty, Problem, Text } from "./parts.js";
import { useResource } from "./resource.js";
import { html } from "./view.js";

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
    <ul class="rules">${rules?.map(
      (rule) => html`<li key=${rule.name}>
        <h2><span class="mono"><${Text} value=${rule.name} /></span> <span class="quiet">${kindOf(rule.filter)}${rule.createdAt ? html`, made <${Age} at=${rule.createdAt} suffix=" ago" />` : null}</span></h2>
        <${Filter} filter=${rule.filter} />
        ${rule.action?.sql && html`<p class="quiet">Then it does</p><pre class="text"><${Text} value=${rule.action.sql} lines=${true} /></pre><${Parameters} parameters=${rule.action.parameters} />`}
      </li>`,
    )}</ul>`;
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
