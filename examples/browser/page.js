// The page of the example: receives from a queue under lock, and settles with buttons. Content of
// messages is shown as text, never as HTML.

import { connect, TypedValue } from "/client/peeklock.js";

const $ = (id) => document.getElementById(id);
const LOG_COUNT_MAX = 50;
const BODY_CHARS_MAX = 4000;
const ENDED_MS = 4000;

/** An element with text; whatever is in it stays text. */
function element(name, { text, className, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== undefined) {
    made.textContent = text;
  }
  if (className) {
    made.className = className;
  }
  for (const [attribute, value] of Object.entries(attributes)) {
    made.setAttribute(attribute, value);
  }
  made.append(...children);
  return made;
}

// Log of events, the latest first.

function say(text, kind = "") {
  const time = new Date();
  const stamp = element("time", { text: time.toLocaleTimeString(), datetime: time.toISOString() });
  const line = element("li", { className: kind }, stamp, text);
  $("log").prepend(line);
  while ($("log").children.length > LOG_COUNT_MAX) {
    $("log").lastElementChild.remove();
  }
}

const complain = (error) => say(error.condition ? `${error.condition}: ${error.detail}` : String(error), "bad");

/** Does something, and says what came of it. */
async function attempt(action, done) {
  try {
    const result = await action();
    if (done) {
      say(typeof done === "function" ? done(result) : done);
    }
    return result;
  } catch (error) {
    complain(error);
    return undefined;
  }
}

// A message as a card.

function card(message, actions) {
  const { sequenceNumber, deliveryCount, subject, applicationProperties } = message;
  const deliveries = deliveryCount > 1 ? `delivery ${deliveryCount}` : "";
  const about = [subject, deliveries, message.enqueuedTimeUtc.toLocaleTimeString()].filter(Boolean).join(" · ");
  const title = element("h3", {}, `#${sequenceNumber}`, element("small", { text: about }));
  const made = element("li", { className: "message", "data-number": sequenceNumber }, title);
  made.append(element("pre", { text: shown(message) }));
  const properties = Object.entries(applicationProperties);
  if (properties.length > 0) {
    const list = element("dl", { className: "properties" });
    for (const [name, value] of properties) {
      list.append(element("dt", { text: name }), element("dd", { text: valueText(value) }));
    }
    made.append(list);
  }
  if (message.lockToken) {
    const progress = element("progress", { max: message.lockRemainingMs, "aria-label": "time until the lock ends" });
    made.append(element("div", { className: "countdown" }, progress, element("span")));
  }
  const buttons = element("div", { className: "actions" });
  for (const [name, { isPrimary, run }] of Object.entries(actions)) {
    const button = element("button", {
      text: name,
      type: "button",
      className: isPrimary ? "primary" : "",
      "aria-label": `${name} message ${sequenceNumber}`,
      "data-action": name,
    });
    button.addEventListener("click", () => run(button));
    buttons.append(button);
  }
  made.append(buttons);
  return made;
}

function shown(message) {
  if (message.text === undefined) {
    return `${message.bytes.length} bytes: ${Array.from(message.bytes.subarray(0, 64), hex).join(" ")}`;
  }
  const { text } = message;
  return text.length > BODY_CHARS_MAX ? `${text.slice(0, BODY_CHARS_MAX)}… (${text.length} characters)` : text;
}

const hex = (byte) => byte.toString(16).padStart(2, "0");

function valueText(value) {
  if (value instanceof TypedValue) {
    return `${value.value} (${value.type})`;
  }
  if (value instanceof Uint8Array) {
    return Array.from(value.subarray(0, 64), hex).join(" ");
  }
  return value instanceof Date ? value.toISOString() : String(value);
}

/** Removes a card; who was on one of its buttons goes on at the next card. */
function removeCard(made) {
  const list = made.parentElement;
  if (!list) {
    return;
  }
  const action = made.contains(document.activeElement) ? document.activeElement.dataset.action : undefined;
  const neighbour = made.nextElementSibling ?? made.previousElementSibling;
  made.remove();
  if (action !== undefined) {
    (neighbour?.querySelector(`[data-action="${action}"]:enabled`) ?? list).focus();
  }
}

// The locked messages of a receiver.

class Hand {
  #list;
  #limit;
  #actions;
  #cards = new Map();
  #abort;
  #receiver;
  #free = () => {};

