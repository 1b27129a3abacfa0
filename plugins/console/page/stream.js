// @ts-check
// The event stream of the visible tab: it carries the state of everything on the page that can be watched. Without a stream
// (refused, or lost) the page reads the same values again every 10 s.

import { connection, noteClock, openStream } from "./api.js";
import { Store } from "./preferences.js";

/**
 * @typedef {{ name: string, path?: string, query?: Record<string, unknown> }} Subject
 * @typedef {{ subject?: Subject, take: (state: any) => void, isStreamed: boolean, isTooLarge: boolean, heads?: (event: any) => void,
 *   gap?: () => void, error?: (code: string) => void }} Watched
 */

/** Whether the page reads no values by itself. */
export const isPaused = new Store(false);

const SUBJECTS_MAX = 16;
const SETTLE_MS = 400;
const AGAIN_MS = 30_000;
/** The broker sends something at least every 2 s. */
const SILENCE_MS = 5000;
const LISTS = ["entities", "clients", "sessions", "locks"];
/** Names of keys; a row has the first that is not empty. */
const KEYS = ["path", "clientId", "sessionId", "sequenceNumber"];

/** @type {Set<Watched>} */
const taps = new Set();

/**
 * Adds a subject whose events are rows instead of a state. Returns a function that removes it.
 * @param {Subject} subject
 * @param {{ heads: (event: any) => void, gap: () => void, error: (code: string) => void }} actions `gap` reports that events are missing
 */
export function addTap(subject, actions) {
  const tap = { subject, take: () => {}, isStreamed: false, isTooLarge: false, ...actions };
  taps.add(tap);
  return () => void taps.delete(tap);
}

let current = /** @type {{ key: string, abort: AbortController, list: Watched[] } | undefined} */ (undefined);
let wantedKey = "";
let wantedAt = 0;
let refusedUntil = 0;

function end() {
  current?.abort.abort();
  for (const one of current?.list ?? []) {
    if (one.isStreamed && taps.has(one)) {
      one.gap?.();
    }
    one.isStreamed = false;
  }
  current = undefined;
}

/** Opens, replaces or ends the stream, so that it fits the values on the page. Call it often. */
export function fitStream(/** @type {Watched[]} */ all) {
  const isWanted = document.visibilityState === "visible" && !isPaused.value && connection.value.lostAt === undefined;
  const list = isWanted ? [...taps, ...all].filter((one) => one.subject !== undefined && !one.isTooLarge).slice(0, SUBJECTS_MAX) : [];
  const key = JSON.stringify(list.map((one) => one.subject));
  if (key !== wantedKey) {
    wantedKey = key;
    wantedAt = Date.now();
  }
  if (current && current.key !== key) {
    end();
  }
  if (current || list.length === 0 || Date.now() - wantedAt < SETTLE_MS || Date.now() < refusedUntil) {
    return;
  }
  const abort = new AbortController();
  current = { key, abort, list };
  const ended = () => {
    // A stream that was replaced says nothing about the next one.
    if (current?.abort === abort) {
      refusedUntil = Date.now() + AGAIN_MS;
      end();
    }
  };
  run(current).then(ended, ended);
}

/**
 * Yields the names and contents of events. `onSilence` is called when nothing has come for `SILENCE_MS`.
 * @param {ReadableStream<Uint8Array>} body
 * @param {() => void} onSilence
 */
export async function* events(body, onSilence = () => {}) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const silence = setTimeout(onSilence, SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) {
      return;
    }
    connection.set({ lostAt: undefined, answeredAt: Date.now() });
    text += decoder.decode(value, { stream: true });
    for (let at = text.indexOf("\n\n"); at >= 0; at = text.indexOf("\n\n")) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(text.slice(0, at)) ?? [];
      text = text.slice(at + 2);
      yield /** @type {[string | undefined, any]} */ ([name, noteClock(data ?? "null")]);
    }
  }
}

async function run({ abort, list }) {
  const body = await openStream("watch", { subjects: list.map((one) => one.subject) }, abort.signal);
  const states = list.map(() => /** @type {any} */ (undefined));
  list.filter((one) => one.heads).forEach((one) => (one.isStreamed = true));
  for await (const [name, event] of events(body, () => abort.abort())) {
    const one = list[event?.subject];
    if (name === "end") {
      return;
    }
    if (!one) {
      continue;
    }
    if (one.heads) {
      one.isStreamed = name !== "error";
      if (name === "heads") {
        one.heads(event);
      } else if (name === "error") {
        one.error?.(event.code);
      }
    } else if (name === "error" || event.truncated) {
      // Reading page by page shows the error, or all rows.
      one.isStreamed = false;
      one.isTooLarge = true;
    } else if (name === "state") {
      states[event.subject] = event.state;
      one.isStreamed = true;
      one.take(event.state);
    } else if (name === "change" && states[event.subject]) {
      states[event.subject] = changed(states[event.subject], event);
      one.take(states[event.subject]);
    }
  }
}

/** Returns a state after a change. */
function changed(/** @type {any} */ state, /** @type {any} */ { set = {}, rows = {}, gone = [], order }) {
  const next = { ...state };
  for (const [name, value] of Object.entries(set)) {
    if (value === null) {
      delete next[name];
    } else {
      next[name] = value;
    }
  }
  const kind = LISTS.find((name) => Array.isArray(state[name]));
  if (kind) {
    const keyOf = (row) => KEYS.map((name) => String(row[name] ?? "")).find((key) => key !== "");
    const all = new Map(state[kind].map((row) => [keyOf(row), row]));
    gone.forEach((key) => all.delete(String(key)));
    Object.entries(rows).forEach(([key, row]) => all.set(key, row));
    next[kind] = (order ?? [...all.keys()]).map((key) => all.get(String(key))).filter((row) => row !== undefined);
  }
  return next;
}
