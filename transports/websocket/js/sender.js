// Sending (section 5 of docs/reference/websocket.md). A promise resolves when the broker has stored the message durably, or
// rejects with its error; always await it.

import { argument, cancelled, PeeklockError } from "./error.js";
import { Link } from "./link.js";
import { encodeMessage } from "./message.js";
import { instant } from "./value.js";

const LIST_COUNT_MAX = 4096;
const PART_CHARS = 128 << 10;

/**
 * Sends to one queue or topic; messages are numbered in the order of the calls. With `via` the broker stores them in that
 * queue or topic first and then moves them on (VIA-01); their numbers are those assigned there.
 */
export class Sender extends Link {
  #inFlightMax;
  #inFlight = 0;
  #waiting = [];
  #destination;

  /** `inFlightMax`: maximum number of requests under way at once; further ones wait (SND-13). */
  constructor(connection, path, { inFlightMax = 1024, via } = {}) {
    super(connection, via ?? path);
    this.#destination = via === undefined ? undefined : path;
    if (!(Number.isInteger(inFlightMax) && inFlightMax >= 1)) {
      throw argument("inFlightMax must be a whole number from 1");
    }
    this.#inFlightMax = inFlightMax;
  }

  attachName() {
    return this.#destination === undefined ? "attach" : "attachVia";
  }

  attachProperties() {
    return this.#destination === undefined ? { role: "sender" } : { destination: this.#destination };
  }

  /** Sends a message; resolves to its sequence number, or 0 for a discarded duplicate (DUP-02). */
  async send(message) {
    const [outcome] = await this.#sendPart("send", [JSON.stringify(encodeMessage(message))]);
    if (outcome.error) {
      throw outcome.error;
    }
    return outcome.sequenceNumber;
  }

  /** Sends messages independently; resolves to a list of `{sequenceNumber}` or `{error}`. */
  async sendEach(messages) {
    const texts = Array.from(messages, (message) => JSON.stringify(encodeMessage(message)));
    const parts = [];
    let part = [];
    let chars = 0;
    for (const text of texts) {
      if (part.length > 0 && (chars + text.length > PART_CHARS || part.length >= LIST_COUNT_MAX)) {
        parts.push(part);
        part = [];
        chars = 0;
      }
      part.push(text);
      chars += text.length;
    }
    if (part.length > 0) {
      parts.push(part);
    }
    const outcomes = await Promise.all(
      parts.map((texts) => this.#sendPart("send", texts).catch((error) => texts.map(() => ({ error })))),
    );
    return outcomes.flat();
  }

  /** Sends all or none, with consecutive numbers; resolves to them (SND-29, SND-31). */
  async sendBatch(messages) {
    const texts = Array.from(messages, (message) => JSON.stringify(encodeMessage(message)));
    if (texts.length > LIST_COUNT_MAX) {
      throw new PeeklockError("ArgumentOutOfRange", `a batch has at most ${LIST_COUNT_MAX} messages`);
    }
    const outcomes = await this.#sendPart("sendBatch", texts);
    const failed = outcomes.find(({ error }) => error);
    if (failed) {
      throw failed.error;
    }
    return outcomes.map(({ sequenceNumber }) => sequenceNumber);
  }

  /** Schedules a message for an instant; its number serves to cancel it (SCH-02). */
  async schedule(message, at) {
    const encoded = { ...encodeMessage(message), scheduledEnqueueTimeUtc: instant(at) };
    const [outcome] = await this.#sendPart("send", [JSON.stringify(encoded)]);
    if (outcome.error) {
      throw outcome.error;
    }
    return outcome.sequenceNumber;
  }

  /** Cancels scheduled messages, all or none (SCH-05). */
  async cancelScheduled(...sequenceNumbers) {
    await this.askFor("cancelScheduled", { sequenceNumbers: sequenceNumbers.flat() });
  }

  /** Makes the cancellation of scheduled messages part of a transaction. */
  async cancelScheduledIn(transaction, sequenceNumbers) {
    await this.askIn(transaction, "cancelScheduled", { sequenceNumbers });
  }

  /** Makes messages in JSON part of a transaction, which sends them at its commit. They do not count for `inFlightMax`. */
  async sendIn(transaction, texts) {
    if (texts.length > LIST_COUNT_MAX) {
      throw new PeeklockError("ArgumentOutOfRange", `a batch has at most ${LIST_COUNT_MAX} messages`);
    }
    const messages = `[${texts.join(",")}]`;
    const release = this.connection.hold(messages.length);
    try {
      const write = (link) => `{"transaction":${transaction},"send":{"link":${link},"messages":${messages}}}`;
      await this.ask("sendIn", write);
    } finally {
      release();
    }
  }

  /** Waits for requests under way, and detaches the link. */
  async close() {
    if (this.isClosed) {
      return;
    }
    await new Promise((resolve) => this.#take(resolve, resolve, true));
    await this.detach();
  }

  fail(reason) {
    super.fail(reason);
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { reject } of waiting) {
      reject(reason);
    }
  }

  /** Sends one request; `texts` are messages in JSON. */
  async #sendPart(name, texts) {
    const messages = `[${texts.join(",")}]`;
    // It counts from now on, also while it waits for its turn (SND-14).
    const release = this.connection.hold(messages.length);
    try {
      if (this.isClosed) {
        throw cancelled(`the sender to \`${this.path}\` is closed`);
      }
      await new Promise((resolve, reject) => this.#take(resolve, reject, false));
      try {
        const { accepted } = await this.ask(name, (link) => `{"link":${link},"messages":${messages}}`);
        if (accepted.failed?.some(({ error }) => error.condition === "EntityNotFound")) {
          this.attachAnew();
        }
        return outcomes(texts.length, accepted);
      } finally {
        this.#give();
      }
    } finally {
      release();
    }
  }

  /** Waits for a slot among the requests under way; with `all`, until there are none. */
  #take(resolve, reject, all) {
    this.#waiting.push({ resolve, reject, all });
    this.#next();
  }

  #give() {
    this.#inFlight -= 1;
    this.#next();
  }

  #next() {
    while (this.#waiting.length > 0) {
      const [{ resolve, all }] = this.#waiting;
      if (all ? this.#inFlight > 0 : this.#inFlight >= this.#inFlightMax) {
        return;
      }
      this.#waiting.shift();
      this.#inFlight += all ? 0 : 1;
      resolve();
    }
  }
}

/** Converts an answer to one outcome per message. */
function outcomes(count, { sequenceNumbers, failed = [] }) {
  const outcomes = [];
  for (const [first, length] of sequenceNumbers) {
    for (let place = 0; place < length && outcomes.length < count; place += 1) {
      outcomes.push({ sequenceNumber: first === 0 ? 0 : first + place });
    }
  }
  for (const { index, error } of failed) {
    outcomes[index] = { error: PeeklockError.of(error) };
  }
  return outcomes;
}
