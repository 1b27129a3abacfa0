// The client against the broker: transactions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Transaction } from "peeklock";
import { connected, drained, inState, Proxy, queue } from "./support.js";

const texts = (messages) => messages.map(({ text }) => text);

/** A queue with messages that are received and locked. */
async function held(connection, ...bodies) {
  const path = await queue(connection, { lockDuration: "PT5M" });
  const [sender, receiver] = [connection.sender(path), connection.receiver(path)];
  await sender.sendBatch(bodies);
  return { path, sender, receiver, messages: await receiver.receive({ maxCount: bodies.length }) };
}

const active = async (connection, path) => (await connection.queues.get(path)).runtime.activeMessageCount;

// TXN-01, TXN-02, TXN-03, TXN-13, SCH-13
test("every operation takes effect at the commit and not before", async (t) => {
  const connection = await connected(t);
  const { path, sender, receiver, messages } = await held(connection, "complete", "abandon", "defer", "dead", "renew");
  const transaction = await connection.beginTransaction();
  assert.ok(transaction instanceof Transaction);
  const [complete, abandon, defer, dead, renew] = messages;
  await transaction.complete(complete);
  await transaction.abandon(abandon, { properties: { by: "test" } });
  await transaction.defer(defer);
  await transaction.deadLetter(dead, { reason: "why", description: "because" });
  await transaction.renew(renew);
  await transaction.send(sender, "new");
  await transaction.sendBatch(sender, ["one", "two"]);
  await transaction.schedule(sender, "later", new Date(Date.now() + 3_600_000));
  assert.deepEqual(texts(await receiver.receive({ maxCount: 9, waitSeconds: 0 })), []);
  assert.equal(complete.settled, undefined);
  const until = renew.lockedUntilUtc;
  const { parts, sequenceNumbers } = await transaction.commit();
  // The scheduled message gets its number before the commit.
  assert.deepEqual(sequenceNumbers, [7, 8, 9, 6]);
  assert.deepEqual(parts.map(({ sequenceNumbers }) => sequenceNumbers.length), [0, 0, 0, 0, 0, 1, 2, 1]);
  assert.deepEqual(parts[4].lockedUntilUtc, renew.lockedUntilUtc);
  assert.ok(renew.lockedUntilUtc > until);
  assert.deepEqual(messages.map(({ settled }) => settled), ["complete", "abandon", "defer", "deadLetter", undefined]);
  const there = await drained(receiver);
  assert.deepEqual(texts(there), ["abandon", "new", "one", "two"]);
  assert.equal(there[0].applicationProperties.by, "test");
  const [letter] = await connection.receiver(`${path}/$deadletterqueue`).receive({ waitSeconds: 0 });
  assert.equal(letter.applicationProperties.DeadLetterReason, "why");
  const { deferredMessageCount, scheduledMessageCount } = (await connection.queues.get(path)).runtime;
  assert.deepEqual([deferredMessageCount, scheduledMessageCount], [1, 1]);
  const { text: later, sequenceNumber } = (await receiver.peek({ from: 6, maxCount: 1 }))[0];
  assert.deepEqual([later, sequenceNumber], ["later", 6]);
  await sender.cancelScheduled(parts[7].sequenceNumbers);
  assert.equal((await connection.queues.get(path)).runtime.scheduledMessageCount, 0);
  await renew.complete();
});

