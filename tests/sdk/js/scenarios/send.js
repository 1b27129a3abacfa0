// Sending: bodies, properties, lists, batches, sizes.

import { randomUUID } from "node:crypto";
import { assert, bodies, refused, scenario } from "../world.js";

// AMQP-40, AMQP-41
scenario("a message arrives as sent", async (w) => {
  const queue = await w.queue();
  await w.send(queue, ["two coffees"]);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  assert.equal(message.body, "two coffees");
  await receiver.completeMessage(message);
  assert.deepEqual(await w.drain(queue), []);
});

// AMQP-44, AMQP-45
scenario("broker properties are kept", async (w) => {
  const queue = await w.queue();
  const sent = {
    body: Buffer.from([0, 1, 255]),
    messageId: "order-1",
    correlationId: "c-1",
    subject: "tea",
    to: "kitchen",
    replyTo: "waiter",
    replyToSessionId: "table-7",
    contentType: "application/octet-stream",
    timeToLive: 600_000,
    partitionKey: "p",
  };
  await w.client.createSender(queue).sendMessages(sent);
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(message[name], value, name);
  assert.equal(message.expiresAtUtc - message.enqueuedTimeUtc, 600_000);
  await receiver.completeMessage(message);
});

// AMQP-45
scenario("application properties keep their types", async (w) => {
  const queue = await w.queue();
  const applicationProperties = {
    text: "zwölf",
    whole: 42,
    negative: -7,
    real: 1.5,
    yes: true,
    at: new Date("2026-05-01T12:00:00Z"),
    nothing: null,
  };
  await w.client.createSender(queue).sendMessages({ body: "x", applicationProperties });
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  for (const [name, value] of Object.entries(applicationProperties)) {
    const found = message.applicationProperties[name];
    assert.deepEqual(found instanceof Date ? found.getTime() : found, value instanceof Date ? value.getTime() : value, name);
  }
  await receiver.completeMessage(message);
});

// AMQP-44
scenario("a message without an id is settled all the same", async (w) => {
  const queue = await w.queue();
  await w.client.createSender(queue).sendMessages({ body: "x" });
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  assert.ok(message.messageId);
  await receiver.completeMessage(message);
});

// AMQP-45
scenario("ids of other types keep them", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  await sender.sendMessages({ body: "a", messageId: 7, correlationId: 8 });
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  assert.equal(Number(message.messageId), 7);
  assert.equal(Number(message.correlationId), 8);
  await receiver.completeMessage(message);
});

// AMQP-45
scenario("bodies of JSON, values and sequences", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  const json = { order: [1, 2, { three: "drei" }] };
  await sender.sendMessages({ body: json });
  await sender.sendMessages({ body: { a: 1 }, bodyType: "value" });
  await sender.sendMessages({ body: [[1, 2], [3]], bodyType: "sequence" });
  const receiver = w.client.createReceiver(queue);
  const [first, value, sequence] = await w.receive(receiver, 3);
  assert.deepEqual(first.body, json);
  assert.equal(value._rawAmqpMessage.bodyType, "value");
  assert.deepEqual(value.body, { a: 1 });
  assert.equal(sequence._rawAmqpMessage.bodyType, "sequence");
  for (const message of [first, value, sequence]) await receiver.completeMessage(message);
});

// SND-09, AMQP-42
scenario("a list of messages is sent as one", async (w) => {
  const queue = await w.queue();
  const all = Array.from({ length: 50 }, (_, number) => ({ body: number }));
  await w.client.createSender(queue).sendMessages(all);
  assert.deepEqual(await w.drain(queue), all.map(({ body }) => body));
});

// AMQP-42, AMQP-43
scenario("a batch accepts fitting messages and is stored as a whole", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  const batch = await sender.createMessageBatch();
  while (batch.tryAddMessage({ body: Buffer.alloc(10_000) }));
  assert.ok(batch.count > 90 && batch.count < 106, `${batch.count} messages of 10,000 bytes fit`);
  await sender.sendMessages(batch);
  assert.equal((await w.runtime(queue)).activeMessageCount, batch.count);
});

// AMQP-42
scenario("a batch keeps the properties of each", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  const batch = await sender.createMessageBatch({ maxSizeInBytes: 20_000 });
  for (const n of [0, 1, 2]) {
    assert.ok(batch.tryAddMessage({ body: `body ${n}`, messageId: `m${n}`, applicationProperties: { n } }));
  }
  await sender.sendMessages(batch);
  const receiver = w.client.createReceiver(queue);
  const messages = await w.receive(receiver, 3);
  messages.forEach((message, n) => {
    assert.equal(message.body, `body ${n}`);
    assert.equal(message.messageId, `m${n}`);
    assert.equal(message.applicationProperties.n, n);
  });
  for (const message of messages) await receiver.completeMessage(message);
});

// AMQP-34, AMQP-43
scenario("a message of 100 megabytes passes where its queue allows it", async (w) => {
  const queue = await w.queue({ maxMessageSizeInKilobytes: 102_400 });
  const body = Buffer.alloc((100 << 20) - 1_024, "0123456789abcdef!");
  await w.client.createSender(queue).sendMessages({ body });
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1, 50_000);
  assert.ok(body.equals(message.body), "the body differs");
  await receiver.completeMessage(message);
  assert.equal((await w.runtime(queue)).activeMessageCount, 0);
});

