// One connection to the broker, over several sockets in turn (docs/reference/websocket.md): its state, its sessions and its
// links. `sockets.js` has the sockets, `frames.js` the frames to repeat over the next socket, `requests.js` the requests.
//
//   connecting --> open --> lost --> open ...          closed is final
//
// While `lost`, requests wait. If the broker resumes the connection, both sides repeat the unconfirmed frames: no answer and
// no delivery is lost or doubled. If it does not, a new session begins: sent requests without an answer fail with
// CommunicationProblem, links are attached again, and waiting requests are sent.
//
// Waiting requests are bounded in number and bytes; beyond that a request is refused with ServerBusy before any part
// is sent.

import { ConnectionString, Credential, isConnectionString } from "./credential.js";
import { Declarations } from "./declarations.js";
import { argument, cancelled, lost, PeeklockError, traced } from "./error.js";
import { Frames } from "./frames.js";
import { Holders } from "./holders.js";
import { Inspection } from "./inspection.js";
import { parse } from "./json.js";
import { Queues } from "./queues.js";
import { Topics } from "./topics.js";
import { Receiver } from "./receiver.js";
import { Requests } from "./requests.js";
import { Sender } from "./sender.js";
import { acceptSession } from "./session.js";
import { Sockets, within } from "./sockets.js";
import { beginTransaction } from "./transaction.js";

const TICK_MS = 500;

const DEFAULTS = {
  graceSeconds: 30,
  heartbeatSeconds: undefined,
  connectSeconds: 15,
  offlineSeconds: 60,
  tokenSeconds: 3600,
  reconnectMs: 200,
  reconnectMaxMs: 20_000,
  requestCountMax: 16_384,
  bufferSizeMax: 16 << 20,
};

/** Whether to come back after a close code (section 8). */
const isPassing = (code) =>
  code === 1001 || code === 1006 || (code >= 1011 && code <= 1014) || (code >= 4100 && code <= 4199);

/**
 * Opens a connection to `ws://HOST:PORT/`, `wss://HOST:PORT/` or the broker of a connection string; rejects with the first
 * attempt that fails after `connectSeconds`, or at once if the broker refuses.
 */
export async function connect(url, options = {}) {
  const connection = new Connection(url, options);
  try {
    await connection.ready;
  } catch (error) {
    throw traced(error);
  }
  return connection;
}

/** See the head of this file. Events are `state`, `closing` and `problem`; their `detail` has the data. */
export class Connection extends EventTarget {
  #url;
  #options;
  #string;
  #credential;
  #isRenewing = false;
  #state = "connecting";
  #error;
  #settleReady;
  #welcome;
  #clockOffsetMs = 0;

  #session = 0;
  #resumeToken;
  #tickTimer;
  #isFlushPlanned = false;

  #sockets;
  #frames = new Frames();
  #requests;
  #links = new Map();
  #nextLink = 1;
  #ticks = new Set();

