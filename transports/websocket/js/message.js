// Converts messages between JavaScript and the protocol (section 5 of docs/reference/websocket.md).

import { argument, PeeklockError } from "./error.js";
import { decodeProperties, duration, encodeProperties, fromBase64, instant, isBytes, toBase64 } from "./value.js";

const TEXTS = [
  "messageId", "sessionId", "partitionKey", "transactionPartitionKey", "replyToSessionId", "correlationId",
  "contentType", "subject", "to", "replyTo",
];
const OTHERS = ["body", "timeToLive", "scheduledEnqueueTimeUtc", "forcePersistence", "applicationProperties"];
const SENT = new Set([...TEXTS, ...OTHERS]);

/** Encodes a message, given as an object or as its body. Unknown properties are refused, not ignored. */
export function encodeMessage(message) {
  if (typeof message === "string" || isBytes(message)) {
    return encodeBody(message);
  }
  if (typeof message !== "object" || message === null) {
    throw argument("a message must be an object, text or bytes");
  }
  const encoded = encodeBody(message.body);
  for (const name of TEXTS) {
    const value = message[name];
    if (value === undefined || value === null) {
      continue;
    }
    if (typeof value !== "string") {
      throw argument(`\`${name}\` of a message must be text`);
    }
    encoded[name] = value;
  }
  if (message.timeToLive !== undefined && message.timeToLive !== null) {
    encoded.timeToLive = duration(message.timeToLive);
  }
  if (message.scheduledEnqueueTimeUtc !== undefined && message.scheduledEnqueueTimeUtc !== null) {
    encoded.scheduledEnqueueTimeUtc = instant(message.scheduledEnqueueTimeUtc);
  }
  if (message.forcePersistence !== undefined) {
    encoded.forcePersistence = message.forcePersistence;
  }
  if (message.applicationProperties !== undefined) {
    encoded.applicationProperties = encodeProperties(message.applicationProperties);
  }
  // A received message may be sent on; the broker assigns its own properties again (MSG-11).
  const unknown =
    message instanceof ReceivedMessage ? undefined : Object.keys(message).find((name) => !SENT.has(name));
  if (unknown !== undefined) {
    throw argument(`a message has no property \`${unknown}\``);
  }
  return encoded;
}

function encodeBody(body) {
  if (body === undefined || body === null) {
    return {};
  }
  if (typeof body === "string") {
    return { body };
  }
  if (isBytes(body)) {
    return { bodyBase64: toBase64(body) };
  }
  throw argument("a body must be text or bytes; use JSON.stringify for an object");
}

/** A received or peeked message; under a lock it can be settled. */
export class ReceivedMessage {
  #receiver;

  /** `delivery` is the number of a pushed delivery in its session of the connection. */
  constructor(wire, receiver, delivery) {
    this.#receiver = receiver;
    this.body = wire.bodyBase64 === undefined ? (wire.body ?? "") : fromBase64(wire.bodyBase64);
    for (const name of TEXTS) {
      this[name] = wire[name];
    }
    this.timeToLive = wire.timeToLive;
    this.scheduledEnqueueTimeUtc = wire.scheduledEnqueueTimeUtc && new Date(wire.scheduledEnqueueTimeUtc);
    this.applicationProperties = decodeProperties(wire.applicationProperties);
    this.sequenceNumber = wire.sequenceNumber;
    this.enqueuedSequenceNumber = wire.enqueuedSequenceNumber;
    this.enqueuedTimeUtc = new Date(wire.enqueuedTimeUtc);
    this.expiresAtUtc = wire.expiresAtUtc && new Date(wire.expiresAtUtc);
    this.deliveryCount = wire.deliveryCount;
    this.state = wire.state;
    this.delayedUntilUtc = wire.delayedUntilUtc && new Date(wire.delayedUntilUtc);
    this.size = wire.size;
    this.deadLetterSource = wire.deadLetterSource;
    this.lockToken = wire.lockToken;
    this.lockedUntilUtc = wire.lockedUntilUtc && new Date(wire.lockedUntilUtc);
    /** The decision that the broker has confirmed. */
    this.settled = undefined;
    Object.defineProperty(this, "delivery", { value: delivery });
  }

  /** The body as text, or undefined if it is not UTF-8. */
  get text() {
    return typeof this.body === "string" ? this.body : undefined;
  }

  /** The body as bytes. */
  get bytes() {
    return typeof this.body === "string" ? new TextEncoder().encode(this.body) : this.body;
  }

  /** Parses the body as JSON. */
  json() {
    return JSON.parse(this.text ?? "");
  }

  /** Milliseconds until the lock ends by the broker's clock; 0 without a lock. */
  get lockRemainingMs() {
    return this.lockedUntilUtc ? Math.max(0, this.lockedUntilUtc.getTime() - this.#receiver.brokerNow()) : 0;
  }

  /** Ends the lock and removes the message permanently (SET-01). */
  complete() {
    return this.#settle("complete", {});
  }

  /**
   * Returns the message to the queue, at once or after `delayMilliseconds`; by default according to the retry policy of the
   * entity (SET-03, RTY-01). Counts as a failed delivery.
   */
  abandon(options = {}) {
    return this.#settle("abandon", options);
  }

  /** Defers the message: it can be received only by its sequence number (SET-07). */
  defer(options = {}) {
    return this.#settle("defer", options);
  }

  /** Moves it to the dead-letter queue (SET-05). */
  deadLetter(options = {}) {
    return this.#settle("deadLetter", options);
  }

  /** Returns the message to the queue without counting a failed delivery (SET-32). */
  release() {
    return this.#settle("release", {});
  }

  /** Extends the lock; resolves to its new end (SET-17). */
  async renew() {
    const [outcome] = await this.#receiver.renew([this]);
    if (outcome) {
      throw outcome;
    }
    return this.lockedUntilUtc;
  }

  /**
   * Renews the lock as often as necessary until the returned function is called or the message is settled. Calls `onLost` if
   * the lock is lost nevertheless.
   */
  keepLocked({ maxSeconds = 300, onLost } = {}) {
    return this.#receiver.keepLocked(this, maxSeconds, onLost);
  }

  /** Makes a settlement or renewal of this message part of a transaction. Not part of the interface of the package. */
  takePart(transaction, name, extras) {
    return this.#receiver.takePart(transaction, name, extras, this);
  }

  async #settle(decision, options) {
    const [failure] = await this.#receiver.settle([this], decision, options);
    if (failure) {
      throw failure;
    }
  }
}

/** Throws for a message without a lock, which cannot be settled. */
export function requireLock(message) {
  if (!(message instanceof ReceivedMessage)) {
    throw argument("only a received message can be settled");
  }
  if (message.lockToken === undefined) {
    throw new PeeklockError("InvalidOperation", "the message was not received under a lock");
  }
}
