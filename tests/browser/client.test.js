// The client against the broker: sending, receiving, settling, credit, errors, bounds.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PeeklockError, subscriptionPath, typed } from "peeklock";
import { connected, drained, queue } from "./support.js";

const refused = (condition, more = {}) => (error) => {
  assert.ok(error instanceof PeeklockError, String(error.stack));
  assert.equal(error.condition, condition, error.message);
  for (const [name, value] of Object.entries(more)) {
    assert.equal(error[name], value, name);
  }
  return true;
};

// ERR-02
test("the stack of an error names the calling line", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const absent = async function sendToNothing() {
    await connection.sender("no-such-queue").send("x");
  };
  const asked = [
    absent,
    async () => await connection.receiver("no-such-queue").receive({ waitSeconds: 0 }),
    async () => await connection.queues.get("no-such-queue"),
    async () => await connection.acceptSession(path, "s"),
  ];
  for (const ask of asked) {
    const error = await ask().then(() => assert.fail("it succeeded"), (error) => error);
    assert.ok(error instanceof PeeklockError, String(error));
    assert.match(error.stack, /client\.test\.js:\d+/, error.stack);
  }
});

// SET-01, SET-02, RCV-25
test("a completed message is gone", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["one", "two"]);
  const receiver = connection.receiver(path);
  const seen = [];
  for await (const message of receiver) {
    assert.ok(message.lockRemainingMs > 55_000 && message.lockRemainingMs <= 60_000);
    await message.complete();
    assert.equal(message.settled, "complete");
    seen.push(message.text);
    if (seen.length === 2) {
      break;
    }
  }
  assert.deepEqual(seen, ["one", "two"]);
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 0);
});

// SET-05, SET-06, DLQ-01
test("a dead letter has its reason", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).send({ body: "poison", applicationProperties: { kept: true } });
  const [message] = await connection.receiver(path).receive();
  await message.deadLetter({ reason: "poison", description: "no such product", properties: { by: "test" } });
  const [letter] = await connection.receiver(`${path}/$deadletterqueue`).receive({ waitSeconds: 0 });
  const { DeadLetterReason, DeadLetterErrorDescription, by, kept } = letter.applicationProperties;
  assert.deepEqual([DeadLetterReason, DeadLetterErrorDescription, by, kept], ["poison", "no such product", "test", true]);
  await letter.complete();
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 0);
});

// SET-42, SET-43, SET-45, SET-46, DLQ-34
test("the error of a handler travels with its message", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, { maxDeliveryCount: 1 });
  const letters = connection.receiver(`${path}/$deadletterqueue`);
  const circle = new Error("outer");
  circle.cause = circle;
  const thrown = [
    [new TypeError("no shop", { cause: new Error("refused") }), "TypeError: no shop: Error: refused"],
    [circle, "Error: outer"],
    ["plain \u202e<b>\0 text", "plain \u202e<b>\0 text"],
    ["half \ud800 of a character", "half \ufffd of a character"],
    [undefined, "undefined"],
    [Object.create(null), "the error has no text"],
    ["x".repeat(1024), "x".repeat(1024)],
    ["x".repeat(1025), `${"x".repeat(1015)}… [cut]`],
    ["€".repeat(4000), `${"€".repeat(338)}… [cut]`],
  ];
  for (const reportErrors of [true, false]) {
    const receiver = connection.receiver(path);
    let next = 0;
    const handler = () => Promise.reject(thrown[next][0]);
    const consumer = receiver.subscribe(handler, { reportErrors, onError: () => {} });
    for (; next < thrown.length; next += 1) {
      await connection.sender(path).send("x");
      const [letter] = await letters.receive({ waitSeconds: 60 });
      const { DeadLetterErrorDescription: description, "peeklock-last-error": error } = letter.applicationProperties;
      const expected = reportErrors ? thrown[next][1] : undefined;
      assert.equal(error, expected);
      const prefix = expected === undefined ? "" : `${expected}; `;
      assert.equal(description, `${prefix}the message was not consumed after 1 delivery attempts, the maximum is 1`);
      await letter.complete();
    }
    await consumer.stop();
    await receiver.close();
  }
});

