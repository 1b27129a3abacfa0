// Requests of a connection from the call to the answer: waiting ones, bounded in number and bytes, and sent ones with an
// id. If a session is lost, sent requests without an answer fail, and waiting ones are sent in the next session.

import { lost, PeeklockError } from "./error.js";

/** Size after which a frame is closed, so that answers to its first requests arrive early. */
const FRAME_BYTES = 256 << 10;
/** Size of a request without its properties, including its share of the frame. */
const REQUEST_HEAD_BYTES = 128;
const REQUEST_COUNT_MAX = 4096;

const encoder = new TextEncoder();

export class Requests {
  #countMax;
  #sizeMax;
  #outbox = [];
  #unanswered = new Map();
  #nextId = 1;
  #heldCount = 0;
  #heldSize = 0;
  #whenIdle = [];

  constructor({ requestCountMax, bufferSizeMax }) {
    this.#countMax = requestCountMax;
    this.#sizeMax = bufferSizeMax;
  }

  /** Whether requests wait to be sent. */
  get isWaiting() {
    return this.#outbox.length > 0;
  }

  /** Resolves when no request is held. */
  async idle() {
    if (this.#heldCount > 0) {
      await new Promise((resolve) => this.#whenIdle.push(resolve));
    }
  }

  /** Counts a request and its size until the returned function is called; throws if too many requests wait. */
  hold(size) {
    const refusal = this.#excess(size);
    if (refusal) {
      throw refusal;
    }
    this.#heldCount += 1;
    this.#heldSize += size;
    let isHeld = true;
    return () => {
      if (isHeld) {
        isHeld = false;
        this.#heldCount -= 1;
        this.#heldSize -= size;
        if (this.#heldCount === 0) {
          this.#whenIdle.splice(0).forEach((resolve) => resolve());
        }
      }
    };
  }

  #excess(size) {
    if (this.#heldCount >= this.#countMax) {
      return busy(`${this.#countMax} requests already wait, the limit`);
    }
    if (this.#heldSize > 0 && this.#heldSize + size > this.#sizeMax) {
      return busy(`requests of ${this.#heldSize} characters already wait, the limit`);
    }
    return undefined;
  }

  /** Adds a waiting request. */
  add(entry) {
    this.#outbox.push(entry);
  }

  /** Takes back a waiting request; returns false if it was sent already. */
  retract(entry) {
    const place = this.#outbox.indexOf(entry);
    if (place >= 0) {
      this.#outbox.splice(place, 1);
    }
    return place >= 0;
  }

  /** Forms the lists of requests for frames and sends them, while the broker accepts more and `mayGoOn` allows it. */
  send({ frameBytesMax, commandCountMax }, mayGoOn, send) {
    const queue = this.#outbox;
    let list = [];
    let listBytes = 0;
    let next = 0;
    const close = () => {
      if (list.length > 0) {
        send(list);
        list = [];
        listBytes = 0;
      }
    };
    while (next < queue.length && this.#unanswered.size < commandCountMax && mayGoOn()) {
      const entry = queue[next];
      const attach = entry.link?.attachment();
      if (attach) {
        queue.splice(next, 0, attach);
        continue;
      }
      next += 1;
      const properties = entry.write();
      if (properties === undefined) {
        entry.resolve?.({});
        continue;
      }
      const bytes = bytesAtMost(properties, frameBytesMax) + REQUEST_HEAD_BYTES;
      if (bytes > frameBytesMax) {
        const detail = `the request \`${entry.name}\` is larger than a frame: ${frameBytesMax} bytes`;
        entry.reject?.(new PeeklockError("MessageSizeExceeded", detail));
        continue;
      }
      if (listBytes + bytes > Math.min(FRAME_BYTES, frameBytesMax) || list.length >= REQUEST_COUNT_MAX) {
        close();
      }
      list.push(this.#address(entry, properties));
      listBytes += bytes;
    }
    queue.splice(0, next);
    close();
  }

  /** Makes a heartbeat that is answered; no caller waits for the answer. */
  heartbeat() {
    return this.#address({ name: "heartbeat", resolve: () => {}, reject: () => {} }, "{}");
  }

  /** Hands an answer to its caller. */
  answer(item) {
    const entry = this.#unanswered.get(item.id);
    if (!entry) {
      return;
    }
    this.#unanswered.delete(item.id);
    if (item.error) {
      entry.reject(PeeklockError.of(item.error));
    } else {
      entry.resolve(item);
    }
  }

  /** Rejects all sent requests; their answers are lost. */
  loseUnanswered() {
    const unanswered = [...this.#unanswered.values()];
    this.#unanswered.clear();
    for (const entry of unanswered) {
      entry.reject(lost("the connection was lost before the answer arrived; the outcome is unknown"));
    }
  }

  /** Rejects all requests; none will be sent or answered. */
  rejectAll(reason) {
    const entries = [...this.#unanswered.values(), ...this.#outbox];
    this.#unanswered.clear();
    this.#outbox = [];
    for (const entry of entries) {
      entry.reject?.(reason);
    }
  }

  /** Formats a request in JSON, with an id if it expects an answer. */
  #address(entry, properties) {
    if (!entry.resolve) {
      return `{"${entry.name}":${properties}}`;
    }
    entry.id = this.#freeId();
    this.#unanswered.set(entry.id, entry);
    return `{"id":${entry.id},"${entry.name}":${properties}}`;
  }

  #freeId() {
    do {
      this.#nextId = this.#nextId >= 0xffff_ffff ? 1 : this.#nextId + 1;
    } while (this.#unanswered.has(this.#nextId));
    return this.#nextId;
  }
}

const busy = (detail) => new PeeklockError("ServerBusy", `${detail}; nothing was sent`, { retryable: true });

/** Returns the bytes of a text in UTF-8: the exact number near the limit, else an upper bound. */
function bytesAtMost(text, limit) {
  const most = text.length * 3;
  return most <= limit && most <= FRAME_BYTES ? most : encoder.encode(text).length;
}
