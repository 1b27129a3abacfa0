// Searches in the console, against a broker without storage.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ask, barriers, close, EVIL, flaws, foreign, launch, opened, PHONE, post, visit } from "./console.js";

const line = (tab) => tab.getByLabel("Conditions in one line");
const rows = (tab) => tab.locator("tbody tr:not(.space)");
const at = (where, others = "") => `#/search?where=${encodeURIComponent(where)}&entity=found${others}`;
const hostile = `text:${EVIL.slice(0, 12).replace(/\s/g, "")}`;

before(async () => {
  await launch();
  await ask("PUT", "queues/found", { lockDuration: "PT5M" });
  const message = (id, subject) => ({ body: JSON.stringify({ order: { id } }), subject, applicationProperties: { region: "eu", [EVIL.slice(0, 80)]: EVIL } });
  await post("queues/found/messages/batch", { messages: [message(17, "new"), message(18, EVIL.slice(0, 100)), message(17, "old")] });
  await post("queues/found/messages/batch", { messages: Array.from({ length: 3 }, (_, place) => ({ body: `d${place}`, messageId: EVIL.slice(0, 90) })) });
  const { messages } = await post("queues/found/messages/receive", { maxCount: 6 });
  for (const [place, { lockToken }] of messages.slice(3).entries()) {
    await post(`queues/found/locks/${lockToken}/dead-letter`, { reason: place === 0 ? EVIL.slice(0, 60) : "timeout", description: `order ${place} timed out` });
  }
  await post(`queues/found/locks/${messages[0].lockToken}/release`);
});

after(close);

for (const [scheme, options] of [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["phone", { colorScheme: "light", ...PHONE }],
]) {
  // CON-49, CON-66, CON-68, CON-76: hits, groups, an empty page and a mistake, in both schemes and at 320 pixels
  test(`search is readable and makes no element of a text: ${scheme}`, async (t) => {
    const tab = await opened(t, options, /400/);
    await tab.addInitScript((evil) => localStorage.setItem("peeklock.console", JSON.stringify({ searches: { [evil]: `/search?where=${encodeURIComponent(evil)}` } })), EVIL.slice(0, 80));
    const pages = { empty: "#/search", hits: at("eu"), "hostile hits": at('property:"<img src" not reason:x'), groups: at("", "&sub=deadLetter&by=reason"), mistake: at("tries=many"), unknown: at(`nofield:1 ${hostile}`) };
    for (const [name, fragment] of Object.entries(pages)) {
      await visit(tab, fragment);
      await tab.locator({ empty: ".empty", groups: ".groups", mistake: ".problem", unknown: ".problem" }[name] ?? "tbody tr").first().waitFor();
      assert.deepEqual(await tab.evaluate(foreign), [], name);
      assert.deepEqual(await tab.evaluate(flaws), [], name);
      assert.deepEqual(await barriers(tab), [], name);
      const [width, room] = await tab.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(width <= room, `${name}: ${width} pixels wide`);
      assert.doesNotMatch(await tab.evaluate("document.body.innerText + document.title"), /[\0-\x08\x0b-\x1f\u202e\u200b\u2066]|undefined|NaN|\[object/, name);
    }
  });
}

// CON-05, CON-06, CON-49, CON-57, CON-58: the line and the form show each other; the address repeats the search
test("a search is written as a line or a form, and its address repeats it", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/queue/found/messages");
  await tab.getByRole("link", { name: "Search", exact: true }).last().click();
  await tab.getByRole("heading", { name: "Search", level: 1 }).waitFor();
  await tab.keyboard.press("/");
  await tab.keyboard.type('body.$.order.id=17 not subject="old"');
  const [first, second] = [1, 2].map((number) => tab.getByRole("group", { name: `Condition ${number}` }));
  assert.equal(await first.getByLabel("JSON path of condition 1").inputValue(), "$.order.id");
  assert.equal(await first.getByLabel("Value of condition 1").inputValue(), "17");
  assert.equal(await second.getByLabel("not").isChecked(), true);
  assert.equal(await second.getByLabel("Value of condition 2").inputValue(), "old");
  await tab.keyboard.press("Enter");
  await tab.getByText("Looked at 3 messages").waitFor();
  assert.equal(await rows(tab).count(), 1);
  assert.match(await rows(tab).innerText(), /found\s+1\s+● active[\s\S]*{"order":{"id":17}}/);
  await second.getByLabel("not").uncheck();
  await second.getByLabel("Value of condition 2").fill('new "and" old');
  assert.equal(await line(tab).inputValue(), 'body.$.order.id=17 subject="new \\"and\\" old"');
  await second.getByLabel("Field of condition 2").selectOption("tries");
  await second.getByLabel("Test of condition 2").selectOption("<=");
  await second.getByLabel("Value of condition 2").fill("0");
  await tab.getByRole("button", { name: "Add a condition" }).click();
  await tab.getByLabel("Value of condition 3").fill("order");
  assert.equal(await line(tab).inputValue(), "body.$.order.id=17 tries<=0 text:order");
  await tab.getByRole("button", { name: "Remove condition 2" }).click();
  await line(tab).press("Enter");
  await rows(tab).nth(1).waitFor();
  assert.match(decodeURIComponent(tab.url()), /where=body\.\$\.order\.id=17\+text:order/);
  await tab.reload();
  await rows(tab).nth(1).waitFor();
  assert.equal(await line(tab).inputValue(), "body.$.order.id=17 text:order");
  await tab.getByRole("grid").focus();
  await tab.keyboard.press("Home");
  await tab.keyboard.press("Enter");
  await tab.getByRole("heading", { name: "Message 1" }).waitFor();
});

