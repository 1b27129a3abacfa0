// The client against a server in the test that violates the protocol.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import WebSocket, { WebSocketServer } from "ws";
import { connect } from "peeklock";
import { atEnd, connected, inState } from "./support.js";

const welcome = {
  resumed: false,
  received: 0,
  resumeToken: "5b2c1f00-7a43-4c7e-9d55-0f4d5f3f8a21",
  graceSeconds: 30,
  heartbeatSeconds: 20,
  nowUtc: "2026-05-01T12:00:00Z",
  namespace: "test",
  server: "test",
  frameBytesMax: 1000,
  commandCountMax: 4,
  linkCountMax: 256,
  unsettledCountMax: 8192,
};

/** A broker that sends a welcome, and answers each later request with `answer`. */
async function server(t, answer = () => ({ done: {} }), more = {}) {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0, handleProtocols: () => "peeklock.v1.json" });
  atEnd(t, () => server.close());
  await once(server, "listening");
  server.url = `ws://127.0.0.1:${server.address().port}/`;
  server.frames = [];
  server.sockets = [];
  server.on("connection", (socket) => {
    server.sockets.push(socket);
    const say = (frame) => socket.send(JSON.stringify(frame));
    const said = { ...welcome, ...more };
    socket.on("message", (data) => {
      const frame = JSON.parse(data);
      if (frame.requests[0]?.hello) {
        server.hello = frame.requests[0].hello;
        say({ seen: 0, items: [{ id: 1, welcome: said }] });
        return;
      }
      server.frames.push(frame);
      const items = frame.requests.flatMap((request) => {
        const answered = answer(request, socket);
        return answered && request.id ? [{ id: request.id, ...answered }] : [];
      });
      if (items.length > 0) {
        say({ seen: server.frames.length, items });
      }
    });
  });
  return server;
}

test("the hello names the client, and each one requests a token", async (t) => {
  const broker = await server(t);
  let count = 0;
  const token = async () => `token ${(count += 1)}`;
  const connection = await connected(t, { client: "shop", token, reconnectMs: 1 }, broker.url);
  assert.deepEqual(broker.hello, { client: "shop", graceSeconds: 30, token: "token 1" });
  const open = inState(connection, "open");
  broker.sockets[0].terminate();
  await open;
  assert.equal(broker.hello.token, "token 2");
  assert.deepEqual(broker.hello.resume, { resumeToken: welcome.resumeToken, received: 0 });
});

test("a permanent refusal is not retried", async (t) => {
  for (const [code, reason] of [[4001, "a token is needed"], [1002, "cannot be read"], [4002, "no hello"]]) {
    const broker = new WebSocketServer({ host: "127.0.0.1", port: 0 });
    atEnd(t, () => broker.close());
    await once(broker, "listening");
    let count = 0;
    broker.on("connection", (socket) => {
      count += 1;
      socket.close(code, reason);
    });
    const url = `ws://127.0.0.1:${broker.address().port}/`;
    await assert.rejects(connect(url, { WebSocket, reconnectMs: 1 }), {
      condition: "CommunicationProblem",
      retryable: false,
      closeCode: code,
      detail: `the broker closed the connection with ${code}: ${reason}`,
    });
    assert.equal(count, 1);
  }
});

test("a temporary failure is retried, with a limit at the first connection", async (t) => {
  const broker = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  atEnd(t, () => broker.close());
  await once(broker, "listening");
  let count = 0;
  broker.on("connection", (socket) => {
    count += 1;
    socket.close(1013, "too many connections");
  });
  const url = `ws://127.0.0.1:${broker.address().port}/`;
  const options = { WebSocket, reconnectMs: 1, reconnectMaxMs: 5, connectSeconds: 0.2 };
  await assert.rejects(connect(url, options), { condition: "CommunicationProblem", retryable: true, closeCode: 1013 });
  assert.ok(count > 3, `${count} attempts`);
});

test("an invalid frame ends the connection and refuses waiting requests", async (t) => {
  for (const frame of ["{", "[]", "null", '{"seen":99,"items":[]}', '{"items":[{"deliveries":{"link":1,"first":7,"messages":[{}]}}]}']) {
    const broker = await server(t, () => undefined);
    const connection = await connected(t, {}, broker.url);
    const link = connection.receiver("orders");
    const next = assert.rejects(link.messages().next(), { condition: "CommunicationProblem", retryable: false }, frame);
    const waiting = assert.rejects(connection.queues.list(), { condition: "CommunicationProblem", retryable: false }, frame);
    const closed = inState(connection, "closed");
    broker.sockets[0].send(frame);
    assert.match((await closed).error.detail, /cannot be read/, frame);
    await Promise.all([next, waiting]);
  }
});

