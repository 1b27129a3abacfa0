// Jobs of the console and its workbench for dead letters, against a broker without storage.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { as, ask, close, EVIL, isReadable, launch, opened, PHONE, post, press, rows, visit } from "./console.js";
import { connected } from "./support.js";

const HOSTILE = EVIL.slice(0, 90);
const job = (tab) => tab.getByRole("region", { name: "Job" });
const selection = (tab) => tab.getByRole("group", { name: "Selection" });
const button = (place, name) => place.getByRole("button", { name, exact: true });

/** Asks until a job has a state. */
async function reached(id, state) {
  for (;;) {
    const facts = await ask("GET", `jobs/${id}`);
    if (facts.state === state) {
      return facts;
    }
  }
}

/** Makes a queue with messages, of which `deadCount` are dead letters with texts about the same fault. */
async function filled(queue, count, { deadCount = 0, reason = "timeout", ...settings } = {}) {
  await ask("PUT", `queues/${queue}`, { lockDuration: "PT5M", ...settings });
  const messages = Array.from({ length: count }, (_, place) => ({ body: `m${place}`, subject: "order" }));
  await post(`queues/${queue}/messages/batch`, { messages });
  const taken = deadCount > 0 ? (await post(`queues/${queue}/messages/receive`, { maxCount: deadCount })).messages : [];
  for (const [place, { lockToken }] of taken.entries()) {
    await post(`queues/${queue}/locks/${lockToken}/dead-letter`, { reason, description: place === 0 ? EVIL : `order ${place} timed out after ${place}0 s` });
  }
}

/** Makes a job, and starts it when its preview is there. */
async function ran(path, form, isStarted = true) {
  const made = await post(`${path}/jobs`, form);
  const { preview } = await reached(made.job, "ready");
  if (isStarted) {
    await post(`jobs/${made.job}/start`, { digest: preview.digest });
    await reached(made.job, "done");
  }
  return made.job;
}

before(launch);
after(close);

// CON-48, CON-55, CON-66, CON-68, CON-76: in both schemes and at 320 pixels
test("jobs and workbench are readable and make no element of a text", async (t) => {
  await filled("claims", 9, { deadCount: 5, reason: HOSTILE });
  const dead = "queues/claims%2F%24DeadLetterQueue";
  const ready = await ran(dead, { where: "", deed: { delete: {} }, trial: 2 }, false);
  const failed = await ran("queues/claims", { sequenceNumbers: [6, 7000], deed: { deadLetter: { reason: EVIL, description: EVIL } } });
  const pages = {
    jobs: ["#/jobs", (tab) => rows(tab).nth(1)],
    "job before its start": [`#/jobs?job=${ready}`, (tab) => job(tab).getByText("1 would stay").or(job(tab).getByText("Nothing is changed yet."))],
    "job with a failure": [`#/jobs?state=ended&job=${failed}`, (tab) => job(tab).getByText("1 of 2 messages dead-lettered")],
    "job at a list": [`#/queue/claims/messages?job=${failed}`, (tab) => job(tab).getByText("1 of 2 messages dead-lettered")],
    workbench: ["#/queue/claims/workbench", (tab) => rows(tab).nth(3)],
    "workbench by reason": ["#/queue/claims/workbench?by=reason&at=1", (tab) => rows(tab).nth(4)],
    "workbench without messages": ["#/queue/claims/workbench?sub=transfer-dead-letters", (tab) => tab.getByText("No dead letters", { exact: true })],
  };
  for (const [scheme, options] of [["light", { colorScheme: "light" }], ["dark", { colorScheme: "dark" }], ["phone", { colorScheme: "light", ...PHONE }]]) {
    const tab = await opened(t, options);
    for (const [name, [fragment, there]] of Object.entries(pages)) {
      await visit(tab, fragment);
      await there(tab).first().waitFor();
      await isReadable(tab, `${name}, ${scheme}`);
    }
    await visit(tab, `#/jobs?job=${ready}`);
    await job(tab).getByText("Samples", { exact: true }).click();
    await job(tab).getByRole("region", { name: "Samples" }).getByText("m0", { exact: true }).waitFor();
    await isReadable(tab, `samples, ${scheme}`);
    await visit(tab, `#/jobs?job=${failed}`);
    await job(tab).getByText("1 message left alone").click();
    await job(tab).getByText("no longer there").waitFor();
    await isReadable(tab, `failures, ${scheme}`);
  }
  await post(`jobs/${ready}/cancel`, {});
});

