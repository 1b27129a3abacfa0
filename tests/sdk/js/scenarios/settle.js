// Settling: all outcomes, delivery counts, locks that end and are renewed.

import { assert, bodies, refused, scenario, sleep } from "../world.js";

// AMQP-60, AMQP-64
scenario("an abandoned message returns with a higher count", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  for (let count = 0; count < 4; count += 1) {
    const [message] = await w.receive(receiver, 1);
    assert.equal(message.deliveryCount, count);
    await receiver.abandonMessage(message);
  }
});

// AMQP-63, AMQ-14
scenario("an abandon may change properties", async (w) => {
  const queue = await w.queue();
  await w.client.createSender(queue).sendMessages({ body: "x", applicationProperties: { kept: 1, tries: 0 } });
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.abandonMessage(message, { tries: 1, why: "tired" });
  const [again] = await w.receive(receiver, 1);
  assert.deepEqual({ ...again.applicationProperties }, { kept: 1, tries: 1, why: "tired" });
  await receiver.completeMessage(again);
});

// RTY-01, RTY-12, RTY-27
scenario("an abandon may delay the message", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["later", "soon"]);
  const receiver = w.client.createReceiver(queue);
  const [later, soon] = await w.receive(receiver, 2);
  const began = Date.now();
  await receiver.abandonMessage(later, { "peeklock-delay-ms": 3_600_000, tries: 1 });
  await receiver.abandonMessage(soon, { "peeklock-delay-ms": "1500", tries: 1 });
  const [again] = await w.receive(receiver, 1);
  assert.ok(Date.now() - began >= 1_500, "it came too soon");
  assert.equal(again.body, "soon");
  assert.equal(again.deliveryCount, 1);
  assert.deepEqual({ ...again.applicationProperties }, { tries: 1 });
  await receiver.completeMessage(again);
  const [delayed] = await receiver.peekMessages(10);
  assert.equal(delayed.body, "later");
  assert.equal(delayed.state, "active");
  assert.deepEqual({ ...delayed.applicationProperties }, { tries: 1 });
  const until = delayed._rawAmqpMessage.messageAnnotations["x-opt-peeklock-delayed-until"];
  assert.ok(until - began >= 3_600_000, `it is delayed until ${until}`);
  const { activeMessageCount, delayedMessageCount } = await w.runtime(queue);
  assert.deepEqual([activeMessageCount, delayedMessageCount], [1, 1]);
});

// AMQP-63
scenario("a dead-letter may change properties", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.deadLetterMessage(message, { deadLetterReason: "r", tries: 7 });
  const dead = w.client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [again] = await w.receive(dead, 1);
  assert.equal(again.applicationProperties.tries, 7);
  assert.equal(again.deadLetterReason, "r");
  await dead.completeMessage(again);
});

// AMQP-64, DLQ-12
scenario("a message abandoned too often is dead-lettered", async (w) => {
  const queue = await w.queue({ maxDeliveryCount: 2 });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  for (let n = 0; n < 2; n += 1) {
    const [message] = await w.receive(receiver, 1);
    await receiver.abandonMessage(message);
  }
  await w.nothing(receiver);
  const [dead] = await w.receive(w.client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
});

// SET-42, SET-43, SET-44, DLQ-34, AMQP-63
scenario("the error of the last attempt is in the description of the dead letter", async (w) => {
  const queue = await w.queue({ maxDeliveryCount: 3 });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  // More than one property may have.
  const errors = ["€".repeat(15_000), "\u202e<b>\0 text", "TypeError: no shop"];
  const kept = [undefined, `${"€".repeat(338)}… [cut]`, errors[1]];
  for (const [n, error] of errors.entries()) {
    const [message] = await w.receive(receiver, 1);
    assert.equal(message.applicationProperties?.["peeklock-last-error"], kept[n]);
    await receiver.abandonMessage(message, { "peeklock-last-error": error });
  }
  await w.nothing(receiver);
  const [dead] = await w.receive(w.client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  assert.equal(
    dead.deadLetterErrorDescription,
    "TypeError: no shop; the message was not consumed after 3 delivery attempts, the maximum is 3",
  );
});

// DEF-01, AMQP-84, AMQP-63
scenario("a deferred message is received by its number", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.deferMessage(message, { later: true });
  await w.nothing(receiver);
  const [again] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(again.body, "x");
  assert.equal(again.state, "deferred");
  assert.equal(again.applicationProperties.later, true);
  await receiver.completeMessage(again);
  await refused(receiver.receiveDeferredMessages(message.sequenceNumber), "MessageNotFound");
  assert.equal((await w.runtime(queue)).totalMessageCount, 0);
});

// AMQP-84
scenario("a deferred message is dead-lettered, deferred and abandoned", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["a", "b"]);
  const receiver = w.client.createReceiver(queue);
  const messages = await w.receive(receiver, 2);
  const numbers = messages.map((message) => message.sequenceNumber);
  for (const message of messages) await receiver.deferMessage(message);
  let [one, two] = await receiver.receiveDeferredMessages(numbers);
  await receiver.deferMessage(one);
  await receiver.abandonMessage(two);
  await w.nothing(receiver);
  [one, two] = await receiver.receiveDeferredMessages(numbers);
  assert.deepEqual(bodies([one, two]), ["a", "b"]);
  await receiver.deadLetterMessage(one, { deadLetterReason: "r" });
  await receiver.completeMessage(two);
  const runtime = await w.runtime(queue);
  assert.equal(runtime.deadLetterMessageCount, 1);
  assert.equal(runtime.totalMessageCount, 1);
});

