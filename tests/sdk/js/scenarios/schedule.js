// Scheduling, cancelling, peeking.

import { assert, bodies, refused, scenario } from "../world.js";

const soon = (ms) => new Date(Date.now() + ms);

// SCH-01, AMQP-82
scenario("a scheduled message arrives at its time", async (w) => {
  const queue = await w.queue();
  const at = soon(1_000);
  const [number] = await w.client.createSender(queue).scheduleMessages({ body: "x" }, at);
  assert.ok(number.toNumber() > 0);
  const later = await w.queue();
  await w.client.createSender(later).scheduleMessages({ body: "y" }, soon(3_600_000));
  assert.equal((await w.runtime(later)).scheduledMessageCount, 1);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  assert.ok(message.enqueuedTimeUtc >= at);
  await receiver.completeMessage(message);
});

// SCH-01
scenario("several messages are scheduled at once", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }, { body: "c" }], soon(800));
  assert.equal(new Set(numbers.map(String)).size, 3);
  assert.deepEqual(bodies(await w.receive(w.client.createReceiver(queue), 3)), ["a", "b", "c"]);
});

// SCH-05, AMQP-82
scenario("a scheduled message is cancelled", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  const [one, two] = await sender.scheduleMessages([{ body: "a" }, { body: "b" }], soon(3_600_000));
  await sender.cancelScheduledMessages(one);
  assert.equal((await w.runtime(queue)).scheduledMessageCount, 1);
  await sender.cancelScheduledMessages([two]);
  await refused(sender.cancelScheduledMessages(two), "MessageNotFound");
  assert.equal((await w.runtime(queue)).totalMessageCount, 0);
});

// SCH-02, AMQP-44
scenario("a message may name its time itself", async (w) => {
  const queue = await w.queue();
  const at = soon(1_000);
  await w.client.createSender(queue).sendMessages({ body: "x", scheduledEnqueueTimeUtc: at });
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  assert.ok(message.enqueuedTimeUtc >= at);
  assert.equal(message.scheduledEnqueueTimeUtc.getTime(), at.getTime());
  await receiver.completeMessage(message);
});

// PEK-01, AMQP-83
scenario("a peek removes nothing", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["a", "b", "c"]);
  const receiver = w.client.createReceiver(queue);
  const seen = await receiver.peekMessages(10);
  assert.deepEqual(bodies(seen), ["a", "b", "c"]);
  assert.deepEqual(bodies(await receiver.peekMessages(10)), [], "a peek continues at its position");
  const from = await receiver.peekMessages(10, { fromSequenceNumber: seen[1].sequenceNumber });
  assert.deepEqual(bodies(from), ["b", "c"]);
  const messages = await w.receive(receiver, 3);
  assert.deepEqual(messages.map((message) => message.deliveryCount), [0, 0, 0]);
  for (const message of messages) await receiver.completeMessage(message);
});

// AMQP-56, PEK-02
scenario("a peek sees scheduled and deferred messages", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  await sender.sendMessages({ body: "deferred" });
  await sender.scheduleMessages({ body: "scheduled" }, soon(3_600_000));
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.deferMessage(message);
  await sender.sendMessages({ body: "active" });
  const seen = await receiver.peekMessages(10);
  for (const { state, body } of seen) assert.equal(state, body);
  assert.equal(seen.length, 3);
});

// PEK-01, DLQ-03
scenario("a peek sees dead letters", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["x"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.deadLetterMessage(message, { deadLetterReason: "r" });
  const [seen] = await w.client.createReceiver(queue, { subQueueType: "deadLetter" }).peekMessages(1);
  assert.equal(seen.deadLetterReason, "r");
});