// FWD-26
test("a forwarded dead letter names its source", async (t) => {
  const connection = await connected(t);
  const park = await queue(connection);
  const path = await queue(connection, { forwardDeadLetteredMessagesTo: park });
  await connection.sender(path).send("poison");
  const [message] = await connection.receiver(path).receive();
  assert.equal(message.deadLetterSource, undefined);
  await message.deadLetter();
  const [letter] = await connection.receiver(park).receive({ waitSeconds: 10 });
  assert.equal(letter.deadLetterSource, path);
  assert.deepEqual(Object.keys(letter.applicationProperties), []);
  await letter.complete();
});

// SET-03, SET-28, SET-32, RCV-26
test("an abandoned message returns counted, a released one uncounted", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).send("again");
  const receiver = connection.receiver(path);
  const counts = [];
  for await (const message of receiver) {
    counts.push(message.deliveryCount);
    if (counts.length === 4) {
      await message.complete();
      break;
    }
    await (counts.length === 2 ? message.release() : message.abandon());
  }
  assert.deepEqual(counts, [1, 2, 2, 3]);
});

// RTY-01, RTY-26: each way to give the delay, without waiting for its end.
test("an abandoned message waits for its delay", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["alone", "one of many", "at once"]);
  const receiver = connection.receiver(path);
  const [alone, many, atOnce] = await receiver.receive({ maxCount: 3 });
  const delayMilliseconds = 3_600_000;
  const earliest = Date.now() + delayMilliseconds;
  await alone.abandon({ delayMilliseconds, properties: { cause: "down" } });
  assert.deepEqual(await receiver.settle([many], "abandon", { delayMilliseconds }), [undefined]);
  await atOnce.abandon({ delayMilliseconds: 0 });
  const latest = Date.now() + delayMilliseconds;
  const seen = await receiver.peek({ maxCount: 3 });
  assert.deepEqual(seen.map(({ state, deliveryCount }) => [state, deliveryCount]), [["Delayed", 1], ["Delayed", 1], ["Active", 1]]);
  for (const { delayedUntilUtc } of seen.slice(0, 2)) {
    assert.ok(delayedUntilUtc.getTime() >= earliest - 1 && delayedUntilUtc.getTime() <= latest + 1, String(delayedUntilUtc));
  }
  assert.equal(seen[0].applicationProperties.cause, "down");
  assert.equal((await connection.queues.get(path)).runtime.delayedMessageCount, 2);
  assert.deepEqual((await drained(receiver)).map(({ text }) => text), ["at once"]);
});

// SET-17, SET-18, SET-20
test("a lock is renewed, and an ended one is refused", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).send("mine");
  const receiver = connection.receiver(path);
  const [message] = await receiver.receive();
  const until = message.lockedUntilUtc;
  // The message stays locked, and the broker's clock advances meanwhile.
  assert.deepEqual(await receiver.receive({ waitSeconds: 0.05 }), []);
  assert.ok((await message.renew()) > until);
  assert.ok(message.lockedUntilUtc > until);
  await message.release();
  await assert.rejects(message.renew(), refused("MessageLockLost"));
});

// DEF-01 to DEF-03, DEF-07, DEL-09
test("deferred messages are received by number, all or none", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const numbers = await connection.sender(path).sendBatch(["one", "two", "three"]);
  const receiver = connection.receiver(path);
  const messages = await receiver.receive({ maxCount: 3 });
  assert.deepEqual(await receiver.settle(messages, "defer", { properties: { set: 1 } }), [undefined, undefined, undefined]);
  assert.deepEqual(await receiver.receive({ waitSeconds: 0 }), []);
  assert.deepEqual((await receiver.peek()).map(({ state }) => state), ["Deferred", "Deferred", "Deferred"]);
  await assert.rejects(receiver.receiveDeferred(numbers[0], 4711), refused("MessageNotFound", { retryable: false }));
  const [one, two] = await receiver.receiveDeferred(numbers[0], numbers[1]);
  assert.equal(one.applicationProperties.set, 1);
  await Promise.all([one.complete(), two.complete()]);
  await receiver.deleteDeferred(numbers[2]);
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 0);
});

