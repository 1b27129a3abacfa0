// Inspection by the client: messages in any state, locks, sessions, clients, schedules, taps.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PeeklockError, typed } from "peeklock";
import { connected, queue } from "./support.js";

const refusedAs = (condition) => (error) => error instanceof PeeklockError && error.condition === condition;

// CON-01, CON-02, CON-24
test("heads show messages in any state, with their locks and properties", async (t) => {
  const connection = await connected(t, { client: "inspector" });
  const path = await queue(connection);
  const sender = connection.sender(path);
  await sender.send({ body: "locked", messageId: "one", applicationProperties: { table: 7, exact: typed("u8", 3) } });
  await sender.send(new Uint8Array([0xff, 0xfe]));
  await sender.schedule("later", new Date(Date.now() + 3_600_000));
  const [message] = await connection.receiver(path).receive();
  const accessed = (await connection.queues.get(path)).runtime.accessedAt;

  const { heads, examined, next, nowUtc } = await connection.inspection.heads(path);
  assert.deepEqual(heads.map(({ sequenceNumber, state }) => [sequenceNumber, state]), [[1, "locked"], [2, "active"], [3, "scheduled"]]);
  assert.deepEqual([examined, next], [3, undefined]);
  assert.ok(Math.abs(Date.parse(nowUtc) - Date.now()) < 60_000, nowUtc);
  const [first, second, third] = heads;
  assert.deepEqual([first.bodyStart, first.messageId, first.applicationProperties.table], ["locked", "one", 7]);
  assert.deepEqual(first.applicationProperties.exact, typed("u8", 3));
  const { holder } = first.lock;
  assert.deepEqual([holder.name, holder.transport, holder.isConnected], ["inspector", "websocket", true]);
  assert.ok(!JSON.stringify(first).includes(message.lockToken));
  assert.deepEqual(second.bodyStart, new Uint8Array([0xff, 0xfe]));
  assert.equal(second.bodyStartBase64, undefined);
  assert.ok(third.scheduledEnqueueTimeUtc > nowUtc);

  const numbers = async (options) => (await connection.inspection.heads(path, options)).heads.map((head) => head.sequenceNumber);
  assert.deepEqual(await numbers({ states: ["scheduled", "locked"] }), [1, 3]);
  assert.deepEqual(await numbers({ descending: true, count: 2 }), [3, 2]);
  assert.deepEqual(await numbers({ from: 2, states: ["active"] }), [2]);
  assert.deepEqual(await numbers({ from: new Date(Date.now() + 60_000) }), [3]);
  const page = await connection.inspection.heads(path, { count: 1 });
  assert.deepEqual(await numbers({ after: page.next }), [2, 3]);
  assert.equal((await connection.queues.get(path)).runtime.accessedAt, accessed);
  await message.complete();
  await assert.rejects(connection.inspection.heads(path, { count: 501 }), refusedAs("ArgumentOutOfRange"));
  await assert.rejects(connection.inspection.heads("absent"), refusedAs("EntityNotFound"));
});

// CON-03
test("a body is read by range", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const body = new Uint8Array(300_000).map((_, place) => place % 251);
  const number = await connection.sender(path).send(body);
  const { heads } = await connection.inspection.heads(path);
  assert.deepEqual([heads[0].bodySize, heads[0].bodyKind], [300_000, "data"]);
  assert.deepEqual(heads[0].bodyStart, body.subarray(0, 256));
  const whole = await connection.inspection.body(path, number);
  assert.deepEqual([whole.kind, whole.size, whole.from], ["data", 300_000, 0]);
  assert.deepEqual(whole.bytes, body);
  const part = await connection.inspection.body(path, number, { from: 299_990, length: 20 });
  assert.deepEqual(part.bytes, body.subarray(299_990));
  await assert.rejects(connection.inspection.body(path, 99), refusedAs("MessageNotFound"));
});