// CON-12, CON-14, CON-44, CON-57, CON-58, CON-62: rows are chosen and deleted with keys only; the address has the job
test("selected messages are deleted by a job with keys only", async (t) => {
  await filled("stale", 6);
  const tab = await opened(t);
  await visit(tab, "#/queue/stale/messages");
  await rows(tab).nth(5).waitFor();
  await tab.getByRole("grid").focus();
  await press(tab, "Home", "j", "x", "j", "j", "Shift+X");
  await selection(tab).getByText("3 messages selected").waitFor();
  await button(selection(tab), "Delete…").focus();
  await press(tab, "Enter");
  const form = tab.getByRole("form", { name: "Delete 3 messages" });
  await form.waitFor();
  await isReadable(tab, "form");
  // Closing returns the focus.
  await press(tab, "Escape");
  assert.equal(await tab.evaluate("document.activeElement.textContent"), "Delete…");
  await press(tab, "Enter");
  await button(form, "Preview").focus();
  await press(tab, "Enter");
  await job(tab).getByText("Nothing is changed yet.").waitFor();
  assert.equal(await tab.evaluate("document.activeElement.getAttribute('aria-label')"), "Job", "the focus is not lost");
  assert.match(tab.url(), /job=[0-9a-f-]{36}/);
  assert.equal((await ask("GET", "queues/stale/heads")).heads.length, 6);
  await tab.reload();
  await job(tab).getByText("3 messages", { exact: true }).waitFor();
  await button(job(tab), "Delete 3 messages").focus();
  await press(tab, "Enter");
  await job(tab).getByText("3 of 3 messages deleted.").waitFor();
  const focused = () => tab.evaluate("document.activeElement.getAttribute('aria-label')");
  assert.equal(await focused(), "Job", "the focus is not lost");
  await tab.getByRole("status").getByText("The job is done").waitFor();
  const { heads } = await ask("GET", "queues/stale/heads");
  assert.deepEqual(heads.map(({ sequenceNumber }) => sequenceNumber), [1, 5, 6]);
  // The list follows.
  await tab.getByText("3 messages", { exact: true }).last().waitFor();
  await button(job(tab), "Close").click();
  await job(tab).waitFor({ state: "detached" });
  assert.equal(await tab.evaluate("document.activeElement.getAttribute('role')"), "grid");
});

// CON-12, CON-18, CON-44, CON-55: everything that matches, with a trial; paused, resumed
test("everything that matches is dead-lettered after a trial", async (t) => {
  await filled("halves", 6);
  const { messages } = await post("queues/halves/messages/receive", { maxCount: 1 });
  const tab = await opened(t);
  await visit(tab, "#/queue/halves/messages?from=2");
  await rows(tab).nth(4).waitFor();
  await press(tab, "Shift+A");
  await selection(tab).getByText("Everything that matches selected").waitFor();
  await button(selection(tab), "Dead-letter…").click();
  const form = tab.getByRole("form", { name: "Dead-letter everything that matches" });
  await form.getByLabel("Reason").fill(HOSTILE);
  await form.getByLabel("Description").fill(EVIL);
  await form.getByLabel("Trial: pause after").fill("2");
  await button(form, "Preview").click();
  await button(job(tab), "Dead-letter 5 messages").click();
  await job(tab).getByText("2 of 5 messages dead-lettered.").waitFor();
  await job(tab).getByText("Look at the result of the trial").waitFor();
  await isReadable(tab, "paused");
  await button(job(tab), "Resume").click();
  await job(tab).getByText("5 of 5 messages dead-lettered.").waitFor();
  const { heads } = await ask("GET", "queues/halves%2F%24DeadLetterQueue/heads");
  assert.deepEqual(heads.map(({ applicationProperties }) => applicationProperties.DeadLetterReason), Array(5).fill(HOSTILE));
  await post(`queues/halves/locks/${messages[0].lockToken}/release`);
  // Deferred messages only, by the filter of the list.
  await filled("later", 4);
  const taken = await post("queues/later/messages/receive", { maxCount: 3 });
  for (const { lockToken } of taken.messages) {
    await post(`queues/later/locks/${lockToken}/defer`);
  }
  await visit(tab, "#/queue/later/messages?state=deferred");
  await button(tab, "Select everything").click();
  await button(selection(tab), "Make active…").click();
  await button(tab.getByRole("form", { name: "Make active everything that matches" }), "Preview").click();
  await button(job(tab), "Make active 3 messages").click();
  await job(tab).getByText("3 of 3 messages made active.").waitFor();
  const states = (await ask("GET", "queues/later/heads")).heads.map(({ state }) => state);
  assert.deepEqual(states, ["active", "active", "active", "active"]);
});

