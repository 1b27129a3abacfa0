// Queues and their counts (section "Management" of docs/reference/websocket.md).

import { instant } from "./value.js";

/** Creates, reads, changes and deletes queues. Durations and instants are text, as on the wire. */
export class Queues {
  #connection;

  constructor(connection) {
    this.#connection = connection;
  }

  /** Creates a queue; absent properties get their defaults. */
  async create(path, properties = {}) {
    return (await this.#connection.request("createQueue", { path, properties })).queue;
  }

  /** Reads a queue with its properties, and its counts in `runtime`. */
  async get(path) {
    return (await this.#connection.request("getQueue", { path })).queue;
  }

  /** Whether the queue exists. */
  async exists(path) {
    try {
      await this.get(path);
      return true;
    } catch (error) {
      if (error.condition === "EntityNotFound") {
        return false;
      }
      throw error;
    }
  }

  /** Changes properties. With `version`, the `updatedAt` of the version that was read, it fails after any other change. */
  async update(path, properties, { version } = {}) {
    return (await this.#connection.request("updateQueue", { path, properties, version })).queue;
  }

  /** Deletes a queue with all its messages. */
  async delete(path) {
    await this.#connection.request("deleteQueue", { path });
  }

  /** Lists ids of sessions of a queue in ascending order (SES-29). */
  async sessions(path, { withActiveMessages, stateSetAfter, skip, top } = {}) {
    const stateSetAfterUtc = stateSetAfter && instant(stateSetAfter);
    const asked = { path, withActiveMessages, stateSetAfterUtc, skip, top };
    return (await this.#connection.request("listSessions", asked)).sessions.sessionIds;
  }

  /** Removes available messages of all unlocked sessions; resolves to their number (DEL-07). */
  async deleteUnlocked(path, { maxCount, enqueuedBefore } = {}) {
    const enqueuedBeforeUtc = enqueuedBefore && instant(enqueuedBefore);
    return (await this.#connection.request("deleteUnlocked", { path, maxCount, enqueuedBeforeUtc })).deleted.count;
  }

  /** Lists queues in the order of their paths. */
  async list({ skip, top } = {}) {
    return (await this.#connection.request("listQueues", { skip, top })).queues.queues;
  }
}
