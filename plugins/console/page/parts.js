// @ts-check
// Small components that every page uses.

import { ApiError, now } from "./api.js";
import { age, cut, exact, number, parts, shortSpan, visible } from "./format.js";
import { preferences, Store } from "./preferences.js";
import { href } from "./route.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./view.js";

const tick = new Store(0);
setInterval(() => document.visibilityState === "visible" && tick.set(Date.now()), 1000);

/** Draws the component again every second, and returns the time of the broker. */
export function useNow() {
  tick.use();
  return now();
}

/** Text of others. Escapes are marked, so that a text with a backslash looks different. */
export function Text({ value, lines = false, max = Infinity }) {
  const text = cut(String(value), max);
  return parts(text, lines).map(({ text, isEscape }) => (isEscape ? html`<span class="escape">${text}</span>` : text));
}

/** Age of an instant; the exact instant shows for the pointer. */
export function Age({ at, suffix = "" }) {
  const { zone } = preferences.use();
  const time = useNow();
  if (!at) {
    return "–";
  }
  return html`<time datetime=${at} title=${exact(at, zone)}>${age(at, time)}${suffix}</time>`;
}

/** An instant in full, with its age. */
export function Moment({ at }) {
  const { zone } = preferences.use();
  const time = useNow();
  if (!at) {
    return "–";
  }
  const distance = age(at, time);
  return html`<time datetime=${at}><span class="exact">${exact(at, zone)}</span> <span class="quiet age">${distance.startsWith("in ") ? distance : `${distance} ago`}</span></time>`;
}

/** Shapes that go with the word of a state, so that colour is not the only sign. */
const SHAPES = {
  active: ["●", ""],
  locked: ["◆", "look"],
  deferred: ["◐", "quiet"],
  scheduled: ["○", "quiet"],
  delayed: ["◔", "quiet"],
  expired: ["✕", "bad"],
  transferring: ["→", "look"],
  Active: ["●", "quiet"],
  Disabled: ["✕", "look"],
  SendDisabled: ["◐", "look"],
  ReceiveDisabled: ["◐", "look"],
};
const WORDS = { SendDisabled: "send disabled", ReceiveDisabled: "receive disabled" };

/** State of a message or entity: a shape and a word. */
export function State({ name }) {
  const [shape, tone] = SHAPES[name] ?? ["□", "quiet"];
  return html`<span class=${`state ${tone}`}><span aria-hidden="true">${shape}</span> ${WORDS[name] ?? visible(name).toLowerCase()}</span>`;
}

const HELP = {
  Unreachable: "The page tries again by itself. Is the broker running?",
  NoAnswer: "The page tries again by itself.",
  Unauthorized: "Sign in with a policy that has the right Listen here, or Manage for the whole namespace.",
  EntityNotFound: "It may have been deleted, or you may not read it.",
  MessageNotFound: "It was settled, moved or deleted, or it has expired.",
  ServerBusy: "The broker has no room for the answer; wait a moment.",
};

/** An error at the place that failed: the condition, the text, the tracking id, and advice. `except` is shown elsewhere. */
export function Problem({ error, onRetry, except = "" }) {
  if (!error || error.code === except) {
    return null;
  }
  const { asked, code, message, trackingId, retryable } = /** @type {ApiError} */ (error);
  const advice = HELP[code] ?? (retryable ? "The same request can succeed later." : "");
  return html`<div class="problem" role="group" aria-label="Error">
    <p><strong>${visible(code)}</strong> <${Text} value=${message} max=${1000} /> ${advice && html`<span class="quiet">${advice}</span>`}</p>
    <p class="quiet small">
      ${asked && html`<span class="mono"><${Text} value=${asked} /></span> `}
      ${trackingId && html`<span>Tracking id <span class="mono">${visible(trackingId)}</span> </span><${Copy} text=${trackingId} what="tracking id" />`}
      ${onRetry && html` <button type="button" onClick=${onRetry}>Try again</button>`}
    </p>
  </div>`;
}

/** An empty list: its usual content, and how to get it. */
export const Empty = ({ title, children }) => html`<div class="empty"><p><strong>${title}</strong></p>${children}</div>`;

