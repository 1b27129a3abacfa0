// The filter playground of a topic in the console, against a broker without storage.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { as, ask, close, EVIL, foreign, isReadable, launch, opened, PHONE, post, press, visit } from "./console.js";

const LOOKS = [["light", { colorScheme: "light" }], ["dark", { colorScheme: "dark" }], ["phone", { colorScheme: "light", ...PHONE }]];
const sql = (text) => ({ name: "r", filter: { type: "sql", sql: text } });
const rulesOf = async () => (await ask("GET", "topics/sales/subscriptions/eu/rules")).rules.map(({ filter }) => filter.sql);

before(async () => {
  await launch();
  await ask("PUT", "topics/sales", {});
  await ask("PUT", "topics/sales/subscriptions/eu", { rules: [sql("region = 'eu'")] });
  await ask("PUT", "topics/sales/subscriptions/rest", { catchAll: true });
  for (const [subject, region] of [["cake", "eu"], ["tea", "us"], [EVIL.slice(0, 100), "eu"]]) {
    await post("topics/sales/messages", { subject, applicationProperties: { region, note: EVIL } });
  }
});

after(close);

// CON-35, CON-36, CON-51, CON-58, CON-66, CON-76: a message is chosen, its rules are explained, and a rule is tried, by keys
for (const [scheme, options] of LOOKS) {
  test(`a changed rule shows its effect before it is saved: ${scheme}`, async (t) => {
    const tab = await opened(t, options);
    await visit(tab, "#/topic/sales/filters");
    const message = tab.getByRole("region", { name: "Message", exact: true });
    await message.getByRole("button", { name: /^2 tea/ }).focus();
    await press(tab, "Enter");
    const rules = tab.getByRole("region", { name: "Rules on it" });
    await rules.getByText("region = 'eu'").waitFor();
    assert.match(await rules.innerText(), /r does not select it[^]*false\s+'us' and 'eu'[^]*gets 1 copy/);
    assert.match(tab.url(), /sample=2/);
    await isReadable(tab, "explained");
    await rules.getByRole("button", { name: "Change rule r of eu" }).focus();
    await press(tab, "Enter");
    const change = tab.getByRole("form", { name: "Change a rule" });
    const text = change.getByLabel(/^Selects messages/);
    await tab.waitForFunction(() => [...document.querySelectorAll("textarea")].some(({ value }) => value === "region = 'eu'"));
    await text.fill("region = 'us'");
    assert.equal(await change.getByRole("button", { name: "Save the rule" }).count(), 0, "nothing is saved before it is tried");
    await change.getByRole("button", { name: "Try", exact: true }).focus();
    await press(tab, "Enter");
    const effect = tab.getByRole("region", { name: "Effect of the change" });
    await effect.getByText("3 messages differ, of 3 samples and 0 messages of subscriptions.").waitFor();
    assert.equal(await tab.evaluate("document.activeElement.textContent"), "Try", "the focus is not lost");
    const cells = await effect.locator("tbody tr").evaluateAll((lines) => lines.map((line) => [...line.children].map((cell) => cell.textContent)));
    assert.deepEqual(cells, [["eu", "2", "1", "1", "2", "0"], ["rest", "1", "2", "2", "1", "0"]]);
    await isReadable(tab, "tried");
    assert.deepEqual(await rulesOf(), ["region = 'eu'"], "nothing has changed");
    // The address has the message and the rule.
    const fragment = new URL(tab.url()).hash;
    await visit(tab, "#/");
    await visit(tab, fragment);
    await tab.waitForFunction(() => [...document.querySelectorAll("textarea")].some(({ value }) => value === "region = 'us'"));
    assert.deepEqual(await tab.evaluate(foreign), []);
  });
}