// MSG-01, MSG-02, MSG-04, MSG-20
test("bodies and properties arrive as sent", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const sender = connection.sender(path);
  const bytes = Uint8Array.from({ length: 70_000 }, (_, place) => place % 256);
  const hostile = "<img src=x onerror=alert(1)> \u0000 \u2028 \" \\ \u{1f600} 12345678901234567890";
  const applicationProperties = {
    text: hostile,
    yes: true,
    none: null,
    whole: -7,
    fraction: 0.1,
    huge: 2 ** 70,
    beyondSafe: 2 ** 60,
    notANumber: NaN,
    below: -Infinity,
    long: 2n ** 63n - 1n,
    longBelow: -(2n ** 63n),
    unsigned: 2n ** 64n - 1n,
    instant: new Date("2026-05-01T12:00:00.123Z"),
    bytes: Uint8Array.of(0, 128, 255),
    i32: typed("i32", -5),
    uuid: typed("uuid", "5b2c1f00-7a43-4c7e-9d55-0f4d5f3f8a21"),
    span: typed("timeSpan", "PT1M"),
    ["__proto__"]: "a name as any other",
    $integer: "[null,\"5\"]",
  };
  const properties = {
    messageId: "order-1",
    sessionId: "s",
    correlationId: "c",
    contentType: "text/html",
    subject: "subject",
    to: "to",
    replyTo: "reply",
    replyToSessionId: "rs",
    timeToLive: 90.5,
  };
  await sender.send({ body: hostile, applicationProperties, ...properties });
  await sender.send({ body: bytes });
  await sender.send({});
  const receiver = connection.receiver(path, { mode: "receiveAndDelete" });
  const [text, binary, empty] = await receiver.receive({ maxCount: 3 });
  assert.equal(text.text, hostile);
  assert.deepEqual(text.bytes, new TextEncoder().encode(hostile));
  const got = { ...text.applicationProperties };
  assert.equal(Object.getPrototypeOf(text.applicationProperties), null);
  assert.equal(got.unsigned.type, "u64");
  assert.equal(got.unsigned.value, 2n ** 64n - 1n);
  assert.deepEqual({ ...got, unsigned: 0 }, { ...applicationProperties, unsigned: 0 });
  for (const [name, value] of Object.entries({ ...properties, timeToLive: "PT1M30.5S" })) {
    assert.equal(text[name], value, name);
  }
  assert.deepEqual(binary.body, bytes);
  assert.equal(binary.text, undefined);
  assert.equal(empty.body, "");
  assert.equal(text.lockToken, undefined);
  await assert.rejects(text.complete(), refused("InvalidOperation"));

  // A received message is sent on unchanged, with the exact types of its properties.
  await sender.send(text);
  const [forwarded] = await receiver.receive();
  assert.deepEqual(forwarded.applicationProperties, text.applicationProperties);
  assert.equal(forwarded.messageId, "order-1");
});