  /** `limit` says how many may be in hand; `actions` gives the buttons of a message. */
  constructor(list, limit, actions) {
    this.#list = list;
    this.#limit = limit;
    this.#actions = actions;
  }

  /** Receives until it is paused or stopped. */
  async start(receiver) {
    if (this.#receiver === receiver) {
      return;
    }
    this.pause();
    const abort = new AbortController();
    this.#abort = abort;
    this.#receiver = receiver;
    try {
      await this.#room(abort.signal);
      for await (const message of receiver.messages({ signal: abort.signal })) {
        if (abort.signal.aborted) {
          await message.release();
          break;
        }
        this.add(message);
        await this.#room(abort.signal);
      }
    } catch (error) {
      complain(error);
    }
    if (this.#abort === abort) {
      this.#receiver = undefined;
    }
  }

  /** Takes no more; what is in hand stays there. */
  pause() {
    this.#abort?.abort();
    this.#receiver = undefined;
    this.#free();
  }

  /** Takes no more, and gives back what is in hand. */
  async stop() {
    this.pause();
    const messages = [...this.#cards.keys()];
    this.clear();
    await Promise.allSettled(messages.filter(({ lockRemainingMs }) => lockRemainingMs > 0).map((message) => message.release()));
  }

  /** Shows a message under lock. */
  add(message) {
    const made = card(message, this.#actions(message, (action, done) => this.#settle(message, action, done)));
    this.#cards.set(message, { card: made, lockMs: message.lockRemainingMs, stop: this.#keep(message) });
    this.#list.append(made);
    this.#count(message);
  }

  #keep(message) {
    return $("renew").checked ? message.keepLocked({ maxSeconds: 3600 }) : () => {};
  }

  /** Asks for renewal of all that is in hand, or for none. */
  renewAll() {
    for (const [message, entry] of this.#cards) {
      entry.stop();
      entry.stop = this.#keep(message);
    }
  }

  /** Shows how long the locks last. */
  tick() {
    for (const message of this.#cards.keys()) {
      this.#count(message);
    }
  }

  #count(message) {
    const entry = this.#cards.get(message);
    const left = message.lockRemainingMs;
    if (entry.endedAt !== undefined) {
      if (performance.now() - entry.endedAt > ENDED_MS) {
        this.#drop(message);
      }
      return;
    }
    entry.lockMs = Math.max(entry.lockMs, left);
    const [progress, text] = entry.card.querySelector(".countdown").children;
    progress.max = entry.lockMs;
    progress.value = left;
    text.textContent = `${Math.ceil(left / 1000)} s`;
    entry.card.classList.toggle("soon", left < entry.lockMs / 4);
    if (left === 0) {
      entry.endedAt = performance.now();
      entry.card.classList.add("ended");
      text.textContent = "lock ended; it comes again";
      entry.card.querySelectorAll("button").forEach((button) => (button.disabled = true));
      say(`the lock of #${message.sequenceNumber} has ended`, "bad");
    }
  }

  async #settle(message, action, done) {
    const { card } = this.#cards.get(message);
    const buttons = card.querySelectorAll("button");
    buttons.forEach((button) => (button.ariaDisabled = "true"));
    if (card.dataset.busy) {
      return;
    }
    card.dataset.busy = "true";
    try {
      await action();
      say(done);
      if (message.settled) {
        this.#drop(message);
      }
    } catch (error) {
      complain(error);
      if (error.condition === "MessageLockLost") {
        this.#drop(message);
      }
    }
    delete card.dataset.busy;
    buttons.forEach((button) => (button.ariaDisabled = null));
    refreshCounts();
  }

  #drop(message) {
    const entry = this.#cards.get(message);
    if (entry) {
      this.#cards.delete(message);
      entry.stop();
      removeCard(entry.card);
      this.#free();
    }
  }

  clear() {
    for (const { card, stop } of this.#cards.values()) {
      stop();
      card.remove();
    }
    this.#cards.clear();
    this.#free();
  }

  /** Resolves when one more may be in hand. */
  async #room(signal) {
    while (this.#cards.size >= this.#limit() && !signal.aborted) {
      await new Promise((resolve) => {
        this.#free = resolve;
      });
    }
  }

  /** More may be in hand now. */
  widen() {
    this.#free();
  }
}

