// A connection that resumes over another socket loses and doubles nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { connected, drained, inState, Proxy, queue, url } from "./support.js";

const texts = (count) => Array.from({ length: count }, (_, place) => `m${place}`);

// SET-21, SND-01, RCV-24: cut while sending and receiving, also in the middle of frames.
test("a repeatedly cut connection loses and duplicates nothing", async (t) => {
  const proxy = await Proxy.open(t);
  // Limits from the handshake (about 400 bytes) to several deliveries later, at irregular
  // positions.
  proxy.limits = [900, 1500, 2222, 350, 3001, 5003, 1201, 8009, 4099, 12_007, 20_011, 15_013, 30_011, Infinity];
  const cuts = proxy.limits.length;
  const connection = await connected(t, { reconnectMs: 5, reconnectMaxMs: 20 }, proxy.url);
  const resumed = [];
  connection.addEventListener("state", ({ detail }) => detail.state === "open" && resumed.push(detail.resumed));
  const path = await queue(connection, { lockDuration: "PT5M" });
  const wanted = texts(600);
  const sender = connection.sender(path);
  const receiver = connection.receiver(path, { prefetch: 20 });
  const numbers = [];
  const sending = (async () => {
    for (let place = 0; place < wanted.length; place += 20) {
      numbers.push(...(await Promise.all(wanted.slice(place, place + 20).map((text) => sender.send(text)))));
    }
  })();
  const got = [];
  for await (const message of receiver) {
    got.push(message.text);
    assert.equal(message.deliveryCount, 1, message.text);
    await message.complete();
    if (got.length === wanted.length) {
      break;
    }
  }
  await sending;
  assert.deepEqual(got, wanted);
  assert.deepEqual(numbers, Array.from({ length: wanted.length }, (_, place) => place + 1));
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 0);
  assert.ok(proxy.connections >= cuts - 1, `${proxy.connections} sockets`);
  assert.ok(resumed.length >= 5 && resumed.every(Boolean), `resumed: ${resumed}`);
  assert.equal(connection.session, 1);
});

// SET-21
test("locks outlive the socket, and requests are answered over the next one", async (t) => {
  const proxy = await Proxy.open(t);
  const connection = await connected(t, { reconnectMs: 5 }, proxy.url);
  const watch = await connected(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["held", "other"]);
  const receiver = connection.receiver(path);
  const { value: held } = await receiver.messages().next();
  const lost = inState(connection, "lost");
  const open = inState(connection, "open");
  proxy.cut();
  await lost;
  const [waiting, sent] = [connection.receiver(path).receive({ waitSeconds: 60 }), connection.sender(path).send("new")];
  assert.deepEqual(await open, { state: "open", resumed: true });
  const [other] = await waiting;
  assert.equal(other.text, "other");
  assert.equal(await sent, 3);
  assert.deepEqual((await drained(watch.receiver(path))).map(({ text }) => text), ["new"]);
  await held.complete();
  await other.complete();
  assert.equal(connection.session, 1);
});

// SET-21, SET-31, ERR-06: the end of a connection that did not ask for resumption.
test("without resumption a new session begins: locks are gone, links are attached again", async (t) => {
  const proxy = await Proxy.open(t);
  const connection = await connected(t, { graceSeconds: 0, reconnectMs: 5 }, proxy.url);
  const path = await queue(connection);
  const sender = connection.sender(path);
  await sender.sendBatch(["one", "two"]);
  const receiver = connection.receiver(path, { prefetch: 1 });
  const messages = receiver.messages();
  const { value: first } = await messages.next();
  const waiting = assert.rejects(receiver.receive({ waitSeconds: 60 }), { condition: "CommunicationProblem", retryable: true });
  await receiver.peek();
  const open = inState(connection, "open");
  proxy.cut();
  await waiting;
  assert.deepEqual(await open, { state: "open", resumed: false });
  assert.equal(connection.session, 2);
  await assert.rejects(first.complete(), { condition: "MessageLockLost" });
  const { value: again } = await messages.next();
  assert.deepEqual([again.text, again.deliveryCount], ["one", 2]);
  await again.complete();
  const { value: second } = await messages.next();
  assert.equal(second.text, "two");
  await second.complete();
  assert.equal(await sender.send("three"), 3);
});

// SET-21: the second socket takes over, and the first does not reconnect.
test("a final close code ends the connection", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  const closed = inState(connection, "closed");
  const { resumeToken } = connection.welcome;
  const thief = new WebSocket(url, ["peeklock.v1.json"]);
  thief.onopen = () => {
    const resume = { resumeToken, received: 0 };
    thief.send(JSON.stringify({ requests: [{ id: 1, hello: { graceSeconds: 1, resume } }] }));
  };
  const waiting = assert.rejects(connection.receiver(path).receive(), { condition: "CommunicationProblem", retryable: false });
  const { error } = await closed;
  assert.equal(error.closeCode, 4003);
  await waiting;
  thief.close(1000);
});