// CON-49: kept by name in the browser
test("a search is kept by name, and forgotten", async (t) => {
  const tab = await opened(t);
  await visit(tab, at("eu", "&order=newest"));
  await rows(tab).first().waitFor();
  await tab.getByLabel("Name of this search").fill(EVIL.slice(0, 50));
  await tab.getByRole("button", { name: "Keep" }).click();
  await visit(tab, "#/search");
  await tab.locator(".kept-one a").click();
  await rows(tab).first().waitFor();
  assert.equal(await line(tab).inputValue(), "eu");
  await tab.getByRole("button", { name: /^Forget the search/ }).click();
  assert.equal(await tab.locator(".kept-one").count(), 0);
});

// CON-11, CON-49: groups of dead letters, from which one is narrowed down
test("dead letters are counted by reason, and a group becomes a search", async (t) => {
  const tab = await opened(t);
  await visit(tab, at("", "&sub=deadLetter"));
  await tab.getByLabel("Show").selectOption("reason");
  const groups = tab.getByRole("region", { name: "Groups" });
  await groups.waitFor();
  assert.deepEqual((await groups.locator("tbody td:first-child").allInnerTexts()).map(Number), [2, 1]);
  await groups.getByRole("link", { name: "timeout" }).click();
  await rows(tab).nth(1).waitFor();
  assert.equal(await line(tab).inputValue(), "reason=timeout");
  await rows(tab).first().getByRole("link").click();
  await tab.getByRole("heading", { name: /^Message/ }).waitFor();
  assert.match(tab.url(), /dead-letters\/\d+$/);
});

// CON-07, CON-08, CON-49: progress, the bound that was met, going on, and stopping
test("a search shows its progress and bound, goes on from there, and is stopped", async (t) => {
  const tab = await opened(t);
  const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify({ nowUtc: new Date().toISOString(), ...data })}\n\n`;
  const hit = (number) => ({ path: "found", sequenceNumber: number, state: "active", enqueuedTimeUtc: new Date().toISOString(), deliveryCount: 0, size: 90, bodySize: 1, match: { from: 0, to: 1, excerpt: "m" } });
  const progress = { messages: 812_044, bytes: 640 << 20, hits: 1000, undecided: 2, unreadable: 0, rest: 1_300_000, path: "found", sequenceNumber: 7 };
  const asked = [];
  await tab.route("**/search", (route) => {
    asked.push(route.request().postDataJSON());
    const end = asked.length === 1 ? { bound: "hits", next: "here" } : {};
    return route.fulfill({ status: 200, contentType: "text/event-stream", body: event("begin", { where: "text:m", clauses: [] }) + event("page", { search: 1, hits: [hit(asked.length)], progress, end }) });
  });
  await visit(tab, at("m"));
  await tab.getByText("Looked at 812,044 messages, 640 MiB. The search has met its bound of 1,000 hits.").waitFor();
  await tab.getByText("2 could not be decided").waitFor();
  await tab.getByRole("button", { name: "Go on from here" }).click();
  await tab.getByText("Looked at 1,624,088 messages, 1.3 GiB. All messages were looked at.").waitFor();
  assert.equal(await rows(tab).count(), 2);
  assert.deepEqual([asked[1].after, asked[1].where, asked[1].entities], ["here", "text:m", ["found"]]);
  await tab.unroute("**/search");
  let end;
  const hasEnded = new Promise((resolve) => (end = resolve));
  await tab.route("**/search", () => hasEnded);
  await line(tab).press("Enter");
  await tab.getByRole("button", { name: "Stop" }).click();
  await tab.getByText("Stopped.").waitFor();
  end();
});
