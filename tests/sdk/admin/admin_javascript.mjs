// Scenarios for `ServiceBusAdministrationClient` of the package @azure/service-bus, unchanged, over
// https with a verified certificate (NODE_EXTRA_CA_CERTS).

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(new URL("../js/package.json", import.meta.url));
const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");

const string = process.argv[2];
const retryOptions = { maxRetries: 0 };
const admin = new ServiceBusAdministrationClient(string, { retryOptions });
const scenarios = [];
const scenario = (title, run) => scenarios.push({ title, run });
let count = 0;
const fresh = () => `js${(count += 1)}`;
const queue = async (options) => (await admin.createQueue(fresh(), options)).name;
const topic = async (options) => (await admin.createTopic(fresh(), options)).name;
const subscription = async (options) => {
  const name = await topic();
  await admin.createSubscription(name, "s", options);
  return name;
};
const collect = async (pages) => {
  const found = [];
  for await (const one of pages) found.push(one);
  return found;
};
/** Asserts an error with this status and this code of the SDK. */
const refused = async (call, statusCode, code, said = "") => {
  await assert.rejects(call, (error) => {
    assert.equal(error.statusCode, statusCode, error.message);
    if (code) assert.equal(error.code, code, error.message);
    assert.ok(error.message.includes(said), error.message);
    return true;
  });
};
const matches = (told, expected) => {
  for (const [name, value] of Object.entries(expected)) assert.deepEqual(told[name], value, name);
};

const QUEUE = {
  lockDuration: "PT13S",
  maxSizeInMegabytes: 3072,
  requiresDuplicateDetection: true,
  requiresSession: true,
  defaultMessageTimeToLive: "P3DT2M0.5S",
  deadLetteringOnMessageExpiration: true,
  duplicateDetectionHistoryTimeWindow: "PT12M",
  maxDeliveryCount: 14,
  enableBatchedOperations: false,
  status: "ReceiveDisabled",
  autoDeleteOnIdle: "PT10M",
  enablePartitioning: true,
  enableExpress: true,
  userMetadata: "a <b> & 'c' \"é\"",
  maxMessageSizeInKilobytes: 4096,
};
const TOPIC = {
  defaultMessageTimeToLive: "P3D",
  maxSizeInMegabytes: 3072,
  requiresDuplicateDetection: true,
  duplicateDetectionHistoryTimeWindow: "PT12M",
  enableBatchedOperations: false,
  status: "SendDisabled",
  supportOrdering: false,
  autoDeleteOnIdle: "PT10M",
  enablePartitioning: true,
  enableExpress: true,
  userMetadata: "mine",
  maxMessageSizeInKilobytes: 4096,
};
const SUBSCRIPTION = {
  lockDuration: "PT13S",
  requiresSession: true,
  defaultMessageTimeToLive: "P3D",
  deadLetteringOnMessageExpiration: true,
  deadLetteringOnFilterEvaluationExceptions: false,
  maxDeliveryCount: 14,
  enableBatchedOperations: false,
  status: "ReceiveDisabled",
  autoDeleteOnIdle: "PT10M",
  userMetadata: "mine",
};
const FIXED = ["requiresDuplicateDetection", "requiresSession", "enablePartitioning"];
const fixedOf = (all) => Object.fromEntries(Object.entries(all).filter(([name]) => FIXED.includes(name)));