// TXN-02, SCH-05, SES-24
test("schedules are cancelled and the state of a session is set at the commit", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, { requiresSession: true });
  const sender = connection.sender(path);
  const message = { body: "later", sessionId: "a" };
  const at = new Date(Date.now() + 3_600_000);
  const numbers = [await sender.schedule(message, at), await sender.schedule(message, at)];
  const session = await connection.acceptSession(path, "a");
  await session.setState("old");
  const scheduled = async () => (await connection.queues.get(path)).runtime.scheduledMessageCount;
  const dropped = await connection.beginTransaction();
  await dropped.cancelScheduled(sender, numbers);
  await dropped.setState(session, "never");
  await dropped.rollBack();
  assert.deepEqual([await scheduled(), await session.getState()], [2, "old"]);
  const transaction = await connection.beginTransaction();
  await transaction.cancelScheduled(sender, ...numbers);
  await assert.rejects(transaction.cancelScheduled(sender, 99), { condition: "MessageNotFound" });
  await assert.rejects(transaction.setState(session, { step: 1 }), { condition: "ArgumentError" });
  await transaction.setState(session, new Uint8Array([0xff, 1]));
  assert.deepEqual([await scheduled(), await session.getState()], [2, "old"]);
  const { parts } = await transaction.commit();
  assert.equal(parts.length, 2);
  assert.deepEqual([await scheduled(), [...await session.getState()]], [0, [0xff, 1]]);
  const cleared = await connection.beginTransaction();
  await cleared.setState(session, null);
  await cleared.commit();
  assert.equal(await session.getState(), undefined);
});

// RTY-09, RTY-26: from the commit on.
test("a delay of an abandon in a transaction counts from the commit", async (t) => {
  const connection = await connected(t);
  const { path, receiver, messages } = await held(connection, "later");
  const transaction = await connection.beginTransaction();
  const delayMilliseconds = 3_600_000;
  await transaction.abandon(messages[0], { delayMilliseconds });
  const earliest = Date.now() + delayMilliseconds;
  await transaction.commit();
  const latest = Date.now() + delayMilliseconds;
  const [seen] = await receiver.peek();
  assert.equal(seen.state, "Delayed");
  assert.ok(seen.delayedUntilUtc.getTime() >= earliest - 1 && seen.delayedUntilUtc.getTime() <= latest + 1);
  assert.equal((await connection.queues.get(path)).runtime.delayedMessageCount, 1);
  assert.deepEqual(texts(await drained(receiver)), []);
});

// TXN-04
test("after a rollback messages are locked as before and nothing was sent", async (t) => {
  const connection = await connected(t);
  const { path, sender, messages } = await held(connection, "mine");
  const transaction = await connection.beginTransaction();
  await transaction.complete(messages[0]);
  await transaction.send(sender, "never");
  await transaction.rollBack();
  await transaction.rollBack();
  await assert.rejects(transaction.send(sender, "never"), { condition: "InvalidOperation", trackingId: undefined });
  await assert.rejects(transaction.commit(), { condition: "InvalidOperation" });
  assert.equal(messages[0].settled, undefined);
  await messages[0].complete();
  assert.equal(await active(connection, path), 0);
});

// TXN-05, TXN-07: a refused operation is left out; an operation that fails at the commit undoes
// everything.
test("a refused operation is left out, and a failed commit does nothing", async (t) => {
  const connection = await connected(t);
  const { path, sender, messages } = await held(connection, "a", "b");
  const [first, second] = messages;
  await first.complete();
  const transaction = await connection.beginTransaction();
  await assert.rejects(transaction.complete(first), { condition: "MessageLockLost" });
  await assert.rejects(transaction.send(sender, { bdoy: "x" }), { condition: "ArgumentError", trackingId: undefined });
  const many = Array.from({ length: 101 }, () => "x");
  await assert.rejects(transaction.sendBatch(sender, many), { condition: "QuotaExceeded" });
  await transaction.send(sender, "c");
  assert.deepEqual((await transaction.commit()).sequenceNumbers, [3]);
  const late = await connection.beginTransaction();
  await late.complete(second);
  await late.send(sender, "never");
  await second.abandon();
  await assert.rejects(late.commit(), { condition: "MessageLockLost", retryable: false });
  await late.rollBack();
  assert.equal(await active(connection, path), 2);
});

