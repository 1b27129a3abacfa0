// The frames of one session in both directions: what was sent and the broker has not taken is kept, so that it can be
// repeated over the next socket, and what was taken is confirmed (sections 3 and 7 of docs/reference/websocket.md).

/** Frames of the broker are confirmed when so many, or so many bytes, have not been. */
const CONFIRM_COUNT = 64;
const CONFIRM_BYTES = 256 << 10;
/** Frames kept until the broker has taken them; beyond the first it is asked, beyond the second nothing is sent. */
const KEPT_ASK_COUNT = 256;
const KEPT_COUNT_MAX = 4096;

export class Frames {
  #kept = [];
  #sentCount = 0;
  #takenCount = 0;
  #saidCount = 0;
  #unsaidBytes = 0;
  #isAsked = false;

  /** How many of the broker's were taken. */
  get takenCount() {
    return this.#takenCount;
  }

  /** Whether the broker has to take some before more may be sent. */
  get isFull() {
    return this.#kept.length >= KEPT_COUNT_MAX;
  }

  /** Whether the broker was not told of one that was taken. */
  get isUnsaid() {
    return this.#takenCount > this.#saidCount;
  }

  /** Whether it is time to tell it. */
  get isDue() {
    return this.#takenCount - this.#saidCount >= CONFIRM_COUNT || this.#unsaidBytes >= CONFIRM_BYTES;
  }

  /** One of the broker's was taken. */
  took(size) {
    this.#takenCount += 1;
    this.#unsaidBytes += size;
  }

  /** What the broker has taken is kept no more. */
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

  /** The broker knows nothing of what was before. */
  begin() {
    this.#kept = [];
    this.#sentCount = 0;
    this.#takenCount = 0;
  }

  /** There is another socket, whose hello has told what was taken. Returns what is to be said again. */
  again() {
    this.#told();
    this.#isAsked = false;
    return this.#kept.map(({ text }) => text);
  }

  /** Whether the broker is to be asked now what it has taken; says so once. */
  asks() {
    if (this.#kept.length < KEPT_ASK_COUNT || this.#isAsked) {
      return false;
    }
    this.#isAsked = true;
    return true;
  }

  /** The text of a frame with these requests, which is kept if it may have to be said again. */
  make(requests, isKept) {
    const text = `{"seen":${this.#takenCount},"requests":[${requests.join(",")}]}`;
    this.#told();
    this.#sentCount += 1;
    if (isKept) {
      this.#kept.push({ number: this.#sentCount, text });
    }
    return text;
  }

  /** Nothing will be said again. */
  forget() {
    this.#kept = [];
  }

  #told() {
    this.#saidCount = this.#takenCount;
    this.#unsaidBytes = 0;
  }
}