// SND-03 to SND-05, ERR-01, ERR-02
test("a refusal is a typed error with condition, tracking id and whether to retry", async (t) => {
  const connection = await connected(t);
  const nothing = `browser/${process.pid}/nowhere`;
  const nowhere = connection.sender(nothing);
  const error = await nowhere.send("x").catch((error) => error);
  assert.ok(refused("EntityNotFound", { retryable: false, entity: nothing })(error));
  assert.match(error.trackingId, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  assert.match(error.message, /TrackingId:[0-9a-f-]{36}, Entity:browser\/\d+\/nowhere, Timestamp:/);
  await assert.rejects(connection.receiver(nothing).receive(), refused("EntityNotFound"));
  await assert.rejects(async () => {
    for await (const _ of connection.receiver(nothing)) {
      assert.fail("nothing can come");
    }
  }, refused("EntityNotFound"));

  const path = await queue(connection);
  const sender = connection.sender(path);
  await assert.rejects(sender.send({ bdoy: "misspelled" }), refused("ArgumentError"));
  await assert.rejects(sender.send({ body: { an: "object" } }), refused("ArgumentError"));
  await assert.rejects(sender.send({ messageId: "x".repeat(129) }), refused("ArgumentOutOfRange"));
  await assert.rejects(sender.send("half of a pair \ud800"), refused("ArgumentError"));
  await assert.rejects(sender.send("x".repeat(5 << 20)), refused("MessageSizeExceeded"));
  await assert.rejects(sender.send("\u20ac".repeat((4 << 20) / 3)), refused("MessageSizeExceeded"));
  await assert.rejects(connection.queues.create(path), refused("EntityAlreadyExists"));
  assert.equal(connection.state, "open");

  // A path that is created later can be used by the same link, also after it was deleted and
  // created again.
  await connection.queues.create(nothing);
  assert.equal(await nowhere.send("x"), 1);
  await connection.queues.delete(nothing);
  await assert.rejects(nowhere.send("x"), refused("EntityNotFound"));
  await connection.queues.create(nothing);
  assert.equal(await nowhere.send("x"), 1);
  await connection.queues.delete(nothing);
});

// SET-13, SET-14, SET-24
test("each message of a settlement has its own result", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(Array.from({ length: 6 }, (_, place) => `m${place}`));
  const receiver = connection.receiver(path, { prefetch: 6 });
  const messages = [];
  for await (const message of receiver) {
    messages.push(message);
    if (messages.length === 6) {
      break;
    }
  }
  await messages[2].complete();
  // Over another receiver the lock tokens are used.
  const [other] = await connection.receiver(path).settle([messages[4]], "complete");
  assert.equal(other, undefined);
  const outcomes = await receiver.settle(messages, "complete");
  const conditions = outcomes.map((outcome) => outcome?.condition);
  assert.deepEqual(conditions, [undefined, undefined, "MessageLockLost", undefined, "MessageLockLost", undefined]);
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 0);
});

// RCV-16, RCV-19, RCV-21
test("messages are locked on demand, and at most as many as prefetch allows", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(Array.from({ length: 20 }, (_, place) => `m${place}`));
  for (const [prefetch, left] of [[0, 19], [5, 14]]) {
    const receiver = connection.receiver(path, { prefetch });
    const messages = receiver.messages();
    const { value: first } = await messages.next();
    assert.equal(first.text, "m0");
    // The request uses the same connection, where requests wait for the credit before them.
    if (prefetch > 0) {
      await receiver.peek();
    }
    const others = await drained(connection.receiver(path));
    assert.equal(others.length, left, `prefetch ${prefetch}`);
    await first.release();
    await connection.receiver(path).settle(others, "release");
    // When the loop ends, unseen messages are released without a counted delivery. A later request
    // of the link waits for that.
    await messages.return();
    await receiver.peek();
    const back = await drained(connection.receiver(path));
    assert.deepEqual(new Set(back.map(({ deliveryCount }) => deliveryCount)), new Set([1]));
    assert.equal(back.length, 20);
    await connection.receiver(path).settle(back, "release");
  }
});

// RCV-01, RCV-02, RCV-16
test("receive and delete delivers each message once to one of several receivers", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const texts = Array.from({ length: 50 }, (_, place) => `m${place}`);
  await connection.sender(path).sendBatch(texts);
  const receiver = connection.receiver(path, { mode: "receiveAndDelete", prefetch: 7 });
  const got = [];
  for (const stop of [3, 20, 50]) {
    for await (const message of receiver) {
      got.push(message.text);
      if (got.length === stop) {
        break;
      }
    }
  }
  assert.deepEqual(got, texts);
});