// CON-63: over 1,000 deleted messages want the name of the entity
test("deleting over 1,000 messages wants the name of the entity", async (t) => {
  await ask("PUT", "queues/heap", { maxMessageSizeInKilobytes: 2048 });
  for (let part = 0; part < 7; part += 1) {
    await post("queues/heap/messages/batch", { messages: Array.from({ length: part < 6 ? 150 : 100 }, () => ({ body: "m" })) });
  }
  // A job with a message over 1 MiB cannot be undone.
  const connection = await connected(t);
  await connection.sender("heap").send({ body: "m".repeat(1_100_000) });
  const tab = await opened(t);
  await visit(tab, "#/queue/heap/messages");
  await button(tab, "Select everything").click();
  await selection(tab).getByText("Everything in this list selected").waitFor();
  await button(selection(tab), "Delete…").click();
  await button(tab.getByRole("form", { name: "Delete everything that matches" }), "Preview").click();
  const start = button(job(tab), "Delete 1,001 messages");
  await start.waitFor();
  await job(tab).getByText("It cannot be undone.").waitFor();
  assert.ok(await start.isDisabled());
  await job(tab).getByLabel(/^Type heap/).fill("hea");
  assert.ok(await start.isDisabled());
  await isReadable(tab, "typed");
  await job(tab).getByLabel(/^Type heap/).fill("heap");
  assert.ok(await start.isEnabled());
  await button(job(tab), "Leave as it is").click();
  await job(tab).getByText("cancelled").waitFor();
  assert.equal((await ask("GET", "queues/heap")).runtime.activeMessageCount, 1001);
});

// CON-20, CON-55, CON-63: a job that deletes can be undone without a typed name
test("deleted messages are put back", async (t) => {
  await filled("regretted", 3);
  const tab = await opened(t);
  await visit(tab, `#/jobs?job=${await ran("queues/regretted", { where: "", deed: { delete: {} } })}`);
  await job(tab).getByText("3 of 3 messages deleted.").waitFor();
  await isReadable(tab, "undo");
  await button(job(tab), "Undo 3 messages").click();
  await job(tab).getByText("3 of 3 messages put back.").waitFor();
  const { heads } = await ask("GET", "queues/regretted/heads");
  assert.deepEqual(heads.map(({ sequenceNumber, bodyStart }) => [sequenceNumber, bodyStart]), [[1, "m0"], [2, "m1"], [3, "m2"]]);
});

// CON-22, CON-44, CON-48, CON-71: selected dead letters are downloaded as a table, and stay
test("dead letters are exported to a file", async (t) => {
  await filled("kept", 3);
  await ran("queues/kept", { where: "", deed: { deadLetter: { reason: "=1+1" } } });
  const tab = await opened(t);
  await visit(tab, "#/queue/kept/dead-letters");
  await rows(tab).nth(2).waitFor();
  await button(tab, "Select everything").click();
  await button(selection(tab), "Export…").click();
  const form = tab.getByRole("form", { name: /^Export everything/ });
  assert.equal(await form.getByLabel("Break locks of receivers").count(), 0);
  await form.getByText("Table without bodies, as CSV").click();
  await isReadable(tab, "export");
  await button(form, "Preview").click();
  await job(tab).getByText("It changes no message.").waitFor();
  await button(job(tab), "Export 3 messages").click();
  await job(tab).getByText("3 of 3 messages exported.").waitFor();
  const [download] = await Promise.all([tab.waitForEvent("download"), button(job(tab), /^Download/).click()]);
  assert.equal(download.suggestedFilename(), "kept.csv");
  const file = await readFile(await download.path(), "utf8");
  assert.deepEqual([file.split("\r\n").length, file.split(",'=1+1,").length], [5, 4]);
  await isReadable(tab, "download");
  assert.equal((await ask("GET", "queues/kept%2F%24DeadLetterQueue/heads")).heads.length, 3);
});