// AMQP-43
scenario("a message over the limit is refused and the link continues", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  await refused(sender.sendMessages({ body: Buffer.alloc(1 << 20) }), "MessageSizeExceeded");
  await sender.sendMessages({ body: "small" });
  assert.deepEqual(await w.drain(queue), ["small"]);
});

// AMQP-43, SND-30
scenario("a batch over the limit is refused as a whole and the link continues", async (w) => {
  const queue = await w.queue({ maxMessageSizeInKilobytes: 102_400 });
  const sender = w.client.createSender(queue);
  // This SDK limits a batch only to the maximum size of a message.
  const batch = await sender.createMessageBatch();
  assert.equal(batch.maxSizeInBytes, 100 << 20);
  for (let n = 0; n < 3; n += 1) assert.ok(batch.tryAddMessage({ body: Buffer.alloc(400_000) }));
  await refused(sender.sendMessages(batch), "MessageSizeExceeded");
  await sender.sendMessages({ body: "small" });
  assert.deepEqual(await w.drain(queue), ["small"]);
});

// AMQP-31, AMQP-43
scenario("a message of many frames arrives whole", async (w) => {
  const queue = await w.queue();
  const body = Buffer.alloc(1_000_000, "0123456789abcdef!");
  const sender = w.client.createSender(queue);
  for (let n = 0; n < 3; n += 1) await sender.sendMessages({ body });
  const receiver = w.client.createReceiver(queue);
  for (const message of await w.receive(receiver, 3)) {
    assert.ok(body.equals(message.body), "the body differs");
    await receiver.completeMessage(message);
  }
});

// AMQP-90, AMQP-36
scenario("an absent queue is named", async (w) => {
  const error = await refused(w.client.createSender("nowhere").sendMessages({ body: "x" }), "MessagingEntityNotFound");
  assert.match(error.message, /nowhere/);
  const receiver = w.client.createReceiver("nowhere");
  await refused(receiver.receiveMessages(1, { maxWaitTimeInMs: 1_000 }), "MessagingEntityNotFound");
});

// AMQP-46
scenario("a disabled queue refuses until it is enabled again", async (w) => {
  const queue = await w.queue({ status: "SendDisabled" });
  const sender = w.client.createSender(queue);
  await refused(sender.sendMessages({ body: "x" }), "MessagingEntityDisabled");
  await w.ask("PATCH", `queues/${queue}`, { status: "Active" });
  await sender.sendMessages({ body: "x" });
  assert.deepEqual(await w.drain(queue), ["x"]);
});

// AMQP-46, QUO-05
scenario("a full queue refuses", async (w) => {
  const queue = await w.queue({ maxSizeInMegabytes: 1 });
  const sender = w.client.createSender(queue);
  const fill = async () => {
    for (let n = 0; n < 8; n += 1) await sender.sendMessages({ body: Buffer.alloc(400_000) });
  };
  await refused(fill(), "QuotaExceeded");
});

// DUP-01
scenario("a duplicate is accepted and stored once", async (w) => {
  const queue = await w.queue({ requiresDuplicateDetection: true });
  const sender = w.client.createSender(queue);
  for (const body of ["first", "second"]) await sender.sendMessages({ body, messageId: "same" });
  assert.deepEqual(await w.drain(queue), ["first"]);
});

// TOP-01
scenario("a topic gives each subscription a copy", async (w) => {
  const topic = await w.topic(["a", "b"]);
  await w.client.createSender(topic).sendMessages([{ body: "one" }, { body: "two" }]);
  for (const subscription of ["a", "b"]) {
    const receiver = w.client.createReceiver(topic, subscription);
    const messages = await w.receive(receiver, 2);
    assert.deepEqual(bodies(messages), ["one", "two"]);
    for (const message of messages) await receiver.completeMessage(message);
  }
});

// AMQP-33
scenario("names may have slashes and any case", async (w) => {
  const queue = await w.queue();
  await w.ask("PUT", `queues/${queue}%2Fdeep%2FName`, {});
  await w.send(`${queue}/deep/name`, ["x"]);
  assert.deepEqual(await w.drain(`${queue.toUpperCase()}/DEEP/NAME`), ["x"]);
});

// AMQP-41
scenario("many sends at the same time are all confirmed", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  await Promise.all(Array.from({ length: 300 }, (_, body) => sender.sendMessages({ body })));
  const found = await w.drain(queue);
  assert.equal(new Set(found).size, 300);
});

// AMQP-46
scenario("a message without session is refused where one is required", async (w) => {
  const queue = await w.queue({ requiresSession: true });
  const error = await refused(w.client.createSender(queue).sendMessages({ body: "x" }));
  assert.match(error.message, /session/i);
});

// AMQP-45
scenario("ids of random UUIDs are strings", async (w) => {
  const queue = await w.queue();
  const messageId = randomUUID();
  await w.client.createSender(queue).sendMessages({ body: "x", messageId });
  const receiver = w.client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  assert.equal(message.messageId, messageId);
  await receiver.completeMessage(message);
});