scenario("ADM-38: a queue with a name only has the defaults", async () => {
  const told = await admin.createQueue("js-plain");
  matches(told, { name: "js-plain", lockDuration: "PT1M", maxDeliveryCount: 10, requiresSession: false, status: "Active" });
  matches(told, { maxSizeInMegabytes: 1024, enableBatchedOperations: true, availabilityStatus: "Available" });
});
scenario("ADM-34: a queue keeps all its properties", async () => {
  const name = fresh();
  matches(await admin.createQueue(name, QUEUE), QUEUE);
  matches(await admin.getQueue(name), QUEUE);
});
scenario("ADM-31: a queue is updated in all its properties", async () => {
  const name = await queue(fixedOf(QUEUE));
  matches(await admin.updateQueue({ ...(await admin.getQueue(name)), ...QUEUE }), QUEUE);
  matches(await admin.getQueue(name), QUEUE);
});
scenario("ADM-31: metadata and destinations are cleared", async () => {
  const target = await queue();
  const name = await queue({ forwardTo: target, forwardDeadLetteredMessagesTo: target, userMetadata: "mine" });
  const told = await admin.getQueue(name);
  assert.match(told.forwardTo, new RegExp(`^sb://localhost:\\d+/${target}$`));
  assert.match(told.forwardDeadLetteredMessagesTo, new RegExp(`/${target}$`));
  await admin.updateQueue({ ...told, forwardTo: undefined, forwardDeadLetteredMessagesTo: undefined, userMetadata: undefined });
  const cleared = await admin.getQueue(name);
  assert.ok(!cleared.forwardTo && !cleared.forwardDeadLetteredMessagesTo && !cleared.userMetadata);
});
scenario("ADM-36: a destination survives an update of read properties", async () => {
  const target = await queue();
  const name = await queue({ forwardTo: target });
  await admin.updateQueue({ ...(await admin.getQueue(name)), maxDeliveryCount: 5 });
  assert.match((await admin.getQueue(name)).forwardTo, new RegExp(`/${target}$`));
});
scenario("ADM-04: a queue with slashes and dots", async () => {
  assert.equal((await admin.createQueue("js/orders-1.a_b")).name, "js/orders-1.a_b");
  assert.equal((await admin.getQueue("js/orders-1.a_b")).name, "js/orders-1.a_b");
  await admin.deleteQueue("js/orders-1.a_b");
});
scenario("ADM-04: names ignore case", async () => {
  await admin.createQueue("JsMixed");
  assert.equal((await admin.getQueue("jsmixed")).name, "JsMixed");
});
scenario("ADM-21: a queue is deleted", async () => {
  const name = await queue();
  await admin.deleteQueue(name);
  await refused(() => admin.getQueue(name), 404, "MessageEntityNotFoundError");
});
scenario("ADM-21: an existing entity is reported", async () => {
  assert.equal(await admin.queueExists(await queue()), true);
  assert.equal(await admin.queueExists("absent"), false);
  assert.equal(await admin.topicExists(await topic()), true);
  assert.equal(await admin.topicExists("absent"), false);
});
scenario("ADM-21: existing subscriptions and rules are reported", async () => {
  const name = await subscription();
  assert.equal(await admin.subscriptionExists(name, "s"), true);
  assert.equal(await admin.subscriptionExists(name, "absent"), false);
  assert.equal(await admin.ruleExists(name, "s", "$Default"), true);
  assert.equal(await admin.ruleExists(name, "s", "absent"), false);
});
scenario("ADM-51: an existing entity is not created again", async () => {
  const name = await queue();
  await refused(() => admin.createQueue(name), 409, "MessageEntityAlreadyExistsError");
});
scenario("ADM-21: a topic cannot have the name of a queue", async () => {
  const name = await queue();
  await refused(() => admin.createTopic(name), 409, "MessageEntityAlreadyExistsError");
});
scenario("ADM-51: an absent entity is not found", async () => {
  await refused(() => admin.getTopic("absent"), 404, "MessageEntityNotFoundError");
  await refused(() => admin.deleteQueue("absent"), 404, "MessageEntityNotFoundError");
  await refused(() => admin.getQueueRuntimeProperties("absent"), 404, "MessageEntityNotFoundError");
});
scenario("ADM-21: an update of an absent entity is not found", async () => {
  const told = await admin.getQueue(await queue());
  await admin.deleteQueue(told.name);
  await refused(() => admin.updateQueue(told), 404, "MessageEntityNotFoundError");
});
scenario("ADM-24: a fixed property cannot be changed", async () => {
  const told = await admin.getQueue(await queue());
  await refused(() => admin.updateQueue({ ...told, requiresSession: true }), 400, undefined, "RequiresSession");
});
for (const [name, value, said] of [
  ["lockDuration", "PT6M", "LockDuration"],
  ["maxDeliveryCount", 0, "MaxDeliveryCount"],
  ["maxSizeInMegabytes", 1e9, "MaxSizeInMegabytes"],
  ["autoDeleteOnIdle", "PT1S", "AutoDeleteOnIdle"],
  ["userMetadata", "x".repeat(1025), "UserMetadata"],
]) {
  scenario(`ADM-38: ${name} out of range is named`, async () => {
    await refused(() => admin.createQueue("js-wrong", { [name]: value }), 400, undefined, said);
  });
}
scenario("ADM-36: a destination that is absent is refused", async () => {
  await refused(() => admin.createQueue("js-wrong", { forwardTo: "absent" }), 400);
});
scenario("ADM-36: sessions cannot be forwarded", async () => {
  const target = await queue();
  await refused(() => admin.createQueue("js-wrong", { forwardTo: target, requiresSession: true }), 400);
});
scenario("CNT-09: runtime properties of a queue", async () => {
  const name = await queue();
  const told = await admin.getQueueRuntimeProperties(name);
  matches(told, { name, activeMessageCount: 0, deadLetterMessageCount: 0, scheduledMessageCount: 0, totalMessageCount: 0 });
  matches(told, { transferMessageCount: 0, transferDeadLetterMessageCount: 0, sizeInBytes: 0 });
  assert.ok(told.createdAt instanceof Date && told.createdAt.getFullYear() >= 2026);
});
scenario("ADM-23: queues are listed in pages", async () => {
  const names = new Set();
  for (let count = 0; count < 1000; count += 50) {
    for (const name of await Promise.all(Array.from({ length: 50 }, () => queue()))) names.add(name);
  }
  const told = await collect(admin.listQueues());
  assert.equal(told.filter(({ name }) => names.has(name)).length, 1000);
  const pages = await collect(admin.listQueues().byPage({ maxPageSize: 50 }));
  assert.equal(pages.flat().length, told.length);
  assert.ok(pages.length > 20 && pages.slice(0, -1).every((page) => page.length === 50));
  assert.equal((await collect(admin.listQueuesRuntimeProperties())).length, told.length);
});
scenario("ADM-34: a topic keeps all its properties", async () => {
  const name = fresh();
  matches(await admin.createTopic(name, TOPIC), TOPIC);
  matches(await admin.getTopic(name), TOPIC);
});
scenario("ADM-31: a topic is updated in all its properties", async () => {
  const name = await topic(fixedOf(TOPIC));
  matches(await admin.updateTopic({ ...(await admin.getTopic(name)), ...TOPIC }), TOPIC);
});
scenario("ADM-23: topics are listed", async () => {
  const names = [await topic(), await topic()];
  const told = (await collect(admin.listTopics())).map(({ name }) => name);
  assert.ok(names.every((name) => told.includes(name)));
  assert.equal((await collect(admin.listTopicsRuntimeProperties())).length, told.length);
});
scenario("CNT-04: runtime properties of a topic", async () => {
  const name = await subscription();
  matches(await admin.getTopicRuntimeProperties(name), { name, subscriptionCount: 1, scheduledMessageCount: 0, sizeInBytes: 0 });
});
scenario("ADM-22: a deleted topic deletes its subscriptions", async () => {
  const name = await subscription();
  await admin.deleteTopic(name);
  await refused(() => admin.getSubscription(name, "s"), 404, "MessageEntityNotFoundError");
});
scenario("ADM-38: a subscription has the defaults", async () => {
  const name = await subscription();
  const told = await admin.getSubscription(name, "s");
  matches(told, { topicName: name, subscriptionName: "s", lockDuration: "PT1M", maxDeliveryCount: 10, requiresSession: false });
});
scenario("ADM-34: a subscription keeps all its properties", async () => {
  matches(await admin.getSubscription(await subscription(SUBSCRIPTION), "s"), SUBSCRIPTION);
});
scenario("ADM-31: a subscription is updated in all its properties", async () => {
  const name = await subscription({ requiresSession: true });
  matches(await admin.updateSubscription({ ...(await admin.getSubscription(name, "s")), ...SUBSCRIPTION }), SUBSCRIPTION);
});
scenario("ADM-23: subscriptions are listed", async () => {
  const name = await subscription();
  await admin.createSubscription(name, "a");
  const told = await collect(admin.listSubscriptions(name));
  assert.deepEqual(told.map(({ subscriptionName }) => subscriptionName), ["a", "s"]);
  assert.ok(told.every(({ topicName }) => topicName === name));
  assert.equal((await collect(admin.listSubscriptionsRuntimeProperties(name))).length, 2);
});
scenario("ADM-32: a subscription of a topic with slashes", async () => {
  await admin.createTopic("js/events");
  await admin.createSubscription("js/events", "s");
  matches(await admin.getSubscription("js/events", "s"), { topicName: "js/events", subscriptionName: "s" });
  assert.equal((await admin.getRule("js/events", "s", "$Default")).name, "$Default");
});
scenario("ADM-21: a subscription of an absent topic", async () => {
  await refused(() => admin.createSubscription("absent", "s"), 404, "MessageEntityNotFoundError");
});
scenario("ADM-35: runtime properties of a subscription", async () => {
  const name = await subscription();
  const told = await admin.getSubscriptionRuntimeProperties(name, "s");
  matches(told, { topicName: name, subscriptionName: "s", activeMessageCount: 0, totalMessageCount: 0, deadLetterMessageCount: 0 });
});
scenario("ADM-36: a subscription forwards and is deleted", async () => {
  const target = await queue();
  const name = await subscription({ forwardTo: target });
  assert.match((await admin.getSubscription(name, "s")).forwardTo, new RegExp(`/${target}$`));
  await admin.deleteSubscription(name, "s");
  await refused(() => admin.getSubscription(name, "s"), 404, "MessageEntityNotFoundError");
});
scenario("ADM-42: a new subscription has the default rule", async () => {
  const [rule, ...others] = await collect(admin.listRules(await subscription(), "s"));
  matches(rule, { name: "$Default", filter: { sqlExpression: "1=1", sqlParameters: undefined } });
  assert.equal(others.length, 0);
});
scenario("ADM-42: a subscription with its own rule", async () => {
  const name = await topic();
  await admin.createSubscription(name, "s", { defaultRuleOptions: { name: "mine", filter: { sqlExpression: "a = 1" } } });
  const rules = await collect(admin.listRules(name, "s"));
  assert.deepEqual(rules.map((rule) => [rule.name, rule.filter.sqlExpression]), [["mine", "a = 1"]]);
});
scenario("ADM-41: a rule in SQL with parameters", async () => {
  const name = await subscription();
  const sqlParameters = { "@text": "red", "@int": 7, "@wide": 2 ** 40, "@half": 0.5, "@bool": true, "@at": new Date("2026-05-01T12:00:00.123Z") };
  await admin.createRule(name, "s", "r", { sqlExpression: "c = @text AND n > @int", sqlParameters }, { sqlExpression: "SET x = @a", sqlParameters: { "@a": 3 } });
  const { filter, action } = await admin.getRule(name, "s", "r");
  assert.equal(filter.sqlExpression, "c = @text AND n > @int");
  assert.deepEqual(filter.sqlParameters, sqlParameters);
  assert.deepEqual([action.sqlExpression, action.sqlParameters], ["SET x = @a", { "@a": 3 }]);
});
scenario("ADM-40: a rule by correlation", async () => {
  const name = await subscription();
  const filter = {
    correlationId: "c",
    messageId: "m",
    to: "t",
    replyTo: "r",
    subject: "l",
    sessionId: "s",
    replyToSessionId: "z",
    contentType: "text/plain",
    applicationProperties: { colour: "red", size: 7, share: 0.5, old: false, at: new Date("2026-05-01T00:00:00Z") },
  };
  await admin.createRule(name, "s", "r", filter);
  matches((await admin.getRule(name, "s", "r")).filter, filter);
});
scenario("TOP-24: a rule is updated", async () => {
  const name = await subscription();
  const rule = await admin.createRule(name, "s", "r", { sqlExpression: "a = 1" }, { sqlExpression: "SET b = 2" });
  await admin.updateRule(name, "s", { ...rule, filter: { subject: "x" }, action: { sqlExpression: "SET c = 3" } });
  const told = await admin.getRule(name, "s", "r");
  assert.deepEqual([told.filter.subject, told.action.sqlExpression], ["x", "SET c = 3"]);
});
scenario("ADM-21: a rule is deleted", async () => {
  const name = await subscription();
  await admin.deleteRule(name, "s", "$Default");
  assert.deepEqual(await collect(admin.listRules(name, "s")), []);
  await refused(() => admin.getRule(name, "s", "$Default"), 404, "MessageEntityNotFoundError");
});
scenario("ADM-23: rules are listed by name", async () => {
  const name = await subscription();
  for (const rule of ["b", "C", "a"]) await admin.createRule(name, "s", rule, { sqlExpression: "1=1" });
  assert.deepEqual((await collect(admin.listRules(name, "s"))).map((rule) => rule.name), ["$Default", "a", "b", "C"]);
});
scenario("ADM-43: an invalid rule is refused", async () => {
  const name = await subscription();
  await refused(() => admin.createRule(name, "s", "r", { sqlExpression: "a = = 1" }), 400, undefined, "column 5");
});
scenario("ADM-43: a rule that exists is not created again", async () => {
  const name = await subscription();
  await refused(() => admin.createRule(name, "s", "$Default", { sqlExpression: "1=1" }), 409, "MessageEntityAlreadyExistsError");
});
scenario("ADM-45: the namespace has properties", async () => {
  const told = await admin.getNamespaceProperties();
  matches(told, { name: "peeklock", messagingSku: "Premium", messagingUnits: 1 });
  assert.ok(told.createdAt instanceof Date && told.modifiedAt instanceof Date);
});
scenario("ADM-39: authorization rules are kept", async () => {
  const rule = {
    claimType: "SharedAccessKey",
    accessRights: ["Send"],
    keyName: "sender",
    primaryKey: "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    secondaryKey: "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
  };
  const name = await queue({ authorizationRules: [rule] });
  const [told] = (await admin.getQueue(name)).authorizationRules;
  // This client sends the value of the claim but does not return it.
  matches(told, rule);
});
scenario("ADM-51: authorization rules over the limit are refused", async () => {
  const authorizationRules = Array.from({ length: 13 }, (_, number) => ({
    claimType: "SharedAccessKey",
    accessRights: ["Send"],
    keyName: `p${number}`,
    primaryKey: "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    secondaryKey: "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
  }));
  await refused(() => queue({ authorizationRules }), 403, "QuotaExceededError");
  const name = await queue({ authorizationRules: authorizationRules.slice(0, 12) });
  assert.equal((await admin.getQueue(name)).authorizationRules.length, 12);
});
scenario("ADM-11: a wrong key is refused", async () => {
  const client = new ServiceBusAdministrationClient(string.replace("SharedAccessKey=", "SharedAccessKey=x"), { retryOptions });
  await refused(() => client.getQueue("js-plain"), 401);
});
scenario("LIS-01, LIS-05, ADM-02: one string is for messages and administration", async () => {
  const name = await queue();
  const client = new ServiceBusClient(string);
  await client.createSender(name).sendMessages({ body: "two books" });
  assert.equal((await admin.getQueueRuntimeProperties(name)).activeMessageCount, 1);
  const receiver = client.createReceiver(name);
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 20000 });
  await receiver.completeMessage(message);
  assert.equal(message.body, "two books");
  assert.equal((await admin.getQueueRuntimeProperties(name)).totalMessageCount, 0);
  await client.close();
});
scenario("ADM-03: an older version of the API", async () => {
  const client = new ServiceBusAdministrationClient(string, { serviceVersion: "2017-04", retryOptions });
  assert.equal((await client.getQueue("js-plain")).name, "js-plain");
});

let failed = 0;
for (const { title, run } of scenarios) {
  try {
    await run();
  } catch (error) {
    failed += 1;
    console.log(`--- ${title}\n${error?.stack ?? error}`);
  }
}
if (failed > 0) {
  console.log(`${failed} of ${scenarios.length} scenarios failed`);
  process.exit(1);
}
console.log(`ok ${scenarios.length} scenarios`);
process.exit(0);
