// Uses every part of the client by its types; compiled, not run.

import {
  type CarriedOut,
  connect,
  type Committed,
  type Condition,
  Connection,
  type Decision,
  type Declaration,
  type DeclarationPlan,
  type HeadPage,
  type Holders,
  type Inspection,
  PeeklockError,
  type Queue,
  type ReceivedMessage,
  type Receiver,
  type Rule,
  type SendOutcome,
  type SessionReceiver,
  subscriptionPath,
  type Tap,
  type Topic,
  type Transaction,
  typed,
  TypedValue,
} from "peeklock";

export async function everything(): Promise<void> {
  const connection: Connection = await connect("ws://127.0.0.1:5301/", {
    token: async () => "token",
    client: "types",
    graceSeconds: 30,
    WebSocket,
  });
  connection.addEventListener("state", ({ detail }) => {
    const state: "connecting" | "open" | "lost" | "closed" = detail.state;
    return [state, detail.resumed, detail.error?.condition];
  });
  connection.addEventListener("problem", ({ detail }) => detail.trackingId);
  connection.addEventListener("closing", ({ detail }) => detail.seconds.toFixed(0));
  // @ts-expect-error: there is no such event
  connection.addEventListener("opened", () => {});

  const queue: Queue = await connection.queues.create("orders", { lockDuration: "PT30S", forwardTo: null });
  const active: number = queue.runtime.activeMessageCount - (queue.runtime.delayedMessageCount ?? 0);
  const longest: string | undefined = queue.retryPolicy?.delayMax;
  await connection.queues.update("orders", { retryPolicy: { kind: "linear", delay: longest ?? "PT1S" }, sessionRetryOrder: "pass" });
  await connection.queues.update("orders", { retryPolicy: null });
  // @ts-expect-error: no such kind
  await connection.queues.update("orders", { retryPolicy: { kind: "cubic", delay: "PT1S" } });
  await connection.queues.update("orders", { maxDeliveryCount: active }, { version: queue.runtime.updatedAt });
  // @ts-expect-error: a misspelled property
  await connection.queues.update("orders", { maxDeliverCount: 3 });

  const topic: Topic = await connection.topics.create("events", { supportOrdering: true });
  const rule: Rule = await connection.topics.createRule(subscriptionPath(topic.path, "eu"), {
    name: "dear",
    filter: { type: "sql", sql: "price > @limit", parameters: { limit: typed("i32", 5) } },
    action: { sql: "SET priority = 'high'" },
  });
  // @ts-expect-error: a property of another filter type
  await connection.topics.updateRule("events/Subscriptions/eu", { name: rule.name, filter: { type: "true", sql: "1=1" } });
  const declared: Declaration = { topics: [{ path: topic.path, subscriptions: [{ name: "eu", rules: [rule] }] }], keepExisting: true };
  const plan: DeclarationPlan = await connection.declarations.plan(declared);
  const { done, rest, failure }: CarriedOut = await connection.declarations.carryOut(declared, plan.digest, { stepsMax: 1 });
  const changed: string | undefined = (await connection.declarations.declare(declared)).steps[done]?.changes?.[0]?.property;
  const why: Condition | undefined = failure?.condition;
  const left: number = rest.steps.length + rest.unchangedCount;
  const [explained] = await connection.topics.explain("events/Subscriptions/eu", "text");
  const verdicts: (boolean | null)[] | undefined = explained?.tests.map(({ result }) => result);
  await connection.topics.createSubscription("events", "all", { properties: { forwardTo: verdicts ? "orders" : null } });

  const sender = connection.sender("orders", { inFlightMax: 10 });
  const number: number = await sender.send("text");
  await sender.send(new Uint8Array([1]));
  await sender.send({
    body: "text",
    timeToLive: 60,
    applicationProperties: { table: 7, big: 7n, at: new Date(), i32: typed("i32", 5), nothing: null },
  });
  // @ts-expect-error: a misspelled property
  await sender.send({ bdoy: "text" });
  // @ts-expect-error: no such property type
  typed("int", 5);
  const outcomes: SendOutcome[] = await sender.sendEach(["a", { body: "b" }]);
  for (const outcome of outcomes) {
    if (outcome.error) {
      const condition: Condition = outcome.error.condition;
      throw new Error(condition);
    }
    const stored: number = outcome.sequenceNumber;
    await sender.cancelScheduled(stored, [number]);
  }
  const numbers: number[] = await sender.sendBatch(["a", "b"]);
  await sender.schedule("later", new Date(0));

  const receiver: Receiver = connection.receiver("orders", { mode: "peekLock", prefetch: 10 });
  for await (const message of receiver) {
    await look(message, receiver);
    break;
  }
  const abort = new AbortController();
  for await (const message of receiver.messages({ signal: abort.signal })) {
    await message.deadLetter({ reason: "poison", properties: { by: "types" } });
    // @ts-expect-error: only deadLetter has a reason
    await message.abandon({ reason: "poison" });
  }
  const subscription = receiver.subscribe(async (message) => message.text, {
    concurrency: 4,
    onError: (error: unknown, message) => [error, message?.sequenceNumber],
  });
  await subscription.stop();
  const [first] = await receiver.receive({ maxCount: 10, waitSeconds: 1, signal: abort.signal });
  await first?.complete();
  await receiver.receiveDeferred(...numbers);
  await receiver.peek({ from: 1 });
  const removed: number = (await receiver.deleteBatch()) + (await receiver.purge({ enqueuedBefore: new Date() }));
  await receiver.deleteDeferred(removed);
  const transaction: Transaction = await connection.beginTransaction({ crossEntity: true });
  await transaction.send(sender, { body: "text" });
  await transaction.schedule(sender, "later", new Date());
  await transaction.cancelScheduled(sender, ...numbers);
  if (first) {
    await transaction.deadLetter(first, { reason: "poison" });
    // @ts-expect-error: a release has no place in a transaction
    await transaction.release(first);
  }
  const committed: Committed = await transaction.commit();
  const ends: (Date | undefined)[] = committed.parts.map(({ lockedUntilUtc }) => lockedUntilUtc);
  await receiver.receiveDeferred(committed.sequenceNumbers, ends.length);
  await transaction.rollBack();
  const session: SessionReceiver = await connection.acceptNextSession("steps", { waitSeconds: 1, signal: abort.signal });
  for await (const message of session) {
    await message.complete();
    break;
  }
  const state: string | Uint8Array | undefined = await session.getState();
  await session.setState(state ?? null);
  await transaction.setState(session, state ?? null);
  // @ts-expect-error: a state is text or bytes
  await session.setState({ step: 1 });
  const until: Date = await session.renewSession();
  const stop: () => void = session.keepSession({ onLost: (error) => error.condition });
  stop();
  const ids: string[] = await connection.queues.sessions("steps", { stateSetAfter: until, top: 10 });
  await lookAround(connection.inspection);
  const other = await connection.acceptSession("steps", ids[0] ?? session.sessionId, { mode: "receiveAndDelete" });
  const count: number | undefined = queue.runtime.lockedSessionCount;
  await connection.queues.deleteUnlocked("steps", { maxCount: count ?? 1 });
  await other.close();
  await connection.close({ seconds: 1 });
}

