// The sockets of one connection, one after the other: opening, the wait for a welcome, giving one up, trying again
// (sections 2 and 8 of docs/reference/websocket.md). What is said over them is none of their business.

const SUBPROTOCOL = "peeklock.v1.json";
/** The code of a socket that is given up. It must be no 1000, which would end the connection in order. */
const GIVEN_UP = 4000;

/**
 * `on` is told what happens: `opened(isCurrent)`, `heard(data, isWelcome)`, which returns whether the broker has said welcome
 * over this one, `closed(code, reason)`, `lost(code, reason)`, and `unopenable(cause)`.
 */
export class Sockets {
  #url;
  #WebSocket;
  #options;
  #on;
  #socket;
  #attempt = 0;
  #lostAt = performance.now();
  #retryTimer;
  #handshakeTimer;
  #lastSent = 0;
  #lastHeard = 0;

  constructor(url, WebSocket, options, on) {
    this.#url = url;
    this.#WebSocket = WebSocket;
    this.#options = options;
    this.#on = on;
  }

  /** When something was written last. */
  get lastSent() {
    return this.#lastSent;
  }

  /** When the broker was heard last. */
  get lastHeard() {
    return this.#lastHeard;
  }

  /** For how long there has been no welcome. */
  get secondsLost() {
    return this.#lostAt === undefined ? 0 : (performance.now() - this.#lostAt) / 1000;
  }

  /** Opens the next one. */
  open() {
    let socket;
    try {
      socket = new this.#WebSocket(this.#url, [SUBPROTOCOL]);
    } catch (cause) {
      this.#on.unopenable(cause);
      return;
    }
    this.#socket = socket;
    const isCurrent = () => this.#socket === socket;
    const patience = Math.min(10, this.#options.connectSeconds) * 1000;
    this.#handshakeTimer = setTimeout(() => isCurrent() && this.giveUp("no welcome arrived in time"), patience);
    let isWelcome = false;
    socket.onopen = () => isCurrent() && this.#on.opened(isCurrent);
    socket.onmessage = ({ data }) => {
      if (isCurrent()) {
        this.#lastHeard = performance.now();
        isWelcome = this.#on.heard(data, isWelcome);
      }
    };
    socket.onerror = () => {};
    socket.onclose = ({ code, reason }) => isCurrent() && this.#on.closed(code, reason);
  }

  /** The broker has said welcome. */
  greeted() {
    clearTimeout(this.#handshakeTimer);
    this.#attempt = 0;
    this.#lostAt = undefined;
  }

  /** Writes, if there is one that takes it: what is kept goes over the next one. */
  write(text) {
    this.#lastSent = performance.now();
    if (this.#socket?.readyState === 1) {
      this.#socket.send(text);
    }
  }

  /** Uses this one no more. */
  giveUp(why) {
    const socket = this.#socket;
    this.lose(1006, why);
    release(socket);
  }

  /** This one is gone. */
  lose(code, reason) {
    clearTimeout(this.#handshakeTimer);
    this.#socket = undefined;
    this.#lostAt ??= performance.now();
    this.#on.lost(code, reason);
  }

  /** Opens the next one after a while, longer each time. */
  openLater() {
    const ceiling = Math.min(this.#options.reconnectMs * 2 ** this.#attempt, this.#options.reconnectMaxMs);
    const delayMs = ceiling / 2 + (Math.random() * ceiling) / 2;
    this.#attempt += 1;
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(() => this.open(), delayMs);
  }

  /** Ends the one that there is in order, and waits for the broker to do so. */
  async close() {
    const socket = this.#socket;
    if (!socket) {
      return;
    }
    const closed = new Promise((resolve) => {
      socket.onclose = resolve;
    });
    socket.onmessage = null;
    socket.close(1000);
    await within(1, closed);
  }

  /** There will be no other. Returns how the last one is let go of. */
  end() {
    const socket = this.#socket;
    this.#socket = undefined;
    clearTimeout(this.#retryTimer);
    clearTimeout(this.#handshakeTimer);
    return () => release(socket);
  }
}

/** Waits for a promise, and not longer than so many seconds. */
export async function within(seconds, promise) {
  let timer;
  const end = new Promise((resolve) => {
    timer = setTimeout(resolve, seconds * 1000);
  });
  await Promise.race([promise, end]);
  clearTimeout(timer);
}

/** Lets go of a socket that is used no more. */
function release(socket) {
  if (socket) {
    socket.onopen = socket.onmessage = socket.onclose = null;
    try {
      socket.close(GIVEN_UP);
    } catch {
      // It was closed already.
    }
  }
}