// RCV-10 to RCV-14
test("a receive waits, can be cancelled, and loses nothing", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const receiver = connection.receiver(path);
  assert.deepEqual(await receiver.receive({ waitSeconds: 0 }), []);
  const waiting = receiver.receive({ waitSeconds: 60 });
  await connection.sender(path).send("come");
  const [message] = await waiting;
  await message.complete();

  const abort = new AbortController();
  const ended = receiver.receive({ waitSeconds: 60, signal: abort.signal });
  await receiver.peek();
  abort.abort();
  assert.deepEqual(await ended, []);
  const unsent = new AbortController();
  const never = receiver.receive({ waitSeconds: 60, signal: unsent.signal });
  unsent.abort();
  assert.deepEqual(await never, []);
  assert.deepEqual(await receiver.receive({ signal: AbortSignal.abort() }), []);

  const loop = new AbortController();
  const seen = [];
  const looped = (async () => {
    for await (const message of receiver.messages({ signal: loop.signal })) {
      seen.push(message.text);
      await message.complete();
      loop.abort();
    }
  })();
  await connection.sender(path).send("one");
  await looped;
  assert.deepEqual(seen, ["one"]);
});

// SET-01, SET-03, SET-28
test("a handler completes by returning and abandons by throwing", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, { maxDeliveryCount: 2 });
  const total = 40;
  let running = 0;
  let most = 0;
  const errors = [];
  let finish;
  const finished = new Promise((resolve) => {
    finish = resolve;
  });
  let left = total + 1;
  const receiver = connection.receiver(path, { prefetch: 10 });
  const handler = async (message) => {
    running += 1;
    most = Math.max(most, running);
    await receiver.peek({ from: 1, maxCount: 1 });
    running -= 1;
    left -= 1;
    if (left === 0) {
      finish();
    }
    if (message.text === "m7") {
      throw new Error("cannot");
    }
    if (message.text === "m8") {
      await message.deadLetter({ reason: "by hand" });
    }
  };
  const subscription = receiver.subscribe(handler, { concurrency: 4, onError: (error) => errors.push(error.message) });
  await connection.sender(path).sendEach(Array.from({ length: total }, (_, place) => `m${place}`));
  await finished;
  await subscription.stop();
  await subscription.done;
  assert.ok(most > 1 && most <= 4, `${most} at once`);
  assert.deepEqual(errors, ["cannot", "cannot"]);
  const letters = await drained(connection.receiver(`${path}/$deadletterqueue`));
  const reasons = letters.map(({ text, applicationProperties }) => [text, applicationProperties.DeadLetterReason]);
  assert.deepEqual(Object.fromEntries(reasons), { m7: "MaxDeliveryCountExceeded", m8: "by hand" });
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 2);
});

// SND-07, SND-09, SND-13, SND-14, SND-29, SND-31
test("sends are pipelined, numbered in their order, and bounded", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const sender = connection.sender(path, { inFlightMax: 10 });
  const numbers = await Promise.all(Array.from({ length: 500 }, (_, place) => sender.send(`m${place}`)));
  assert.deepEqual(numbers, Array.from({ length: 500 }, (_, place) => place + 1));
  assert.deepEqual(await sender.sendBatch(["a", "b"]), [501, 502]);
  assert.deepEqual(await sender.sendBatch([]), []);

  const outcomes = await sender.sendEach(["good", { messageId: "x".repeat(129) }, "too"]);
  assert.deepEqual(outcomes.map(({ sequenceNumber }) => sequenceNumber), [503, undefined, 504]);
  assert.equal(outcomes[1].error.condition, "ArgumentOutOfRange");
  await assert.rejects(sender.sendBatch(["good", { messageId: "x".repeat(129) }]), refused("ArgumentOutOfRange"));
  assert.equal((await connection.queues.get(path)).runtime.activeMessageCount, 504);
  assert.equal(await connection.receiver(path).purge(), 504);

  const small = await connected(t, { requestCountMax: 5, bufferSizeMax: 1000 });
  // Waiting sends count as well.
  const bounded = small.sender(path, { inFlightMax: 1 });
  const results = await Promise.allSettled(Array.from({ length: 9 }, () => bounded.send("x")));
  const busy = results.filter(({ reason }) => reason?.condition === "ServerBusy" && reason.retryable);
  assert.equal(busy.length, 4);
  const big = await Promise.allSettled([bounded.send("x".repeat(800)), bounded.send("x".repeat(800))]);
  assert.deepEqual(big.map(({ status }) => status), ["fulfilled", "rejected"]);
});

