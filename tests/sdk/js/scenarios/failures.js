// External failures: a broker that is killed or stopped, entities that are deleted.

import { assert, bodies, refused, scenario } from "../world.js";

/** Runs with a broker of its own, and a client that reconnects to it. */
const own = (w, run, timeoutInMs = 10_000) =>
  w.own((broker) => {
    const retryOptions = { maxRetries: 20, retryDelayInMs: 300, timeoutInMs };
    return run(broker, w.open(broker.connectionString(), { retryOptions }));
  });

// AMQP-79, SND-29
scenario("acknowledged messages are there after a kill", (w) =>
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

// AMQP-41, FND-02
scenario("nothing accepted is missing after kills in the middle", (w) => {
  const run = async (broker, client) => {
    const accepted = new Set();
    let isOver = false;
    const send = async (number) => {
      const sender = client.createSender("q");
      for (let count = 0; !isOver; count += 1) {
        const body = `${number}-${count}`;
        try {
          await sender.sendMessages({ body });
          accepted.add(body);
        } catch {
          // The outcome of the send is unknown.
        }
      }
    };
    const goOn = () => {
      const goal = accepted.size + 100;
      return w.until(async () => accepted.size >= goal, "further messages are accepted");
    };
    const senders = Array.from({ length: 4 }, (_, number) => send(number));
    try {
      for (let kill = 0; kill < 2; kill += 1) {
        await goOn();
        await broker.kill();
        await broker.start();
      }
      await goOn();
    } finally {
      isOver = true;
    }
    await Promise.all(senders);
    // A message without an answer may be absent, stored once, or stored twice.
    const found = new Set(await w.drain("q", w.open(broker.connectionString())));
    assert.deepEqual([...accepted].filter((body) => !found.has(body)), []);
  };
  // A pending send on a broken connection fails only after this time.
  return own(w, run, 3_000);
});

// SET-21
scenario("a function continues after a kill", (w) =>
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
scenario("a stopping broker notifies clients and they reconnect", (w) =>
  own(w, async (broker, client) => {
    const sender = client.createSender("q");
    await sender.sendMessages({ body: "a" });
    await broker.stop();
    await broker.start();
    await sender.sendMessages({ body: "b" });
    assert.deepEqual(bodies(await w.receive(client.createReceiver("q"), 2)), ["a", "b"]);
  }));

// AMQP-79
scenario("a deleted queue ends its links", async (w) => {
  const queue = await w.queue();
  const sender = w.client.createSender(queue);
  await sender.sendMessages({ body: "x" });
  await w.ask("DELETE", `queues/${queue}`);
  // A message on its way when the link ends is never answered: the SDK waits for 20 s, and has no code.
  await w.until(() => !sender._sender.isOpen(), "the end of the link");
  await refused(sender.sendMessages({ body: "y" }), "MessagingEntityNotFound");
  await w.ask("PUT", `queues/${queue}`, {});
  await sender.sendMessages({ body: "z" });
  assert.deepEqual(await w.drain(queue), ["z"]);
});
