// What senders and receivers have in common: a number that stands for a queue, in the present session
// of the connection (section 4 of docs/reference/websocket.md).

import { cancelled, traced } from "./error.js";

export class Link {
  #path;
  #isAttached = false;
  #attached = Promise.resolve(undefined);

  constructor(connection, path) {
    this.connection = connection;
    this.#path = path;
    this.number = connection.adopt(this);
    this.isClosed = false;
  }

  /** The path of the queue or sub-queue. */
  get path() {
    return this.#path;
  }

  /** The request that must come before any other of this link, if it is still to be made. */
  attachment() {
    if (this.#isAttached) {
      return undefined;
    }
    this.#isAttached = true;
    const { number } = this;
    let answer;
    this.#attached = new Promise((resolve) => {
      answer = resolve;
    });
    return {
      name: this.attachName(),
      write: () => JSON.stringify({ link: number, path: this.#path, ...this.attachProperties() }),
      resolve: () => answer(undefined),
      reject: (error) => {
        answer(error);
        if (number === this.number) {
          this.#isAttached = false;
          this.attachFailed(error);
        }
      },
    };
  }

  attachName() {
    return "attach";
  }

  /** The broker knows this number, though not by an attachment. */
  wasAttached() {
    this.#isAttached = true;
  }

  /** Asks for something over this link; `write` gives its properties in JSON for a number. */
  async ask(name, write, started = () => {}) {
    if (this.isClosed) {
      throw cancelled(`the link to \`${this.#path}\` is closed`);
    }
    let number;
    const writeHere = () => {
      number = this.number;
      return write(number);
    };
    try {
      return await new Promise((resolve, reject) => {
        const entry = { name, link: this, write: writeHere, resolve, reject };
        this.connection.post(entry);
        started(entry);
      });
    } catch (error) {
      // Answers come in any order: that the link was refused explains all that followed.
      const refusal = number === undefined ? undefined : await this.#attached;
      if (error.condition === "EntityNotFound" && number === this.number && !this.isClosed) {
        this.attachAnew();
      }
      throw traced(error.condition === "InvalidOperation" && refusal ? refusal : error);
    }
  }

  /** Asks for something whose size counts until the answer is there. */
  askFor(name, properties) {
    return this.#askCounted(name, properties, (body) => body);
  }

  /** Makes the same part of a transaction. */
  askIn(transaction, name, properties) {
    const write = (body) => `{"transaction":${transaction},"${name}":${body}}`;
    return this.#askCounted(`${name}In`, properties, write);
  }

  async #askCounted(name, properties, write) {
    const text = JSON.stringify(properties).slice(1);
    const release = this.connection.hold(text.length);
    try {
      return await this.ask(name, (link) => write(`{"link":${link}${text === "}" ? "" : ","}${text}`));
    } finally {
      release();
    }
  }

  /** Takes another number: a link belongs to the queue that it found, and that one is gone. */
  attachAnew() {
    const { number } = this;
    this.connection.forget(number);
    this.number = this.connection.adopt(this);
    if (this.#isAttached) {
      this.#isAttached = false;
      this.#detach(number);
    }
    this.begin();
  }

  /** A new session of the connection has no links. */
  begin() {
    this.#isAttached = false;
  }

  /** The connection can be used. */
  opened() {}

  attachFailed() {}

  /** Nothing comes or goes over it: what was granted is over. Whoever asks for something is told. */
  detached() {}

  /** The connection has ended. */
  fail() {
    this.isClosed = true;
  }

  /** Gives the number back. */
  async detach() {
    this.isClosed = true;
    const { number } = this;
    if (this.#isAttached) {
      this.#isAttached = false;
      await this.#detach(number);
    }
    this.connection.forget(number);
  }

  #detach(number) {
    return new Promise((resolve) => {
      this.connection.post({
        name: "detach",
        write: () => JSON.stringify({ link: number }),
        resolve,
        reject: resolve,
      });
    });
  }
}