// CON-12, CON-14, CON-19: refusals before the start, failures after it, and a next job for them
test("messages that stay are counted, listed and tried again", async (t) => {
  await filled("busy", 4);
  const { messages } = await post("queues/busy/messages/receive", { maxCount: 2 });
  const tab = await opened(t, { permissions: ["clipboard-read", "clipboard-write"] });
  await visit(tab, "#/queue/busy/messages");
  await tab.getByLabel("Select all messages that were read").click();
  await button(selection(tab), "Delete…").click();
  await button(tab.getByRole("form", { name: "Delete 4 messages" }), "Preview").click();
  await job(tab).getByText("2 would stay: locked by a receiver.").waitFor();
  await button(job(tab), "Delete 4 messages").click();
  await job(tab).getByText("2 of 4 messages deleted").waitFor();
  await job(tab).getByText("2 messages left alone").click();
  await button(job(tab), "Copy numbers of these messages").click();
  assert.equal(await tab.evaluate("navigator.clipboard.readText()"), "1\n2");
  for (const { lockToken } of messages) {
    await post(`queues/busy/locks/${lockToken}/release`);
  }
  await button(job(tab), "Preview the same for these").click();
  await button(job(tab), "Delete 2 messages").click();
  await job(tab).getByText("2 of 2 messages deleted.").waitFor();
  assert.deepEqual((await ask("GET", "queues/busy/heads")).heads, []);
});

// CON-53: scheduled messages of a topic
test("scheduled messages are moved to another time by a job", async (t) => {
  await ask("PUT", "topics/plans", {});
  const at = new Date(Date.now() + 3_600_000).toISOString();
  await post("topics/plans/messages/schedule", { scheduledEnqueueTimeUtc: at, messages: [{ body: "a" }, { body: "b" }] });
  const tab = await opened(t);
  await visit(tab, "#/topic/plans/scheduled");
  await tab.getByLabel("Select all scheduled messages that were read").click();
  await button(selection(tab), "Reschedule…").click();
  const form = tab.getByRole("form", { name: "Reschedule 2 messages" });
  await form.getByLabel("New time").selectOption("later");
  await form.getByLabel("Number of units").fill("2");
  await form.getByLabel("Unit", { exact: true }).selectOption("hours");
  await isReadable(tab, "times");
  await button(form, "Preview").click();
  await button(job(tab), "Reschedule 2 messages").click();
  await job(tab).getByText("2 of 2 messages rescheduled.").waitFor();
  const { heads } = await ask("GET", "topics/plans/heads");
  assert.deepEqual(heads.map(({ scheduledEnqueueTimeUtc }) => scheduledEnqueueTimeUtc.slice(0, 19)), Array(2).fill(new Date(Date.parse(at) + 7_200_000).toISOString().slice(0, 19)));
});

// CON-44, CON-49: hits of several places, some, and everything that matches
test("a job acts on hits of a search", async (t) => {
  await filled("hits", 5, { deadCount: 2 });
  const tab = await opened(t);
  await visit(tab, "#/search?where=subject%3Dorder&entity=hits&sub=main&sub=deadLetter");
  await rows(tab).nth(4).waitFor();
  await tab.getByText("All messages were looked at.").waitFor();
  await tab.getByLabel("Select all messages that were read").click();
  await selection(tab).getByText("5 messages selected").waitFor();
  await selection(tab).getByLabel("In").selectOption({ index: 1 });
  await isReadable(tab, "hits");
  await button(selection(tab), "Delete…").click();
  await button(tab.getByRole("form", { name: "Delete 2 messages" }), "Preview").click();
  await button(job(tab), "Delete 2 messages").click();
  await job(tab).getByText("2 of 2 messages deleted.").waitFor();
  await visit(tab, "#/search?where=subject%3Dorder%20number%3E%3D4&entity=hits");
  await tab.getByText("All messages were looked at.").waitFor();
  await press(tab, "Shift+A");
  await selection(tab).getByText("Everything that matches", { exact: true }).waitFor();
  await button(selection(tab), "Delete…").click();
  await button(tab.getByRole("form", { name: "Delete everything that matches" }), "Preview").click();
  await button(job(tab), "Delete 2 messages").click();
  await job(tab).getByText("2 of 2 messages deleted.").waitFor();
  assert.deepEqual((await ask("GET", "queues/hits/heads")).heads.map(({ sequenceNumber }) => sequenceNumber), [3]);
});