// TXN-07: operations and commit in one frame. An operation that is refused meanwhile fails the
// commit.
test("operations need not be awaited before the commit", async (t) => {
  const connection = await connected(t);
  const { path, sender, messages } = await held(connection, "a", "b");
  const transaction = await connection.beginTransaction();
  const asked = [transaction.complete(messages[0]), transaction.send(sender, "c"), transaction.commit()];
  const [, , { sequenceNumbers }] = await Promise.all(asked);
  assert.deepEqual(sequenceNumbers, [3]);
  assert.equal(messages[0].settled, "complete");
  const wrong = await connection.beginTransaction();
  const outcomes = await Promise.allSettled([wrong.complete(messages[0]), wrong.send(sender, "never"), wrong.commit()]);
  const conditions = outcomes.map(({ reason }) => reason?.condition);
  assert.deepEqual(conditions, ["MessageLockLost", undefined, "TransactionRolledBack"]);
  const unsaid = await connection.beginTransaction();
  const refusals = await Promise.allSettled([unsaid.complete(messages[1]), unsaid.send(sender, { bdoy: "x" }), unsaid.commit()]);
  assert.deepEqual(refusals.map(({ reason }) => reason?.condition), [undefined, "ArgumentError", "TransactionRolledBack"]);
  assert.equal(await active(connection, path), 2);
});

// TXN-08, TXN-09, VIA-04
test("a transaction across entities settles at the first and sends to others", async (t) => {
  const connection = await connected(t);
  const { path, sender, messages } = await held(connection, "order");
  const [order] = messages;
  const done = await queue(connection);
  const narrow = await connection.beginTransaction();
  await narrow.complete(order);
  await assert.rejects(narrow.send(connection.sender(done), "never"), { condition: "InvalidOperation" });
  await narrow.rollBack();
  const transaction = await connection.beginTransaction({ crossEntity: true });
  await transaction.complete(order);
  await transaction.sendBatch(connection.sender(done), ["handled", "told"]);
  await transaction.send(sender, "next");
  const { parts, sequenceNumbers } = await transaction.commit();
  assert.equal(parts[1].pendingNumbers.length, 2);
  assert.equal(sequenceNumbers.length, 1);
  const arrived = connection.receiver(done, { mode: "receiveAndDelete" });
  const [first] = await arrived.receive();
  const [second] = await arrived.receive();
  assert.deepEqual(texts([first, second]), ["handled", "told"]);
  assert.deepEqual(texts(await drained(connection.receiver(path))), ["next"]);
});

// TXN-14: a dead letter and its corrected copy.
test("a dead letter is corrected in one transaction", async (t) => {
  const connection = await connected(t);
  const { path, sender, messages } = await held(connection, "wrong");
  await messages[0].deadLetter();
  const [letter] = await connection.receiver(`${path}/$deadletterqueue`).receive();
  const transaction = await connection.beginTransaction();
  await transaction.complete(letter);
  await transaction.send(sender, "right");
  await transaction.commit();
  const { activeMessageCount, deadLetterMessageCount } = (await connection.queues.get(path)).runtime;
  assert.deepEqual([activeMessageCount, deadLetterMessageCount], [1, 0]);
});

// TXN-12: it ends with the connection, but not with a socket that is resumed.
test("a transaction outlives the socket, and not the connection", async (t) => {
  const proxy = await Proxy.open(t);
  const watch = await connected(t);
  for (const graceSeconds of [30, 0]) {
    const connection = await connected(t, { graceSeconds, reconnectMs: 5 }, proxy.url);
    const { path, sender, messages } = await held(connection, "mine");
    const transaction = await connection.beginTransaction();
    await transaction.send(sender, "new");
    await transaction.complete(messages[0]);
    const open = inState(connection, "open");
    proxy.cut();
    const { resumed } = await open;
    assert.equal(resumed, graceSeconds > 0);
    if (resumed) {
      await transaction.commit();
      assert.deepEqual(texts(await drained(watch.receiver(path))), ["new"]);
    } else {
      await assert.rejects(transaction.commit(), { condition: "TransactionUnknown" });
      assert.deepEqual(texts(await drained(watch.receiver(path))), ["mine"]);
    }
  }
});
