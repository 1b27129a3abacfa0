// Shared parts of the client's tests: the broker that tests/browser.rs has started, and a proxy
// that cuts connections.

import { once } from "node:events";
import { connect as connectTo, createServer } from "node:net";
import WebSocket from "ws";
import { connect } from "peeklock";

/** The WebSocket address of the broker. */
export const url = process.env.PEEKLOCK_WS;
if (!url) {
  throw new Error("PEEKLOCK_WS names no broker; run `./test browser`");
}

const ends = new WeakMap();

/** Registers an action for the end of a test. The last one runs first. */
export function atEnd(test, action) {
  if (!ends.has(test)) {
    ends.set(test, []);
    test.after(async () => {
      const failures = [];
      for (const end of ends.get(test).reverse()) {
        try {
          await end();
        } catch (error) {
          failures.push(error);
        }
      }
      if (failures.length > 0) {
        throw failures[0];
      }
    });
  }
  ends.get(test).push(action);
}

/** A connection that is closed at the end of the test. */
export async function connected(test, options = {}, to = url) {
  const connection = await connect(to, { WebSocket, ...options });
  atEnd(test, () => connection.close({ seconds: 1 }));
  return connection;
}

let number = 0;

/** A new queue for this test. */
export async function queue(connection, properties = {}) {
  number += 1;
  const path = `browser/${process.pid}/${number}`;
  await connection.queues.create(path, properties);
  return path;
}

/** Receives all messages available to a receiver. */
export async function drained(receiver) {
  const messages = [];
  for (;;) {
    const more = await receiver.receive({ maxCount: 100, waitSeconds: 0 });
    if (more.length === 0) {
      return messages;
    }
    messages.push(...more);
  }
}

/** Resolves when the connection is in a state. */
export const inState = (connection, wanted) =>
  new Promise((resolve) => {
    const look = ({ detail }) => {
      if (detail.state === wanted) {
        connection.removeEventListener("state", look);
        resolve(detail);
      }
    };
    connection.addEventListener("state", look);
  });

/** A proxy to the broker that can cut connections, also in the middle of a frame. */
export class Proxy {
  #pairs = new Set();
  #server;
  /**
   * Bytes in both directions after which successive connections are cut. The last limit applies to
   * all further ones.
   */
  limits = [Infinity];
  connections = 0;

  static async open(test) {
    const proxy = new Proxy();
    const broker = new URL(url);
    proxy.#server = createServer((near) => proxy.#join(near, connectTo(broker.port, broker.hostname)));
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    proxy.url = `ws://127.0.0.1:${proxy.#server.address().port}/`;
    atEnd(test, () => {
      proxy.#server.close();
      proxy.cut();
    });
    return proxy;
  }

  #join(near, far) {
    this.connections += 1;
    let left = this.limits.length > 1 ? this.limits.shift() : this.limits[0];
    const pair = { near, far };
    this.#pairs.add(pair);
    const end = () => {
      near.destroy();
      far.destroy();
      this.#pairs.delete(pair);
    };
    const pass = (from, to) => {
      from.on("data", (bytes) => {
        if (bytes.length < left) {
          left -= bytes.length;
          to.write(bytes);
          return;
        }
        to.write(bytes.subarray(0, left), end);
        left = 0;
        from.pause();
      });
      from.on("error", end);
      from.on("close", end);
    };
    pass(near, far);
    pass(far, near);
  }

  /** Cuts all connections. */
  cut() {
    for (const { near, far } of this.#pairs) {
      near.destroy();
      far.destroy();
    }
    this.#pairs.clear();
  }
}
