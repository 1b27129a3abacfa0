// @ts-check
// Actions on locks, sessions, clients and scheduled messages. Each asks first, with its numbers, and shows its result when the
// broker has acknowledged it (CON-62, CON-63). An action that the role does not allow is not offered (CON-73).

import { asApiError, change, entityPath, get, segment, standing } from "./api.js";
import { number, size } from "./format.js";
import { announce, Problem, Unknown } from "./parts.js";
import { Store } from "./preferences.js";
import { refreshAll, useResource } from "./resource.js";
import { html, useId, useLayoutEffect, useRef, useState } from "./view.js";

/** Maximum number of messages of one action. */
const AT_ONCE = 500;

/** A number with its noun. */
export const counted = (/** @type {number} */ count, one = "message", many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** Result of the last action, and the place that shows it. */
const outcome = new Store({ place: "", text: "" });

/** Result of the last action here. */
export function Outcome({ place }) {
  const last = outcome.use();
  if (last.place !== place) {
    return null;
  }
  return html`<p class="notice">${last.text} <button type="button" onClick=${() => outcome.set({ place: "", text: "" })}>Close</button></p>`;
}

/** Role at an entity, or without a path in the namespace; undefined until it is known. */
function useRole(/** @type {string | undefined} */ path) {
  const here = standing.use();
  const there = useResource(path === undefined ? undefined : `role ${path}`, (signal) => get("sign-in", { path }, signal));
  return path === undefined ? here?.role : there.value?.role;
}

/** Whether the role allows operators to act on locks, sessions and messages of the entity. */
export const useMayOperate = (/** @type {string} */ path) => /^(operator|admin)$/.test(useRole(path) ?? "");

/**
 * A button that opens a question. `act` gets whether deliveries count, and the text of the field; it resolves to the
 * result. `mayCount` offers the choice whether deliveries count as failed, `field` names a field for a text.
 */
function Action({ place, label, question, act, mayCount = false, field = undefined }) {
  const [isOpen, setOpen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {unknown} */ (undefined));
  const [counts, setCounts] = useState(false);
  const [text, setText] = useState("");
  const opener = useRef(/** @type {HTMLElement | null} */ (null));
  const group = useRef(/** @type {HTMLElement | null} */ (null));
  const wasOpen = useRef(false);
  const id = useId();
  useLayoutEffect(() => {
    if (isOpen) {
      /** @type {HTMLElement | null | undefined} */ (group.current?.querySelector(field ? "textarea" : "[data-keep]"))?.focus();
    } else if (wasOpen.current) {
      opener.current?.focus();
    }
    wasOpen.current = isOpen;
  }, [isOpen]);
  const close = () => {
    setOpen(false);
    setError(undefined);
  };
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const done = await act(counts, text);
      outcome.set({ place, text: done });
      announce(done);
      close();
      setText("");
      refreshAll();
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  if (!isOpen) {
    return html`<button type="button" ref=${opener} onClick=${() => setOpen(true)}>${label}</button>`;
  }
  const onKeyDown = (event) => {
    if (event.key === "Escape" && !isBusy) {
      event.preventDefault();
      close();
    }
  };
  return html`<form class="action" ref=${group} aria-label=${label} aria-describedby=${id} onSubmit=${run} onKeyDown=${onKeyDown}>
    <p id=${id}>${question}</p>
    ${field && html`<label class="block">${field}<textarea rows="4" spellcheck=${false} value=${text} onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>`}
    ${mayCount && html`<label><input type="checkbox" checked=${counts} onChange=${(event) => setCounts(event.currentTarget.checked)} />Count each delivery as failed</label>`}
    <${Problem} error=${error} />
    <${Unknown} error=${error} />
    <div class="tools"><button class="harm" disabled=${isBusy}>${isBusy ? "Waiting for the broker…" : label}</button>
      <button type="button" data-keep disabled=${isBusy} onClick=${close}>Leave as it is</button></div>
  </form>`;
}

const tooMany = (/** @type {number} */ count) => count > AT_ONCE && html`<span class="quiet">An action takes at most ${AT_ONCE} messages.</span>`;

/** Breaks locks of messages. */
export function BreakLocks({ kind, path, subQueue = "", numbers, place, onDone = () => {} }) {
  if (!useMayOperate(path) || numbers.length === 0) {
    return null;
  }
  const act = async (counts) => {
    const { broken } = await change("POST", `${entityPath(kind, path, subQueue)}/locks/break`, { sequenceNumbers: numbers.map(Number), counted: counts });
    onDone();
    const rest = numbers.length - broken;
    return `${counted(broken, "lock")} broken.${rest > 0 ? ` ${counted(rest, "message")} had no lock any more.` : ""}`;
  };
  const question = `${numbers.length === 1 ? `Message ${numbers[0]} becomes` : `${number(numbers.length)} messages become`} available at once, or deferred again. A consumer that still works on one can no longer settle it, so its work may be done twice.`;
  return tooMany(numbers.length) || html`<${Action} place=${place} label=${numbers.length === 1 ? "Break the lock" : `Break ${number(numbers.length)} locks`} question=${question} mayCount=${true} act=${act} />`;
}

/** Breaks the lock of a session. */
export function BreakSession({ kind, path, id, messageCount, place }) {
  if (!useMayOperate(path)) {
    return null;
  }
  const act = async (counts) => {
    const { broken } = await change("POST", `${entityPath(kind, path)}/sessions/${segment(id)}/break`, { counted: counts });
    return broken > 0 ? "The lock of the session is broken." : "No receiver held the session any more.";
  };
  const question = `The session${messageCount > 0 ? `, with ${counted(messageCount, "active message")},` : ""} becomes available at once. The consumer that holds it can no longer settle its messages, so its work may be done twice.`;
  return html`<${Action} place=${place} label="Break the lock" question=${question} mayCount=${true} act=${act} />`;
}

/** Sets or clears the state of a session that no receiver holds. */
export function ChangeState({ kind, path, id, stateSize = 0, isHeld, place }) {
  if (!useMayOperate(path)) {
    return null;
  }
  if (isHeld) {
    return html`<p class="quiet">The state can be changed while no receiver holds the session.</p>`;
  }
  const base = `${entityPath(kind, path)}/sessions/${segment(id)}/state`;
  const set = async (_, text) => {
    await change("PUT", base, { state: text });
    return `The state is set, ${size(new TextEncoder().encode(text).length)}.`;
  };
  const clear = async () => {
    await change("DELETE", base);
    return "The state is cleared.";
  };
  const lost = stateSize > 0 ? `The present state of ${size(stateSize)} is lost.` : "The session has no state yet.";
  return html`<div class="tools">
    <${Action} place=${place} label="Set the state" question=${`${lost} The next consumer of the session reads the new one.`} field="New state, as text" act=${set} />
    ${stateSize > 0 && html`<${Action} place=${place} label="Clear the state" question=${`${lost} It cannot be undone.`} act=${clear} />`}
  </div>`;
}

/** Closes the connection of a client. */
export function CloseClient({ client, unsettledCount, place }) {
  const role = useRole(undefined);
  const { clientId, transport, linkCount } = client;
  if (role !== "admin" || transport === "inproc") {
    return null;
  }
  const act = async () => {
    await change("DELETE", `clients/${clientId}`);
    return `Client ${clientId} is closed.`;
  };
  const question =
    transport === "http"
      ? "Its connection is closed after the request in progress. Its locks stay, and the program may connect again."
      : `Its ${counted(linkCount, "link")} end. ${unsettledCount > 0 ? `${counted(unsettledCount, "message")} in its hands ${unsettledCount === 1 ? "is" : "are"} available at once, and no delivery counts. ` : ""}The program may connect again.`;
  return html`<${Action} place=${place} label=${`Close client ${clientId}`} question=${question} act=${act} />`;
}

/** Cancels scheduled messages, all or none. */
export function CancelScheduled({ kind, path, numbers, place, onDone }) {
  if (!useMayOperate(path) || numbers.length === 0) {
    return null;
  }
  const act = async () => {
    await change("POST", `${entityPath(kind, path)}/messages/cancel-scheduled`, { sequenceNumbers: numbers.map(Number) });
    onDone();
    return `${counted(numbers.length, "scheduled message")} deleted.`;
  };
  const question = `${numbers.length === 1 ? `Scheduled message ${numbers[0]} is` : `${number(numbers.length)} scheduled messages are`} deleted and never delivered. This cannot be undone.`;
  return tooMany(numbers.length) || html`<${Action} place=${place} label=${numbers.length === 1 ? "Delete the scheduled message" : `Delete ${number(numbers.length)} scheduled messages`} question=${question} act=${act} />`;
}
