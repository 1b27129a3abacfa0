// Acts on messages by number, on locks, sessions and clients of others, and on findings (sections "Acting on ..." and
// "Findings" of docs/reference/websocket.md).

import { encodeState } from "./session.js";

/** Acts on messages by number, ends locks and connections of others, and sets states of sessions that nobody holds. */
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

  /**
   * Acts on messages by number; resolves to the result for each (CON-12). `act` has the form of `POST {path}/messages/act`
   * in docs/reference/rest.md.
   */
  async act(path, act) {
    const body = { ...act, sequenceNumbers: Array.from(act.sequenceNumbers) };
    return (await this.#connection.request("act", { path, act: body })).acted.messages;
  }

  /** Forgets the last step of a job that has ended (CON-15). */
  async forgetJob(path, job) {
    await this.#connection.request("forgetJob", { path, job });
  }

  /**
   * Makes a job on messages of an entity; resolves to the job, which selects its messages first (CON-12). `draft` has the
   * form of `POST {path}/jobs` in docs/reference/rest.md.
   */
  async createJob(path, draft) {
    return (await this.#connection.request("createJob", { path, draft })).findings.job;
  }

  /**
   * Changes the state of a job; resolves to the job (CON-19). `control` is `{ start: { digest } }`, `{ pause: {} }`,
   * `{ resume: {} }`, `{ cancel: {} }` or `{ undo: {} }`.
   */
  async controlJob(job, control) {
    return (await this.#connection.request("controlJob", { job, control })).findings.job;
  }

  /** Breaks the lock of a session; resolves to whether a receiver held it (CON-26). */
  async breakSession(path, sessionId, { counted = false } = {}) {
    return (await this.#break("breakSession", { path, sessionId, counted })) > 0;
  }

  /** Sets the state of a session that no receiver holds: text or bytes, or null to clear it (CON-27). */
  async setSessionState(path, sessionId, state) {
    await this.#connection.request("setStateOfSession", { path, sessionId, ...encodeState(state) });
  }

  /** Mutes a finding of the checks about an entity, or with an empty path about the broker (CON-39). */
  async muteFinding(path, kind, reason) {
    await this.#connection.request("muteFinding", { path, kind, reason });
  }

  /** Reports a muted finding again (CON-39). */
  async unmuteFinding(path, kind) {
    await this.#connection.request("unmuteFinding", { path, kind });
  }

  /** Closes the connection of a client, by its `clientId` in a list of clients (CON-24). */
  async closeClient(clientId) {
    await this.#connection.request("closeClient", { client: clientId });
  }

  async #break(name, properties) {
    return (await this.#connection.request(name, properties)).locksBroken.count;
  }
}
