// Sessions: by name and next available, state, locks, order.

import { assert, bodies, refused, scenario, sleep } from "../world.js";

const sessions = (w, properties = {}) => w.queue({ requiresSession: true, ...properties });

// AMQP-70, AMQP-71, AMQP-75
scenario("a session is received by its name", async (w) => {
  const queue = await sessions(w);
  await w.send(queue, ["a1", "a2"], { sessionId: "a" });
  await w.send(queue, ["b1"], { sessionId: "b" });
  const receiver = await w.client.acceptSession(queue, "a");
  assert.equal(receiver.sessionId, "a");
  const messages = await w.receive(receiver, 2);
  assert.deepEqual(bodies(messages), ["a1", "a2"]);
  for (const message of messages) {
    assert.equal(message.sessionId, "a");
    await receiver.completeMessage(message);
  }
  await w.nothing(receiver);
});

// AMQP-73
scenario("the next session that has messages is given", async (w) => {
  const queue = await sessions(w);
  await w.send(queue, ["b1"], { sessionId: "b" });
  const receiver = await w.client.acceptNextSession(queue);
  assert.equal(receiver.sessionId, "b");
  const [message] = await w.receive(receiver, 1);
  await receiver.completeMessage(message);
});

// AMQP-73
scenario("without a session accepting times out", async (w) => {
  const queue = await sessions(w);
  const client = w.open(undefined, { retryOptions: { timeoutInMs: 2_000, maxRetries: 0 } });
  await refused(client.acceptNextSession(queue), "ServiceTimeout");
});

// AMQP-73
scenario("a session is given to a waiting receiver", async (w) => {
  const queue = await sessions(w);
  const accepting = w.client.acceptNextSession(queue);
  await sleep(500);
  await w.send(queue, ["x"], { sessionId: "late" });
  const receiver = await accepting;
  assert.equal(receiver.sessionId, "late");
  assert.deepEqual(bodies(await w.receive(receiver, 1)), ["x"]);
});

// AMQP-72
scenario("a session has one receiver", async (w) => {
  const queue = await sessions(w);
  const receiver = await w.client.acceptSession(queue, "a");
  const other = w.open(undefined, { retryOptions: { maxRetries: 0 } });
  await refused(other.acceptSession(queue, "a"), "SessionCannotBeLocked");
  await receiver.close();
  assert.equal((await other.acceptSession(queue, "a")).sessionId, "a");
});

// AMQP-39, SES-31
scenario("unsettled messages return when the session is closed", async (w) => {
  const queue = await sessions(w);
  await w.send(queue, ["1", "2", "3"], { sessionId: "a" });
  let receiver = await w.client.acceptSession(queue, "a");
  const [first] = await w.receive(receiver, 2);
  await receiver.completeMessage(first);
  await receiver.close();
  receiver = await w.client.acceptSession(queue, "a");
  const messages = await w.receive(receiver, 2);
  assert.deepEqual(bodies(messages), ["2", "3"]);
  assert.deepEqual(messages.map((message) => message.deliveryCount), [0, 0]);
});

// SES-24, AMQP-82
scenario("a session has a state", async (w) => {
  const queue = await sessions(w);
  let receiver = await w.client.acceptSession(queue, "a");
  assert.equal(await receiver.getSessionState(), null);
  await receiver.setSessionState("half way");
  assert.equal(String(await receiver.getSessionState()), "half way");
  await receiver.close();
  receiver = await w.client.acceptSession(queue, "a");
  assert.equal(String(await receiver.getSessionState()), "half way");
  await receiver.setSessionState(null);
  assert.equal(await receiver.getSessionState(), null);
});

// SES-12, AMQP-82
scenario("a session lock is renewed", async (w) => {
  const queue = await sessions(w, { lockDuration: "PT6S" });
  await w.send(queue, ["x"], { sessionId: "a" });
  const receiver = await w.client.acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await w.receive(receiver, 1);
  const before = receiver.sessionLockedUntilUtc;
  for (let n = 0; n < 2; n += 1) {
    await sleep(3_500);
    assert.ok((await receiver.renewSessionLock()) > before);
  }
  await receiver.completeMessage(message);
});

// SES-12
scenario("a client holds its session over several durations by itself", async (w) => {
  const queue = await sessions(w, { lockDuration: "PT4S" });
  await w.send(queue, ["x"], { sessionId: "a" });
  const receiver = await w.client.acceptSession(queue, "a");
  const [message] = await w.receive(receiver, 1);
  await sleep(9_000);
  await receiver.completeMessage(message);
  assert.equal((await w.runtime(queue)).totalMessageCount, 0);
});

// AMQP-74
scenario("an ended session lock prevents settlement", async (w) => {
  const queue = await sessions(w, { lockDuration: "PT1S" });
  await w.send(queue, ["x"], { sessionId: "a" });
  const receiver = await w.client.acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await w.receive(receiver, 1);
  await sleep(2_000);
  await refused(receiver.completeMessage(message), "SessionLockLost");
  const again = await w.client.acceptSession(queue, "a");
  const [once] = await w.receive(again, 1);
  assert.equal(once.deliveryCount, 1);
  await again.completeMessage(once);
});

// AMQP-70
scenario("a receiver without session is refused where one is required", async (w) => {
  const queue = await sessions(w);
  const client = w.open(undefined, { retryOptions: { maxRetries: 0 } });
  const error = await refused(client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 1_000 }));
  assert.match(error.message, /session/i);
});

// AMQP-70
scenario("a session is refused at a queue without sessions", async (w) => {
  const queue = await w.queue();
  const client = w.open(undefined, { retryOptions: { maxRetries: 0 } });
  await refused(client.acceptSession(queue, "a"));
});

// DEF-01, SES-20
scenario("a message of a session is deferred", async (w) => {
  const queue = await sessions(w);
  await w.send(queue, ["x"], { sessionId: "a" });
  const receiver = await w.client.acceptSession(queue, "a");
  const [message] = await w.receive(receiver, 1);
  await receiver.deferMessage(message);
  const [again] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(again.body, "x");
  await receiver.completeMessage(again);
  assert.equal((await w.runtime(queue)).totalMessageCount, 0);
});

// PEK-05
scenario("a session is peeked", async (w) => {
  const queue = await sessions(w);
  await w.send(queue, ["a1", "a2"], { sessionId: "a" });
  await w.send(queue, ["b1"], { sessionId: "b" });
  const receiver = await w.client.acceptSession(queue, "a");
  assert.deepEqual(bodies(await receiver.peekMessages(10)), ["a1", "a2"]);
});

// AMQP-75
scenario("a session streams to a function", async (w) => {
  const queue = await sessions(w);
  await w.client.createSender(queue).sendMessages(Array.from({ length: 30 }, (_, body) => ({ body, sessionId: "a" })));
  const receiver = await w.client.acceptNextSession(queue);
  const found = [];
  const subscription = receiver.subscribe({
    processMessage: async (message) => void found.push(message.body),
    processError: async () => {},
  });
  await w.until(async () => found.length === 30, "30 messages");
  await subscription.close();
  assert.deepEqual(found, Array.from({ length: 30 }, (_, body) => body));
});
