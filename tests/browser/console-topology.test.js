// Topology and checks in the console, against a broker without storage.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { as, ask, close, EVIL, foreign, isReadable, launch, opened, PHONE, post, press, rows, visit } from "./console.js";

const LOOKS = [["light", { colorScheme: "light" }], ["dark", { colorScheme: "dark" }], ["phone", { colorScheme: "light", ...PHONE }]];
const now = () => new Date().toISOString();
const json = (body) => ({ status: 200, contentType: "application/json", body: JSON.stringify(body) });

before(async () => {
  await launch();
  await ask("PUT", "queues/cold", {});
  await ask("PUT", "queues/archive", { forwardTo: "cold" });
  await ask("PUT", "topics/news", {});
  await ask("PUT", "topics/news/subscriptions/all", { forwardTo: "archive" });
  await ask("PUT", "queues/lonely", {});
  await post("topics/news/messages", { body: "one" });
});

after(close);

// CON-50, CON-57, CON-58, CON-66, CON-76: the picture and its table, whole and around an entity
for (const [scheme, options] of LOOKS) {
  test(`the topology is shown as a picture and as a table: ${scheme}`, async (t) => {
    const tab = await opened(t, options);
    await visit(tab, "#/topology");
    await rows(tab).nth(2).waitFor();
    await tab.getByRole("region", { name: "Picture of the topology" }).waitFor();
    assert.match(await tab.locator("main").innerText(), /longest chain has 2 hops/);
    await isReadable(tab, "whole");
    const ways = tab.getByRole("grid", { name: "Ways of messages" });
    await ways.focus();
    await press(tab, "Home", "Enter");
    await tab.getByRole("button", { name: "Whole namespace" }).waitFor();
    assert.match(tab.url(), /around=/);
    await tab.getByRole("link", { name: "Open the entity" }).waitFor();
    assert.ok((await rows(tab).first().getByRole("link").count()) >= 1, "names lead to entities");
    await isReadable(tab, "around");
    await visit(tab, "#/topology?around=lonely");
    await tab.getByText("No entity passes messages on").waitFor();
    await isReadable(tab, "alone");
  });
}

// CON-50: while the table has the focus, an answer with other entities neither breaks nor changes its rows
test("rows of the topology keep their entities", async (t) => {
  const tab = await opened(t);
  const node = (name) => ({ name, kind: "queue", entity: { path: name, kind: "queue" } });
  const answer = (names) => ({ nodes: names.map(node), edges: names.slice(1).map((_, place) => ({ from: place, to: place + 1, kind: "forward" })), nodeCount: names.length, circles: [], hopCountMax: 4, nowUtc: now() });
  let names = ["a", "b", "c", "d"];
  await tab.route(/\/v1\/topology/, (route) => route.fulfill(json(answer(names))));
  await visit(tab, "#/topology");
  await rows(tab).nth(2).waitFor();
  await tab.getByRole("grid").focus();
  names = ["0", "d"];
  const read = tab.waitForResponse(/\/v1\/topology/);
  await press(tab, "r");
  await read;
  await tab.getByRole("button", { name: "1 new" }).waitFor();
  const shown = (await rows(tab).allInnerTexts()).map((text) => text.split(/\s+/).filter((word) => /^[a-d0]$/.test(word)).slice(0, 2).join(""));
  assert.deepEqual(shown, ["ab", "bc", "cd"]);
});

// CON-50, CON-68: hostile names, faults in words, and more entities than a picture can show
test("a topology with faults has them in words", async (t) => {
  const tab = await opened(t);
  const node = (name, kind = "queue") => ({ name, kind, ...(/queue|topic/.test(kind) && { entity: { path: name, kind } }) });
  const small = { nodes: [node(EVIL.slice(0, 90)), node(EVIL.slice(0, 60), "unknown"), node("a"), node("b"), node("hidden", "unknown")], edges: [{ from: 2, to: 4, kind: "forward" }, { from: 0, to: 1, kind: "forward", perSecond: 2.5, waiting: 3, failed: 4 }, { from: 2, to: 3, kind: "forward" }, { from: 3, to: 2, kind: "deadLetterForward" }], nodeCount: 9, longestChain: { hops: 5, names: [] }, circles: [["a", "b"]], hopCountMax: 4, nowUtc: now() };
  await tab.route(/\/v1\/topology/, (route) => route.fulfill(json(small)));
  const missing = { kind: "destinationMissing", weight: "error", path: small.nodes[0].name, others: [small.nodes[1].name], sinceUtc: now(), detail: "", remedy: "" };
  await tab.route(/\/v1\/checks(\?.*)?$/, (route) => route.fulfill(json({ findings: [missing], total: 1, mutedCount: 0, checkedAtUtc: now(), nowUtc: now() })));
  await visit(tab, "#/topology");
  for (const text of ["(missing)", "(unknown)", "These entities forward in a circle", "over the limit of 4", "4 more entities are left out."]) {
    await tab.getByText(text).first().waitFor();
  }
  await isReadable(tab, "faults");
  assert.equal(await tab.locator(".bad", { hasText: "(unknown)" }).count(), 0, "an unreadable destination is no fault");
  assert.equal(await tab.locator(".map-edge.ill").count(), 1);
  const nodes = Array.from({ length: 102 }, (_, place) => node(`q${place}`));
  const large = { nodes, edges: nodes.slice(1).map((_, place) => ({ from: 0, to: place + 1, kind: "forward" })), nodeCount: 102, circles: [], hopCountMax: 4, nowUtc: now() };
  await tab.unroute(/\/v1\/topology/);
  await tab.route(/\/v1\/topology/, (route) => route.fulfill(json(large)));
  await tab.reload();
  await tab.getByText("102 connected entities are too many for a picture.").waitFor();
  assert.equal(await tab.locator(".map").count(), 0);
});

