// One connection to the broker, over as many sockets as it takes: frames, answers, resumption
// (sections 2, 3, 7 and 8 of docs/websocket-protocol.md).
//
//   connecting --> open --> lost --> open ...          closed is final
//
// While `lost`, requests wait. If the broker resumes the connection, both sides repeat the frames
// that the other has not taken: no answer and no delivery is lost or doubled. If it does not, a new
// session begins: what was sent and not answered fails with CommunicationProblem, links are attached
// again, and what was not yet sent goes out.
//
// What waits is bounded in number and bytes; beyond that a request is refused with ServerBusy before
// anything of it was sent.

import { ConnectionString, Credential, isConnectionString } from "./credential.js";
import { Declarations } from "./declarations.js";
import { argument, cancelled, lost, PeeklockError } from "./error.js";
import { parse } from "./json.js";
import { Queues } from "./queues.js";
import { Topics } from "./topics.js";
import { Receiver } from "./receiver.js";
import { Sender } from "./sender.js";
import { acceptSession } from "./session.js";
import { beginTransaction } from "./transaction.js";

const SUBPROTOCOL = "peeklock.v1.json";
/** A frame is closed when it has so many bytes, so that answers to its first requests come early. */
const FRAME_BYTES = 256 << 10;
/** What a request takes besides its properties, with its share of the frame around it. */
const REQUEST_HEAD_BYTES = 128;
const REQUEST_COUNT_MAX = 4096;
/** Frames of the broker are confirmed when so many, or so many bytes, have not been. */
const CONFIRM_COUNT = 64;
const CONFIRM_BYTES = 256 << 10;
/** Frames kept until the broker has taken them; beyond the first it is asked, beyond the second nothing is sent. */
const KEPT_ASK_COUNT = 256;
const KEPT_COUNT_MAX = 4096;
const TICK_MS = 500;
/** The code of a socket that is given up. It must be no 1000, which would end the connection in order. */
const GIVEN_UP = 4000;

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

const encoder = new TextEncoder();

/** Whether to come back after a close code (section 8). */
const isPassing = (code) =>
  code === 1001 || code === 1006 || (code >= 1011 && code <= 1014) || (code >= 4100 && code <= 4199);

/**
 * Opens a connection to `ws://HOST:PORT/`, `wss://HOST:PORT/` or the broker of a connection string; rejects if there is none within `connectSeconds`, or at once if the broker says no.
 */
export async function connect(url, options = {}) {
  const connection = new Connection(url, options);
  await connection.ready;
  return connection;
}

/** See the head of this file. Events: `state`, `closing`, `problem`; their `detail` says more. */
export class Connection extends EventTarget {
  #url;
  #options;
  #string;
  #credential;
  #isRenewing = false;
  #WebSocket;
  #state = "connecting";
  #error;
  #settleReady;
  #welcome;
  #clockOffsetMs = 0;

  #socket;
  #session = 0;
  #resumeToken;
  #attempt = 0;
  #lostAt;
  #retryTimer;
  #handshakeTimer;
  #tickTimer;
  #lastSent = 0;
  #lastHeard = 0;

  #outbox = [];
  #unanswered = new Map();
  #nextId = 1;
  #heldCount = 0;
  #heldSize = 0;
  #whenIdle = [];
  #isFlushPlanned = false;

