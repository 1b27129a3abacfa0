// Receiving: modes, credit, draining, streaming, competing receivers.

import { assert, bodies, refused, scenario, sleep } from "../world.js";

// AMQP-55, RCV-02
scenario("receive and delete removes messages", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["one", "two"]);
  const receiver = w.client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  const [message] = await w.receive(receiver, 1);
  assert.equal(message.body, "one");
  await refused(receiver.completeMessage(message));
  await receiver.close();
  assert.deepEqual(await w.drain(queue), ["two"]);
});

// AMQP-51
scenario("a receive drains and waits no longer than its timeout", async (w) => {
  const queue = await w.queue();
  const receiver = w.client.createReceiver(queue);
  const began = Date.now();
  assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 1_000 }), []);
  const took = Date.now() - began;
  assert.ok(took >= 900 && took < 6_000, `it took ${took} ms`);
  // The link is still attached, and has no credit left.
  await w.send(queue, ["x"]);
  const other = w.client.createReceiver(queue);
  assert.deepEqual(bodies(await w.receive(other, 1)), ["x"]);
});

// AMQP-51
scenario("many receives in a row leave no message", async (w) => {
  const queue = await w.queue();
  const receiver = w.client.createReceiver(queue);
  for (let n = 0; n < 5; n += 1) {
    await w.nothing(receiver, 100);
    await w.send(queue, [n]);
    const [message] = await w.receive(receiver, 1);
    assert.equal(message.body, n);
    assert.equal(message.deliveryCount, 0);
    await receiver.completeMessage(message);
  }
});

// AMQP-58
scenario("messages arrive in the order of their sends", async (w) => {
  const queue = await w.queue();
  const all = Array.from({ length: 100 }, (_, body) => ({ body }));
  await w.client.createSender(queue).sendMessages(all);
  const receiver = w.client.createReceiver(queue);
  const messages = await w.receive(receiver, 100);
  assert.deepEqual(bodies(messages), all.map(({ body }) => body));
  await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  assert.equal((await w.runtime(queue)).activeMessageCount, 0);
});

// AMQP-50
scenario("a subscription of a function gets everything once", async (w) => {
  const queue = await w.queue();
  await w.client.createSender(queue).sendMessages(Array.from({ length: 200 }, (_, body) => ({ body })));
  const receiver = w.client.createReceiver(queue);
  const found = [];
  const errors = [];
  const subscription = receiver.subscribe(
    {
      processMessage: async (message) => void found.push(message.body),
      processError: async ({ error }) => void errors.push(error),
    },
    { maxConcurrentCalls: 20 },
  );
  await w.until(async () => found.length >= 200, "200 messages");
  await subscription.close();
  assert.deepEqual(errors, []);
  assert.equal(new Set(found).size, 200);
  await w.until(async () => (await w.runtime(queue)).totalMessageCount === 0, "all are completed");
});

// AMQP-64
scenario("a function that fails abandons its message", async (w) => {
  const queue = await w.queue({ maxDeliveryCount: 3 });
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  let calls = 0;
  const subscription = receiver.subscribe({
    processMessage: async () => {
      calls += 1;
      throw new Error("not today");
    },
    processError: async () => {},
  });
  await w.until(async () => (await w.runtime(queue)).deadLetterMessageCount === 1, "it is dead-lettered");
  await subscription.close();
  assert.equal(calls, 3);
});

// AMQP-50
scenario("messages are iterated", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["a", "b", "c"]);
  const receiver = w.client.createReceiver(queue);
  const found = [];
  for await (const message of receiver.getMessageIterator()) {
    found.push(message.body);
    await receiver.completeMessage(message);
    if (found.length === 3) break;
  }
  assert.deepEqual(found, ["a", "b", "c"]);
});

// AMQP-59
scenario("two receivers share a queue", async (w) => {
  const queue = await w.queue();
  const [one, two] = [w.client.createReceiver(queue), w.client.createReceiver(queue)];
  const both = Promise.all([w.receive(one, 1), w.receive(two, 1)]);
  await sleep(300);
  await w.send(queue, ["a", "b"]);
  const [[first], [second]] = await both;
  assert.deepEqual([first.body, second.body].sort(), ["a", "b"]);
  await one.completeMessage(first);
  await two.completeMessage(second);
});

// AMQP-56
scenario("a delivery has the properties of the broker", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  assert.ok(message.sequenceNumber.toNumber() > 0);
  assert.equal(message.enqueuedSequenceNumber, undefined);
  assert.equal(message.deliveryCount, 0);
  assert.equal(message.state, "active");
  assert.ok(Math.abs(message.enqueuedTimeUtc - Date.now()) < 30_000);
  assert.ok(message.lockedUntilUtc > message.enqueuedTimeUtc);
  assert.match(message.lockToken, /^[0-9a-f]{8}-/);
  assert.doesNotMatch(message.lockToken, /^00000000-0000-0000-0000-000000000000$/);
  await receiver.completeMessage(message);
});

// AMQP-33, DLQ-03
scenario("the dead-letter queue is received from", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.deadLetterMessage(message, { deadLetterReason: "why", deadLetterErrorDescription: "because" });
  const dead = w.client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [again] = await w.receive(dead, 1);
  assert.equal(again.deadLetterReason, "why");
  assert.equal(again.deadLetterErrorDescription, "because");
  await dead.completeMessage(again);
  await w.nothing(w.client.createReceiver(queue, { subQueueType: "transferDeadLetter" }));
});

// AMQP-30
scenario("one connection serves many receivers", async (w) => {
  const queues = await Promise.all(Array.from({ length: 8 }, () => w.queue()));
  await Promise.all(queues.map((queue, number) => w.send(queue, [number])));
  const found = await Promise.all(
    queues.map(async (queue) => {
      const receiver = w.client.createReceiver(queue);
      const [message] = await w.receive(receiver, 1);
      await receiver.completeMessage(message);
      return message.body;
    }),
  );
  assert.deepEqual(found, [0, 1, 2, 3, 4, 5, 6, 7]);
});

// AMQP-51, AMQP-69
scenario("closing a receiver that waits loses no message", async (w) => {
  const queue = await w.queue();
  for (let n = 0; n < 4; n += 1) {
    const receiver = w.client.createReceiver(queue);
    const waiting = receiver.receiveMessages(10, { maxWaitTimeInMs: 1_500 }).catch(() => []);
    await sleep(200);
    await receiver.close();
    assert.deepEqual(bodies(await waiting), []);
  }
  await w.send(queue, ["x"]);
  assert.deepEqual(await w.drain(queue), ["x"]);
});