// CON-03: the start is cut before a character that would exceed 256 bytes, so its length is the place of the rest.
test("a text continues where its start ends", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const sender = connection.sender(path);
  const mixed = '\u0001"\\\n€é😀\u202e';
  const texts = [0, 1, 2, 3].map((shift) => "x".repeat(shift) + mixed.repeat(40));
  texts.push("x".repeat(256), "x".repeat(255) + "é", "€".repeat(85), "");
  const numbers = await sender.sendBatch(texts);
  const { heads } = await connection.inspection.heads(path);
  for (const [place, { bodyStart }] of heads.entries()) {
    const from = new TextEncoder().encode(bodyStart).length;
    assert.ok(from <= 256 && (from > 252 || bodyStart === texts[place]), `${place}: ${from}`);
    const { bytes } = await connection.inspection.body(path, numbers[place], { from });
    assert.equal(bodyStart + new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), texts[place]);
  }
});

// CON-24, CON-25
test("locks and clients have their holders", async (t) => {
  const [connection, other] = [await connected(t), await connected(t, { client: "billing-7f" })];
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["one", "two"]);
  const messages = other.receiver(path).messages();
  const { value: one } = await messages.next();
  await messages.next();
  const page = await connection.inspection.locks(path, { sort: "age", top: 1 });
  assert.deepEqual([page.locks.length, page.total, page.locks[0].sequenceNumber], [1, 2, 1]);
  assert.equal(page.locks[0].lock.holder.name, "billing-7f");
  const rest = await connection.inspection.locks(path, { sort: "age", after: page.next });
  assert.deepEqual(rest.locks.map(({ sequenceNumber }) => sequenceNumber), [2]);
  await one.renew();
  const { locks } = await connection.inspection.locks(path);
  assert.deepEqual(locks.map(({ lock }) => lock.renewalCount).sort(), [0, 1]);
  const { clients } = await connection.inspection.clients({ path, name: "BILLING" });
  assert.equal(clients.length, 1);
  assert.equal(clients[0].clientId, page.locks[0].lock.holder.clientId);
  const { path: linked, role, unsettledCount } = clients[0].links[0];
  assert.deepEqual([linked, role, unsettledCount], [path, "receiver", 2]);
  await messages.return();
});

// CON-27
test("sessions have counts, a state and a holder", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection, { requiresSession: true });
  await connection.sender(path).sendBatch(["a", "b", "b"].map((sessionId) => ({ body: "x", sessionId })));
  const session = await connection.acceptSession(path, "b");
  await session.setState("packed");
  const { sessions, total } = await connection.inspection.sessions(path, { sort: "activeMessageCount", descending: true });
  assert.deepEqual(sessions.map(({ sessionId, activeMessageCount }) => [sessionId, activeMessageCount]), [["b", 2], ["a", 1]]);
  assert.equal(total, 2);
  assert.deepEqual([sessions[0].stateSize, sessions[0].isStuck, sessions[0].lock.isOfSession], [6, false, true]);
  const { size, bytes } = await connection.inspection.sessionState(path, "b", { from: 1 });
  assert.deepEqual([size, new TextDecoder().decode(bytes)], [6, "acked"]);
  assert.equal(await connection.inspection.sessionState(path, "a"), undefined);
  const later = new Date(Date.now() + 60_000);
  assert.deepEqual((await connection.inspection.sessions(path, { stateSetAfter: later })).sessions, []);
});

// CON-04, CON-28, CON-33
test("schedules and entities are counted", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const from = new Date();
  for (const minutes of [1, 1, 10]) {
    await connection.sender(path).schedule("x", new Date(from.getTime() + minutes * 60_000 + 30_000));
  }
  const { counts, before, later } = await connection.inspection.timeline(path, { from, slots: 3 });
  assert.deepEqual([counts, before, later], [[0, 2, 0], 0, 1]);
  const all = await connection.inspection.timeline();
  assert.ok(all.counts.length === 60 && all.counts.reduce((sum, count) => sum + count) >= 3);
  // The counts may be a second old.
  let page = await connection.inspection.entities({ path, kind: "queue" });
  while (page.entities[0]?.scheduledMessageCount !== 3) {
    page = await connection.inspection.entities({ path: path.toUpperCase(), kind: "queue" });
  }
  assert.deepEqual([page.total, page.entities[0].path], [1, path]);
  assert.deepEqual([page.totals.scheduledMessageCount, page.totals.totalMessageCount], [3, 3]);
  assert.ok(page.entities[0].conditions.includes("hasNoReceiver"));
});