  constructor(url, options = {}) {
    super();
    this.#options = { ...DEFAULTS, ...options };
    const isString = isConnectionString(url);
    const string = isString ? String(url) : options.connectionString;
    this.#string = string === undefined ? undefined : new ConnectionString(string);
    this.#url = isString ? this.#string.url : String(url);
    this.#credential = new Credential(this.#string ?? options.token, this.#options.tokenSeconds);
    const WebSocket = options.WebSocket ?? globalThis.WebSocket;
    if (!WebSocket) {
      throw argument("this environment has no WebSocket; pass one as the option WebSocket");
    }
    this.#requests = new Requests(this.#options);
    this.#sockets = new Sockets(this.#url, WebSocket, this.#options, {
      opened: (isCurrent) => this.#hello(isCurrent),
      heard: (data, isWelcome) => this.#heard(data, isWelcome),
      closed: (code, reason) => this.#closed(code, reason),
      lost: (code, reason) => this.#lost(code, reason),
      unopenable: (cause) => {
        this.#end(new PeeklockError("ArgumentError", `no WebSocket can be opened to ${this.#url}`, { cause }));
      },
    });
    /** Resolves at the first welcome of the broker. */
    this.ready = new Promise((resolve, reject) => {
      this.#settleReady = { resolve, reject };
    });
    this.ready.catch(() => {});
    /** The queues of the broker. */
    this.queues = new Queues(this);
    /** The topics of the broker, with their subscriptions and rules. */
    this.topics = new Topics(this);
    /** Creates and changes entities as a declaration describes them. */
    this.declarations = new Declarations(this);
    /** Reads messages in any state, locks, sessions and clients without changing anything. */
    this.inspection = new Inspection(this);
    /** Ends locks and connections of others. */
    this.holders = new Holders(this);
    this.#tickTimer = setInterval(() => this.#tick(), TICK_MS);
    this.#sockets.open();
  }

  /** `connecting`, `open`, `lost` or `closed`. */
  get state() {
    return this.#state;
  }

  /** Reason of the close, unless the caller closed the connection. */
  get error() {
    return this.#error;
  }

  /** The last welcome of the broker. */
  get welcome() {
    return this.#welcome;
  }

  /** Number of sessions until now. Each starts without the locks of its predecessor. */
  get session() {
    return this.#session;
  }

  /** The broker's clock in milliseconds since 1970, as of the last welcome. */
  brokerNow() {
    return Date.now() + this.#clockOffsetMs;
  }

  /** Makes a sender to a queue or topic. Its link is attached with the first message. */
  sender(path, options) {
    this.checkEntity(path);
    this.checkEntity(options?.via ?? "");
    return new Sender(this, path, options);
  }

  /** Makes a receiver of a queue or of a sub-queue such as `orders/$deadletterqueue`. */
  receiver(path, options) {
    this.checkEntity(path);
    return new Receiver(this, path, options);
  }

  /** Locks a session of a queue, even one without messages (SES-05). */
  async acceptSession(path, sessionId, options) {
    this.checkEntity(path);
    return acceptSession(this, path, { sessionId: String(sessionId) }, options);
  }

  /** Locks the session with the oldest available message; waits for one for at most `waitSeconds` (SES-07, SES-08). */
  async acceptNextSession(path, { waitSeconds = 60, ...options } = {}) {
    this.checkEntity(path);
    return acceptSession(this, path, { waitSeconds }, options);
  }

  /** Begins a transaction; with `crossEntity` it can send to other entities than the first one it uses (TXN-09). */
  beginTransaction(options) {
    return beginTransaction(this, options);
  }

  /** Replaces the token, now and for each later hello. */
  async authenticate(token) {
    this.#credential = new Credential(token, this.#options.tokenSeconds);
    await this.#show();
  }

  /**
   * Closes the receivers, waits for answers, and ends the connection in order. Waits at most `seconds` for each.
   * Messages in hand stay locked until their locks expire.
   */
  async close({ seconds = 5 } = {}) {
    if (this.#state === "closed") {
      return;
    }
    const links = [...this.#links.values()];
    await within(seconds, Promise.allSettled(links.map((link) => link.close())));
    if (this.#state === "open") {
      this.#flush();
      await within(seconds, this.#requests.idle());
    }
    if (this.#state === "open") {
      await this.#sockets.close();
    }
    // Also ends a connection that is being reopened or whose broker does not answer.
    this.#end(undefined);
  }

  // For senders, receivers and queues; not part of the interface of the package.

  /** Sends a request that belongs to no link; resolves to the answer. */
  async request(name, properties) {
    this.checkEntity(properties.path ?? properties.topic ?? "");
    const text = JSON.stringify(properties);
    const release = this.hold(text.length);
    try {
      return await new Promise((resolve, reject) => this.post({ name, write: () => text, resolve, reject }));
    } catch (error) {
      throw traced(error);
    } finally {
      release();
    }
  }

  /** Throws for an entity outside of the connection string (SEC-20). */
  checkEntity(path) {
    this.#string?.checkEntity(path);
  }

  /** Counts a request and its size until the returned function is called; throws if too many requests wait. */
  hold(size) {
    const refusal = this.#refusal();
    if (refusal) {
      throw refusal;
    }
    return this.#requests.hold(size);
  }

  /**
   * Puts a request into the outbox. `write` returns its properties in JSON when the frame is made, or undefined to drop the
   * request. Without `resolve` the broker is asked for no answer.
   */
  post(entry) {
    const refusal = this.#refusal();
    if (refusal) {
      entry.reject?.(refusal);
      return;
    }
    this.#requests.add(entry);
    this.flushSoon();
  }

  /** Takes back a request from the outbox; returns false if it was sent already. */
  retract(entry) {
    return this.#requests.retract(entry);
  }

  #refusal() {
    if (this.#state === "closed") {
      return this.#error ?? cancelled("the connection is closed");
    }
    return this.#isOffline() ? lost("the connection is lost and was not restored in time") : undefined;
  }

  /** Gives a link a number. */
  adopt(link) {
    const number = this.#nextLink;
    this.#nextLink += 1;
    this.#links.set(number, link);
    return number;
  }

  /** Removes the link with this number. */
  forget(number) {
    this.#links.delete(number);
  }

  /** Calls `check` at each tick until it returns false; ticks are at most `TICK_MS` apart. */
  onTick(check) {
    this.#ticks.add(check);
    return () => this.#ticks.delete(check);
  }

  /** Sends the waiting requests, with all requests of the current turn of the event loop. */
  flushSoon() {
    if (!this.#isFlushPlanned) {
      this.#isFlushPlanned = true;
      queueMicrotask(() => {
        this.#isFlushPlanned = false;
        this.#flush();
      });
    }
  }

  /** Reports a failure that no caller waits for. */
  tellProblem(error) {
    this.#dispatch("problem", error);
  }

  // Events of the sockets.

  /** Handles a frame of the broker; returns whether the broker has sent its welcome. */
  #heard(data, isWelcome) {
    try {
      if (!isWelcome) {
        return this.#greet(data);
      }
      this.#take(data);
    } catch (cause) {
      // After an unreadable frame, frames may be lost or doubled.
      const detail = `a frame of the broker cannot be read: ${cause.message}`;
      this.#end(new PeeklockError("CommunicationProblem", detail, { retryable: false, cause }));
    }
    return isWelcome;
  }

  async #hello(isCurrent) {
    try {
      const { client, heartbeatSeconds, graceSeconds } = this.#options;
      const token = await this.#credential.token(this.brokerNow());
      const hello = { client, heartbeatSeconds, graceSeconds, token };
      if (this.#resumeToken !== undefined) {
        hello.resume = { resumeToken: this.#resumeToken, received: this.#frames.takenCount };
      }
      if (isCurrent()) {
        this.#sockets.write(JSON.stringify({ requests: [{ id: 1, hello }] }));
      }
    } catch (cause) {
      if (isCurrent()) {
        this.#end(new PeeklockError("Unauthorized", `there is no token: ${cause.message}`, { cause }));
      }
    }
  }

  /** Reads the first frame; returns false if it is not a welcome. */
  #greet(data) {
    const [item] = parse(data).items;
    if (item.error) {
      const error = PeeklockError.of(item.error);
      if (error.retryable) {
        this.#sockets.giveUp(error.message);
      } else {
        this.#end(error);
      }
      return false;
    }
    const { welcome } = item;
    this.#welcome = welcome;
    // The broker sent it after the hello. Assumes an immediate answer, so that locks seem to end early rather than late.
    const wayMs = performance.now() - this.#sockets.lastSent + 1;
    this.#clockOffsetMs = Date.parse(welcome.nowUtc) + wayMs - Date.now();
    if (welcome.resumed) {
      this.#frames.drop(welcome.received);
    } else {
      this.#begin();
    }
    this.#resumeToken = welcome.resumeToken;
    this.#sockets.greeted();
    for (const text of this.#frames.again()) {
      this.#sockets.write(text);
    }
    this.#change("open", { resumed: welcome.resumed });
    this.#settleReady.resolve(this);
    for (const link of this.#links.values()) {
      link.opened();
    }
    // The token may have been signed before the broker's clock was known.
    this.#renew();
    this.#flush();
    return true;
  }

  /** Sends the token, a new one if available. */
  async #show() {
    const token = await this.#credential.token(this.brokerNow());
    await this.request("authenticate", { token });
  }

  /** Sends a new token when one is due; if none is available now, tries again later. */
  async #renew() {
    if (this.#isRenewing || !this.#credential.isDue(this.brokerNow())) {
      return;
    }
    this.#isRenewing = true;
    try {
      await this.#show();
    } catch (error) {
      this.tellProblem(error);
    } finally {
      this.#isRenewing = false;
    }
  }

  /** Begins a new session of the broker, without any earlier state. */
  #begin() {
    this.#session += 1;
    this.#frames.begin();
    this.#requests.loseUnanswered();
    for (const link of this.#links.values()) {
      link.begin();
    }
  }

  #closed(code, reason) {
    if (isPassing(code)) {
      this.#sockets.lose(code, reason);
      return;
    }
    const said = reason ? `: ${reason}` : "";
    this.#end(lost(`the broker closed the connection with ${code}${said}`, { retryable: false, closeCode: code }));
  }

  #lost(code, reason) {
    if (this.#resumeToken === undefined) {
      this.#requests.loseUnanswered();
    }
    if (this.#state === "connecting" && this.#sockets.secondsLost >= this.#options.connectSeconds) {
      this.#endConnecting(code, reason);
      return;
    }
    this.#sockets.openLater();
    if (this.#state === "open") {
      this.#change("lost", { code, reason });
    }
  }

  #endConnecting(code, reason) {
    const said = reason ? `: ${reason}` : "";
    const trust = "its certificate may be signed by an authority that is not trusted here (in Node: NODE_EXTRA_CA_CERTS=FILE)";
    const isSecure = this.#url.toLowerCase().startsWith("wss:");
    const hint = `; the broker may be stopped, or refuse the Origin of this page${isSecure ? `, or ${trust}` : ""}`;
    this.#end(lost(`no connection to ${this.#url} (${code}${said})${hint}`, { closeCode: code }));
  }

  #isOffline() {
    return this.#sockets.secondsLost > Math.max(this.#options.offlineSeconds, this.#welcome?.graceSeconds ?? 0);
  }

  #end(error) {
    if (this.#state === "closed") {
      return;
    }
    const release = this.#sockets.end();
    this.#error = error;
    clearInterval(this.#tickTimer);
    this.#change("closed", { error });
    const reason = error ?? cancelled("the connection was closed");
    this.#settleReady.reject(reason);
    this.#requests.rejectAll(reason);
    for (const link of this.#links.values()) {
      link.fail(reason);
    }
    this.#links.clear();
    this.#ticks.clear();
    this.#frames.forget();
    release();
  }

  // Frames of the broker.

  #take(data) {
    const frame = parse(data);
    if (frame.seen !== undefined) {
      this.#frames.drop(frame.seen);
    }
    for (const item of frame.items) {
      this.#hand(item);
    }
    this.#frames.took(data.length);
    if (this.#frames.isDue) {
      this.#flush();
      if (this.#frames.isUnsaid) {
        this.#send([]);
      }
    } else if (this.#requests.isWaiting) {
      this.flushSoon();
    }
    // Browsers slow down the timers of hidden pages, but not incoming frames.
    this.#tick();
  }

  #hand(item) {
    if (item.id !== undefined) {
      this.#requests.answer(item);
    } else if (item.deliveries) {
      this.#links.get(item.deliveries.link)?.deliver(item.deliveries);
    } else if (item.detached) {
      this.#links.get(item.detached.link)?.detached(PeeklockError.of(item.detached.error));
    } else if (item.closing) {
      this.#dispatch("closing", item.closing);
    } else if (item.error) {
      this.tellProblem(PeeklockError.of(item.error));
    }
  }

  // Frames to the broker.

  #flush() {
    if (this.#state !== "open") {
      return;
    }
    this.#requests.send(this.#welcome, () => !this.#frames.isFull, (list) => this.#send(list));
  }

  #send(requests) {
    if (this.#frames.asks()) {
      // The answer confirms frames.
      requests.push(this.#requests.heartbeat());
    }
    this.#sockets.write(this.#frames.make(requests, this.#resumeToken !== undefined));
  }

  // Timers.

  #tick() {
    const now = performance.now();
    if (this.#state === "open") {
      this.#renew();
      const heartbeatMs = this.#welcome.heartbeatSeconds * 1000;
      if (now - this.#sockets.lastHeard > 2 * heartbeatMs) {
        this.#sockets.giveUp("nothing arrived from the broker for twice the heartbeat");
      } else if (now - this.#sockets.lastSent >= heartbeatMs / 2) {
        this.#flush();
        if (now - this.#sockets.lastSent >= heartbeatMs / 2) {
          this.#send(['{"heartbeat":{}}']);
        }
      }
    } else if (this.#isOffline()) {
      this.#requests.rejectAll(lost("the connection is lost and was not restored in time; the outcome is unknown"));
    }
    for (const check of this.#ticks) {
      if (!check()) {
        this.#ticks.delete(check);
      }
    }
  }

  #change(state, detail) {
    this.#state = state;
    this.#dispatch("state", { state, ...detail });
  }

  #dispatch(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
