// Access: keys, rights, tokens that expire, connection strings of entities.

import { ROOT, sign } from "../broker.js";
import { assert, bodies, refused, scenario, sleep } from "../world.js";

const WRONG = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const ONCE = { retryOptions: { maxRetries: 0 } };

// AMQP-21, SEC-14
scenario("a wrong key is refused", async (w) => {
  const queue = await w.queue();
  const client = w.open(w.broker.connectionString({ key: WRONG }), ONCE);
  const error = await refused(client.createSender(queue).sendMessages({ body: "x" }));
  assert.ok(!error.message.includes(WRONG));
  assert.equal((await w.runtime(queue)).totalMessageCount, 0);
});

// AMQP-25, SEC-05
scenario("a policy that may listen may not send", async (w) => {
  const queue = await w.queue();
  const key = await w.policy(queue, "ears", "Listen");
  await w.send(queue, ["x"]);
  const client = w.open(w.broker.connectionString({ policy: "ears", key }), ONCE);
  await refused(client.createSender(queue).sendMessages({ body: "y" }), "UnauthorizedAccess");
  const receiver = client.createReceiver(queue);
  const [message] = await w.receive(receiver, 1);
  await receiver.completeMessage(message);
});

// AMQP-25, SEC-05
scenario("a policy that may send may not listen", async (w) => {
  const queue = await w.queue();
  const key = await w.policy(queue, "mouth", "Send");
  const client = w.open(w.broker.connectionString({ policy: "mouth", key }), ONCE);
  await client.createSender(queue).sendMessages({ body: "x" });
  await refused(client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 1_000 }), "UnauthorizedAccess");
  assert.deepEqual(await w.drain(queue), ["x"]);
});

// SEC-12, SEC-13
scenario("a policy of one queue is refused at another", async (w) => {
  const [queue, other] = [await w.queue(), await w.queue()];
  const key = await w.policy(queue, "mine", "Send", "Listen");
  const client = w.open(w.broker.connectionString({ policy: "mine", key }), ONCE);
  await client.createSender(queue).sendMessages({ body: "x" });
  await refused(client.createSender(other).sendMessages({ body: "x" }));
});

// SEC-18, SEC-20
scenario("a connection string may be of one queue", async (w) => {
  const queue = await w.queue();
  const client = w.open(w.broker.connectionString({ entity: queue }));
  await client.createSender(queue).sendMessages({ body: "x" });
  assert.deepEqual(await w.drain(queue), ["x"]);
});

// SEC-10, AMQP-23, AMQP-24
scenario("a token signed earlier is accepted", async (w) => {
  const queue = await w.queue();
  const token = sign(ROOT, w.broker.key, `sb://${w.broker.amqp}/${queue}`, 60);
  const client = w.open(w.broker.tokenString(token));
  await client.createSender(queue).sendMessages({ body: "x" });
  assert.deepEqual(await w.drain(queue), ["x"]);
});

// AMQP-24, SEC-14
scenario("a token that has ended is refused", async (w) => {
  const queue = await w.queue();
  const token = sign(ROOT, w.broker.key, `sb://${w.broker.amqp}/${queue}`, -5);
  const client = w.open(w.broker.tokenString(token), ONCE);
  await refused(client.createSender(queue).sendMessages({ body: "x" }));
});

// AMQP-26, SEC-15
scenario("a link ends with its token", async (w) => {
  const queue = await w.queue();
  const token = sign(ROOT, w.broker.key, `sb://${w.broker.amqp}/${queue}`, 3);
  const client = w.open(w.broker.tokenString(token), ONCE);
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: "in time" });
  await sleep(4_500);
  await refused(sender.sendMessages({ body: "late" }));
  assert.deepEqual(await w.drain(queue), ["in time"]);
});

// SEC-09
scenario("a replaced key is refused", async (w) => {
  const queue = await w.queue();
  const key = await w.policy(queue, "mine", "Send");
  const client = w.open(w.broker.connectionString({ policy: "mine", key }), ONCE);
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: "before" });
  await w.ask("POST", `queues/${queue}/policies/mine/regenerate`, { key: "primary" });
  await sleep(1_200);
  await refused(sender.sendMessages({ body: "after" }));
  assert.deepEqual(await w.drain(queue), ["before"]);
});

// AMQP-24
scenario("a policy of a topic applies to its subscriptions", async (w) => {
  const topic = await w.topic(["s"]);
  const path = `topics/${topic}/policies/team`;
  await w.ask("PUT", path, { rights: ["Send", "Listen"] });
  const key = (await w.ask("POST", `${path}/keys`)).primaryKey;
  const client = w.open(w.broker.connectionString({ policy: "team", key }));
  await client.createSender(topic).sendMessages({ body: "x" });
  assert.deepEqual(bodies(await w.receive(client.createReceiver(topic, "s"), 1)), ["x"]);
});