// CON-05, CON-07, CON-08, CON-11
test("a search yields hits, progress and groups, and ends when it is left", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const messages = [17, 18, 17].map((id) => ({ body: JSON.stringify({ order: { id } }), subject: `s${id}`, applicationProperties: { big: typed("u64", 2n ** 63n) } }));
  await connection.sender(path).sendBatch(messages);
  const all = async (options) => {
    const pages = [];
    for await (const page of connection.inspection.search({ entities: [path], ...options })) {
      pages.push(page);
    }
    return { hits: pages.flatMap(({ hits }) => hits), ...pages.at(-1).end, progress: pages.at(-1).progress };
  };
  const { hits, bound, progress } = await all({ where: "body.$.order.id=17" });
  assert.deepEqual(hits.map((hit) => [hit.path, hit.sequenceNumber]), [[path, 1], [path, 3]]);
  assert.deepEqual([hits[0].match.excerpt, bound, progress.messages, progress.hits], ['{"order":{"id":17}}', undefined, 3, 2]);
  assert.deepEqual(hits[0].applicationProperties.big, typed("u64", 2n ** 63n));
  const first = await all({ where: [{ field: "subject", is: "equals", value: "s17" }], hits: 1 });
  assert.deepEqual([first.hits.length, first.bound], [1, "hits"]);
  const rest = await all({ where: "subject=s17", hits: 1, after: first.next });
  assert.deepEqual(rest.hits.map(({ sequenceNumber }) => sequenceNumber), [3]);
  const { groups } = await all({ groupBy: "subject" });
  assert.deepEqual(groups.map(({ value, count, samples }) => [value, count, samples.length]), [["s17", 2, 2], ["s18", 1, 1]]);
  const abort = new AbortController();
  abort.abort(new Error("enough"));
  await assert.rejects(all({ signal: abort.signal }), /enough/);
  // Two searches fit: each that was left makes room.
  for (let count = 0; count < 5; count += 1) {
    for await (const page of connection.inspection.search({ entities: [path], hits: 1 })) {
      assert.ok(page.progress.messages > 0);
      break;
    }
  }
  await assert.rejects(all({ where: "subject=" }), refusedAs("ArgumentError"));
  await assert.rejects(all({ entities: ["absent"] }), refusedAs("EntityNotFound"));
});

// CON-26, SET-31
test("locks of others are broken, with or without counting the delivery", async (t) => {
  const [connection, other] = [await connected(t), await connected(t)];
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["one", "two", "three"]);
  const taken = await other.receiver(path).receive({ maxCount: 2 });
  const { holders } = connection;
  assert.equal(await holders.breakLocks(path, [1, 3]), 1);
  await assert.rejects(taken[0].complete(), refusedAs("MessageLockLost"));
  assert.equal(await holders.breakLocks(path, new Set([2]), { counted: true }), 1);
  const { heads } = await connection.inspection.heads(path);
  assert.deepEqual(heads.map(({ state, deliveryCount }) => [state, deliveryCount]), [["active", 0], ["active", 1], ["active", 0]]);
  await assert.rejects(holders.breakLocks(path, Array.from({ length: 501 }, (_, place) => place + 1)), refusedAs("ArgumentOutOfRange"));
});

// CON-12, CON-15
test("messages are acted on by number, once for each step", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["one", "two"]);
  const { holders, inspection } = connection;
  const step = { job: "00000000-0000-0000-0000-00000000000b", number: 1 };
  const act = { sequenceNumbers: new Set([1, 9]), deed: { deadLetter: { reason: "wrong" } }, step };
  const results = [{ sequenceNumber: 1, result: "done" }, { sequenceNumber: 9, result: "notFound" }];
  assert.deepEqual(await holders.act(path, act), results);
  assert.deepEqual(await holders.act(path, act), results);
  await holders.forgetJob(path, step.job);
  assert.equal((await holders.act(path, act))[0].result, "notFound");
  const { heads } = await inspection.heads(path);
  assert.deepEqual(heads.map(({ sequenceNumber }) => sequenceNumber), [2]);
  await assert.rejects(holders.act(path, { ...act, sequenceNumbers: [] }), refusedAs("ArgumentOutOfRange"));
});

