// Base of senders and receivers: a number that stands for an entity in the current session of the connection (section 4 of
// docs/reference/websocket.md).

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

  /** The path of the entity or sub-queue. */
  get path() {
    return this.#path;
  }

  /** Returns the request that attaches the link, if that is still to be sent. */
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

  /** Notes that the broker knows the number without an attachment. */
  wasAttached() {
    this.#isAttached = true;
  }

  /** Sends a request over this link; `write` returns its properties in JSON for a link number. */
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
      // Answers come in any order, and a refused attachment explains the errors of later requests.
      const refusal = number === undefined ? undefined : await this.#attached;
      if (error.condition === "EntityNotFound" && number === this.number && !this.isClosed) {
        this.attachAnew();
      }
      throw traced(error.condition === "InvalidOperation" && refusal ? refusal : error);
    }
  }

  /** Sends a request whose size counts until the answer. */
  askFor(name, properties) {
    return this.#askCounted(name, properties, (body) => body);
  }

  /** Sends the same request as part of a transaction. */
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

  /** Takes a new number, since a link stays bound to the entity that it was attached to, which no longer exists. */
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

  /** Begins a new session of the connection, which has no links. */
  begin() {
    this.#isAttached = false;
  }

  /** Called when the connection is usable. */
  opened() {}

  attachFailed() {}

  /** Called when the broker has detached the link: its credit is void, and further requests fail. */
  detached() {}

  /** Called when the connection has ended. */
  fail() {
    this.isClosed = true;
  }

  /** Detaches the link and frees its number. */
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
