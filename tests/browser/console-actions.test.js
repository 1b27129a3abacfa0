// Actions of the console on locks, sessions, clients and scheduled messages, against a broker without storage.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { as, ask, close, EVIL, foreign, isReadable, launch, opened, PHONE, post, press, rows, visit } from "./console.js";
import { connected } from "./support.js";

before(launch);
after(close);

// CON-26, CON-52, CON-62, CON-63: with keys only; the result is shown after the answer
test("selected locks are broken after a question, and the result is shown", async (t) => {
  await ask("PUT", "queues/held", { lockDuration: "PT5M" });
  await post("queues/held/messages/batch", { messages: Array.from({ length: 4 }, (_, place) => ({ body: `m${place}` })) });
  const { messages } = await post("queues/held/messages/receive", { maxCount: 4 });
  const tab = await opened(t);
  await visit(tab, "#/queue/held/locks");
  await tab.getByLabel("Select all locks that were read").waitFor();
  await tab.getByRole("grid").focus();
  await press(tab, "Home", "x", "j", "j", "j", "Shift+X");
  const bar = tab.getByRole("group", { name: "Selection" });
  await bar.getByText("4 locks selected").waitFor();
  await press(tab, "k", "x");
  await bar.getByRole("button", { name: "Break 3 locks" }).focus();
  await press(tab, "Enter");
  const question = tab.getByRole("form", { name: "Break 3 locks" });
  await question.getByText("its work may be done twice").waitFor();
  await isReadable(tab, "question");
  // The harmless answer has the focus, and closing returns it.
  assert.equal(await tab.evaluate("document.activeElement.textContent"), "Leave as it is");
  await press(tab, "Escape");
  assert.equal(await tab.evaluate("document.activeElement.textContent"), "Break 3 locks");
  assert.equal((await ask("GET", "queues/held/locks")).total, 4, "nothing is broken before the answer");
  await press(tab, "Enter");
  await question.getByLabel("Count each delivery as failed").check();
  // One is settled while the question is open.
  const { sequenceNumber } = (await ask("GET", "queues/held/locks?sort=age")).locks[0];
  await post(`queues/held/locks/${messages.find((one) => one.sequenceNumber === sequenceNumber).lockToken}/complete`);
  let answer;
  const isAnswered = new Promise((resolve) => (answer = resolve));
  await tab.route("**/locks/break", async (route) => {
    await isAnswered;
    await route.continue();
  });
  await question.getByRole("button", { name: "Break 3 locks" }).click();
  await question.getByRole("button", { name: "Waiting for the broker…" }).waitFor();
  assert.equal(await tab.locator(".notice").count(), 0, "no result before the broker has acknowledged it");
  answer();
  await tab.locator(".notice").getByText("2 locks broken. 1 message had no lock any more.").waitFor();
  await tab.getByRole("status").getByText("2 locks broken.").waitFor();
  await bar.waitFor({ state: "detached" });
  const { heads } = await ask("GET", "queues/held/heads");
  assert.deepEqual(heads.map(({ state, deliveryCount }) => [state, deliveryCount]).sort(), [["active", 1], ["active", 1], ["locked", 0]]);
});

// CON-26, CON-44: a selection of messages, and a single message
test("the lock of a message is broken from its list and from its page", async (t) => {
  await ask("PUT", "queues/watched", { lockDuration: "PT5M" });
  await post("queues/watched/messages/batch", { messages: [{ body: "one" }, { body: "two" }, { body: "free" }] });
  await post("queues/watched/messages/receive", { maxCount: 2 });
  const tab = await opened(t, PHONE);
  await visit(tab, "#/queue/watched/messages/1");
  await tab.getByRole("button", { name: "Break the lock" }).click();
  await tab.getByText("Message 1 becomes available at once").waitFor();
  await isReadable(tab, "question on a phone");
  await tab.getByRole("button", { name: "Break the lock" }).click();
  await tab.locator(".notice").getByText("1 lock broken.").waitFor();
  await tab.getByRole("button", { name: "Break the lock" }).waitFor({ state: "detached" });
  await visit(tab, "#/queue/watched/messages");
  await tab.getByLabel("Select all messages that were read").click();
  // Only one of the three has a lock.
  await tab.getByRole("button", { name: "Break the lock" }).click();
  await tab.getByRole("button", { name: "Break the lock" }).click();
  await tab.locator(".notice").getByText("1 lock broken.").waitFor();
  const { heads } = await ask("GET", "queues/watched/heads");
  assert.deepEqual(heads.map(({ state, deliveryCount }) => [state, deliveryCount]), [["active", 0], ["active", 0], ["active", 0]]);
});