// CON-51, CON-72: a message that is written is explained, errors are next to the form, and only an admin saves
test("a rule is saved after it was tried", async (t) => {
  const tab = await opened(t, {}, /400/);
  await visit(tab, "#/topic/sales/filters?subscription=eu&rule=r");
  const write = tab.getByRole("form", { name: "Write a message" });
  await write.getByRole("textbox").fill('{"applicationProperties": {"region": "eu", "amount": 9007199254740993}}');
  await write.getByRole("button", { name: "Test" }).click();
  const rules = tab.getByRole("region", { name: "Rules on it" });
  await rules.getByText("r selects it").waitFor();
  await write.getByRole("textbox").fill("{");
  await write.getByRole("button", { name: "Test" }).click();
  await write.getByText("NotJson").waitFor();
  const change = tab.getByRole("form", { name: "Change a rule" });
  await tab.waitForFunction(() => [...document.querySelectorAll("textarea")].some(({ value }) => value === "region = 'eu'"));
  const text = change.getByLabel(/^Selects messages/);
  await text.fill("region =");
  await change.getByRole("button", { name: "Try", exact: true }).click();
  await change.getByText("ArgumentError").waitFor();
  await text.fill("region IS NOT NULL");
  await change.getByRole("button", { name: "Try", exact: true }).click();
  await change.getByRole("button", { name: "Save the rule" }).click();
  await tab.waitForFunction(() => !location.hash.includes("sql="));
  assert.deepEqual(await rulesOf(), ["region IS NOT NULL"]);
  await change.getByLabel("Remove the rule instead").check();
  await change.getByRole("button", { name: "Try", exact: true }).click();
  await change.getByRole("button", { name: "Remove the rule" }).waitFor();
  const viewer = await opened(t);
  await as(viewer, "viewer");
  await visit(viewer, "#/topic/sales/filters?subscription=eu&rule=r&remove=1");
  await viewer.getByRole("button", { name: "Try", exact: true }).click();
  await viewer.getByRole("region", { name: "Effect of the change" }).waitFor();
  assert.equal(await viewer.getByRole("button", { name: "Remove the rule", exact: true }).count(), 0);
});

// CON-51, CON-62: without samples the reason is shown, and a written message can still be tested
test("a topic without samples says why", async (t) => {
  const tab = await opened(t, {}, /400/);
  const problem = { code: "InvalidOperation", detail: "samples are switched off; set `console.samples` and restart the broker" };
  await tab.route("**/samples*", (route) => route.fulfill({ status: 400, contentType: "application/json", body: JSON.stringify(problem) }));
  await visit(tab, "#/topic/sales/filters");
  await tab.getByText(/samples are switched off/).waitFor();
  await tab.getByRole("form", { name: "Write a message" }).getByRole("button", { name: "Test" }).click();
  await tab.getByRole("region", { name: "Rules on it" }).getByText(/r (selects|does not select) it/).waitFor();
});

// CON-51: integers above 2^53 keep their digits, a removal ends with its rule, and a rule that somebody else changed stays
test("a change stays with its rule", async (t) => {
  const tab = await opened(t);
  const big = { name: "big", filter: { type: "correlation", properties: { order: { type: "i64", value: "9007199254740993" } } } };
  await ask("PUT", "topics/sales/subscriptions/eu/rules/big", big);
  await ask("PATCH", "topics/sales/subscriptions/eu/rules/r", sql("region = 'eu'"));
  await visit(tab, "#/topic/sales/filters?subscription=eu&rule=big");
  const change = tab.getByRole("form", { name: "Change a rule" });
  await change.getByText("replaces the rule of this name").waitFor();
  await change.getByRole("button", { name: "Try", exact: true }).click();
  await tab.getByRole("region", { name: "Effect of the change" }).getByText(/^No message differs/).waitFor();
  await change.getByLabel("Remove the rule instead").check();
  await tab.waitForFunction(() => location.hash.includes("remove=1"));
  await tab.getByRole("button", { name: "Change rule r of eu" }).click();
  await tab.waitForFunction(() => location.hash.includes("rule=r") && !location.hash.includes("remove="));
  await tab.waitForFunction(() => [...document.querySelectorAll("textarea")].some(({ value }) => value === "region = 'eu'"));
  await change.getByLabel(/^Selects messages/).fill("region = 'us'");
  await change.getByRole("button", { name: "Try", exact: true }).click();
  await change.getByRole("button", { name: "Save the rule" }).waitFor();
  await ask("PATCH", "topics/sales/subscriptions/eu/rules/r", sql("region = 'ch'"));
  await change.getByRole("button", { name: "Save the rule" }).click();
  await change.getByText("RuleChanged").waitFor();
  assert.ok((await rulesOf()).includes("region = 'ch'"), "the change of the other one stays");
  await ask("DELETE", "topics/sales/subscriptions/eu/rules/big");
});
