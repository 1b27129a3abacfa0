// Frames of a session in both directions: unconfirmed sent frames are kept in order to repeat them over the next socket,
// and received frames are confirmed (sections 3 and 7 of docs/reference/websocket.md).

/** Number, and bytes, of unconfirmed frames of the broker after which they are confirmed. */
const CONFIRM_COUNT = 64;
const CONFIRM_BYTES = 256 << 10;
/** Number of kept frames after which the client asks for a confirmation, and the maximum, at which it sends nothing. */
const KEPT_ASK_COUNT = 256;
const KEPT_COUNT_MAX = 4096;

export class Frames {
  #kept = [];
  #sentCount = 0;
  #takenCount = 0;
  #saidCount = 0;
  #unsaidBytes = 0;
  #isAsked = false;

  /** Number of frames of the broker that were taken. */
  get takenCount() {
    return this.#takenCount;
  }

  /** Whether the broker has to confirm frames before further ones may be sent. */
  get isFull() {
    return this.#kept.length >= KEPT_COUNT_MAX;
  }

  /** Whether a taken frame is not confirmed yet. */
  get isUnsaid() {
    return this.#takenCount > this.#saidCount;
  }

  /** Whether it is time to confirm frames. */
  get isDue() {
    return this.#takenCount - this.#saidCount >= CONFIRM_COUNT || this.#unsaidBytes >= CONFIRM_BYTES;
  }

  /** Notes that a frame of the broker was taken. */
  took(size) {
    this.#takenCount += 1;
    this.#unsaidBytes += size;
  }

  /** Drops the frames that the broker has confirmed. */
  drop(taken) {
    if (taken > this.#sentCount) {
      throw new Error(`it has taken ${taken} frames and ${this.#sentCount} were sent`);
    }
    const kept = this.#kept;
    let count = 0;
    while (count < kept.length && kept[count].number <= taken) {
      count += 1;
    }
    if (count > 0) {
      kept.splice(0, count);
      this.#isAsked = false;
    }
  }

  /** Begins a new session of the broker, without any earlier state. */
  begin() {
    this.#kept = [];
    this.#sentCount = 0;
    this.#takenCount = 0;
  }

  /** Notes that a new socket has sent its hello with a confirmation; returns the texts to repeat. */
  again() {
    this.#told();
    this.#isAsked = false;
    return this.#kept.map(({ text }) => text);
  }

  /** Whether to ask the broker for a confirmation now; true once. */
  asks() {
    if (this.#kept.length < KEPT_ASK_COUNT || this.#isAsked) {
      return false;
    }
    this.#isAsked = true;
    return true;
  }

  /** Makes the text of a frame with these requests; keeps it if it may have to be repeated. */
  make(requests, isKept) {
    const text = `{"seen":${this.#takenCount},"requests":[${requests.join(",")}]}`;
    this.#told();
    this.#sentCount += 1;
    if (isKept) {
      this.#kept.push({ number: this.#sentCount, text });
    }
    return text;
  }

  /** Drops all kept frames; none will be repeated. */
  forget() {
    this.#kept = [];
  }

  #told() {
    this.#saidCount = this.#takenCount;
    this.#unsaidBytes = 0;
  }
}