const limit = () => Math.min(50, Math.max(1, $("limit").valueAsNumber || 1));

const live = new Hand($("live"), limit, (message, settle) => ({
  Complete: { isPrimary: true, run: () => settle(() => message.complete(), `completed #${message.sequenceNumber}`) },
  Abandon: { run: () => settle(() => message.abandon(), `abandoned #${message.sequenceNumber}`) },
  Defer: { run: () => settle(() => message.defer(), `deferred #${message.sequenceNumber}`) },
  "Dead-letter": {
    run: () => settle(() => message.deadLetter({ reason: "by hand" }), `dead-lettered #${message.sequenceNumber}`),
  },
  Renew: { run: () => settle(() => message.renew(), `renewed the lock of #${message.sequenceNumber}`) },
}));

const dead = new Hand($("dead"), limit, (message, settle) => ({
  "Send again": {
    isPrimary: true,
    run: () =>
      settle(async () => {
        await sender.send(message);
        await message.complete();
      }, `sent #${message.sequenceNumber} again`),
  },
  Remove: { run: () => settle(() => message.complete(), `removed dead letter #${message.sequenceNumber}`) },
}));

// The selected queue.

let connection;
let sender;
let receivers = [];
let tab = "live";
let chosen;

async function choose(path) {
  chosen = path;
  await Promise.allSettled([live.stop(), dead.stop()]);
  await Promise.allSettled([sender?.close(), ...receivers.map((receiver) => receiver.close())]);
  if (chosen !== path) {
    return;
  }
  sender = path ? connection.sender(path) : undefined;
  receivers = path ? [connection.receiver(path), connection.receiver(`${path}/$deadletterqueue`)] : [];
  $("deferred").replaceChildren();
  await follow();
}

/** Receives what is to be seen now. */
async function follow() {
  const [messages, letters] = receivers;
  if (!messages) {
    return;
  }
  if ($("receiving").ariaPressed === "true") {
    live.start(messages);
  } else {
    live.pause();
  }
  if (tab === "dead") {
    dead.start(letters);
  } else {
    dead.stop();
  }
  if (tab === "deferred") {
    await lookAtDeferred();
  }
  refreshCounts();
}

async function listQueues(wanted) {
  const queues = [];
  for (;;) {
    const more = await connection.queues.list({ skip: queues.length, top: 100 });
    queues.push(...more);
    if (more.length < 100 || queues.length >= 1000) {
      break;
    }
  }
  const paths = queues.map(({ path }) => path);
  const shown = Array.from($("queue").options, ({ value }) => value);
  if (paths.join("\n") !== shown.join("\n")) {
    $("queue").replaceChildren(...paths.map((path) => element("option", { text: path, value: path })));
  }
  $("queue").value = paths.includes(wanted) ? wanted : (paths[0] ?? "");
  if ($("queue").value !== chosen) {
    await choose($("queue").value);
  }
}

let isCounting = false;

async function refreshCounts() {
  if (!chosen || isCounting || connection.state !== "open") {
    return;
  }
  isCounting = true;
  try {
    const { runtime } = await connection.queues.get(chosen);
    for (const place of document.querySelectorAll("[data-count]")) {
      place.textContent = runtime[place.dataset.count];
    }
  } catch (error) {
    if (error.condition === "EntityNotFound") {
      complain(error);
      chosen = undefined;
      await attempt(() => listQueues());
    }
  } finally {
    isCounting = false;
  }
}

async function lookAtDeferred() {
  const [receiver] = receivers;
  const list = $("deferred");
  const made = [];
  // Deferred messages are among the others: search the first messages for up to 50.
  for (let from = 1; made.length < 50; ) {
    const messages = await attempt(() => receiver.peek({ from, maxCount: 250 }));
    if (!messages?.length) {
      break;
    }
    from = messages[messages.length - 1].sequenceNumber + 1;
    made.push(...messages.filter(({ state }) => state === "Deferred"));
  }
  const cards = made.slice(0, 50).map((message) => {
    const number = message.sequenceNumber;
    const own = card(message, {
      Receive: {
        isPrimary: true,
        run: () =>
          attempt(async () => {
            const [received] = await receiver.receiveDeferred(number);
            removeCard(own);
            live.add(received);
          }, `received deferred #${number}; it is under Live`),
      },
      Delete: {
        run: () =>
          attempt(async () => {
            await receiver.deleteDeferred(number);
            removeCard(own);
            refreshCounts();
          }, `deleted #${number}`),
      },
    });
    return own;
  });
  list.replaceChildren(...cards);
}