/** Commands with a button for each that copies it. */
export const Commands = ({ title, list }) => html`<p>${title}:</p>
  ${list.map((command) => html`<div key=${command} class="command"><pre tabindex="0" aria-label="Command"><${Text} value=${command} /></pre><${Copy} text=${command} what=${`${command.split(" ")[0]} command`} /></div>`)}`;

/** Last text that a screen reader announces. */
export const announcement = new Store("");
export const announce = (/** @type {string} */ text) => announcement.set(text);

/** Copies a text; without the clipboard of the browser by a selection. */
export async function copy(/** @type {string} */ text, /** @type {string} */ what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(`Copied ${what}`);
}

/** Saves a file of the page. */
export function saveAs(/** @type {Blob} */ file, /** @type {string} */ name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Button that copies a text. */
export function Copy({ text, what, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) {
      return undefined;
    }
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [isDone]);
  const act = async () => {
    await copy(typeof text === "function" ? text() : text, what);
    setDone(true);
  };
  return html`<button type="button" class="copy" aria-label=${`${isDone ? "Copied" : label} ${what}`} onClick=${act}>${isDone ? "Copied" : label}</button>`;
}

/** A component whose module is loaded when it is first shown. A small one shows nothing meanwhile. */
export function late(/** @type {() => Promise<any>} */ load, /** @type {string} */ name, isSmall = false) {
  let module = /** @type {any} */ (undefined);
  return function Late(props) {
    const [found, setFound] = useState({ module, error: /** @type {unknown} */ (undefined) });
    useEffect(() => {
      if (!module) {
        load().then(
          (loaded) => setFound({ module: (module = loaded), error: undefined }),
          (error) => setFound({ module: undefined, error }),
        );
      }
    }, []);
    if (found.error) {
      throw found.error;
    }
    return found.module ? html`<${found.module[name]} ...${props} />` : !isSmall && html`<p class="quiet">Reading…</p>`;
  };
}

/** Links to the tabs of a page. */
export function Tabs({ label, tabs, current }) {
  const nav = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const element = nav.current;
    const chosen = /** @type {HTMLElement | null | undefined} */ (element?.querySelector("[aria-current]"));
    if (element && chosen) {
      element.scrollLeft = chosen.offsetLeft - element.offsetLeft - (element.clientWidth - chosen.offsetWidth) / 2;
    }
  }, [current, tabs.length]);
  return html`<nav class="tabs" aria-label=${label} ref=${nav}>
    ${tabs.map(
      (tab) => html`<a key=${tab.id} href=${tab.href} aria-current=${tab.id === current ? "page" : undefined}>
        ${tab.name}${tab.count ? html` <span class=${`count ${tab.tone ?? ""}`}>${tab.count}</span>` : null}
      </a>`,
    )}
  </nav>`;
}

