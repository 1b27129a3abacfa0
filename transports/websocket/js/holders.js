// Acts on locks, sessions and clients of others (section "Acting on locks, sessions and clients of others" of
// docs/reference/websocket.md).

import { encodeState } from "./session.js";

/** Ends locks and connections that others hold, and sets states of sessions that nobody holds. */
export class Holders {
  #connection;

  constructor(connection) {
    this.#connection = connection;
  }

  /**
   * Breaks locks of messages; resolves to their number (CON-26). Messages without a lock are skipped. With `counted` each
   * delivery counts as failed.
   */
  breakLocks(path, sequenceNumbers, { counted = false } = {}) {
    return this.#break("breakLocks", { path, sequenceNumbers: Array.from(sequenceNumbers), counted });
  }

  /** Breaks the lock of a session; resolves to whether a receiver held it (CON-26). */
  async breakSession(path, sessionId, { counted = false } = {}) {
    return (await this.#break("breakSession", { path, sessionId, counted })) > 0;
  }

  /** Sets the state of a session that no receiver holds: text or bytes, or null to clear it (CON-27). */
  async setSessionState(path, sessionId, state) {
    await this.#connection.request("setStateOfSession", { path, sessionId, ...encodeState(state) });
  }

  /** Closes the connection of a client, by its `clientId` in a list of clients (CON-24). */
  async closeClient(clientId) {
    await this.#connection.request("closeClient", { client: clientId });
  }

  async #break(name, properties) {
    return (await this.#connection.request(name, properties)).locksBroken.count;
  }
}
