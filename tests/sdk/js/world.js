// Shared parts of scenarios: their registry, a client, entities, and checks.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";
import { Broker } from "./broker.js";

export { assert, sleep };
export const scenarios = [];
/** Maximum duration of a scenario. */
export const TIME_MAX = 60_000;
/** Maximum wait of a receive for an expected message. */
const PATIENCE = 20_000;

export function scenario(title, run) {
  scenarios.push({ title, run });
}

export const bodies = (messages) => messages.map((message) => message.body);

/** Asserts that an action is refused. Returns the error. */
export async function refused(action, code) {
  let error;
  try {
    await action;
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, "nothing was refused");
  if (code !== undefined) assert.equal(error.code, code, `${error.code}: ${error.message}`);
  return error;
}

/** The environment of a scenario: one client, and its own entities on a shared broker. */
export class World {
  constructor(broker, number, authority) {
    this.broker = broker;
    // The folder of the development authority that this process trusts.
    this.authority = authority;
    this.name = `js-${number}`;
    this.count = 0;
    this.opened = [];
    this.client = this.open();
  }

  /** Creates a client, which is closed with the scenario. */
  open(string = this.broker.connectionString(), options = {}) {
    const retryOptions = { maxRetries: 2, retryDelayInMs: 200, timeoutInMs: 20_000, ...options.retryOptions };
    const client = new ServiceBusClient(string, { ...options, retryOptions });
    this.opened.push(client);
    return client;
  }

  ask(method, path, body) {
    return this.broker.ask(method, path, body);
  }

  unique() {
    this.count += 1;
    return `${this.name}-${this.count}`;
  }

  async queue(properties = {}) {
    const name = this.unique();
    await this.ask("PUT", `queues/${name}`, properties);
    return name;
  }

  async topic(subscriptions, properties = {}) {
    const name = this.unique();
    await this.ask("PUT", `topics/${name}`, properties);
    for (const subscription of subscriptions) {
      await this.ask("PUT", `topics/${name}/subscriptions/${subscription}`, {});
    }
    return name;
  }

  async runtime(queue) {
    return (await this.ask("GET", `queues/${queue}`)).runtime;
  }

  /** Creates a policy. Returns its key. */
  async policy(queue, name, ...rights) {
    const path = `queues/${queue}/policies/${name}`;
    await this.ask("PUT", path, { rights });
    return (await this.ask("POST", `${path}/keys`)).primaryKey;
  }

  /** Sends bodies, one after another. */
  async send(queue, all, properties = {}) {
    const sender = this.client.createSender(queue);
    for (const body of all) await sender.sendMessages({ body, ...properties });
    await sender.close();
  }

  /** Receives `count` messages in any number of calls. */
  async receive(receiver, count, patience = PATIENCE) {
    const found = [];
    const until = Date.now() + patience;
    while (found.length < count && Date.now() < until) {
      const wait = Math.max(100, until - Date.now());
      found.push(...(await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: wait })));
    }
    assert.equal(found.length, count, "number of messages received");
    return found;
  }

  async nothing(receiver, wait = 500) {
    assert.deepEqual(bodies(await receiver.receiveMessages(1, { maxWaitTimeInMs: wait })), []);
  }

  /** Receives and deletes all messages of a queue. Returns their bodies. */
  async drain(queue, client = this.client) {
    const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const found = [];
    for (;;) {
      const some = await receiver.receiveMessages(100, { maxWaitTimeInMs: 500 });
      if (some.length === 0) break;
      found.push(...bodies(some));
    }
    await receiver.close();
    return found;
  }

  /** Polls until a condition holds. */
  async until(condition, what, patience = PATIENCE) {
    const end = Date.now() + patience;
    while (!(await condition())) {
      assert.ok(Date.now() < end, `waited in vain: ${what}`);
      await sleep(50);
    }
  }

  /** Runs with a broker of its own, which has the queue `q`, and which the scenario may kill. */
  async own(run, flags, authority) {
    const place = mkdtempSync(join(tmpdir(), "peeklock-sdk-js-own-"));
    const broker = new Broker(this.broker.program, join(place, "broker"), flags, authority);
    await broker.start();
    try {
      await broker.ask("PUT", "queues/q", {});
      await run(broker);
    } finally {
      await broker.kill();
      rmSync(place, { recursive: true });
    }
  }

  async close() {
    await Promise.allSettled(this.opened.map((client) => client.close()));
  }
}