// CON-11, CON-48, CON-58: groups, their messages, and a job on a group
test("a group of dead letters is looked at and deleted in the workbench", async (t) => {
  await filled("failed", 8, { deadCount: 7 });
  const tab = await opened(t);
  await visit(tab, "#/queue/failed/dead-letters");
  await tab.getByRole("link", { name: "Groups" }).click();
  const groups = tab.getByRole("navigation", { name: "Groups" });
  await groups.getByText("order").first().waitFor();
  assert.deepEqual((await groups.locator(".bench-count").allInnerTexts()).map(Number), [6, 1]);
  await tab.getByText("6 messages", { exact: true }).waitFor();
  assert.match(tab.url(), /group=/, "another count may have another order");
  await press(tab, "Shift+J");
  await tab.getByText("1 message", { exact: true }).waitFor();
  assert.match(await rows(tab).first().innerText(), /<img src=x/);
  await press(tab, "Shift+K");
  await tab.getByText("6 messages", { exact: true }).waitFor();
  await tab.getByRole("grid").focus();
  await press(tab, "Home", "Enter");
  await tab.getByRole("complementary").getByText("Application properties").waitFor();
  await isReadable(tab, "workbench");
  await press(tab, "Escape");
  // First one message of the group, then the others.
  await tab.getByRole("grid").focus();
  await press(tab, "x");
  await selection(tab).getByText("1 of 6 selected").waitFor();
  await button(selection(tab), "Delete…").click();
  await button(tab.getByRole("form", { name: "Delete 1 message" }), "Preview").click();
  await button(job(tab), "Delete 1 message").click();
  await job(tab).getByText("1 of 1 message deleted.").waitFor();
  await selection(tab).getByText("All 5 of the group").waitFor();
  await button(selection(tab), "Delete…").click();
  await button(tab.getByRole("form", { name: "Delete all 5 of the group" }), "Preview").click();
  await button(job(tab), "Delete 5 messages").click();
  await job(tab).getByText("5 of 5 messages deleted.").waitFor();
  await groups.locator(".bench-count").nth(1).waitFor({ state: "detached" });
  const { heads } = await ask("GET", "queues/failed%2F%24DeadLetterQueue/heads");
  assert.deepEqual(heads.map(({ applicationProperties }) => applicationProperties.DeadLetterErrorDescription), [EVIL]);
});

// CON-11: a group is selected again, also with characters that mean something in a pattern; a pattern that takes more says so
test("a group has the messages that it counts, by each way to group", async (t) => {
  await ask("PUT", "queues/odd", { lockDuration: "PT5M" });
  const long = `${"long ".repeat(60)}{`;
  const texts = ["100% of 'a_b' failed", "100! of 'c' failed", 'quoted "x\\y" 17', "quoted x 17", undefined, "0x1234abcd5678 [1]", long];
  await post("queues/odd/messages/batch", { messages: texts.map((_, place) => ({ body: "m", ...(place % 2 === 0 && { subject: EVIL.slice(0, 60) }) })) });
  const { messages } = await post("queues/odd/messages/receive", { maxCount: texts.length });
  for (const [place, { lockToken }] of messages.entries()) {
    await post(`queues/odd/locks/${lockToken}/dead-letter`, { ...(place > 0 && { reason: place === 6 ? long : `it's "${place % 3}" \\` }), ...(texts[place] && { description: texts[place] }) });
  }
  const tab = await opened(t);
  for (const by of ["description", "reason", "subject"]) {
    await visit(tab, `#/queue/odd/workbench?by=${by}`);
    const groups = tab.getByRole("navigation", { name: "Groups" }).getByRole("link");
    await groups.first().waitFor();
    const count = await groups.count();
    assert.ok(count > 1, by);
    for (let place = 0; place < count; place += 1) {
      const counted = Number(await groups.nth(place).locator(".bench-count").innerText());
      const takesMore = /quoted\s*text/.test(await groups.nth(place).innerText());
      const wanted = takesMore ? counted + 1 : counted;
      await groups.nth(place).click();
      await selection(tab).getByText(`All ${wanted} of the group`).waitFor();
      await tab.getByText(wanted === 1 ? "1 message" : `${wanted} messages`, { exact: true }).waitFor();
      assert.equal(await tab.getByText("other descriptions are like these").count(), takesMore ? 1 : 0);
    }
  }
});

