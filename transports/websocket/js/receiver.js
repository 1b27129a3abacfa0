// Receiving and settling (section 6 of docs/reference/websocket.md).
//
// The receiver gives credit for callers that wait for a message, and for `prefetch` more. Without prefetch, no message is
// locked before a caller waits for it (RCV-19 to RCV-21). Pushed messages that no caller wants any more are released without
// counting a failed delivery.

import { argument, cancelled, errorText, PeeklockError } from "./error.js";
import { Link } from "./link.js";
import { ReceivedMessage, requireLock } from "./message.js";
import { encodeProperties, instant } from "./value.js";

const SETTLE_COUNT_MAX = 4096;
const CONCURRENCY_MAX = 1024;
/** Largest number of a delivery on one link. */
const DELIVERY_MAX = 0xffff_ffff;
const RETRY_MS = 1000;
const RETRY_MAX_MS = 30_000;
/** Property with the error of a handler (SET-42). */
const LAST_ERROR = "peeklock-last-error";

/** Receives from one queue or sub-queue. */
export class Receiver extends Link {
  #mode;
  #prefetch;

  // Pushed deliveries of the current session: the number of the last one, and the highest allowed number.
  #delivered = 0;
  #allowed = 0;
  #isCreditPosted = false;
  /** Whether deliveries may be under way: credit was given, and no drain was answered since. */
  #isFlowing = false;
  #buffer = [];
  /** Number of messages in the buffer that belong to the current session. */
  #lying = 0;
  #waiting = new Set();
  #consumers = 0;
  #refusal;
  #retryMs = RETRY_MS;
  #retryTimer;

  #groups = new Map();
  #settling = new WeakSet();
  #stops = new Set();
  /** Releases without an answer. */
  #releases = new Set();
  #isClosing = false;
  #closed;
  #peeked = 0;

  constructor(connection, path, { mode = "peekLock", prefetch = 0 } = {}) {
    super(connection, path);
    if (mode !== "peekLock" && mode !== "receiveAndDelete") {
      throw argument("mode must be peekLock or receiveAndDelete");
    }
    if (!(Number.isInteger(prefetch) && prefetch >= 0 && prefetch <= SETTLE_COUNT_MAX)) {
      throw argument(`prefetch must be a whole number up to ${SETTLE_COUNT_MAX}`);
    }
    this.#mode = mode;
    this.#prefetch = prefetch;
  }

  /** `peekLock` or `receiveAndDelete`. */
  get mode() {
    return this.#mode;
  }

  // Pushed deliveries.

  [Symbol.asyncIterator]() {
    return this.messages();
  }

  /** Yields messages as they arrive, until the loop is left, `signal` aborts or the receiver is closed. */
  async *messages({ signal } = {}) {
    const leave = this.#consume();
    try {
      for (;;) {
        const message = await this.#take(signal);
        if (message === undefined) {
          return;
        }
        yield message;
      }
    } finally {
      leave();
    }
  }

  /**
   * Calls a handler for each message, for up to `concurrency` messages at once. If it returns, the message is completed; if
   * it throws, the message is abandoned with the text of the error as a property (SET-45). The lock is renewed meanwhile.
   */
  subscribe(handler, options = {}) {
    const { concurrency = 1, autoComplete = true, autoRenew = true, maxRenewSeconds = 300, reportErrors = true } = options;
    const onError = options.onError ?? ((error) => this.connection.tellProblem(error));
    if (!(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= CONCURRENCY_MAX)) {
      throw argument(`concurrency must be a whole number from 1 to ${CONCURRENCY_MAX}`);
    }
    const abort = new AbortController();
    const leave = this.#consume();
    const settle = async (message, decision, settleOptions) => {
      if (message.lockToken !== undefined && message.settled === undefined && !this.#settling.has(message)) {
        await message[decision](settleOptions).catch((error) => onError(error, message));
      }
    };
    const serve = async (message) => {
      const renews = autoRenew && message.lockToken !== undefined;
      const onLost = (error) => onError(error, message);
      const stopRenewing = renews ? message.keepLocked({ maxSeconds: maxRenewSeconds, onLost }) : () => {};
      try {
        await handler(message);
        if (autoComplete) {
          await settle(message, "complete");
        }
      } catch (error) {
        onError(error, message);
        await settle(message, "abandon", reportErrors ? { properties: { [LAST_ERROR]: errorText(error) } } : {});
      } finally {
        stopRenewing();
      }
    };
    const work = async () => {
      for (;;) {
        const message = await this.#take(abort.signal);
        if (message === undefined) {
          return;
        }
        await serve(message);
      }
    };
    const stop = async () => {
      abort.abort();
      await done.catch(() => {});
    };
    const done = Promise.all(Array.from({ length: concurrency }, work))
      .then(() => {})
      .finally(() => {
        this.#stops.delete(stop);
        leave();
      });
    done.catch((error) => onError(error, undefined));
    this.#stops.add(stop);
    return { stop, done };
  }