// CON-12, CON-14, CON-19
test("a job changes the messages of its preview", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["one", "two", "three"]);
  const { holders, inspection } = connection;
  const until = async (id, state) => {
    for (;;) {
      const job = await inspection.job(id);
      if (job.state === state) {
        return job;
      }
    }
  };
  const { job: id } = await holders.createJob(path, { sequenceNumbers: [1, 3, 9], deed: { delete: {} } });
  const { preview } = await until(id, "ready");
  assert.deepEqual([preview.count, preview.refused], [3, [{ result: "notFound", count: 1 }]]);
  const { samples } = await inspection.jobSamples(id);
  assert.deepEqual(samples.map(({ message }) => [message.sequenceNumber, message.bodyStart]), [[1, "one"], [3, "three"]]);
  await assert.rejects(holders.controlJob(id, { start: { digest: id } }), refusedAs("UpdateConflict"));
  await holders.controlJob(id, { start: { digest: preview.digest } });
  const done = await until(id, "done");
  assert.deepEqual([done.path, done.done, done.failed], [path, 2, 1]);
  const { failures } = await inspection.jobFailures(id);
  assert.deepEqual(failures, [{ sequenceNumber: 9, result: "notFound" }]);
  assert.ok((await inspection.jobs({ top: 100 })).jobs.some(({ job }) => job === id));
  const { heads } = await inspection.heads(path);
  assert.deepEqual(heads.map(({ sequenceNumber }) => sequenceNumber), [2]);
  await assert.rejects(holders.controlJob(id, { cancel: {} }), refusedAs("InvalidOperation"));
});

// CON-22
test("a job exports messages to a file that is read in parts", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["one", "two"]);
  const { holders, inspection } = connection;
  const until = async (id, state) => {
    for (;;) {
      const job = await inspection.job(id);
      if (job.state === state) {
        return job;
      }
    }
  };
  const { job: id } = await holders.createJob(path, { where: "", deed: { export: {} } });
  const { preview } = await until(id, "ready");
  await assert.rejects(inspection.jobExport(id), refusedAs("InvalidOperation"));
  await holders.controlJob(id, { start: { digest: preview.digest } });
  const done = await until(id, "done");
  assert.deepEqual([done.done, done.deed], [2, { export: { form: "ndjson" } }]);
  const [head, tail] = [await inspection.jobExport(id, { length: 10 }), await inspection.jobExport(id, { from: 10 })];
  assert.deepEqual([head.size, head.from, head.bytes.length, tail.from], [done.exportBytes, 0, 10, 10]);
  const text = new TextDecoder().decode(head.bytes) + new TextDecoder().decode(tail.bytes);
  const lines = text.trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines.map(({ body, sequenceNumber }) => [body, sequenceNumber]), [["one", 1], ["two", 2]]);
  await assert.rejects(holders.controlJob(id, { undo: {} }), refusedAs("InvalidOperation"));
});

// CON-26, CON-27
test("a session is broken, and its state is set while nobody holds it", async (t) => {
  const [connection, other] = [await connected(t), await connected(t)];
  const path = await queue(connection, { requiresSession: true });
  await other.acceptSession(path, "a");
  const { holders, inspection } = connection;
  const text = async () => {
    const state = await inspection.sessionState(path, "a");
    return state && new TextDecoder().decode(state.bytes);
  };
  await assert.rejects(holders.setSessionState(path, "a", "mine"), refusedAs("SessionCannotBeLocked"));
  assert.equal(await holders.breakSession(path, "a"), true);
  assert.equal(await holders.breakSession(path, "a", { counted: true }), false);
  await holders.setSessionState(path, "a", "paid");
  assert.equal(await text(), "paid");
  await holders.setSessionState(path, "a", new TextEncoder().encode("sent"));
  assert.equal(await text(), "sent");
  await holders.setSessionState(path, "a", null);
  assert.equal(await text(), undefined);
  await assert.rejects(holders.setSessionState(path, "a", { paid: true }), refusedAs("ArgumentError"));
});

// CON-24, SET-31
test("a client is closed, and its messages are available at once", async (t) => {
  const connection = await connected(t);
  const other = await connected(t, { client: "stuck-9c" });
  const path = await queue(connection);
  await connection.sender(path).send("one");
  const messages = other.receiver(path).messages();
  await messages.next();
  const { clients } = await connection.inspection.clients({ name: "stuck-9c" });
  await connection.holders.closeClient(clients[0].clientId);
  const [message] = await connection.receiver(path).receive();
  assert.equal(message.deliveryCount, 1);
  await message.complete();
  await assert.rejects(connection.holders.closeClient(2 ** 40), refusedAs("EntityNotFound"));
  await messages.return();
});