// CON-62, CON-73: a lower role is offered nothing, and an outcome that is not known is called unknown
test("a viewer is offered no job, and a lost answer is unknown", async (t) => {
  await filled("watchful", 4, { deadCount: 2 });
  const ready = await ran("queues/watchful", { where: "", deed: { delete: {} } }, false);
  const tab = await opened(t);
  await as(tab, "viewer");
  await visit(tab, "#/queue/watchful/messages");
  await tab.getByLabel("Select all messages that were read").click();
  await selection(tab).getByText("2 messages selected").waitFor();
  assert.equal(await tab.getByRole("button", { name: /…$|^Select everything/ }).count(), 0);
  await visit(tab, "#/queue/watchful/workbench");
  await rows(tab).first().waitFor();
  assert.equal(await tab.getByRole("button", { name: /…$/ }).count(), 0);
  await visit(tab, `#/jobs?job=${ready}`);
  await job(tab).getByText("Nothing is changed yet.").waitFor();
  assert.deepEqual(await job(tab).getByRole("button").allInnerTexts(), ["Close", "Copy"]);
  const other = await opened(t, {}, /Failed to load resource/);
  await visit(other, `#/jobs?job=${ready}`);
  await other.route("**/start", (route) => route.abort("connectionreset"));
  await button(job(other), "Delete 2 messages").click();
  await job(other).getByText("The outcome is unknown: the broker may have done this.").waitFor();
  await post(`jobs/${ready}/cancel`, {});
  await job(other).getByText("cancelled").waitFor();
});

// CON-14, CON-16, CON-48, CON-61: one message is edited, and all others are; a draft outlives a reload
test("bodies of dead letters are edited in the workbench", async (t) => {
  await filled("mended", 5, { deadCount: 4 });
  // The panel of a message may read it when it has left.
  const tab = await opened(t, {}, /404/);
  await visit(tab, "#/queue/mended/workbench?by=reason&at=2");
  const message = tab.getByRole("complementary");
  const open = async () => {
    await button(message, "Resubmit…").click();
    return tab.getByRole("form", { name: "Resubmit 1 message" });
  };
  let form = await open();
  await form.getByRole("group", { name: "Body" }).getByText("New text").click();
  const text = () => form.getByLabel("New body");
  await tab.waitForFunction(() => document.querySelector("textarea")?.value === "m1");
  await text().fill("{\"fixed\":1}");
  await isReadable(tab, "editor");
  await tab.reload();
  form = await open();
  assert.equal(await text().inputValue(), "{\"fixed\":1}");
  await button(form, "Preview").click();
  await job(tab).getByText("Samples as they would be stored").click();
  await job(tab).getByRole("region", { name: "Samples" }).getByText("{\"fixed\":1}", { exact: true }).waitFor();
  await button(job(tab), "Resubmit 1 message").click();
  await job(tab).getByText("1 of 1 message resubmitted.").waitFor();
  const { heads } = await ask("GET", "queues/mended/heads");
  assert.equal(heads.at(-1).bodyStart, "{\"fixed\":1}");
  // The bodies of the others are not JSON, so a patch leaves them.
  await button(selection(tab), "Resubmit…").click();
  const all = tab.getByRole("form", { name: "Resubmit all 3 of the group" });
  await all.getByRole("group", { name: "Body" }).getByText("JSON merge patch").click();
  await all.getByLabel("Members to set").fill("{\"fixed\":2}");
  await button(all, "Try on ten").click();
  assert.equal(await all.getByLabel("Trial").inputValue(), "10");
  await button(all, "Preview").click();
  await job(tab).getByText("Samples as they would be stored").click();
  await job(tab).getByText("the patch does not apply").first().waitFor();
  await button(job(tab), "Leave as it is").click();
  await job(tab).getByText("cancelled").waitFor();
});