/** Names and values. A row without a value is left out. */
export function Facts({ rows }) {
  const shown = rows.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return html`<dl class="facts">
    ${shown.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** A number with its name below, as in the head of a page. */
export const Figure = ({ name, value, tone = "", title = undefined, href = undefined }) => {
  const inside = html`<span class="figure-value">${value}</span><span class="figure-name">${name}</span>`;
  return href
    ? html`<a class=${`figure ${tone}`} href=${href} title=${title}>${inside}</a>`
    : html`<div class=${`figure ${tone}`} title=${title}>${inside}</div>`;
};

/** A single choice among a few, as a group of buttons. */
export function Choice({ label, value, options, onChange }) {
  return html`<fieldset class="choice"><legend class="hidden">${label}</legend>
    ${options.map(
      ([id, name]) => html`<button type="button" key=${id} aria-pressed=${id === value} onClick=${() => onChange(id)}>${name}</button>`,
    )}
  </fieldset>`;
}

/** Element of a panel. When it goes and has the focus, the table of the page gets that, so that keys work on. */
export function usePanel() {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => () => {
    if (element.current?.contains(document.activeElement)) {
      // The table may move to its new place first.
      queueMicrotask(() => /** @type {HTMLElement | null} */ (document.querySelector("main table[role=grid]"))?.focus({ preventScroll: true }));
    }
  }, []);
  return element;
}

/** Says that a change may have been made, if its answer is missing (CON-62). */
export const Unknown = ({ error, children = "the broker may have done this." }) =>
  error instanceof ApiError && error.status === 0 && error.asked !== "" && html`<p class="look">The outcome is unknown: ${children}</p>`;

/** Heading of a page, which sets the title of the document. */
export function usePageTitle(/** @type {string} */ title) {
  useEffect(() => {
    pageTitle.set(title);
  }, [title]);
}
export const pageTitle = new Store("");

/** Field whose value goes out after a pause in typing. */
export function SearchField({ label, value, onChange, placeholder = "", id = undefined }) {
  const [text, setText] = useState(value);
  const [sent, setSent] = useState(value);
  if (value !== sent) {
    setSent(value);
    setText(value);
  }
  useEffect(() => {
    if (text === sent) {
      return undefined;
    }
    const timer = setTimeout(() => {
      setSent(text);
      onChange(text);
    }, 250);
    // Enter sends the text sooner, and only once.
    return () => clearTimeout(timer);
  }, [text, sent]);
  const onKey = (event) => {
    if (event.key === "Enter" && text !== sent) {
      setSent(text);
      onChange(text);
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (text === "") {
        event.currentTarget.blur();
      } else {
        setText("");
      }
    }
  };
  return html`<input
    type="search" id=${id} class="search" aria-label=${label} placeholder=${placeholder || label} value=${text}
    autocomplete="off" spellcheck=${false} data-filter
    onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${onKey}
  />`;
}

/** Name of the holder of a lock: its own name, else its address, else its transport. */
function holderName({ holder }) {
  return holder ? (holder.name ?? holder.address ?? holder.transport) : undefined;
}

/** Link to the holder of a lock, while it is connected. A row of a table has one tab stop, which is not this link. */
export function Holder({ lock, tabIndex = -1 }) {
  const name = holderName(lock);
  if (name === undefined) {
    return html`<span class="quiet">unknown</span>`;
  }
  const { clientId, isConnected } = lock.holder;
  const text = html`<${Text} value=${name} max=${80} />`;
  return isConnected ? html`<a href=${href(["clients"], { client: clientId })} tabindex=${tabIndex}>${text}</a>` : html`${text} <span class="look">gone</span>`;
}

/** Time that is left of a lock, as a number and a bar that shrinks. */
export function Left({ lock }) {
  const time = useNow();
  const end = Date.parse(lock.lockedUntilUtc);
  const start = Date.parse(lock.takenAtUtc);
  const left = end - time;
  if (left <= 0) {
    return html`<span class="quiet">ended</span>`;
  }
  // A renewal moves the end; the bar then counts from the last full length that is known.
  const whole = lock.renewalCount > 0 ? Math.max(left, (end - start) / (lock.renewalCount + 1)) : end - start;
  return html`<span class="left"><span class="left-text">${shortSpan(left)}</span><span class=${`left-bar ${left < whole / 5 ? "soon" : ""}`} aria-hidden="true"><span style=${{ width: `${Math.min(100, Math.max(2, (left / Math.max(1, whole)) * 100))}%` }}></span></span></span>`;
}

/** A lock in one line, or with all that is known. */
export function Lock({ lock, isLong = false }) {
  if (!isLong) {
    return html`<${Left} lock=${lock} /> <${Holder} lock=${lock} />`;
  }
  const { holder } = lock;
  return html`<${Left} lock=${lock} /> left${lock.renewalCount > 0 ? `, ${number(lock.renewalCount)} renewals` : ""}, held by <${Holder} lock=${lock} tabIndex=${0} />
    ${holder && html`<br /><span class="quiet">${[visible(holder.transport), holder.address && visible(holder.address), holder.policy && `policy ${visible(holder.policy)}`].filter(Boolean).join(", ")}</span>`}
    <br />taken <${Moment} at=${lock.takenAtUtc} />`;
}