async function look(message: ReceivedMessage, receiver: Receiver): Promise<void> {
  const body: string | Uint8Array = message.body;
  const value = message.applicationProperties["table"];
  if (value instanceof TypedValue) {
    const type: string = value.type;
    throw new PeeklockError("ArgumentError", type, { cause: body });
  }
  const decision: Decision = "release";
  const failed: (PeeklockError | undefined)[] = await receiver.settle([message], decision);
  const stop: () => void = message.keepLocked({ maxSeconds: 60, onLost: (error) => error.retryable });
  stop();
  const until: Date = await message.renew();
  // @ts-expect-error: a received message is read-only
  message.lockedUntilUtc = until;
  throw failed[0] ?? new Error("none failed");
}

async function lookAround(inspection: Inspection): Promise<void> {
  const { heads, next }: HeadPage = await inspection.heads("orders", { states: ["locked"], from: new Date(), count: 10 });
  await inspection.heads("orders", { after: next });
  const start: string | Uint8Array | undefined = heads[0]?.bodyStart;
  const holder: string | undefined = heads[0]?.lock?.holder?.name;
  // @ts-expect-error: a lock has no token here
  const token = heads[0]?.lock?.lockToken;
  const part = await inspection.body("orders", heads[0]?.sequenceNumber ?? 1, { from: 256, length: 1024 });
  const { locks } = await inspection.locks("orders", { sort: "age", top: 5 });
  const { sessions } = await inspection.sessions("steps", { sort: "oldestEnqueuedAtUtc", stateSetAfter: new Date() });
  const state: Uint8Array | undefined = (await inspection.sessionState("steps", sessions[0]?.sessionId ?? "s"))?.bytes;
  const counts: number[] = (await inspection.timeline("orders", { of: "expiring", slotSeconds: 600 })).counts;
  await inspection.timeline();
  const waits: (number | null)[] | undefined = (await inspection.series("orders", { columns: ["waitP95Us"], resolutionSeconds: 60 })).columns.waitP95Us;
  const journey = await inspection.journey("orders", { sequenceNumber: 7 });
  const rule: string | undefined = journey.stations[0]?.rule;
  await inspection.journey("", { messageId: rule ?? journey.completeSinceUtc });
  const samples = await inspection.samples("events", { top: 1 });
  const explained = await inspection.explain("events", { sequenceNumber: samples.samples[0]?.sequenceNumber ?? 1 });
  const copied: unknown = explained.subscriptions[0]?.copies[0]?.message.applicationProperties["class"];
  const tried = await inspection.whatIf("events", [{ subscription: "eu", remove: "r" }, { subscription: "us", rule: { name: "r" } }]);
  const lost: string | undefined = tried.differences[0]?.lost[0];
  await inspection.explain("events", { message: { subject: lost ?? String(copied) } });
  await inspection.series("", { from: new Date(counts[0] ?? waits?.[0] ?? 0) });
  const { totals } = await inspection.entities({ conditions: ["hasDeadLetters"], sort: "deadLetterMessageCount" });
  const { nodes, edges } = await inspection.topology({ around: "orders", hops: 2 });
  const reached: string | undefined = nodes[edges[0]?.to ?? 0]?.entity?.path;
  const { findings } = await inspection.checks({ path: reached ?? "", kind: "deadLettersUnread", muted: false });
  // @ts-expect-error: there is no such kind
  await inspection.checks({ kind: findings[0]?.remedy });
  const { clients } = await inspection.clients({ transport: "amqp" });
  for await (const { hits, end } of inspection.search({ where: "reason:timeout", signal: AbortSignal.timeout(1000) })) {
    const found: string | undefined = hits[0]?.match?.excerpt ?? hits[0]?.path ?? end?.groups?.[0]?.value;
    await inspection.search({ after: end?.next, where: [{ field: "json", path: "$.id", is: "equals", value: 17 }] }).return();
    throw new Error(found);
  }
  // @ts-expect-error: there is no such sub-queue
  await inspection.search({ subQueues: ["deadLetters"] }).next();
  // @ts-expect-error: there is no such state
  await inspection.heads("orders", { states: ["lost"] });
  const tap: Tap = await inspection.tap("orders");
  for await (const { omitted } of tap) {
    throw [start, holder, token, part.bytes, locks, state, counts, totals.receiverCount, clients, omitted];
  }
}

async function free(holders: Holders): Promise<void> {
  const count: number = await holders.breakLocks("orders", [17, 18], { counted: true });
  const [acted] = await holders.act("orders", { sequenceNumbers: [17], deed: { reschedule: { later: "PT1H" } } });
  if (acted?.result === "done") await holders.forgetJob("orders", "b");
  // @ts-expect-error: there is no such deed
  await holders.act("orders", { sequenceNumbers: [17], deed: { purge: {} } });
  const { job, preview } = await holders.createJob("orders", { where: "subject=test", deed: { delete: {} }, trial: 10 });
  if (preview) await holders.controlJob(job, { start: { digest: preview.digest } });
  // @ts-expect-error: there is no such control
  await holders.controlJob(job, { redo: {} });
  const wasHeld: boolean = await holders.breakSession("steps", "s");
  await holders.setSessionState("steps", "s", null);
  await holders.muteFinding("orders", "nearlyFull", "known");
  await holders.unmuteFinding("", "diskNearlyFull");
  await holders.closeClient(count);
  // @ts-expect-error: an object is no state
  await holders.setSessionState("steps", "s", { wasHeld });
}
