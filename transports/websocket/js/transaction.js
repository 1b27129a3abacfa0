// Transactions: several operations that take effect together or not at all ("Transactions" in section 6 of
// docs/reference/websocket.md).
//
// The broker checks an operation when it is requested and carries it out with the commit. Requests of a turn of the event
// loop share a frame, including the commit. The commit has the expected number of operations, so that the broker rolls back
// if one was refused meanwhile. A transaction belongs to its session of the connection.

import { PeeklockError } from "./error.js";
import { encodeMessage, requireLock } from "./message.js";
import { encodeProperties, instant, runs } from "./value.js";

/** Begins a transaction. */
export async function beginTransaction(connection, { crossEntity = false } = {}) {
  const { transaction } = await connection.request("beginTransaction", crossEntity ? { crossEntity } : {});
  return new Transaction(connection, transaction.transaction);
}

/** Operations that take effect together at the commit, or not at all (TXN-01). */
export class Transaction {
  #connection;
  #number;
  /** Operations that are part of the transaction or may become so; refused ones are removed. */
  #operations = [];
  #isEnded = false;

  constructor(connection, number) {
    this.#connection = connection;
    this.#number = number;
  }

  /** Sends a message at the commit, whose result has the sequence number (TXN-13). */
  send(sender, message) {
    return this.#add(async () => sender.sendIn(this.#number, [JSON.stringify(encodeMessage(message))]));
  }

  /** Sends all or none, within the limit of a batch (SND-30). */
  sendBatch(sender, messages) {
    return this.#add(async () => {
      const texts = Array.from(messages, (message) => JSON.stringify(encodeMessage(message)));
      return sender.sendIn(this.#number, texts);
    });
  }

  /** Schedules a message for an instant, at the commit (SCH-13). */
  schedule(sender, message, at) {
    return this.#add(async () => {
      const encoded = { ...encodeMessage(message), scheduledEnqueueTimeUtc: instant(at) };
      return sender.sendIn(this.#number, [JSON.stringify(encoded)]);
    });
  }

  /** Completes a message at the commit. */
  complete(message) {
    return this.#settle(message, "complete", {});
  }

  /** Returns a message to the queue at the commit; counts as a failed delivery. */
  abandon(message, options = {}) {
    return this.#settle(message, "abandon", options);
  }

  /** Defers a message at the commit. */
  defer(message, options = {}) {
    return this.#settle(message, "defer", options);
  }

  /** Moves a message to the dead-letter queue at the commit. */
  deadLetter(message, options = {}) {
    return this.#settle(message, "deadLetter", options);
  }

  /** Extends a lock at the commit, from then on; `message.renew()` extends it at once. */
  renew(message) {
    return this.#add(
      async () => {
        requireLock(message);
        await message.takePart(this.#number, "renew", {});
      },
      ({ lockedUntilUtc }) => {
        message.lockedUntilUtc = lockedUntilUtc;
      },
    );
  }

  /** Cancels scheduled messages at the commit, all or none (SCH-05). */
  cancelScheduled(sender, ...sequenceNumbers) {
    return this.#add(async () => sender.cancelScheduledIn(this.#number, sequenceNumbers.flat()));
  }

  /** Sets the state of a session at the commit to text or bytes, or clears it with null (SES-24). */
  setState(session, state) {
    return this.#add(async () => session.setStateIn(this.#number, state));
  }

  /**
   * Commits all operations durably as one. Rejects with the error of the first operation that failed; then no operation was
   * carried out, and the transaction has ended (TXN-07).
   */
  async commit() {
    this.#end();
    const asked = { transaction: this.#number, operations: this.#operations.length };
    const { committed } = await this.#connection.request("commit", asked);
    const parts = committed.parts.map(({ sequenceNumbers = [], pendingNumbers = [], lockedUntilUtc }) => ({
      sequenceNumbers: runs(sequenceNumbers),
      pendingNumbers: runs(pendingNumbers),
      lockedUntilUtc: lockedUntilUtc && new Date(lockedUntilUtc),
    }));
    this.#operations.forEach(({ done }, place) => done?.(parts[place]));
    return { parts, sequenceNumbers: parts.flatMap(({ sequenceNumbers }) => sequenceNumbers) };
  }

  /** Rolls back all operations (TXN-04); does nothing if the transaction has ended. */
  async rollBack() {
    if (!this.#isEnded) {
      this.#isEnded = true;
      await this.#connection.request("rollBack", { transaction: this.#number });
    }
  }

  #settle(message, decision, { properties, reason, description, delayMilliseconds }) {
    return this.#add(
      async () => {
        requireLock(message);
        const encoded = properties === undefined ? undefined : encodeProperties(properties);
        await message.takePart(this.#number, "settle", {
          decision,
          properties: encoded,
          reason,
          description,
          delayMilliseconds,
        });
      },
      () => {
        message.settled = decision;
      },
    );
  }

  /**
   * Requests an operation at once. It counts until it is refused, after which the transaction goes on without it (TXN-07).
   * `ask` is async, so that an operation that fails before it is sent still counts for a commit of the same turn.
   */
  async #add(ask, done) {
    this.#check();
    const operation = { done };
    this.#operations.push(operation);
    try {
      await ask();
    } catch (error) {
      // A commit that has been requested counts this operation.
      if (!this.#isEnded) {
        this.#operations.splice(this.#operations.indexOf(operation), 1);
      }
      throw error;
    }
  }

  #end() {
    this.#check();
    this.#isEnded = true;
  }

  #check() {
    if (this.#isEnded) {
      throw new PeeklockError("InvalidOperation", "the transaction has ended");
    }
  }
}