// CON-27, CON-52
test("a session is broken, and its state is set and cleared while nobody holds it", async (t) => {
  const connection = await connected(t, { client: EVIL.slice(0, 60) });
  await connection.queues.create("baskets", { requiresSession: true, lockDuration: "PT5M" });
  const id = `${EVIL.slice(0, 40)}/?#%`;
  await connection.sender("baskets").sendBatch([{ body: "x", sessionId: id }]);
  const session = await connection.acceptSession("baskets", id);
  await session.setState("packed");
  const tab = await opened(t);
  await visit(tab, `#/queue/baskets/sessions?session=${encodeURIComponent(id)}`);
  const panel = tab.getByRole("region", { name: "Session" });
  await panel.getByText("packed").waitFor();
  await panel.getByText("The state can be changed while no receiver holds the session.").waitFor();
  assert.equal(await panel.getByRole("button", { name: /state/ }).count(), 0);
  await panel.getByRole("button", { name: "Break the lock" }).click();
  await panel.getByText("with 1 active message").waitFor();
  await isReadable(tab, "session");
  await panel.getByRole("button", { name: "Break the lock" }).click();
  await panel.getByText("The lock of the session is broken.").waitFor();
  await panel.getByRole("button", { name: "Set the state" }).click();
  await panel.getByText("The present state of 6 B is lost.").waitFor();
  await panel.getByLabel("New state, as text").fill(EVIL);
  await panel.getByRole("button", { name: "Set the state" }).click();
  await panel.getByText(/The state is set, \d+ B\./).waitFor();
  await panel.locator(".state-text").getByText("<img src=x").waitFor();
  assert.deepEqual(await tab.evaluate(foreign), []);
  const state = await connection.inspection.sessionState("baskets", id);
  assert.equal(new TextDecoder().decode(state.bytes), EVIL);
  await panel.getByRole("button", { name: "Clear the state" }).click();
  await panel.getByRole("button", { name: "Clear the state" }).click();
  await panel.getByText("The state is cleared.").waitFor();
  assert.equal(await connection.inspection.sessionState("baskets", id), undefined);
});

// CON-24, CON-52, CON-73
test("an admin closes a client, and a lower role is not offered it", async (t) => {
  const other = await connected(t, { client: `stuck ${EVIL.slice(0, 60)}` });
  await other.queues.create("jammed");
  await other.sender("jammed").send("one");
  const messages = other.receiver("jammed").messages();
  await messages.next();
  const { clients } = await ask("GET", "clients?name=stuck");
  const tab = await opened(t);
  const name = `Close client ${clients[0].clientId}`;
  await visit(tab, `#/clients?name=stuck&client=${clients[0].clientId}`);
  await tab.getByRole("button", { name }).click();
  await tab.getByText("1 message in its hands is available at once").waitFor();
  await isReadable(tab, "client");
  await tab.getByRole("button", { name }).click();
  await tab.locator(".notice").getByText(`Client ${clients[0].clientId} is closed.`).waitFor();
  await messages.return();
  // The closed client comes back at a time of its own, so the roles look at another one.
  await connected(t, { client: "quiet" });
  const [{ clientId }] = (await ask("GET", "clients?name=quiet")).clients;
  for (const role of ["operator", "viewer"]) {
    const lower = await opened(t);
    await as(lower, role);
    await visit(lower, `#/clients?client=${clientId}`);
    await lower.getByRole("region", { name: "Client" }).waitFor();
    await lower.getByRole("banner").getByRole("link", { name: role }).waitFor();
    assert.equal(await lower.getByRole("button", { name: /^Close client/ }).count(), 0, role);
  }
});

