// Receiving by session ("Sessions" in section 6 of docs/reference/websocket.md).
//
//   accepting --> held --> lost, closed
//
// A session receiver is a receiver over a link that only the accept creates. Its messages are locked with the session: there
// is one lock, and renewing it extends the lock of all messages (SES-14). After that lock has ended, or a new session of the
// connection has begun, all calls fail with SessionLockLost; accept the session again.

import { argument, cancelled, PeeklockError, traced } from "./error.js";
import { Receiver } from "./receiver.js";
import { fromBase64, isBytes, toBase64 } from "./value.js";

/** Locks a session, by its id or the next available one; rejects if there is none in time. */
export async function acceptSession(connection, path, asked, { signal, ...options } = {}) {
  if (signal?.aborted) {
    throw cancelled("the accept was cancelled before it was sent");
  }
  const receiver = new SessionReceiver(connection, path, options);
  const text = JSON.stringify({ link: receiver.number, path, mode: receiver.mode, ...asked });
  const release = connection.hold(text.length);
  try {
    await receiver.accept(text, signal);
    return receiver;
  } catch (error) {
    connection.forget(receiver.number);
    throw error;
  } finally {
    release();
  }
}

/** Holds one session. */
export class SessionReceiver extends Receiver {
  #sessionId;
  #lockedUntilUtc;
  #lost;
  #withdraw;
  #renewal;

  /** Sends the accept; resolves when the session is locked. */
  async accept(text, signal) {
    const answer = new Promise((resolve, reject) => {
      const entry = { name: "acceptSession", write: () => text, resolve, reject };
      this.#withdraw = () => {
        if (this.connection.retract(entry)) {
          reject(cancelled("the accept was cancelled before it was sent"));
        } else {
          this.connection.post({ name: "withdraw", write: () => JSON.stringify({ request: entry.id }) });
        }
      };
      this.connection.post(entry);
    });
    signal?.addEventListener("abort", this.#withdraw, { once: true });
    try {
      const { sessionId, lockedUntilUtc } = (await answer).sessionAccepted;
      this.#sessionId = sessionId;
      this.#lockedUntilUtc = new Date(lockedUntilUtc);
      this.wasAttached();
    } catch (error) {
      throw traced(error);
    } finally {
      signal?.removeEventListener("abort", this.#withdraw);
      this.#withdraw = undefined;
    }
    if (signal?.aborted || this.isClosed) {
      await this.detach();
      throw cancelled("the accept was cancelled");
    }
  }

  /** The id of the session. */
  get sessionId() {
    return this.#sessionId;
  }

  /** End of the session lock; follows renewals. */
  get lockedUntilUtc() {
    return this.#lockedUntilUtc;
  }

  /** Milliseconds until the session lock ends by the broker's clock. */
  get lockRemainingMs() {
    return this.#lost ? 0 : Math.max(0, this.#lockedUntilUtc.getTime() - this.brokerNow());
  }

  /** Extends the session lock, and thereby the lock of all messages in hand; resolves to its new end (SES-12). */
  renewSession() {
    this.#renewal ??= this.askFor("renewSession", {})
      .then(({ renewed }) => {
        this.#lockedUntilUtc = new Date(renewed.lockedUntilUtc);
        return this.#lockedUntilUtc;
      })
      .finally(() => {
        this.#renewal = undefined;
      });
    return this.#renewal;
  }

  /** Renews as often as necessary until the returned function is called or the session is closed. */
  keepSession({ onLost } = {}) {
    let isStopped = false;
    let isRenewing = false;
    let lockMs = this.lockRemainingMs;
    const renew = async () => {
      isRenewing = true;
      try {
        await this.renewSession();
        lockMs = this.lockRemainingMs;
      } catch (error) {
        if (!isStopped && !this.isClosed && (!error.retryable || this.lockRemainingMs === 0)) {
          isStopped = true;
          onLost?.(error);
        }
      }
      isRenewing = false;
    };
    this.connection.onTick(() => {
      if (isStopped || this.isClosed) {
        return false;
      }
      if (!isRenewing && this.lockRemainingMs <= lockMs / 2) {
        renew();
      }
      return true;
    });
    return () => {
      isStopped = true;
    };
  }

  /** Reads the state: text if it is UTF-8, else bytes; undefined if there is none (SES-24). */
  async getState() {
    const { state, stateBase64 } = (await this.askFor("getSessionState", {})).sessionState;
    return stateBase64 === undefined ? state : fromBase64(stateBase64);
  }

  /** Replaces the state with text or bytes, or clears it with null. It stays for the next holder (SES-25). */
  async setState(state) {
    await this.askFor("setSessionState", encodeState(state));
  }

  /** Makes a new state part of a transaction, which sets it at its commit. */
  async setStateIn(transaction, state) {
    await this.askIn(transaction, "setSessionState", encodeState(state));
  }

  /** Extends the session lock; messages of a session have no other lock. */
  async renew(messages) {
    const list = Array.from(messages);
    try {
      await this.renewSession();
      return list.map(() => undefined);
    } catch (error) {
      return list.map(() => error);
    }
  }

  messages(options) {
    this.#check();
    return super.messages(options);
  }

  subscribe(handler, options) {
    this.#check();
    return super.subscribe(handler, options);
  }

  /** Releases the session; unsettled messages are available again at once, without counting a failed delivery (SES-31). */
  async close() {
    this.#withdraw?.();
    await super.close();
  }

  #check() {
    if (this.#lost) {
      throw this.#lost;
    }
  }

  #lose(error) {
    this.#lost ??= error;
    super.detached(error);
  }

  messageOf(wire, delivery) {
    const message = super.messageOf(wire, delivery);
    if (message.lockToken !== undefined) {
      Object.defineProperty(message, "lockedUntilUtc", { get: () => this.#lockedUntilUtc, enumerable: true });
    }
    return message;
  }

  async ask(name, write, started) {
    this.#check();
    return super.ask(name, write, started);
  }

  /** Returns nothing, since only the accept creates this link. */
  attachment() {
    return undefined;
  }

  attachAnew() {}

  detached(error) {
    if (error.condition === "SessionLockLost") {
      this.#lose(error);
    } else {
      super.detached(error);
    }
  }

  begin() {
    super.begin();
    // While the session is being accepted, the accept itself fails.
    if (this.#sessionId !== undefined) {
      const detail = `the lock of session ${this.#sessionId} ended with its connection`;
      this.#lose(new PeeklockError("SessionLockLost", detail, { entity: this.path }));
    }
  }
}

/** Encodes the state of a session for a request. */
export function encodeState(state) {
  if (typeof state === "string") {
    return { state };
  }
  if (isBytes(state)) {
    return { stateBase64: toBase64(state) };
  }
  if (state === null) {
    return {};
  }
  throw argument("a state must be text or bytes, or null to clear it; use JSON.stringify for an object");
}