test("requests in flight and frame sizes stay within the limits of the broker", async (t) => {
  const held = [];
  const broker = await server(t, (request) => {
    held.push(request);
    return undefined;
  });
  const connection = await connected(t, {}, broker.url);
  const answers = Promise.allSettled(Array.from({ length: 10 }, (_, place) => connection.queues.get(`q${place}`)));
  const tooLarge = assert.rejects(connection.queues.get("x".repeat(1000)), { condition: "MessageSizeExceeded" });
  const sizes = [];
  while (held.length < 10) {
    const before = held.length;
    while (held.length === before) {
      await once(broker.sockets[0], "message");
    }
    sizes.push(held.length - before);
    assert.ok(held.length - before <= 4, `${held.length - before} at once`);
    const items = held.slice(before).map(({ id }) => ({ id, queue: { path: "q" } }));
    broker.sockets[0].send(JSON.stringify({ seen: broker.frames.length, items }));
  }
  assert.ok((await answers).every(({ status }) => status === "fulfilled"));
  await tooLarge;
  assert.deepEqual(sizes, [4, 4, 2]);
});

// SND-13
test("a sender uses its whole limit of requests in flight", async (t) => {
  const held = [];
  const broker = await server(t, (request) => {
    if (!request.send) {
      return { done: {} };
    }
    held.push(request);
    return undefined;
  });
  const connection = await connected(t, {}, broker.url);
  const sender = connection.sender("q", { inFlightMax: 2 });
  const sent = Promise.all(Array.from({ length: 5 }, (_, place) => sender.send(`m${place}`)));
  const bodies = () => held.map(({ send }) => send.messages[0].body);
  const answer = async (place) => {
    const items = [{ id: held[place].id, accepted: { sequenceNumbers: [[place + 1, 1]] } }];
    broker.sockets[0].send(JSON.stringify({ seen: broker.frames.length, items }));
    // All earlier frames were processed when this is answered.
    await connection.queues.list().catch(() => {});
  };
  await connection.queues.list().catch(() => {});
  assert.deepEqual(bodies(), ["m0", "m1"]);
  for (let place = 0; place < 5; place += 1) {
    await answer(place);
    assert.equal(held.length, Math.min(5, place + 3));
  }
  assert.deepEqual(await sent, [1, 2, 3, 4, 5]);
});

test("frames of the broker are confirmed before many of them wait", async (t) => {
  const broker = await server(t);
  await connected(t, {}, broker.url);
  for (let count = 0; count < 64; count += 1) {
    broker.sockets[0].send('{"seen":0,"items":[{"heartbeat":{}}]}');
  }
  await once(broker.sockets[0], "message");
  assert.deepEqual(broker.frames, [{ seen: 64, requests: [] }]);
  const item = { deliveries: { link: 9, first: 1, messages: [{ body: "x".repeat(300_000) }] } };
  broker.sockets[0].send(JSON.stringify({ seen: 1, items: [item] }));
  await once(broker.sockets[0], "message");
  assert.equal(broker.frames[1].seen, 65);
});

test("heartbeats are sent, and a silent broker is disconnected", async (t) => {
  let hear;
  const heard = new Promise((resolve) => {
    hear = resolve;
  });
  const broker = await server(t, (request) => hear(request), { heartbeatSeconds: 1 });
  const connection = await connected(t, { reconnectMs: 1 }, broker.url);
  const closed = once(broker.sockets[0], "close");
  const { reason } = await inState(connection, "lost");
  assert.match(reason, /nothing arrived/);
  // Code 1000 would have ended the connection that must continue.
  assert.equal((await closed)[0], 4000);
  assert.deepEqual(await heard, { heartbeat: {} });
});

// SET-17: the broker of this test grants short locks and counts renewals.
test("the lock of a message is renewed while its handler runs, and not after", async (t) => {
  let left = 3;
  let finish;
  const renewed = new Promise((resolve) => {
    finish = resolve;
  });
  const asked = [];
  const in2Seconds = () => new Date(Date.now() + 2000).toISOString();
  const delivery = () => ({
    link: 1,
    first: 1,
    messages: [{ body: "slow", sequenceNumber: 1, enqueuedTimeUtc: in2Seconds(), lockToken: "t", lockedUntilUtc: in2Seconds() }],
  });
  const answer = (request, socket) => {
    if (request.attach) {
      socket.send(JSON.stringify({ seen: 0, items: [{ deliveries: delivery() }] }));
    }
    if (request.renew) {
      left -= 1;
      if (left === 0) {
        finish();
      }
      return { renewed: { lockedUntilUtc: in2Seconds() } };
    }
    asked.push(Object.keys(request).at(-1));
    return request.settle ? { settled: {} } : { done: {} };
  };
  const broker = await server(t, answer, { nowUtc: new Date().toISOString() });
  const connection = await connected(t, {}, broker.url);
  const problems = [];
  const subscription = connection.receiver("q").subscribe(() => renewed, { onError: (error) => problems.push(error) });
  await renewed;
  await subscription.stop();
  assert.deepEqual(problems, []);
  assert.equal(left, 0);
  assert.ok(asked.includes("settle"));
});