const finding = (kind, others = {}) => ({ kind, weight: "warning", path: "lonely", sinceUtc: now(), detail: EVIL, remedy: `look: ${EVIL}`, ...others });
const findings = [finding("forwardCircle", { weight: "error", others: ["archive", EVIL.slice(0, 50)] }), finding("deadLettersUnread"), finding("anonymousBeyondLoopback", { path: undefined, weight: "notice", muted: { reason: EVIL.slice(0, 80), atUtc: now() } })];

// CON-39, CON-42, CON-55, CON-66, CON-68, CON-76
for (const [scheme, options] of LOOKS) {
  test(`findings are shown with their remedies: ${scheme}`, async (t) => {
    const tab = await opened(t, options);
    await visit(tab, "#/checks");
    await tab.getByText("Nothing found").waitFor();
    await isReadable(tab, "of the broker");
    await tab.route(/\/v1\/checks(\?.*)?$/, (route) => route.fulfill(json({ findings, total: 3, mutedCount: 1, checkedAtUtc: now(), nowUtc: now() })));
    await tab.reload();
    await rows(tab).nth(2).waitFor();
    await isReadable(tab, "findings");
    await rows(tab).first().getByRole("link").click();
    await tab.getByRole("region", { name: "Finding" }).getByText("Remedy:").waitFor();
    await isReadable(tab, "a finding");
    await visit(tab, "#/");
    await tab.getByRole("link", { name: "2 findings of the checks" }).waitFor();
    assert.deepEqual(await tab.evaluate(foreign), []);
  });
}

// CON-39, CON-62, CON-73: a finding is muted with a reason, and a viewer is not offered it
test("a finding is muted and unmuted", async (t) => {
  const tab = await opened(t, {}, /Failed to load resource/);
  const asked = [];
  let list = [findings[1]];
  await tab.route(/\/checks(\?.*)?$/, (route) => route.fulfill(json({ findings: list, total: 1, mutedCount: 0, checkedAtUtc: now(), nowUtc: now() })));
  await tab.route(/\/checks\/(un)?mute$/, async (route) => {
    asked.push([route.request().url().split("/").at(-1), route.request().postDataJSON()]);
    list = [{ ...findings[1], ...(asked.length === 1 && { muted: { reason: "known until Friday", atUtc: now() } }) }];
    await route.continue();
  });
  await visit(tab, "#/checks");
  await tab.getByRole("grid").focus();
  await press(tab, "Home", "Enter");
  const panel = tab.getByRole("region", { name: "Finding" });
  await panel.getByLabel("Reason").fill("known until Friday");
  await panel.getByLabel("Reason").press("Enter");
  await panel.getByText("known until Friday").waitFor();
  const focused = () => tab.evaluate("document.activeElement.getAttribute('aria-label')");
  assert.equal(await focused(), "Finding", "the focus is not lost");
  await panel.getByRole("button", { name: "Unmute" }).click();
  await panel.getByLabel("Reason").waitFor();
  assert.equal(await focused(), "Finding");
  assert.deepEqual(asked, [["mute", { kind: "deadLettersUnread", path: "lonely", reason: "known until Friday" }], ["unmute", { kind: "deadLettersUnread", path: "lonely" }]]);
  // A mute without an answer, and the way back.
  await tab.unroute(/\/checks\/(un)?mute$/);
  await tab.route(/\/checks\/mute$/, (route) => route.fulfill({ status: 503, contentType: "application/json", body: "{}" }));
  await panel.getByLabel("Reason").fill("again");
  await panel.getByLabel("Reason").press("Enter");
  await panel.getByText("HTTP 503").waitFor();
  assert.equal(await panel.getByText("The outcome is unknown").count(), 0);
  await panel.getByRole("button", { name: "Close" }).click();
  await panel.waitFor({ state: "detached" });
  assert.equal(await focused(), "Findings", "the table has the focus");
  const lower = await opened(t);
  await as(lower, "viewer");
  await lower.route(/\/checks(\?.*)?$/, (route) => route.fulfill(json({ findings: list, total: 1, mutedCount: 0, checkedAtUtc: now(), nowUtc: now() })));
  await visit(lower, "#/checks?finding=deadLettersUnread%20lonely");
  await lower.getByRole("region", { name: "Finding" }).waitFor();
  assert.deepEqual(await lower.getByRole("region", { name: "Finding" }).getByRole("button").allInnerTexts(), ["Close"]);
});

// CON-42, CON-62: unknown findings are no absence of findings, and a lost answer to a change is unknown
test("unknown findings and outcomes are called unknown", async (t) => {
  const tab = await opened(t, {}, /Failed to load resource/);
  const list = { findings: [findings[1]], total: 1, mutedCount: 0, checkedAtUtc: now(), nowUtc: now() };
  await tab.route(/\/checks(\?.*)?$/, (route) => route.fulfill(json(list)));
  await tab.route(/\/checks\/mute$/, (route) => route.abort("connectionreset"));
  await visit(tab, "#/checks?finding=deadLettersUnread%20lonely");
  const panel = tab.getByRole("region", { name: "Finding" });
  await panel.getByLabel("Reason").fill("known");
  await panel.getByLabel("Reason").press("Enter");
  await panel.getByText("The outcome is unknown").waitFor();
  await tab.unroute(/\/checks(\?.*)?$/);
  await tab.route(/\/checks(\?.*)?$/, (route) => route.fulfill({ status: 503, contentType: "application/json", body: "{}" }));
  await visit(tab, "#/");
  await tab.getByText("findings of the checks unknown").waitFor();
  assert.equal(await tab.getByText("All well").count(), 0);
});
