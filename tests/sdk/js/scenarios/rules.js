// Rules of a subscription, through its management node.

import { assert, bodies, refused, scenario } from "../world.js";

async function rulesOf(manager) {
  const found = [];
  for await (const rule of manager.listRules()) found.push(rule);
  return found;
}

// AMQP-86, AMQP-87, TOP-14
scenario("rules are listed, added and removed", async (w) => {
  const topic = await w.topic(["s"]);
  const manager = w.client.createRuleManager(topic, "s");
  assert.deepEqual((await rulesOf(manager)).map(({ name }) => name), ["$Default"]);
  await manager.createRule("eu", { sqlExpression: "region = 'eu'" }, { sqlExpression: "SET seen = 1" });
  await manager.deleteRule("$Default");
  const rules = await rulesOf(manager);
  assert.equal(rules.length, 1);
  assert.equal(rules[0].name, "eu");
  assert.equal(rules[0].filter.sqlExpression, "region = 'eu'");
  assert.equal(rules[0].action.sqlExpression, "SET seen = 1");
  const sender = w.client.createSender(topic);
  await sender.sendMessages({ body: "no", applicationProperties: { region: "us" } });
  await sender.sendMessages({ body: "yes", applicationProperties: { region: "eu" } });
  const receiver = w.client.createReceiver(topic, "s");
  const [message] = await w.receive(receiver, 1);
  assert.equal(message.body, "yes");
  assert.equal(message.applicationProperties.seen, 1);
  await w.nothing(receiver);
});

// AMQP-86, AMQP-87, TOP-16
scenario("a rule may be of properties", async (w) => {
  const topic = await w.topic(["s"]);
  const manager = w.client.createRuleManager(topic, "s");
  await manager.deleteRule("$Default");
  const filter = { subject: "tea", correlationId: "c", applicationProperties: { size: "large" } };
  await manager.createRule("tea", filter);
  const [rule] = await rulesOf(manager);
  assert.equal(rule.filter.subject, "tea");
  assert.equal(rule.filter.applicationProperties.size, "large");
  const sender = w.client.createSender(topic);
  const right = { subject: "tea", correlationId: "c", applicationProperties: { size: "large" } };
  await sender.sendMessages([{ body: "yes", ...right }, { body: "no", ...right, subject: "milk" }]);
  const receiver = w.client.createReceiver(topic, "s");
  assert.deepEqual(bodies(await w.receive(receiver, 1)), ["yes"]);
  await w.nothing(receiver);
});

// AMQP-82
scenario("a rule is added once and removed once", async (w) => {
  const topic = await w.topic(["s"]);
  const manager = w.client.createRuleManager(topic, "s");
  await manager.createRule("one", { sqlExpression: "1=1" });
  await refused(manager.createRule("one", { sqlExpression: "1=1" }), "MessagingEntityAlreadyExists");
  await manager.deleteRule("one");
  await refused(manager.deleteRule("one"), "MessagingEntityNotFound");
});