  #consume() {
    this.#consumers += 1;
    if (this.#refusal) {
      if (this.#refusal.condition === "EntityNotFound") {
        this.attachAnew();
      }
      this.#refusal = undefined;
    }
    let isHere = true;
    return () => {
      if (isHere) {
        isHere = false;
        this.#consumers -= 1;
        if (this.#consumers === 0) {
          this.#releaseBuffer();
        }
      }
    };
  }

  /** Resolves to the next message; to undefined when the caller or the receiver has ended. */
  #take(signal) {
    if (signal?.aborted || this.isClosed || this.#isClosing) {
      return Promise.resolve(undefined);
    }
    if (this.#refusal) {
      return Promise.reject(this.#refusal);
    }
    while (this.#buffer.length > 0) {
      const message = this.#buffer.shift();
      this.#lying -= this.#isOfNow(message) ? 1 : 0;
      // A message whose lock has expired in the buffer is delivered again.
      if (message.lockToken === undefined || message.lockRemainingMs > 0) {
        this.#updateCredit();
        return Promise.resolve(message);
      }
    }
    return new Promise((resolve, reject) => {
      const end = () => waiter.resolve(undefined);
      const leave = () => {
        this.#waiting.delete(waiter);
        signal?.removeEventListener("abort", end);
      };
      const waiter = {
        resolve: (message) => {
          leave();
          resolve(message);
        },
        reject: (error) => {
          leave();
          reject(error);
        },
      };
      this.#waiting.add(waiter);
      signal?.addEventListener("abort", end, { once: true });
      this.#updateCredit();
    });
  }

  /** Returns the highest number that may be delivered. */
  #wanted() {
    if (this.#consumers === 0 || this.isClosed || this.#isClosing) {
      return Math.min(this.#allowed, this.#delivered);
    }
    const handed = this.#delivered - this.#lying;
    return Math.min(DELIVERY_MAX, Math.max(this.#allowed, handed + this.#waiting.size + this.#prefetch));
  }

  #updateCredit() {
    const wanted = this.#wanted();
    const isLow = this.#allowed <= this.#delivered || wanted - this.#allowed > this.#prefetch / 2;
    if (this.#isCreditPosted || this.#refusal || wanted === this.#allowed || (wanted > this.#allowed && !isLow)) {
      return;
    }
    this.#isCreditPosted = true;
    this.connection.post({
      name: "credit",
      link: this,
      write: () => {
        this.#isCreditPosted = false;
        const upTo = this.#wanted();
        if (upTo === this.#allowed) {
          return undefined;
        }
        this.#allowed = upTo;
        this.#isFlowing ||= upTo > this.#delivered;
        return JSON.stringify({ link: this.number, upTo });
      },
      reject: () => {
        this.#isCreditPosted = false;
      },
    });
  }

  attachProperties() {
    this.#allowed = this.#wanted();
    this.#isFlowing = this.#allowed > 0;
    return { role: "receiver", mode: this.#mode, credit: this.#allowed };
  }

  attachFailed(error) {
    this.#stopFlow(error);
  }

  /** Handles the push that ends deliveries. Messages in hand can still be settled. */
  detached(error) {
    this.#stopFlow(error);
  }

  #stopFlow(error) {
    this.#allowed = this.#delivered;
    if (this.#consumers === 0) {
      if (error.condition === "EntityNotFound") {
        this.attachAnew();
      }
      return;
    }
    if (error.retryable) {
      clearTimeout(this.#retryTimer);
      this.#retryTimer = setTimeout(() => this.#updateCredit(), this.#retryMs);
      this.#retryMs = Math.min(2 * this.#retryMs, RETRY_MAX_MS);
      return;
    }
    this.#refusal = error;
    for (const waiter of [...this.#waiting]) {
      waiter.reject(error);
    }
  }

  /** Handles a push of deliveries. */
  deliver({ first, messages }) {
    if (first !== this.#delivered + 1) {
      throw new Error(`delivery ${first} of link ${this.number} came after ${this.#delivered}`);
    }
    this.#retryMs = RETRY_MS;
    const unwanted = [];
    for (const wire of messages) {
      this.#delivered += 1;
      const { session } = this.connection;
      const delivery = { receiver: this, link: this.number, session, number: this.#delivered };
      const message = this.messageOf(wire, delivery);
      const [waiter] = this.#waiting;
      if (waiter) {
        waiter.resolve(message);
      } else if ((this.#consumers > 0 && !this.#isClosing) || this.#mode === "receiveAndDelete") {
        this.#buffer.push(message);
        this.#lying += 1;
      } else {
        unwanted.push(message);
      }
    }
    if (this.#delivered >= DELIVERY_MAX) {
      unwanted.push(...this.#empty());
      this.attachAnew();
    }
    this.#giveBack(unwanted);
    this.#updateCredit();
  }

  #giveBack(messages) {
    if (messages.length > 0 && !this.isClosed) {
      const release = this.settle(messages, "release")
        .catch(() => {})
        .finally(() => this.#releases.delete(release));
      this.#releases.add(release);
    }
  }

  /** Lowers the credit first: with credit, the broker would deliver the released messages again. */
  #releaseBuffer() {
    this.#updateCredit();
    this.#giveBack(this.#empty());
  }

  /** Removes the messages that can be released from the buffer. */
  #empty() {
    if (this.#mode !== "peekLock") {
      return [];
    }
    this.#lying = 0;
    return this.#buffer.splice(0);
  }

  #isOfNow({ delivery }) {
    return delivery?.link === this.number && delivery.session === this.connection.session;
  }

  begin() {
    super.begin();
    this.#delivered = 0;
    this.#allowed = 0;
    this.#isFlowing = false;
    // Locked messages are released by the broker and delivered again. Removed ones exist only here and stay.
    this.#empty();
    this.#lying = 0;
  }

  opened() {
    this.#updateCredit();
  }

  // Requested messages.

  /**
   * Resolves to up to `maxCount` messages: available ones, or those that arrive within `waitSeconds`; else to an empty list.
   */
  async receive({ maxCount = 1, waitSeconds = 60, signal } = {}) {
    if (signal?.aborted) {
      return [];
    }
    const properties = JSON.stringify({ maxCount, waitSeconds }).slice(1);
    const release = this.connection.hold(properties.length);
    let withdraw;
    const started = (entry) => {
      // Messages that arrive in spite of the withdrawal are in the answer.
      withdraw = () => {
        if (this.connection.retract(entry)) {
          entry.resolve({ received: { messages: [] } });
        } else {
          this.connection.post({ name: "withdraw", write: () => JSON.stringify({ request: entry.id }) });
        }
      };
      signal?.addEventListener("abort", withdraw, { once: true });
      this.#stops.add(withdraw);
    };
    try {
      const answer = await this.ask("receive", (link) => `{"link":${link},${properties}`, started);
      return this.#received(answer);
    } finally {
      release();
      this.#stops.delete(withdraw);
      signal?.removeEventListener("abort", withdraw);
    }
  }

  /** Receives deferred messages by their sequence numbers, all or none (DEF-03). */
  async receiveDeferred(...sequenceNumbers) {
    return this.#received(await this.askFor("receiveDeferred", { sequenceNumbers: sequenceNumbers.flat() }));
  }

  /** Peeks at messages without locking them; continues after the last one if `from` is absent (PEK-04). */
  async peek({ from, maxCount = 100 } = {}) {
    const messages = this.#received(await this.askFor("peek", { from: from ?? this.#peeked, maxCount }));
    this.#peeked = messages.length > 0 ? messages[messages.length - 1].sequenceNumber + 1 : this.#peeked;
    return messages;
  }

  /** Removes available messages without receiving them; resolves to their number (DEL-01). */
  async deleteBatch({ maxCount, enqueuedBefore } = {}) {
    const enqueuedBeforeUtc = enqueuedBefore && instant(enqueuedBefore);
    return (await this.askFor("deleteBatch", { maxCount, enqueuedBeforeUtc })).deleted.count;
  }

  /** Removes all available messages; resolves to their number (DEL-06). */
  async purge({ enqueuedBefore } = {}) {
    return (await this.askFor("purge", { enqueuedBeforeUtc: enqueuedBefore && instant(enqueuedBefore) })).deleted.count;
  }

  /** Removes a deferred message (DEL-09). */
  async deleteDeferred(sequenceNumber) {
    await this.askFor("deleteDeferred", { sequenceNumber });
  }

  #received({ received }) {
    return received.messages.map((wire) => this.messageOf(wire, undefined));
  }

  /** Makes the message for a delivery over this receiver. */
  messageOf(wire, delivery) {
    return new ReceivedMessage(wire, this, delivery);
  }

  // Settlement.

  /**
   * Settles messages independently; resolves to a list with undefined or the error for each (SET-14). Messages settled in
   * one turn of the event loop share a request.
   */
  settle(messages, decision, { properties, reason, description, delayMilliseconds } = {}) {
    const extras = { decision, reason, description, delayMilliseconds };
    extras.properties = properties === undefined ? undefined : encodeProperties(properties);
    return this.#group("settle", extras, Array.from(messages), (message) => {
      message.settled = decision;
    });
  }

  /** Extends the locks of messages; resolves to a list with undefined or the error for each. */
  renew(messages) {
    return this.#group("renew", {}, Array.from(messages), (message, { renewed }) => {
      message.lockedUntilUtc = new Date(renewed.lockedUntilUtc);
    });
  }

  /** Makes a settlement or renewal of a message part of a transaction; rejects if that is not possible. */
  async takePart(transaction, name, extras, message) {
    const release = this.connection.hold(JSON.stringify(extras).length);
    try {
      const { settled } = await this.ask(`${name}In`, (link) => {
        const { names } = this.#naming([message]);
        return JSON.stringify({ transaction, [name]: { link, ...extras, ...names } });
      });
      const [failed] = settled.failed ?? [];
      if (failed) {
        throw PeeklockError.of(failed.error);
      }
    } finally {
      release();
    }
  }

  async #group(name, extras, messages, done) {
    messages.forEach(requireLock);
    const max = Math.min(SETTLE_COUNT_MAX, this.connection.welcome?.commandCountMax ?? SETTLE_COUNT_MAX);
    const lists = [];
    for (let place = 0; place < messages.length; place += max) {
      lists.push(messages.slice(place, place + max));
    }
    if (name === "settle") {
      messages.forEach((message) => this.#settling.add(message));
    }
    try {
      const outcomes = await Promise.all(lists.map((list) => this.#join(name, extras, list, max, done)));
      return outcomes.flat();
    } finally {
      if (name === "settle") {
        messages.forEach((message) => this.#settling.delete(message));
      }
    }
  }

  /** Joins a request of this kind that is not written yet, or makes one. */
  async #join(name, extras, messages, max, done) {
    const key = JSON.stringify([name, extras]);
    let group = this.#groups.get(key);
    if (!group || group.messages.length + messages.length > max) {
      group = { messages: [] };
      this.#groups.set(key, group);
      group.answer = this.#askGroup(name, extras, key, group);
    }
    const place = group.messages.length;
    group.messages.push(...messages);
    const { answer, failures } = await group.answer;
    return messages.map((message, index) => {
      const failure = failures.get(place + index);
      if (failure === undefined) {
        done(message, answer);
      }
      return failure;
    });
  }

  async #askGroup(name, extras, key, group) {
    const release = this.connection.hold(key.length);
    try {
      let isNamed;
      const answer = await this.ask(name, (link) => {
        this.#groups.delete(key);
        const naming = this.#naming(group.messages);
        isNamed = naming.isNamed;
        return JSON.stringify({ link, ...extras, ...naming.names });
      });
      const failures = new Map();
      for (const { from, to, error } of answer[name === "settle" ? "settled" : "renewed"].failed ?? []) {
        group.messages.forEach((_, place) => {
          if (isNamed(place, from, to)) {
            failures.set(place, PeeklockError.of(error));
          }
        });
      }
      return { answer, failures };
    } finally {
      release();
      if (this.#groups.get(key) === group) {
        this.#groups.delete(key);
      }
    }
  }

  /** Names messages by delivery number if all have one in the current session, else by their lock tokens. */
  #naming(messages) {
    if (!messages.every((message) => this.#isOfNow(message) && message.delivery.receiver === this)) {
      const isNamed = (place, from, to) => place >= from && place <= to;
      return { names: { lockTokens: messages.map(({ lockToken }) => lockToken) }, isNamed };
    }
    const numbers = messages.map(({ delivery }) => delivery.number);
    const ranges = [];
    for (const number of [...new Set(numbers)].sort((one, other) => one - other)) {
      const last = ranges[ranges.length - 1];
      if (last && last[1] + 1 === number) {
        last[1] = number;
      } else {
        ranges.push([number, number]);
      }
    }
    const isNamed = (place, from, to) => numbers[place] >= from && numbers[place] <= to;
    return { names: { ranges }, isNamed };
  }

  /** See Connection.brokerNow. */
  brokerNow() {
    return this.connection.brokerNow();
  }

  /** See ReceivedMessage.keepLocked. */
  keepLocked(message, maxSeconds, onLost) {
    requireLock(message);
    const until = performance.now() + maxSeconds * 1000;
    let lockMs = message.lockRemainingMs;
    let isRenewing = false;
    let isStopped = false;
    const lose = (error) => {
      isStopped = true;
      onLost?.(error);
    };
    const renew = async () => {
      isRenewing = true;
      try {
        await message.renew();
        lockMs = message.lockRemainingMs;
      } catch (error) {
        if (!isStopped && message.settled === undefined && (!error.retryable || message.lockRemainingMs === 0)) {
          lose(error);
        }
      }
      isRenewing = false;
    };
    return this.connection.onTick(() => {
      if (isStopped || message.settled !== undefined || performance.now() > until) {
        return false;
      }
      if (!isRenewing && message.lockRemainingMs <= lockMs / 2) {
        renew();
      }
      return true;
    });
  }

  // Close.

  /** Ends loops and subscriptions, waits for running handlers, and releases all messages in the buffer and under way. */
  async close() {
    if (!this.isClosed) {
      this.#isClosing = true;
      this.#closed ??= this.#end();
      await this.#closed;
    }
  }

  async #end() {
    for (const waiter of [...this.#waiting]) {
      waiter.resolve(undefined);
    }
    this.#releaseBuffer();
    await Promise.all([...[...this.#stops].map((stop) => stop()), this.#drain()]);
    clearTimeout(this.#retryTimer);
    await Promise.all(this.#releases);
    await this.detach();
  }

  /**
   * Waits until no delivery is under way, since a detach would leave it locked. The credit is lowered already, so the drain
   * delivers nothing, and its answer arrives after all earlier deliveries.
   */
  async #drain() {
    if (this.#isFlowing && this.#mode === "peekLock") {
      await this.askFor("drain", {}).catch(() => {});
      this.#isFlowing = false;
    }
  }

  fail(reason) {
    super.fail(reason);
    clearTimeout(this.#retryTimer);
    const error = reason.condition === "OperationCancelled" ? undefined : reason;
    this.#refusal = error ?? cancelled("the receiver is closed");
    for (const waiter of [...this.#waiting]) {
      if (error) {
        waiter.reject(error);
      } else {
        waiter.resolve(undefined);
      }
    }
  }
}