// ERR-06
test("while the broker is away, requests wait for a limited time", async (t) => {
  const broker = await server(t, () => undefined, { graceSeconds: 0, resumeToken: undefined });
  const connection = await connected(t, { offlineSeconds: 0.3 }, broker.url);
  const lost = inState(connection, "lost");
  const sent = assert.rejects(connection.queues.list(), { condition: "CommunicationProblem", retryable: true });
  await once(broker.sockets[0], "message");
  for (const socket of broker.sockets) {
    socket.terminate();
  }
  broker.close();
  await lost;
  await sent;
  await assert.rejects(connection.queues.list(), { condition: "CommunicationProblem", retryable: true });
  await assert.rejects(connection.queues.list(), /not restored in time/);
});

test("a connection closed while it reconnects leaves no socket", async (t) => {
  const broker = await server(t);
  const connection = await connected(t, { reconnectMs: 1 }, broker.url);
  const lost = inState(connection, "lost");
  // The next connection is accepted, but gets no welcome.
  broker.removeAllListeners("connection");
  const again = once(broker, "connection");
  broker.sockets[0].terminate();
  await lost;
  const [socket] = await again;
  const closed = once(socket, "close");
  await connection.close({ seconds: 0 });
  await closed;
});

// SET-32: the deliveries of this test arrive while the receiver closes, before the answer that it
// waits for.
test("a closing receiver releases deliveries in flight", async (t) => {
  for (const close of [({ receiver }) => receiver.close(), ({ connection }) => connection.close()]) {
    const until = new Date(Date.now() + 60_000).toISOString();
    const push = (socket, first, count) => {
      const messages = Array.from({ length: count }, (_, place) => ({
        body: "tea", sequenceNumber: first + place, enqueuedTimeUtc: until, lockToken: `t${place}`, lockedUntilUtc: until,
      }));
      socket.send(JSON.stringify({ seen: 0, items: [{ deliveries: { link: 1, first, messages } }] }));
    };
    let isLate = false;
    const broker = await server(t, (request, socket) => {
      if (request.attach) {
        push(socket, 1, 2);
      }
      if (!isLate && (request.drain || request.detach)) {
        isLate = true;
        push(socket, 3, 2);
      }
      if (request.drain) {
        return { drained: { unused: 0 } };
      }
      return request.settle ? { settled: {} } : { done: {} };
    }, { nowUtc: new Date().toISOString() });
    const connection = await connected(t, {}, broker.url);
    const receiver = connection.receiver("q", { prefetch: 10 });
    for await (const message of receiver) {
      await message.complete();
      break;
    }
    await close({ connection, receiver });
    const requests = broker.frames.flatMap(({ requests }) => requests);
    const decisions = requests.filter(({ settle }) => settle).map(({ settle }) => [settle.decision, settle.ranges]);
    assert.deepEqual(decisions, [["complete", [[1, 1]]], ["release", [[2, 2]]], ["release", [[3, 4]]]]);
    // With credit left, the broker would deliver the released message again.
    const place = (name) => requests.findIndex((request) => request[name]);
    assert.deepEqual(requests[place("credit")].credit, { link: 1, upTo: 2 });
    assert.ok(place("credit") < requests.findIndex(({ settle }) => settle?.decision === "release"));
    assert.ok(place("drain") < place("detach"));
  }
});

// TXN-06: the broker reports a timeout, and the client refuses later operations itself.
test("a transaction that timed out is over", async (t) => {
  const error = {
    condition: "TransactionTimedOut",
    retryable: false,
    trackingId: "5b2c1f00-7a43-4c7e-9d55-0f4d5f3f8a21",
    detail: "transaction 9007199254740991 took too long and was rolled back",
    entity: "",
    timestamp: "2026-05-01T12:00:00Z",
  };
  const broker = await server(t, (request) => {
    if (request.beginTransaction) {
      return { transaction: { transaction: Number.MAX_SAFE_INTEGER } };
    }
    return request.sendIn || request.commit ? { error } : { done: {} };
  });
  const connection = await connected(t, {}, broker.url);
  const transaction = await connection.beginTransaction();
  await assert.rejects(transaction.send(connection.sender("orders"), "late"), { condition: "TransactionTimedOut" });
  await assert.rejects(transaction.commit(), { condition: "TransactionTimedOut", retryable: false });
  await assert.rejects(transaction.complete(undefined), { condition: "InvalidOperation", trackingId: undefined });
  await transaction.rollBack();
  const asked = broker.frames.flatMap(({ requests }) => requests);
  assert.deepEqual(asked.find(({ commit }) => commit).commit, { transaction: Number.MAX_SAFE_INTEGER, operations: 0 });
});