  #kept = [];
  #sentCount = 0;
  #takenCount = 0;
  #saidCount = 0;
  #unsaidBytes = 0;
  #isAsked = false;

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
    this.#WebSocket = options.WebSocket ?? globalThis.WebSocket;
    if (!this.#WebSocket) {
      throw argument("there is no WebSocket here; give one in as the option WebSocket");
    }
    /** Resolves when the broker has said welcome for the first time. */
    this.ready = new Promise((resolve, reject) => {
      this.#settleReady = { resolve, reject };
    });
    this.ready.catch(() => {});
    /** The queues of the broker. */
    this.queues = new Queues(this);
    /** The topics of the broker, with their subscriptions and rules. */
    this.topics = new Topics(this);
    /** What shall be there, made so. */
    this.declarations = new Declarations(this);
    this.#lostAt = performance.now();
    this.#tickTimer = setInterval(() => this.#tick(), TICK_MS);
    this.#open();
  }

  /** `connecting`, `open`, `lost` or `closed`. */
  get state() {
    return this.#state;
  }

  /** Why it is closed, if the caller did not close it. */
  get error() {
    return this.#error;
  }

  /** What the broker said in its last welcome. */
  get welcome() {
    return this.#welcome;
  }

  /** Counts the times that the broker began anew; locks of an earlier session are gone. */
  get session() {
    return this.#session;
  }

  /** The broker's clock in milliseconds since 1970, as of the last welcome. */
  brokerNow() {
    return Date.now() + this.#clockOffsetMs;
  }

  /** Sends to a queue. Attaches with the first message. */
  sender(path, options) {
    this.checkEntity(path);
    this.checkEntity(options?.via ?? "");
    return new Sender(this, path, options);
  }

  /** Receives from a queue or sub-queue such as `orders/$deadletterqueue`. */
  receiver(path, options) {
    this.checkEntity(path);
    return new Receiver(this, path, options);
  }

  /** Locks a session of a queue, also one that has no message yet (SES-05). */
  async acceptSession(path, sessionId, options) {
    this.checkEntity(path);
    return acceptSession(this, path, { sessionId: String(sessionId) }, options);
  }

  /** Locks the session with the oldest available message; waits for one up to `waitSeconds` (SES-07, SES-08). */
  async acceptNextSession(path, { waitSeconds = 60, ...options } = {}) {
    this.checkEntity(path);
    return acceptSession(this, path, { waitSeconds }, options);
  }

  /** Begins a transaction; with `crossEntity` it also sends to other entities than the first one it uses (TXN-09). */
  beginTransaction(options) {
    return beginTransaction(this, options);
  }

  /** Replaces the token, here and at every later hello. */
  async authenticate(token) {
    this.#credential = new Credential(token, this.#options.tokenSeconds);
    await this.#show();
  }

  /**
   * Ends the connection in order: receivers stop, what is in their buffers is given back, and what was
   * asked for is answered, for at most `seconds`. Locks of messages in hand stay until they run out.
   */
  async close({ seconds = 5 } = {}) {
    if (this.#state === "closed") {
      return;
    }
    const links = [...this.#links.values()];
    await within(seconds, Promise.allSettled(links.map((link) => link.close())));
    if (this.#state === "open") {
      this.#flush();
      if (this.#heldCount > 0) {
        await within(seconds, new Promise((resolve) => this.#whenIdle.push(resolve)));
      }
    }
    const socket = this.#socket;
    if (this.#state === "open" && socket) {
      const closed = new Promise((resolve) => {
        socket.onclose = resolve;
      });
      socket.onmessage = null;
      socket.close(1000);
      await within(1, closed);
    }
    const left = this.#socket;
    this.#end(undefined);
    // One that was about to be made anew, or did not answer.
    release(left);
  }

  // What senders, receivers and queues use. It is no part of the interface of the package.

  /** Asks the broker for something that belongs to no link. */
  async request(name, properties) {
    this.checkEntity(properties.path ?? properties.topic ?? "");
    const text = JSON.stringify(properties);
    const release = this.hold(text.length);
    try {
      return await new Promise((resolve, reject) => this.post({ name, write: () => text, resolve, reject }));
    } finally {
      release();
    }
  }

  /** Throws for another entity than that of the connection string (SEC-20). */
  checkEntity(path) {
    this.#string?.checkEntity(path);
  }

  /** Counts a request and its size until it is released; throws if too much waits already. */
  hold(size) {
    const refusal = this.#refusal() ?? this.#excess(size);
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

  /**
   * Puts a request into the outbox. `write` gives its properties in JSON when the frame is made, or
   * undefined if there is nothing to say any more; without `resolve` no answer is asked for.
   */
  post(entry) {
    const refusal = this.#refusal();
    if (refusal) {
      entry.reject?.(refusal);
      return;
    }
    this.#outbox.push(entry);
    this.flushSoon();
  }

  /** Takes a request back that was not yet sent; false if it was. */
  retract(entry) {
    const place = this.#outbox.indexOf(entry);
    if (place >= 0) {
      this.#outbox.splice(place, 1);
    }
    return place >= 0;
  }

  #refusal() {
    if (this.#state === "closed") {
      return this.#error ?? cancelled("the connection is closed");
    }
    return this.#isOffline() ? lost("the connection is lost and was not restored in time") : undefined;
  }

  #excess(size) {
    const { requestCountMax, bufferSizeMax } = this.#options;
    if (this.#heldCount >= requestCountMax) {
      return busy(`${requestCountMax} requests wait already`);
    }
    if (this.#heldSize > 0 && this.#heldSize + size > bufferSizeMax) {
      return busy(`requests of ${this.#heldSize} characters wait already`);
    }
    return undefined;
  }

  /** Gives a link a number. */
  adopt(link) {
    const number = this.#nextLink;
    this.#nextLink += 1;
    this.#links.set(number, link);
    return number;
  }

  /** The number of a link is used no more. */
  forget(number) {
    this.#links.delete(number);
  }

  /** Calls `check` now and then; it returns false to be called no more. */
  onTick(check) {
    this.#ticks.add(check);
    return () => this.#ticks.delete(check);
  }

  /** Sends what waits, with all that is asked for in the present turn. */
  flushSoon() {
    if (!this.#isFlushPlanned) {
      this.#isFlushPlanned = true;
      queueMicrotask(() => {
        this.#isFlushPlanned = false;
        this.#flush();
      });
    }
  }

  /** Something went wrong that no caller waits for. */
  tellProblem(error) {
    this.#dispatch("problem", error);
  }

  // The socket.

  #open() {
    let socket;
    try {
      socket = new this.#WebSocket(this.#url, [SUBPROTOCOL]);
    } catch (cause) {
      this.#end(new PeeklockError("ArgumentError", `no WebSocket can be opened to ${this.#url}`, { cause }));
      return;
    }
    this.#socket = socket;
    const isCurrent = () => this.#socket === socket;
    const patience = Math.min(10, this.#options.connectSeconds) * 1000;
    this.#handshakeTimer = setTimeout(() => isCurrent() && this.#giveUp("no welcome came in time"), patience);
    let welcomed = false;
    socket.onopen = () => isCurrent() && this.#hello(socket, isCurrent);
    socket.onmessage = ({ data }) => {
      if (!isCurrent()) {
        return;
      }
      try {
        this.#lastHeard = performance.now();
        if (welcomed) {
          this.#take(data);
        } else {
          welcomed = this.#greet(data);
        }
      } catch (cause) {
        // Neither lost nor doubled can be promised any more.
        const detail = `a frame of the broker cannot be understood: ${cause.message}`;
        this.#fail(new PeeklockError("CommunicationProblem", detail, { retryable: false, cause }));
      }
    };
    socket.onerror = () => {};
    socket.onclose = ({ code, reason }) => isCurrent() && this.#closed(code, reason);
  }

  async #hello(socket, isCurrent) {
    try {
      const { client, heartbeatSeconds, graceSeconds } = this.#options;
      const token = await this.#credential.token(this.brokerNow());
      const hello = { client, heartbeatSeconds, graceSeconds, token };
      if (this.#resumeToken !== undefined) {
        hello.resume = { resumeToken: this.#resumeToken, received: this.#takenCount };
      }
      if (isCurrent()) {
        this.#lastSent = performance.now();
        socket.send(JSON.stringify({ requests: [{ id: 1, hello }] }));
      }
    } catch (cause) {
      if (isCurrent()) {
        this.#fail(new PeeklockError("Unauthorized", `there is no token: ${cause.message}`, { cause }));
      }
    }
  }

  /** Reads the first frame; false if it was no welcome. */
  #greet(data) {
    const [item] = parse(data).items;
    if (item.error) {
      const error = PeeklockError.of(item.error);
      if (error.retryable) {
        this.#giveUp(error.message);
      } else {
        this.#fail(error);
      }
      return false;
    }
    const { welcome } = item;
    clearTimeout(this.#handshakeTimer);
    this.#welcome = welcome;
    // It was said after the hello. As if at once: a lock is rather thought to end early than late.
    const wayMs = performance.now() - this.#lastSent + 1;
    this.#clockOffsetMs = Date.parse(welcome.nowUtc) + wayMs - Date.now();
    if (welcome.resumed) {
      this.#drop(welcome.received);
    } else {
      this.#begin();
    }
    this.#resumeToken = welcome.resumeToken;
    this.#saidCount = this.#takenCount;
    this.#unsaidBytes = 0;
    this.#isAsked = false;
    this.#attempt = 0;
    this.#lostAt = undefined;
    for (const { text } of this.#kept) {
      this.#write(text);
    }
    this.#change("open", { resumed: welcome.resumed });
    this.#settleReady.resolve(this);
    for (const link of this.#links.values()) {
      link.opened();
    }
    // The token was signed before the broker's clock was known.
    this.#renew();
    this.#flush();
    return true;
  }

  /** Shows the token, a newer one if there is one. */
  async #show() {
    const token = await this.#credential.token(this.brokerNow());
    await this.request("authenticate", { token });
  }

  /** Shows a newer token when one is due; if there is none now, it is asked for again. */
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

  /** The broker knows nothing of what was before. */
  #begin() {
    this.#session += 1;
    this.#kept = [];
    this.#sentCount = 0;
    this.#takenCount = 0;
    this.#loseUnanswered();
    for (const link of this.#links.values()) {
      link.begin();
    }
  }

  #loseUnanswered() {
    const unanswered = [...this.#unanswered.values()];
    this.#unanswered.clear();
    for (const entry of unanswered) {
      entry.reject(lost("the connection was lost before the answer came; the outcome is not known"));
    }
  }

  /** What the broker has taken is kept no more. */
  #drop(taken) {
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

  #closed(code, reason) {
    if (isPassing(code)) {
      this.#loseSocket(code, reason);
      return;
    }
    const said = reason ? `: ${reason}` : "";
    this.#fail(lost(`the broker closed the connection with ${code}${said}`, { retryable: false, closeCode: code }));
  }

  #giveUp(why) {
    const socket = this.#socket;
    this.#loseSocket(1006, why);
    release(socket);
  }

  #loseSocket(code, reason) {
    clearTimeout(this.#handshakeTimer);
    this.#socket = undefined;
    this.#lostAt ??= performance.now();
    if (this.#resumeToken === undefined) {
      this.#loseUnanswered();
    }
    if (this.#state === "connecting" && this.#secondsLost() >= this.#options.connectSeconds) {
      this.#endConnecting(code, reason);
      return;
    }
    const ceiling = Math.min(this.#options.reconnectMs * 2 ** this.#attempt, this.#options.reconnectMaxMs);
    const delayMs = ceiling / 2 + (Math.random() * ceiling) / 2;
    this.#attempt += 1;
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(() => this.#open(), delayMs);
    if (this.#state === "open") {
      this.#change("lost", { code, reason });
    }
  }

  #endConnecting(code, reason) {
    const said = reason ? `: ${reason}` : "";
    const trust = "its certificate may be by an authority that is not trusted here (in Node: NODE_EXTRA_CA_CERTS=FILE)";
    const isSecure = this.#url.toLowerCase().startsWith("wss:");
    const hint = `; the broker may be away, or refuse the Origin of this page${isSecure ? `, or ${trust}` : ""}`;
    this.#fail(lost(`no connection to ${this.#url} (${code}${said})${hint}`, { closeCode: code }));
  }

  #secondsLost() {
    return this.#lostAt === undefined ? 0 : (performance.now() - this.#lostAt) / 1000;
  }

  #isOffline() {
    return this.#secondsLost() > Math.max(this.#options.offlineSeconds, this.#welcome?.graceSeconds ?? 0);
  }

  #fail(error) {
    const socket = this.#socket;
    this.#end(error);
    release(socket);
  }

  #end(error) {
    if (this.#state === "closed") {
      return;
    }
    this.#socket = undefined;
    this.#error = error;
    clearInterval(this.#tickTimer);
    clearTimeout(this.#retryTimer);
    clearTimeout(this.#handshakeTimer);
    this.#change("closed", { error });
    const reason = error ?? cancelled("the connection was closed");
    this.#settleReady.reject(reason);
    this.#rejectAll(reason);
    for (const link of this.#links.values()) {
      link.fail(reason);
    }
    this.#links.clear();
    this.#ticks.clear();
    this.#kept = [];
  }

  #rejectAll(reason) {
    const entries = [...this.#unanswered.values(), ...this.#outbox];
    this.#unanswered.clear();
    this.#outbox = [];
    for (const entry of entries) {
      entry.reject?.(reason);
    }
  }

  // Frames of the broker.

  #take(data) {
    const frame = parse(data);
    if (frame.seen !== undefined) {
      this.#drop(frame.seen);
    }
    for (const item of frame.items) {
      this.#hand(item);
    }
    this.#takenCount += 1;
    this.#unsaidBytes += data.length;
    if (this.#takenCount - this.#saidCount >= CONFIRM_COUNT || this.#unsaidBytes >= CONFIRM_BYTES) {
      this.#flush();
      if (this.#takenCount > this.#saidCount) {
        this.#send([]);
      }
    } else if (this.#outbox.length > 0) {
      this.flushSoon();
    }
    // Timers of a hidden page are slowed down; what the broker says is not.
    this.#tick();
  }

  #hand(item) {
    if (item.id !== undefined) {
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
    const { frameBytesMax, commandCountMax } = this.#welcome;
    const queue = this.#outbox;
    let frame = [];
    let frameBytes = 0;
    let next = 0;
    const close = () => {
      if (frame.length > 0) {
        this.#send(frame);
        frame = [];
        frameBytes = 0;
      }
    };
    while (next < queue.length && this.#unanswered.size < commandCountMax && this.#kept.length < KEPT_COUNT_MAX) {
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
      if (frameBytes + bytes > Math.min(FRAME_BYTES, frameBytesMax) || frame.length >= REQUEST_COUNT_MAX) {
        close();
      }
      frame.push(this.#address(entry, properties));
      frameBytes += bytes;
    }
    queue.splice(0, next);
    close();
  }

  /** A request in JSON, under an id if it is to be answered. */
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

  #send(requests) {
    if (this.#kept.length >= KEPT_ASK_COUNT && !this.#isAsked) {
      // Its answer says what the broker has taken.
      this.#isAsked = true;
      const id = this.#freeId();
      this.#unanswered.set(id, { resolve: () => {}, reject: () => {} });
      requests.push(`{"id":${id},"heartbeat":{}}`);
    }
    const text = `{"seen":${this.#takenCount},"requests":[${requests.join(",")}]}`;
    this.#saidCount = this.#takenCount;
    this.#unsaidBytes = 0;
    this.#sentCount += 1;
    if (this.#resumeToken !== undefined) {
      this.#kept.push({ number: this.#sentCount, text });
    }
    this.#write(text);
  }

  #write(text) {
    this.#lastSent = performance.now();
    // A socket that is closing takes nothing; what is kept goes over the next one.
    if (this.#socket?.readyState === 1) {
      this.#socket.send(text);
    }
  }

  // Time.

  #tick() {
    const now = performance.now();
    if (this.#state === "open") {
      this.#renew();
      const heartbeatMs = this.#welcome.heartbeatSeconds * 1000;
      if (now - this.#lastHeard > 2 * heartbeatMs) {
        this.#giveUp("the broker was not heard for twice the heartbeat");
      } else if (now - this.#lastSent >= heartbeatMs / 2) {
        this.#flush();
        if (now - this.#lastSent >= heartbeatMs / 2) {
          this.#send(['{"heartbeat":{}}']);
        }
      }
    } else if (this.#isOffline()) {
      this.#rejectAll(lost("the connection is lost and was not restored in time; the outcome is not known"));
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

const busy = (detail) => new PeeklockError("ServerBusy", `${detail}; nothing was sent`, { retryable: true });

/** Waits for a promise, and not longer than so many seconds. */
async function within(seconds, promise) {
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

/** Bytes of a text in UTF-8: exact where it matters, else at least as many. */
function bytesAtMost(text, limit) {
  const most = text.length * 3;
  return most <= limit && most <= FRAME_BYTES ? most : encoder.encode(text).length;
}
