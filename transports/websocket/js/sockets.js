// The sockets of a connection, one after the other: opening, the wait for a welcome, giving up, retrying (sections 2 and 8
// of docs/reference/websocket.md). The content of frames is left to others.

const SUBPROTOCOL = "peeklock.v1.json";
/** Close code of an abandoned socket. It must not be 1000, which would end the connection in order. */
const GIVEN_UP = 4000;

/**
 * Calls `on` for each event: `opened(isCurrent)`; `heard(data, isWelcome)`, which returns whether the broker has sent its
 * welcome on this socket; `closed(code, reason)`; `lost(code, reason)`; and `unopenable(cause)`.
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

  /** Time of the last write. */
  get lastSent() {
    return this.#lastSent;
  }

  /** Time of the last frame of the broker. */
  get lastHeard() {
    return this.#lastHeard;
  }

  /** Seconds since the last welcomed socket was lost. */
  get secondsLost() {
    return this.#lostAt === undefined ? 0 : (performance.now() - this.#lostAt) / 1000;
  }

  /** Opens the next socket. */
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

  /** Notes the welcome of the broker. */
  greeted() {
    clearTimeout(this.#handshakeTimer);
    this.#attempt = 0;
    this.#lostAt = undefined;
  }

  /** Writes to an open socket; otherwise does nothing, since kept frames are repeated over the next socket. */
  write(text) {
    this.#lastSent = performance.now();
    if (this.#socket?.readyState === 1) {
      this.#socket.send(text);
    }
  }

  /** Abandons the current socket. */
  giveUp(why) {
    const socket = this.#socket;
    this.lose(1006, why);
    release(socket);
  }

  /** Notes the loss of the current socket. */
  lose(code, reason) {
    clearTimeout(this.#handshakeTimer);
    this.#socket = undefined;
    this.#lostAt ??= performance.now();
    this.#on.lost(code, reason);
  }

  /** Opens the next socket after a pause, which grows with each attempt. */
  openLater() {
    const ceiling = Math.min(this.#options.reconnectMs * 2 ** this.#attempt, this.#options.reconnectMaxMs);
    const delayMs = ceiling / 2 + (Math.random() * ceiling) / 2;
    this.#attempt += 1;
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(() => this.open(), delayMs);
  }

  /** Closes the current socket in order, and waits for the broker to close it. */
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

  /** Ends permanently. Returns a function that releases the last socket. */
  end() {
    const socket = this.#socket;
    this.#socket = undefined;
    clearTimeout(this.#retryTimer);
    clearTimeout(this.#handshakeTimer);
    return () => release(socket);
  }
}

/** Waits for a promise, for at most `seconds`. */
export async function within(seconds, promise) {
  let timer;
  const end = new Promise((resolve) => {
    timer = setTimeout(resolve, seconds * 1000);
  });
  await Promise.race([promise, end]);
  clearTimeout(timer);
}

/** Releases an abandoned socket. */
function release(socket) {
  if (socket) {
    socket.onopen = socket.onmessage = socket.onclose = null;
    try {
      socket.close(GIVEN_UP);
    } catch {
      // The socket was closed already.
    }
  }
}