// AMQP-62, SET-14
scenario("a lock that has ended settles nothing", async (w) => {
  const queue = await w.queue({ lockDuration: "PT1S" });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await w.receive(receiver, 1);
  const [again] = await w.receive(receiver, 1);
  assert.equal(again.deliveryCount, 1);
  await refused(receiver.completeMessage(message), "MessageLockLost");
  await receiver.completeMessage(again);
});

// SET-18, AMQP-82
scenario("a renewed lock lasts longer", async (w) => {
  const queue = await w.queue({ lockDuration: "PT6S" });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await w.receive(receiver, 1);
  const before = message.lockedUntilUtc;
  for (let n = 0; n < 2; n += 1) {
    await sleep(3_500);
    const until = await receiver.renewMessageLock(message);
    assert.ok(until > before);
  }
  await receiver.completeMessage(message);
  assert.equal((await w.runtime(queue)).activeMessageCount, 0);
});

// SET-18
scenario("a function holds its lock over several durations", async (w) => {
  const queue = await w.queue({ lockDuration: "PT4S" });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  let done = 0;
  const errors = [];
  const subscription = receiver.subscribe({
    processMessage: async () => {
      // Longer than three lock durations.
      await sleep(13_500);
      done += 1;
    },
    processError: async ({ error }) => void errors.push(error),
  });
  await w.until(async () => done > 0 && (await w.runtime(queue)).totalMessageCount === 0, "it is completed");
  await subscription.close();
  assert.equal(done, 1);
  assert.deepEqual(errors, []);
});

// AMQP-62
scenario("renewing a lock that has ended is refused", async (w) => {
  const queue = await w.queue({ lockDuration: "PT1S" });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await w.receive(receiver, 1);
  await sleep(1_300);
  await refused(receiver.renewMessageLock(message), "MessageLockLost");
});

// AMQP-60
scenario("a message is settled once", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.completeMessage(message);
  await refused(receiver.completeMessage(message));
  await refused(receiver.abandonMessage(message));
});

// AMQP-39, SET-21
scenario("locks outlive the receiver that closes in order", async (w) => {
  const queue = await w.queue({ lockDuration: "PT5S" });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  await w.receive(receiver, 1);
  await receiver.close();
  const other = w.client.createReceiver(queue);
  await w.nothing(other);
  const [again] = await w.receive(other, 1);
  assert.equal(again.deliveryCount, 1);
  await other.completeMessage(again);
});

// AMQP-62
scenario("a message is settled after its receiver was closed", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.close();
  const error = await refused(receiver.completeMessage(message));
  assert.match(error.message, /closed/);
  assert.equal((await w.runtime(queue)).activeMessageCount, 1);
});

// AMQP-60
scenario("a hundred deliveries are settled in any order", async (w) => {
  const queue = await w.queue();
  await w.client.createSender(queue).sendMessages(Array.from({ length: 100 }, (_, body) => ({ body })));
  const receiver = w.client.createReceiver(queue);
  const messages = await w.receive(receiver, 100);
  const odd = messages.filter(({ body }) => body % 2 === 1).reverse();
  const even = messages.filter(({ body }) => body % 2 === 0);
  await Promise.all([
    ...odd.map((message) => receiver.completeMessage(message)),
    ...even.map((message) => receiver.abandonMessage(message)),
  ]);
  const again = await w.receive(receiver, 50);
  assert.deepEqual(bodies(again), bodies(even));
  await Promise.all(again.map((message) => receiver.completeMessage(message)));
  assert.equal((await w.runtime(queue)).totalMessageCount, 0);
});

// EXP-20, DLQ-12
scenario("an expired message is dead-lettered if configured", async (w) => {
  const queue = await w.queue({ deadLetteringOnMessageExpiration: true, defaultMessageTimeToLive: "PT1S" });
  await w.send(queue, ["x"]);
  await sleep(1_100);
  // A receive detects the expiry (EXP-35).
  assert.deepEqual(await w.drain(queue), []);
  const [dead] = await w.receive(w.client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  assert.equal(dead.deadLetterReason, "TTLExpiredException");
});

// FWD-01, FWD-26
scenario("dead letters are forwarded with their source", async (w) => {
  const grave = await w.queue();
  const queue = await w.queue({ forwardDeadLetteredMessagesTo: grave });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.deadLetterMessage(message, { deadLetterReason: "r" });
  const [dead] = await w.receive(w.client.createReceiver(grave), 1);
  assert.equal(dead.deadLetterSource.toLowerCase(), queue.toLowerCase());
});
