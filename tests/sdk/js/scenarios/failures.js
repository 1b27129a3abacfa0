// What goes wrong outside: a broker that is killed or stopped, entities that vanish; and ways to connect.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import WebSocket from "ws";
import { Broker } from "../broker.js";
import { assert, bodies, refused, scenario } from "../world.js";

/** A broker of a scenario's own, that it may kill. */
async function own(w, run) {
  const place = mkdtempSync(join(tmpdir(), "peeklock-sdk-js-own-"));
  const broker = new Broker(w.broker.program, join(place, "broker"));
  await broker.start();
  try {
    await broker.ask("PUT", "queues/q", {});
    const retryOptions = { maxRetries: 20, retryDelayInMs: 300, timeoutInMs: 10_000 };
    await run(broker, w.open(broker.connectionString(), { retryOptions }));
  } finally {
    await broker.kill();
    rmSync(place, { recursive: true });
  }
}

// AMQP-79, SND-29
scenario("what was acknowledged is there after a kill", (w) =>
  own(w, async (broker, client) => {
    const sender = client.createSender("q");
    for (let body = 0; body < 20; body += 1) await sender.sendMessages({ body });
    await broker.kill();
    await broker.start();
    await sender.sendMessages({ body: 20 });
    const receiver = client.createReceiver("q");
    const messages = await w.receive(receiver, 21);
    assert.deepEqual(bodies(messages), Array.from({ length: 21 }, (_, body) => body));
  }));

// SET-21
scenario("a function goes on after a kill", (w) =>
  own(w, async (broker, client) => {
    const found = [];
    const receiver = client.createReceiver("q");
    const subscription = receiver.subscribe({
      processMessage: async (message) => void found.push(message.body),
      processError: async () => {},
    });
    const sender = client.createSender("q");
    await sender.sendMessages({ body: "before" });
    await w.until(async () => found.includes("before"), "the first message");
    await broker.kill();
    await broker.start();
    await sender.sendMessages({ body: "after" });
    await w.until(async () => found.includes("after"), "the message after the kill", 40_000);
    await subscription.close();
  }));

// AMQP-91
scenario("a broker that stops says so and clients come back", (w) =>
  own(w, async (broker, client) => {
    const sender = client.createSender("q");
    await sender.sendMessages({ body: "a" });
    await broker.stop();
    await broker.start();
    await sender.sendMessages({ body: "b" });
    assert.deepEqual(bodies(await w.receive(client.createReceiver("q"), 2)), ["a", "b"]);
  }));

// AMQP-79
scenario("a queue that is deleted takes its links with it", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  await sender.sendMessages({ body: "x" });
  await w.ask("DELETE", `queues/${queue}`);
  await refused(sender.sendMessages({ body: "y" }), "MessagingEntityNotFound");
  await w.ask("PUT", `queues/${queue}`, {});
  await sender.sendMessages({ body: "z" });
  assert.deepEqual(await w.drain(queue), ["z"]);
});

/** This SDK always opens wss; without TLS the socket class has to rewrite that (AMQP-18). */
class Plain extends WebSocket {
  constructor(url, protocols, options) {
    super(url.replace("wss://", "ws://").replace(/:443(?=\/)/, ""), protocols, options);
  }
}

// AMQP-17, AMQP-18
scenario("messages pass over WebSocket", async (w) => {
  const queue = await w.queue();
  const client = w.open(undefined, { webSocketOptions: { webSocket: Plain } });
  const body = Buffer.alloc(900_000, "0123456789abcdef!");
  const sender = client.createSender(queue);
  await sender.sendMessages([{ body: "one" }, { body: "two" }]);
  await sender.sendMessages({ body });
  const receiver = client.createReceiver(queue);
  const messages = await w.receive(receiver, 3);
  assert.deepEqual(bodies(messages.slice(0, 2)), ["one", "two"]);
  assert.ok(body.equals(messages[2].body), "the body differs");
  for (const message of messages) await receiver.completeMessage(message);
  assert.equal((await w.runtime(queue)).activeMessageCount, 0);
});

// AMQP-07
scenario("a client is opened and closed often", async (w) => {
  const queue = await w.queue();
  for (let body = 0; body < 10; body += 1) {
    const client = w.open();
    await client.createSender(queue).sendMessages({ body });
    await client.close();
  }
  assert.equal((await w.drain(queue)).length, 10);
});