// SCH-01, SCH-02, SCH-05, DUP-02
test("scheduled messages can be cancelled, and duplicates return 0", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, { requiresDuplicateDetection: true });
  const sender = connection.sender(path);
  const at = new Date(Date.now() + 3_600_000);
  const first = await sender.schedule("later", at);
  const second = await sender.schedule({ body: "later too" }, at.toISOString());
  const [peeked] = await connection.receiver(path).peek();
  assert.deepEqual([peeked.state, peeked.scheduledEnqueueTimeUtc], ["Scheduled", at]);
  await assert.rejects(sender.cancelScheduled(first, 4711), refused("MessageNotFound"));
  await sender.cancelScheduled(first, second);
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 0);

  assert.equal(await sender.send({ messageId: "same" }), 3);
  assert.equal(await sender.send({ messageId: "same" }), 0);
});

// PEK-01, PEK-04, DEL-01, DEL-03
test("peek continues at its position, and messages are deleted without a receive", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["a", "b", "c", "d"]);
  const receiver = connection.receiver(path);
  const texts = async (options) => (await receiver.peek(options)).map(({ text }) => text);
  assert.deepEqual(await texts({ maxCount: 3 }), ["a", "b", "c"]);
  assert.deepEqual(await texts(), ["d"]);
  assert.deepEqual(await texts(), []);
  assert.deepEqual(await texts({ from: 2, maxCount: 1 }), ["b"]);
  assert.equal(await receiver.deleteBatch({ enqueuedBefore: new Date(0) }), 0);
  assert.equal(await receiver.deleteBatch({ maxCount: 1 }), 1);
  assert.equal(await receiver.purge(), 3);
});

// ENT-01, CNT-01, CNT-02
test("queues are managed, with their counts", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, { lockDuration: "PT30S", maxDeliveryCount: 3, userMetadata: "mine" });
  const made = await connection.queues.get(path);
  assert.deepEqual([made.path, made.lockDuration, made.maxDeliveryCount], [path, "PT30S", 3]);
  const { updatedAt } = made.runtime;
  const changed = await connection.queues.update(path, { maxDeliveryCount: 4, userMetadata: null }, { version: updatedAt });
  assert.deepEqual([changed.maxDeliveryCount, changed.userMetadata, changed.lockDuration], [4, null, "PT30S"]);
  const late = connection.queues.update(path, { maxDeliveryCount: 5 }, { version: updatedAt });
  await assert.rejects(late, refused("UpdateConflict", { retryable: true }));
  const paths = [];
  for (let more; (more = await connection.queues.list({ skip: paths.length, top: 3 })).length > 0; ) {
    paths.push(...more.map((queue) => queue.path));
  }
  assert.deepEqual(paths, [...new Set(paths)].sort());
  assert.ok(paths.includes(path));
  assert.equal(await connection.queues.exists(path), true);
  await connection.queues.delete(path);
  assert.equal(await connection.queues.exists(path), false);
});

