// The client against the broker: sessions, their locks and their state.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SessionReceiver } from "peeklock";
import { connected, inState, Proxy, queue } from "./support.js";

const bySession = { requiresSession: true, lockDuration: "PT30S" };

const put = async (connection, path, sessionId, ...bodies) => {
  await connection.sender(path).sendBatch(bodies.map((body) => ({ body, sessionId })));
};

// SES-05 to SES-08, SES-10, SES-16
test("sessions are accepted by id and in order of their messages", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, bySession);
  await put(connection, path, "b", "1");
  await put(connection, path, "a", "2");
  const next = await connection.acceptNextSession(path, { waitSeconds: 0 });
  assert.ok(next instanceof SessionReceiver);
  assert.equal(next.sessionId, "b");
  assert.ok(next.lockRemainingMs > 25_000 && next.lockRemainingMs <= 30_000);
  await assert.rejects(connection.acceptSession(path, "b"), { condition: "SessionCannotBeLocked", retryable: false });
  const named = await connection.acceptSession(path, "a");
  await assert.rejects(connection.acceptNextSession(path, { waitSeconds: 0 }), { condition: "ServiceTimeout", retryable: true });
  assert.deepEqual((await named.receive({ maxCount: 9 })).map(({ text }) => text), ["2"]);
  assert.deepEqual(await connection.queues.sessions(path), ["a", "b"]);
  assert.deepEqual(await connection.queues.sessions(path, { skip: 1, withActiveMessages: true }), ["b"]);
  const { sessionCount, lockedSessionCount } = (await connection.queues.get(path)).runtime;
  assert.deepEqual([sessionCount, lockedSessionCount], [2, 2]);
  await next.close();
  assert.equal(await connection.queues.deleteUnlocked(path), 1);
});

// SES-19, SES-20, SES-12, SES-14: the loop, order, one lock for all.
test("messages of a session arrive in order, and an abandoned one is next", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, bySession);
  await put(connection, path, "a", "1", "2", "3");
  const session = await connection.acceptSession(path, "a", { prefetch: 2 });
  const seen = [];
  for await (const message of session) {
    seen.push(message.text);
    assert.equal(message.lockedUntilUtc, session.lockedUntilUtc);
    if (seen.length === 1) {
      const before = session.lockedUntilUtc;
      assert.ok((await message.renew()) > before);
      assert.equal(message.lockedUntilUtc, session.lockedUntilUtc);
    }
    await (seen.length === 2 ? message.abandon() : message.complete());
    if (seen.length === 4) {
      break;
    }
  }
  // Prefetched messages were locked before earlier ones were settled.
  assert.deepEqual([...seen].sort(), ["1", "2", "2", "3"]);
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 0);
});

// SES-24, SES-25, SES-31: state, and the messages that a close releases.
test("the next holder gets the state and unsettled messages", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, bySession);
  await put(connection, path, "a", "1");
  const first = await connection.acceptSession(path, "a");
  const [message] = await first.receive();
  assert.equal(await first.getState(), undefined);
  await first.setState("step 1");
  assert.equal(await first.getState(), "step 1");
  await assert.rejects(first.setState({ step: 1 }), { condition: "ArgumentError" });
  await first.close();
  await assert.rejects(message.complete(), { condition: "OperationCancelled" });
  const second = await connection.acceptNextSession(path);
  assert.equal(await second.getState(), "step 1");
  await second.setState(Uint8Array.of(255, 0));
  assert.deepEqual([...(await second.getState())], [255, 0]);
  await second.setState(null);
  assert.equal(await second.getState(), undefined);
  const [again] = await second.receive();
  assert.equal(again.deliveryCount, 1);
  await again.complete();
});

// SES-08: a cancelled accept holds nothing, even if a session was granted meanwhile.
test("a waiting accept ends by its signal, or with the connection", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, bySession);
  const abort = new AbortController();
  const waiting = connection.acceptNextSession(path, { signal: abort.signal });
  await connection.queues.get(path);
  abort.abort();
  await assert.rejects(waiting, { condition: "OperationCancelled" });
  await put(connection, path, "a", "1");
  const session = await connection.acceptNextSession(path);
  const other = await connected(t);
  const left = assert.rejects(other.acceptNextSession(path), { condition: "OperationCancelled" });
  await other.queues.get(path);
  await other.close();
  await left;
  assert.equal((await session.receive())[0].text, "1");
});

// SES-34: request and reply over one reply queue.
test("each requester gets its own replies", async (t) => {
  const connection = await connected(t);
  const requests = await queue(connection);
  const replies = await queue(connection, bySession);
  connection.receiver(requests).subscribe(async (request) => {
    const { replyTo, replyToSessionId, messageId, text } = request;
    await connection.sender(replyTo).send({ body: `${text}!`, sessionId: replyToSessionId, correlationId: messageId });
  });
  const ask = async (name) => {
    const session = await connection.acceptSession(replies, name);
    await connection.sender(requests).send({ body: name, replyTo: replies, replyToSessionId: name, messageId: `id ${name}` });
    const [reply] = await session.receive({ waitSeconds: 20 });
    await reply.complete();
    await session.close();
    return [reply.text, reply.correlationId];
  };
  assert.deepEqual(await Promise.all([ask("one"), ask("two")]), [["one!", "id one"], ["two!", "id two"]]);
});

// SET-21, SES-13: a session is held over a resumption, and lost when a new connection begins.
test("a session outlives the socket, and not the connection", async (t) => {
  const proxy = await Proxy.open(t);
  const watch = await connected(t);
  const path = await queue(watch, bySession);
  await put(watch, path, "a", "1", "2");
  for (const graceSeconds of [30, 0]) {
    const connection = await connected(t, { graceSeconds, reconnectMs: 5 }, proxy.url);
    const session = await connection.acceptSession(path, "a");
    const messages = session.messages();
    const { value: held } = await messages.next();
    const open = inState(connection, "open");
    proxy.cut();
    const { resumed } = await open;
    assert.equal(resumed, graceSeconds > 0);
    if (resumed) {
      await assert.rejects(watch.acceptSession(path, "a"), { condition: "SessionCannotBeLocked" });
      await held.complete();
      await session.renewSession();
      await session.close();
    } else {
      assert.equal(session.lockRemainingMs, 0);
      await assert.rejects(held.complete(), { condition: "SessionLockLost" });
      await assert.rejects(session.receive(), { condition: "SessionLockLost" });
      await assert.rejects(messages.next(), { condition: "SessionLockLost" });
      assert.throws(() => session.messages(), { condition: "SessionLockLost" });
      const anew = await connection.acceptSession(path, "a");
      const [again] = await anew.receive();
      assert.deepEqual([again.text, again.deliveryCount], ["2", 2]);
      await again.complete();
    }
  }
});
