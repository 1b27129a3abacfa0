// Ways to connect: AMQP over WebSocket, TLS with a verified authority, and clients that open and
// close.

import WebSocket from "ws";
import { assert, bodies, refused, scenario } from "../world.js";

/** This SDK always uses wss. Without TLS the socket class must change that (AMQP-18). */
class Plain extends WebSocket {
  constructor(url, protocols, options) {
    super(url.replace("wss://", "ws://").replace(/:443(?=\/)/, ""), protocols, options);
  }
}

/** Sends and receives small messages and a large one. */
async function pass(w, client, queue) {
  const body = Buffer.alloc(900_000, "0123456789abcdef!");
  const sender = client.createSender(queue);
  await sender.sendMessages([{ body: "one" }, { body: "two" }]);
  await sender.sendMessages({ body });
  const receiver = client.createReceiver(queue);
  const messages = await w.receive(receiver, 3);
  assert.deepEqual(bodies(messages.slice(0, 2)), ["one", "two"]);
  assert.ok(body.equals(messages[2].body), "the body differs");
  for (const message of messages) await receiver.completeMessage(message);
}

// AMQP-17, AMQP-18
scenario("messages pass over WebSocket", async (w) => {
  const queue = await w.queue();
  await pass(w, w.open(undefined, { webSocketOptions: { webSocket: Plain } }), queue);
  assert.equal((await w.runtime(queue)).activeMessageCount, 0);
});

for (const [over, options] of [
  // AMQP-02
  ["TLS", {}],
  // AMQP-02, AMQP-17, AMQP-18
  ["WebSocket and TLS", { webSocketOptions: { webSocket: WebSocket } }],
]) {
  scenario(`messages pass over ${over}`, (w) =>
    w.own(
      async (broker) => {
        const client = w.open(broker.connectionString(), options);
        await pass(w, client, "q");
        await client.close();
        assert.equal((await broker.ask("GET", "queues/q")).runtime.totalMessageCount, 0);
      },
      ["--tls"],
      w.authority,
    ));

  scenario(`who does not trust the authority sends nothing over ${over}`, (w) =>
    w.own(
      async (broker) => {
        const retryOptions = { maxRetries: 0, timeoutInMs: 10_000 };
        const client = w.open(broker.connectionString(), { ...options, retryOptions });
        const error = await refused(client.createSender("q").sendMessages({ body: "x" }));
        assert.match(`${error.code} ${error.message}`, /certificate/i);
        assert.equal((await broker.ask("GET", "queues/q")).runtime.totalMessageCount, 0);
      },
      // With a certificate of an unknown authority.
      ["--tls"],
    ));
}

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