// DEC-01, DEC-06, DEC-09, DEC-11, DEC-13, DEC-18
test("a declaration is planned and carried out", async (t) => {
  const connection = await connected(t);
  const name = `declared-${process.pid}-${Math.random().toString(36).slice(2)}`;
  const { declarations, queues, topics } = connection;
  const dear = { name: "dear", filter: { type: "sql", sql: "price > @limit", parameters: { limit: typed("i32", 100) } } };
  const declared = {
    queues: [{ path: name, properties: { maxDeliveryCount: 5 } }],
    topics: [{ path: `${name}-topic`, subscriptions: [{ name: "eu", properties: {}, rules: [dear] }] }],
  };
  const plan = await declarations.plan(declared);
  assert.deepEqual(plan.steps.map(({ kind, entity }) => `${kind} ${entity}`), ["create topic", "create queue", "create subscription"]);
  assert.equal(await queues.exists(name), false);
  const first = await declarations.carryOut(declared, plan.digest, { stepsMax: 1 });
  assert.deepEqual([first.done, first.rest.steps.length, first.failure], [1, 2, undefined]);
  await assert.rejects(declarations.carryOut(declared, plan.digest), refused("UpdateConflict", { retryable: true }));
  assert.equal((await declarations.declare(declared)).steps.length, 2);
  assert.equal((await queues.get(name)).maxDeliveryCount, 5);
  const rules = await topics.listRules(subscriptionPath(`${name}-topic`, "eu"));
  assert.deepEqual(rules.map(({ name, filter }) => [name, filter.parameters["@limit"]]), [["dear", typed("i32", 100)]]);
  assert.deepEqual((await declarations.declare(declared)).steps, []);
  await topics.createSubscription(`${name}-topic`, "us");
  const { steps } = await declarations.plan({ ...declared, deleteUnnamed: true });
  assert.deepEqual([steps[0].kind, steps[0].path], ["delete", subscriptionPath(`${name}-topic`, "us")]);
  assert.ok(steps.every(({ kind }) => kind === "delete"));
  const fixed = { queues: [{ path: name, properties: { requiresSession: true } }] };
  await assert.rejects(declarations.declare(fixed), refused("ArgumentError", { retryable: false }));
});

// TOP-01, TOP-03, TOP-13, TOP-17, TOP-24, SQL-14
test("a topic gives each subscription the messages selected by its rules", async (t) => {
  const connection = await connected(t);
  const topic = `topic-${process.pid}-${Math.random().toString(36).slice(2)}`;
  const { topics } = connection;
  await topics.create(topic, { userMetadata: "mine" });
  assert.equal((await topics.update(topic, { userMetadata: null })).userMetadata, null);
  const eu = subscriptionPath(topic, "eu");
  const dear = {
    name: "dear",
    filter: { type: "sql", sql: "price > @limit AND region = 'eu'", parameters: { "@limit": typed("i32", 100) } },
    action: { sql: "SET priority = 'high'" },
  };
  const made = await topics.createSubscription(topic, "eu", { properties: { maxDeliveryCount: 3 }, rules: [dear] });
  assert.deepEqual([made.path, made.maxDeliveryCount, made.runtime.activeMessageCount], [eu, 3, 0]);
  const coffee = { name: "coffee", filter: { type: "correlation", subject: "coffee", properties: { paid: true } } };
  assert.deepEqual((await topics.createRule(eu, coffee)).filter.properties.paid, true);
  assert.deepEqual((await topics.getRule(eu, "DEAR")).filter.parameters["@limit"], typed("i32", 100));
  await assert.rejects(topics.createRule(eu, coffee), refused("EntityAlreadyExists"));
  const wrong = { name: "x", filter: { type: "sql", sql: "a >" } };
  await assert.rejects(topics.createSubscription(topic, "x", { rules: [wrong] }), refused("ArgumentError"));
  assert.equal(await topics.subscriptionExists(subscriptionPath(topic, "x")), false);

  const [explained] = await topics.explain(eu, { subject: "coffee", applicationProperties: { paid: false } });
  assert.deepEqual([explained.rule, explained.verdict], ["coffee", "doesNotMatch"]);

  const sender = connection.sender(topic);
  await sender.send({ body: "machine", applicationProperties: { price: 700, region: "eu" } });
  await sender.send({ body: "cheap", applicationProperties: { price: 7, region: "eu" } });
  await sender.send({ body: "cup", subject: "coffee", applicationProperties: { paid: true } });
  const receiver = connection.receiver(eu);
  const messages = await receiver.receive({ maxCount: 10 });
  assert.deepEqual(messages.map(({ text }) => text), ["machine", "cup"]);
  assert.equal(messages[0].applicationProperties.priority, "high");
  await Promise.all(messages.map((message) => message.complete()));

  await topics.updateRule(eu, { name: "coffee" });
  assert.deepEqual((await topics.listRules(eu)).map(({ name, filter }) => [name, filter.type]), [
    ["coffee", "true"],
    ["dear", "sql"],
  ]);
  await topics.deleteRule(eu, "dear");
  assert.equal((await topics.updateSubscription(eu, { status: "ReceiveDisabled" })).status, "ReceiveDisabled");
  await assert.rejects(connection.receiver(eu).receive(), refused("EntityDisabled"));
  assert.deepEqual((await topics.listSubscriptions(topic)).map(({ name }) => name), ["eu"]);
  assert.ok((await topics.list({ top: 100 })).some(({ path }) => path === topic));
  await topics.deleteSubscription(eu);
  assert.equal((await topics.get(topic)).runtime.subscriptionCount, 0);
  await topics.delete(topic);
  assert.equal(await topics.exists(topic), false);
});

