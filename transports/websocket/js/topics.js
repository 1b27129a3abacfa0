// Topics, subscriptions and their rules (section "Management" of docs/reference/websocket.md).

import { encodeMessage } from "./message.js";
import { decodeProperties, encodeProperties } from "./value.js";

/** Returns the path from which a subscription is received. */
export const subscriptionPath = (topic, name) => `${topic}/Subscriptions/${name}`;

/**
 * Creates, reads, changes and deletes topics, subscriptions and rules. Messages are sent to the path of the topic, and
 * received from the path of a subscription. Durations and instants are text, as on the wire.
 */
export class Topics {
  #connection;

  constructor(connection) {
    this.#connection = connection;
  }

  /** Creates a topic; absent properties get their defaults. */
  async create(path, properties = {}) {
    return (await this.#connection.request("createTopic", { path, properties })).topic;
  }

  /** Reads a topic with its properties, and its counts in `runtime`. */
  async get(path) {
    return (await this.#connection.request("getTopic", { path })).topic;
  }

  /** Whether the topic exists. */
  async exists(path) {
    return exists(this.get(path));
  }

  /** Changes properties. With `version`, the `updatedAt` of the version that was read, it fails after any other change. */
  async update(path, properties, { version } = {}) {
    return (await this.#connection.request("updateTopic", { path, properties, version })).topic;
  }

  /** Deletes a topic with its subscriptions and all their messages. */
  async delete(path) {
    await this.#connection.request("deleteTopic", { path });
  }

  /** Lists topics in the order of their paths. */
  async list({ skip, top } = {}) {
    return (await this.#connection.request("listTopics", { skip, top })).topics.topics;
  }

  /** Creates a subscription, with `rules` in place of the default rule that selects every message. */
  async createSubscription(topic, name, { properties = {}, rules = [] } = {}) {
    const asked = { topic, name, properties, rules: rules.map(encodeRule) };
    return (await this.#connection.request("createSubscription", asked)).subscription;
  }

  /** Reads a subscription by its path, with its properties, and its counts in `runtime`. */
  async getSubscription(path) {
    return (await this.#connection.request("getSubscription", { path })).subscription;
  }

  /** Whether the subscription exists. */
  async subscriptionExists(path) {
    return exists(this.getSubscription(path));
  }

  /** Changes properties. With `version`, the `updatedAt` of the version that was read, it fails after any other change. */
  async updateSubscription(path, properties, { version } = {}) {
    return (await this.#connection.request("updateSubscription", { path, properties, version })).subscription;
  }

  /** Deletes a subscription with all its messages. */
  async deleteSubscription(path) {
    await this.#connection.request("deleteSubscription", { path });
  }

  /** Lists the subscriptions of a topic in the order of their names. */
  async listSubscriptions(topic, { skip, top } = {}) {
    const { subscriptions } = await this.#connection.request("listSubscriptions", { path: topic, skip, top });
    return subscriptions.subscriptions;
  }

  /** Adds a rule to a subscription; it applies to messages sent from now on. */
  async createRule(path, rule) {
    return decodeRule((await this.#connection.request("createRule", { path, rule: encodeRule(rule) })).rule);
  }

  /** Reads a rule by its name. */
  async getRule(path, name) {
    return decodeRule((await this.#connection.request("getRule", { path, name })).rule);
  }

  /** Replaces filter and action of a rule as a whole. */
  async updateRule(path, rule) {
    return decodeRule((await this.#connection.request("updateRule", { path, rule: encodeRule(rule) })).rule);
  }

  /** Removes a rule. */
  async deleteRule(path, name) {
    await this.#connection.request("deleteRule", { path, name });
  }

  /** Lists the rules of a subscription in the order of their names. */
  async listRules(path, { skip, top } = {}) {
    return (await this.#connection.request("listRules", { path, skip, top })).rules.rules.map(decodeRule);
  }

  /** Explains the effect of each rule of a subscription on a message; nothing is sent. */
  async explain(path, message) {
    return (await this.#connection.request("explain", { path, message: encodeMessage(message) })).explained.rules;
  }
}

async function exists(found) {
  try {
    await found;
    return true;
  } catch (error) {
    if (error.condition === "EntityNotFound") {
      return false;
    }
    throw error;
  }
}

/** Converts the values of a rule to the form of the protocol. */
export function encodeRule({ name, filter, action }) {
  return { name, filter: filter && withValues(filter, encodeProperties), action: action && withValues(action, encodeProperties) };
}

function decodeRule(rule) {
  const { filter, action } = rule;
  return { ...rule, filter: withValues(filter, decodeProperties), action: action && withValues(action, decodeProperties) };
}

/** Converts the values of a filter or an action with `change`. */
function withValues(part, change) {
  const changed = { ...part };
  for (const name of ["parameters", "properties"]) {
    if (part[name] !== undefined) {
      changed[name] = change(part[name]);
    }
  }
  return changed;
}