// CON-53, CON-63: scheduled messages are deleted after a question with their number
test("selected scheduled messages are deleted after a question", async (t) => {
  await ask("PUT", "queues/planned", {});
  await post("queues/planned/messages/schedule", { scheduledEnqueueTimeUtc: new Date(Date.now() + 600_000).toISOString(), messages: [{ body: "a" }, { body: "b" }, { body: "c" }] });
  const tab = await opened(t, {}, /404/);
  await visit(tab, "#/queue/planned/scheduled");
  await tab.getByLabel("Select 1", { exact: true }).click();
  await tab.getByLabel("Select 3", { exact: true }).click();
  await tab.getByRole("button", { name: "Delete 2 scheduled messages" }).click();
  await tab.getByText("2 scheduled messages are deleted and never delivered. This cannot be undone.").waitFor();
  await isReadable(tab, "scheduled");
  // All or none: one has been cancelled meanwhile.
  await post("queues/planned/messages/cancel-scheduled", { sequenceNumbers: [3] });
  await tab.getByRole("button", { name: "Delete 2 scheduled messages" }).click();
  await tab.locator(".problem").getByText("MessageNotFound").waitFor();
  assert.equal((await ask("GET", "queues/planned/heads")).heads.length, 2);
  await tab.getByRole("button", { name: "Leave as it is" }).click();
  await tab.getByLabel("Select 3", { exact: true }).click();
  await tab.getByRole("button", { name: "Delete the scheduled message" }).click();
  await tab.getByRole("button", { name: "Delete the scheduled message" }).click();
  await tab.locator(".notice").getByText("1 scheduled message deleted.").waitFor();
  assert.deepEqual((await ask("GET", "queues/planned/heads")).heads.map(({ sequenceNumber }) => sequenceNumber), [2]);
});

// CON-73: an action that a role may not do is not offered
test("a viewer is offered no action", async (t) => {
  const tab = await opened(t);
  await as(tab, "viewer");
  await ask("PUT", "queues/quiet", { lockDuration: "PT5M" });
  await post("queues/quiet/messages", { body: "one" });
  await post("queues/quiet/messages/receive", {});
  await visit(tab, "#/queue/quiet/messages/1");
  await tab.getByText("held by").waitFor();
  await visit(tab, "#/queue/quiet/locks");
  await rows(tab).first().waitFor();
  assert.equal(await tab.locator("input[type=checkbox]").count(), 0);
  await visit(tab, "#/queue/quiet/messages");
  await tab.getByLabel("Select 1", { exact: true }).click();
  await tab.getByText("1 message selected").waitFor();
  assert.equal(await tab.getByRole("button", { name: /Break/ }).count(), 0);
});

// CON-62, ERR-06: an outcome that is not known is called unknown
test("an action without an answer has an unknown outcome", async (t) => {
  await ask("PUT", "queues/cut", { lockDuration: "PT5M" });
  await post("queues/cut/messages", { body: "one" });
  await post("queues/cut/messages/receive", {});
  const tab = await opened(t, {}, /Failed to load resource/);
  await visit(tab, "#/queue/cut/messages/1");
  await tab.route("**/locks/break", (route) => route.abort("connectionreset"));
  await tab.getByRole("button", { name: "Break the lock" }).click();
  await tab.getByRole("button", { name: "Break the lock" }).click();
  await tab.locator(".problem").getByText("Unreachable").waitFor();
  await tab.getByText("The outcome is unknown: the broker may have done this.").waitFor();
});