// ENT-24
test("a receiver is notified when its queue stops delivering, and continues when it resumes", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const receiver = connection.receiver(path);
  const disabled = assert.rejects(receiver.messages().next(), refused("EntityDisabled"));
  await receiver.peek();
  await connection.queues.update(path, { status: "ReceiveDisabled" });
  await disabled;
  await connection.queues.update(path, { status: "Active" });
  await connection.sender(path).send("on");
  const { value } = await receiver.messages().next();
  assert.equal(value.text, "on");
  await value.complete();

  const gone = assert.rejects(receiver.messages().next(), refused("EntityNotFound"));
  await receiver.peek();
  await connection.queues.delete(path);
  await gone;
  await connection.queues.create(path);
  await connection.sender(path).send("anew");
  const anew = await receiver.messages().next();
  assert.equal(anew.value.text, "anew");
});

// SET-32, RCV-26: each queue has fewer messages than credit, so the broker could deliver released
// messages again.
test("a loop that is left before an orderly close leaves no message locked", async (t) => {
  const watch = await connected(t);
  for (let round = 0; round < 30; round += 1) {
    const path = await queue(watch);
    await watch.sender(path).sendBatch(["one", "two", "three", "four"]);
    const connection = await connected(t);
    for await (const message of connection.receiver(path, { prefetch: 10 })) {
      await message.complete();
      break;
    }
    await connection.close();
    const others = await watch.receiver(path).receive({ maxCount: 10, waitSeconds: 0 });
    assert.deepEqual(others.map(({ deliveryCount }) => deliveryCount), [1, 1, 1], `round ${round}`);
  }
});

// SET-21
test("an orderly close completes pending settlements and keeps locks", async (t) => {
  const watch = await connected(t);
  const path = await queue(watch);
  await watch.sender(path).sendBatch(["in hand", "in the buffer", "being handled"]);
  const connection = await connected(t);
  const receiver = connection.receiver(path, { prefetch: 2 });
  const messages = receiver.messages();
  const { value: held } = await messages.next();
  await receiver.peek();
  const sent = connection.sender(path).send("on the way");
  await connection.close();
  assert.equal(connection.state, "closed");
  assert.equal(await sent, 4);
  await assert.rejects(connection.queues.list(), refused("OperationCancelled"));
  await assert.rejects(receiver.receive(), refused("OperationCancelled"));
  assert.equal((await messages.next()).done, true);
  const others = await drained(watch.receiver(path));
  assert.deepEqual(
    others.map(({ text, deliveryCount }) => [text, deliveryCount]),
    [["in the buffer", 1], ["being handled", 1], ["on the way", 1]],
  );
  const [outcome] = await watch.receiver(path).settle([held], "complete");
  assert.equal(outcome, undefined);
});