// CON-34
test("a tap shows each message that is accepted while it is open", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).send("before");
  const tap = await connection.inspection.tap(path);
  await connection.sender(path).sendBatch(["one", "two"]);
  await connection.receiver(path, { mode: "receiveAndDelete" }).receive({ maxCount: 3 });
  const shown = [];
  for await (const { heads, omitted, isReopened } of tap) {
    assert.deepEqual([omitted, isReopened], [0, false]);
    shown.push(...heads.map(({ sequenceNumber, bodyStart }) => [sequenceNumber, bodyStart]));
    if (shown.length === 2) {
      break;
    }
  }
  assert.deepEqual(shown, [[2, "one"], [3, "two"]]);
  const { heads } = await tap.read();
  assert.deepEqual(heads, []);
  await assert.rejects(connection.inspection.tap(`${path}/$deadletterqueue`), refusedAs("InvalidOperation"));
});

// CON-38, CON-39, CON-41
test("the topology has edges, and findings are muted", async (t) => {
  const connection = await connected(t);
  const [from, to] = [await queue(connection), await queue(connection)];
  await connection.queues.update(from, { forwardTo: to });
  const { holders, inspection } = connection;
  const { nodes, edges, longestChain } = await inspection.topology({ around: from, hops: 1 });
  assert.deepEqual(nodes.map(({ name }) => name).sort(), [from, to].sort());
  assert.equal(edges[0].kind, "forward");
  assert.deepEqual(longestChain, { hops: 1, names: [from, to] });
  const { findings, checkedAtUtc } = await inspection.checks({ path: from });
  assert.deepEqual(findings, []);
  assert.ok(!Number.isNaN(Date.parse(checkedAtUtc)));
  await holders.muteFinding(from, "nearlyFull", "known");
  await holders.unmuteFinding(from, "nearlyFull");
  await assert.rejects(holders.muteFinding(from, "nearlyFull", ""), refusedAs("ArgumentOutOfRange"));
  await assert.rejects(inspection.topology({ around: "none-at-all" }), refusedAs("EntityNotFound"));
});

// CON-35, CON-36, CON-37
test("rules of a topic are tried before they are saved", async (t) => {
  const connection = await connected(t);
  const topic = `tried-${crypto.randomUUID()}`;
  await connection.topics.create(topic);
  const rule = (sql) => ({ name: "r", filter: { type: "sql", sql, parameters: { "@limit": typed("i32", 5) } } });
  await connection.topics.createSubscription(topic, "eu", { rules: [rule("price > @limit")] });
  const sender = connection.sender(topic);
  await sender.send({ body: "cheap", messageId: "cheap", applicationProperties: { price: typed("i32", 1) } });
  await sender.send({ body: "dear", messageId: "dear", applicationProperties: { price: typed("i32", 7) } });
  const { samples, total } = await connection.inspection.samples(topic);
  assert.deepEqual(samples.map(({ message, copyCount }) => [message.messageId, copyCount]), [["dear", 1], ["cheap", 0]]);
  assert.equal(total, 2);
  assert.ok(!("body" in samples[0].message));
  for (const of of [{ message: { applicationProperties: { price: typed("i32", 9) } } }, { sequenceNumber: 2 }]) {
    const { subscriptions } = await connection.inspection.explain(topic, of);
    assert.deepEqual(subscriptions.map(({ subscription, rules, copies }) => [subscription, rules[0].verdict, copies.length]), [["eu", "matches", 1]]);
  }
  const found = await connection.inspection.whatIf(topic, [{ subscription: "eu", rule: rule("price < @limit") }]);
  assert.deepEqual(found.subscriptions, [{ subscription: "eu", before: 1, after: 1, gained: 1, lost: 1, changed: 0 }]);
  assert.deepEqual(found.differences.map(({ sample, gained, lost }) => [sample.message.messageId, gained, lost]), [["dear", [], ["eu"]], ["cheap", ["eu"], []]]);
  await assert.rejects(connection.inspection.whatIf(topic, []), refusedAs("ArgumentError"));
});