// Tabs with the keyboard control of a tab list.

const tabs = [...document.querySelectorAll("[role=tab]")];

function show(next) {
  for (const one of tabs) {
    const isShown = one === next;
    one.ariaSelected = String(isShown);
    one.tabIndex = isShown ? 0 : -1;
    $(one.getAttribute("aria-controls")).hidden = !isShown;
  }
  tab = next.id.replace("tab-", "");
  next.focus();
  follow();
}

tabs.forEach((one, place) => {
  one.addEventListener("click", () => show(one));
  one.addEventListener("keydown", ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (step) {
      show(tabs[(place + step + tabs.length) % tabs.length]);
    }
  });
});

// Controls.

$("queue").addEventListener("change", () => choose($("queue").value));
$("receiving").addEventListener("click", () => {
  const isOn = $("receiving").ariaPressed !== "true";
  $("receiving").ariaPressed = String(isOn);
  $("receiving").textContent = isOn ? "Receiving" : "Stopped";
  follow();
});
$("limit").addEventListener("change", () => live.widen());
$("renew").addEventListener("change", () => {
  live.renewAll();
  dead.renewAll();
});
$("look").addEventListener("click", lookAtDeferred);

$("create").addEventListener("submit", async (event) => {
  event.preventDefault();
  const path = $("path").value.trim();
  const properties = {
    lockDuration: `PT${$("lock").valueAsNumber}S`,
    maxDeliveryCount: $("attempts").valueAsNumber,
    deadLetteringOnMessageExpiration: true,
  };
  const made = await attempt(() => connection.queues.create(path, properties), `created ${path}`);
  if (made) {
    event.target.reset();
    event.target.closest("details").open = false;
    await attempt(() => listQueues(made.path));
  }
});

$("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!sender) {
    say("there is no queue to send to", "bad");
    return;
  }
  const message = { body: $("body").value, contentType: "text/plain" };
  if ($("subject").value) {
    message.subject = $("subject").value;
  }
  const delay = $("delay").valueAsNumber;
  const send = () => (delay > 0 ? sender.schedule(message, new Date(connection.brokerNow() + delay * 1000)) : sender.send(message));
  const number = await attempt(send, (number) => (delay > 0 ? `scheduled #${number}` : `sent #${number}`));
  if (number !== undefined) {
    $("body").value = "";
    $("body").focus();
    refreshCounts();
  }
});
$("body").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    $("send").requestSubmit();
  }
});

// The connection.

const STATES = { connecting: "connecting", open: "connected", lost: "reconnecting", closed: "closed" };

function showState({ state, error }) {
  const pill = $("connection");
  pill.dataset.state = state;
  pill.textContent = STATES[state];
  if (error) {
    complain(error);
  }
}

async function start() {
  const { url } = await (await fetch("/broker.json")).json();
  connection = await connect(url, { client: "example page", graceSeconds: 30 });
  showState({ state: "open" });
  connection.addEventListener("state", ({ detail }) => {
    showState(detail);
    if (detail.state === "open") {
      say(detail.resumed ? "the connection was lost, and went on where it was" : "a new session has begun");
      if (!detail.resumed) {
        live.clear();
        dead.clear();
      }
    }
  });
  connection.addEventListener("problem", ({ detail }) => complain(detail));
  connection.addEventListener("closing", ({ detail }) => say(`the broker stops in ${detail.seconds} s`, "bad"));
  say(`connected to ${url}`);
  await listQueues(new URLSearchParams(location.search).get("queue"));
  setInterval(() => {
    live.tick();
    dead.tick();
  }, 250);
  const every = (ms, action) => setInterval(() => document.visibilityState === "visible" && action(), ms);
  every(2000, refreshCounts);
  // Other clients create and delete queues too.
  every(10_000, () => connection.state === "open" && attempt(() => listQueues(chosen)));
  // Locked messages are released immediately and uncounted.
  addEventListener("pagehide", () => {
    live.stop();
    dead.stop();
    connection.close();
  });
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}

attempt(start).then(() => connection ?? showState({ state: "closed" }));
