// Queues and their counts (section "Management" of docs/reference/websocket.md).

import { instant } from "./value.js";

/** Creates, reads, changes and deletes queues. Durations and instants are text, as on the wire. */
export class Queues {
  #connection;

  constructor(connection) {
    this.#connection = connection;
  }

  /** Creates a queue; what is left out has its default. */
  async create(path, properties = {}) {
    return (await this.#connection.request("createQueue", { path, properties })).queue;
  }

  /** A queue with its properties, and its counts in `runtime`. */
  async get(path) {
    return (await this.#connection.request("getQueue", { path })).queue;
  }

  /** Whether there is such a queue. */
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

  /** Changes properties; with `version`, the `updatedAt` it is based on, only if nobody did meanwhile. */
  async update(path, properties, { version } = {}) {
    return (await this.#connection.request("updateQueue", { path, properties, version })).queue;
  }

  /** Deletes a queue with all its messages. */
  async delete(path) {
    await this.#connection.request("deleteQueue", { path });
  }

  /** Ids of sessions of a queue in ascending order (SES-29). */
  async sessions(path, { withActiveMessages, stateSetAfter, skip, top } = {}) {
    const stateSetAfterUtc = stateSetAfter && instant(stateSetAfter);
    const asked = { path, withActiveMessages, stateSetAfterUtc, skip, top };
    return (await this.#connection.request("listSessions", asked)).sessions.sessionIds;
  }

  /** Removes available messages of all sessions that nobody holds; resolves to their number (DEL-07). */
  async deleteUnlocked(path, { maxCount, enqueuedBefore } = {}) {
    const enqueuedBeforeUtc = enqueuedBefore && instant(enqueuedBefore);
    return (await this.#connection.request("deleteUnlocked", { path, maxCount, enqueuedBeforeUtc })).deleted.count;
  }

  /** Queues in the order of their paths. */
  async list({ skip, top } = {}) {
    return (await this.#connection.request("listQueues", { skip, top })).queues.queues;
  }
}