// CON-16, CON-61: an edited body keeps its line ends; one with several kinds is not offered, and an empty body is a choice
test("edited bodies keep their line ends", async (t) => {
  await ask("PUT", "queues/lines", {});
  await ask("PUT", "queues/lined", {});
  for (const body of ["one\r\ntwo\r\n", "one\r\ntwo\n"]) {
    await post("queues/lines/messages", { body });
  }
  const tab = await opened(t);
  const form = tab.getByRole("form", { name: "Move 1 message" });
  const choose = (name) => form.getByRole("group", { name: "Body" }).getByText(name).click();
  const open = async (count) => {
    // Rows that have left stay while the pointer is on them.
    await tab.mouse.move(0, 0);
    await visit(tab, "#/queue/lines/messages");
    await rows(tab).nth(count).waitFor({ state: "detached" });
    await rows(tab).nth(count - 1).waitFor();
    await tab.getByRole("grid").focus();
    await press(tab, "Home", "x");
    await button(selection(tab), "Move…").click();
    await form.getByLabel("Destination").fill("lined");
    await choose("New text");
  };
  const moved = async () => {
    await button(form, "Preview").click();
    await button(job(tab), "Move 1 message").click();
    await job(tab).getByText("1 of 1 message moved.").waitFor();
    return (await ask("GET", "queues/lined/heads")).heads.at(-1);
  };
  await open(2);
  await form.getByText("10 of 16,384 bytes, with CRLF as line ends").waitFor();
  await form.getByLabel("New body").fill("One\nthree\n");
  // The texts of both kinds stay until the job is made.
  await choose("JSON merge patch");
  await form.getByLabel("Members to set").fill("{}");
  await choose("Stays");
  await choose("New text");
  assert.equal(await form.getByLabel("New body").inputValue(), "One\nthree\n");
  assert.equal((await moved()).bodyStart, "One\r\nthree\r\n");
  await open(1);
  await form.getByText("line ends of several kinds").waitFor();
  await button(form, "Preview").click();
  assert.ok(await form.getByLabel("New body").evaluate((field) => field.validity.valueMissing), "no empty body by accident");
  await form.getByLabel("New body").fill("é".repeat(8193));
  await form.getByText("16,386 of 16,384 bytes").waitFor();
  assert.ok(await form.getByLabel("New body").evaluate((field) => field.validity.customError));
  await form.getByLabel("New body").fill("");
  await form.getByLabel("Empty body").check();
  await isReadable(tab, "empty body");
  assert.equal((await moved()).bodySize, 0);
});

// CON-12, CON-48: a group goes back to where it was dead-lettered, and messages go elsewhere
test("dead letters are resubmitted, and messages are moved", async (t) => {
  await filled("sent-back", 5, { deadCount: 4 });
  await ask("PUT", "queues/elsewhere", {});
  const tab = await opened(t);
  await visit(tab, "#/queue/sent-back/workbench?by=reason");
  await selection(tab).getByText("All 4 of the group").waitFor();
  await button(selection(tab), "Resubmit…").click();
  const form = tab.getByRole("form", { name: "Resubmit all 4 of the group" });
  await form.getByLabel("New message ids").check();
  await isReadable(tab, "resubmit");
  await button(form, "Preview").click();
  await button(job(tab), "Resubmit 4 messages").click();
  await job(tab).getByText("4 of 4 messages resubmitted.").waitFor();
  const { runtime } = await ask("GET", "queues/sent-back");
  assert.deepEqual([runtime.activeMessageCount, runtime.deadLetterMessageCount], [5, 0]);
  await visit(tab, "#/queue/sent-back/messages");
  await rows(tab).nth(4).waitFor();
  await tab.getByRole("grid").focus();
  await press(tab, "Home", "x");
  await button(selection(tab), "Move…").click();
  const move = tab.getByRole("form", { name: "Move 1 message" });
  await move.getByLabel(/^Destination/).fill("elsewhere");
  await button(move, "Preview").click();
  await button(job(tab), "Move 1 message").click();
  await job(tab).getByText("1 of 1 message moved.").waitFor();
  await job(tab).getByText("elsewhere", { exact: true }).waitFor();
  assert.equal((await ask("GET", "queues/elsewhere")).runtime.activeMessageCount, 1);
});
