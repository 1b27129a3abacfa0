// @ts-check
// Requests to the JSON API. Addresses are relative to the document, so that a proxy may put a prefix before them.

import { Store } from "./preferences.js";
import { forgetToken, setToken, signedToken, token } from "./credential.js";

const API = new URL("../$api/v1/", document.baseURI);
const ROOT = new URL("../", document.baseURI);
const TIMEOUT_MS = 15_000;
/** The console answers at once, so a longer wait is a lost connection. */
const ABOUT_MS = 1500;
/** Minimum time between two questions whether the credentials are over. */
const CHECK_MS = 2000;
/** Largest part of a body in one answer. */
const PART_BYTES = 4 << 20;

/** An answer that is no success: the condition, text and tracking id of the broker, or a failure to reach it. */
export class ApiError extends Error {
  /**
   * @param {string} asked
   * @param {{ code: string, detail: string, status?: number, trackingId?: string, retryable?: boolean }} problem
   */
  constructor(asked, { code, detail, status = 0, trackingId, retryable = false }) {
    super(detail);
    this.asked = asked;
    this.code = code;
    this.status = status;
    this.trackingId = trackingId;
    this.retryable = retryable;
  }
}

/** An error as the page shows it: one of the broker, or of the page itself. */
export const asApiError = (/** @type {unknown} */ thrown) => (thrown instanceof ApiError ? thrown : new ApiError("", { code: "PageError", detail: String(thrown) }));

/**
 * Whether the broker answers: `lost` since an instant of this machine. `answeredAt` is the instant of the last answer.
 * @type {Store<{ lostAt: number | undefined, answeredAt: number }>}
 */
export const connection = new Store({ lostAt: undefined, answeredAt: 0 });

/** Whether the broker refuses the credentials of this page, or their absence. */
export const needsToken = new Store(false);
/** Whether this page had a token that has ended. */
export const hasEnded = new Store(false);

/**
 * Role of this page, once it is known: `viewer`, `operator`, `admin`, or none.
 * @type {Store<{ role?: string, policy?: string, isSignedIn: boolean, endsAtUtc?: string, isLocked?: boolean, unlockedUntilUtc?: string } | undefined>}
 */
export const standing = new Store(undefined);

/** Whether this page may change entities. An action that the role does not allow is not offered. */
export const mayManage = () => standing.value?.role === "admin";

/** Clock of the broker minus clock of this machine, in milliseconds. */
let ahead = 0;

/** Returns the time of the broker, from which every duration is counted. */
export const now = () => Date.now() + ahead;

/** Encodes a text as one segment of a path. */
const segment = (/** @type {string} */ text) => encodeURIComponent(text);

/**
 * Parses JSON; an integer that a `number` would round becomes a `bigint`. With `isTyped`, a whole number that is written
 * with a fraction or exponent becomes a typed f64.
 * @param {string} text
 */
export function parse(text, isTyped = false) {
  // Browsers pass the text of a number as a third argument.
  const revive = (/** @type {string} */ _, /** @type {any} */ value, /** @type {{ source?: string }} */ context = {}) => {
    if (typeof value !== "number" || (Number.isSafeInteger(value) && !isTyped)) {
      return value;
    }
    const { source = "" } = context;
    if (/^-?\d+$/.test(source)) {
      return Number.isSafeInteger(value) ? value : BigInt(source);
    }
    return isTyped && source !== "" && Number.isInteger(value) ? { type: "f64", value } : value;
  };
  return JSON.parse(text, /** @type {any} */ (revive));
}

/** Writes JSON. A whole number of any size keeps its digits. */
export function toJson(/** @type {any} */ value) {
  if (typeof value === "bigint") {
    return String(value);
  }
  if (Array.isArray(value)) {
    return `[${value.map(toJson).join(",")}]`;
  }
  if (value !== null && typeof value === "object") {
    const members = Object.entries(value).filter(([, one]) => one !== undefined);
    return `{${members.map(([name, one]) => `${JSON.stringify(name)}:${toJson(one)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

/**
 * Sends a request. Resolves to the response; rejects with an `ApiError` for every answer that is no success.
 * @param {URL} url
 * @param {{ method?: string, headers?: Record<string, string>, signal?: AbortSignal, timeout?: number, body?: string }} options
 */
async function send(url, { method = "GET", headers = {}, signal, timeout = TIMEOUT_MS, body = undefined } = {}) {
  const asked = `${method} ${decodeURI(url.pathname.slice(ROOT.pathname.length - 1))}`;
  const authorization = token();
  // A stream has no end; its reader aborts it when nothing comes.
  const signals = [...(timeout > 0 ? [AbortSignal.timeout(timeout)] : []), ...(signal ? [signal] : [])];
  const sentAt = Date.now();
  let response;
  try {
    response = await fetch(url, {
      method,
      body,
      headers: { ...(authorization && { Authorization: authorization }), ...(method !== "GET" && { "Content-Type": "application/json", "Peeklock-Page": "1" }), ...headers },
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
      signal: AbortSignal.any(signals),
    });
  } catch (error) {
    if (signal?.aborted) {
      throw error;
    }
    const isLate = /** @type {Error} */ (error).name === "TimeoutError";
    connection.set({ ...connection.value, lostAt: connection.value.lostAt ?? sentAt });
    throw new ApiError(asked, {
      code: isLate ? "NoAnswer" : "Unreachable",
      detail: isLate ? `the broker did not answer within ${timeout / 1000} s` : "the broker cannot be reached",
      retryable: true,
    });
  }
  connection.set({ lostAt: undefined, answeredAt: Date.now() });
  if (response.ok) {
    return response;
  }
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && !url.pathname.endsWith("/sign-in")) {
    checkStanding();
  }
  throw new ApiError(asked, {
    code: typeof problem.code === "string" ? problem.code : `HTTP ${response.status}`,
    detail: typeof problem.detail === "string" ? problem.detail : "the answer does not come from a Peeklock broker",
    status: response.status,
    trackingId: typeof problem.trackingId === "string" ? problem.trackingId : undefined,
    retryable: problem.retryable === true || response.status >= 502,
  });
}

/** Builds an address; a list in the query repeats its name, and empty values are left out. */
function address(/** @type {URL} */ base, /** @type {string} */ path, /** @type {Record<string, unknown>} */ query = {}) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== "" && one !== false) {
        url.searchParams.append(name, String(one));
      }
    }
  }
  return url;
}

/**
 * Reads a resource of the JSON API.
 * @param {string} path
 * @param {Record<string, unknown>} [query]
 * @param {AbortSignal} [signal]
 */
export async function get(path, query, signal) {
  const sentAt = Date.now();
  const response = await send(address(API, path, query), { signal });
  return noteClock(await response.text(), sentAt);
}

/** Reads a message whose properties keep their types. */
export const getTyped = async (/** @type {string} */ path) => parse(await (await send(address(API, path))).text(), true);

/** Parses an answer or event, and sets the clock by its `nowUtc`. */
export function noteClock(/** @type {string} */ text, sentAt = Date.now()) {
  const answer = parse(text);
  const at = Date.parse(answer?.nowUtc);
  if (!Number.isNaN(at)) {
    ahead = at - (sentAt + Date.now()) / 2;
  }
  return answer;
}

/**
 * Changes something, and returns the answer if it has a body. The outcome is unknown when no answer comes (ERR-06).
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {object} [body]
 * @param {Record<string, string>} [headers]
 */
export async function change(method, path, body = {}, headers = {}) {
  const response = await send(address(API, path), { method, body: toJson(body), headers });
  const text = await response.text().catch(() => {
    throw new ApiError(`${method} /$api/v1/${path}`, { code: "NoAnswer", detail: "the answer was cut off" });
  });
  return text === "" ? undefined : noteClock(text);
}

/** Opens an event stream: `watch` or `search`. */
export async function openStream(/** @type {string} */ path, /** @type {object} */ request, /** @type {AbortSignal} */ signal) {
  const response = await send(address(API, path), { method: "POST", signal, timeout: 0, body: JSON.stringify(request) });
  return /** @type {ReadableStream<Uint8Array>} */ (response.body);
}

/** Reads an answer without an end that is known, such as an export. */
export const getFile = async (/** @type {string} */ path, /** @type {Record<string, unknown>} */ query, /** @type {AbortSignal} */ signal) =>
  (await send(address(API, path, query), { signal, timeout: 0 })).blob();

/** Reads a document outside the API, such as `health`. */
export const getRoot = async (/** @type {string} */ path, /** @type {AbortSignal} */ signal) =>
  parse(await (await send(address(ROOT, path), { signal })).text());

/** Reads the label of the console and the version of its files. */
export const getAbout = async () => parse(await (await send(new URL("about.json", document.baseURI), { timeout: ABOUT_MS })).text());

/**
 * Reads a part of a body or state. Resolves to its bytes, the length of the whole, and the kind of the body.
 * @param {string} path
 * @param {number} from
 * @param {number} count
 * @param {AbortSignal} [signal]
 */
export async function getBytes(path, from, count, signal) {
  const headers = { Range: `bytes=${from}-${from + Math.min(count, PART_BYTES) - 1}` };
  let response;
  try {
    response = await send(address(API, path), { headers, signal, timeout: 60_000 });
  } catch (error) {
    if (error instanceof ApiError && error.status === 416) {
      return { bytes: new Uint8Array(), total: 0, kind: undefined };
    }
    throw error;
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  const total = Number(/\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "")?.[1] ?? bytes.length);
  return { bytes, total, kind: response.headers.get("Peeklock-Body-Kind") ?? undefined };
}

/** Reads the role of this page. A refusal means that the broker wants other credentials. */
export async function readStanding() {
  try {
    standing.set(await get("sign-in"));
    needsToken.set(false);
    hasEnded.set(false);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) {
      throw error;
    }
    standing.set(undefined);
    needsToken.set(true);
  }
}

let isChecking = false;
let isCheckDue = false;

/**
 * Finds out whether a refused request lacks a right, or whether the credentials are over. A refusal that comes too early
 * after a check is checked when the time between two checks has passed.
 */
function checkStanding() {
  isCheckDue = isChecking;
  if (isChecking || needsToken.value) {
    return;
  }
  isChecking = true;
  const end = () => {
    isChecking = false;
    if (isCheckDue) {
      checkStanding();
    }
  };
  readStanding().catch(() => {}).finally(() => setTimeout(end, CHECK_MS));
}

/**
 * Exchanges a connection string or signed token for a console token.
 * @param {string} text
 * @param {string} role empty for the highest role that the policy allows
 */
export async function signIn(text, role) {
  const { authorization, path } = await signedToken(text, now());
  const answer = await change("POST", "sign-in", { path, ...(role && { role }) }, { Authorization: authorization });
  setToken(answer.token);
  await readStanding();
}

/** Ends the token of this page, and of other tabs that have the same one. */
export async function signOut() {
  try {
    await change("DELETE", "sign-in");
  } finally {
    forgetToken();
    standing.set(undefined);
  }
}

/** Lets an admin work with all rights for 15 minutes, or ends that (`console.unlock`). */
export async function setUnlocked(/** @type {boolean} */ isUnlocked) {
  await change(isUnlocked ? "POST" : "DELETE", "sign-in/unlock");
  await readStanding();
}

/** Returns an address from which the browser downloads a content. It is for one use, and needs no token. */
export async function downloadAddress(/** @type {string} */ path) {
  const answer = await change("POST", "downloads", { path });
  return addressOf(answer.path);
}

/** Returns the address of a resource of the API, for commands that are copied. */
export const addressOf = (/** @type {string} */ path) => new URL(path, API).href;

/** Sub-queues with the end of their path. */
export const SUB_QUEUES = { "": "", "dead-letters": "/$DeadLetterQueue", "transfer-dead-letters": "/$Transfer/$DeadLetterQueue" };

/** Splits the path of a subscription into topic and name; undefined for another entity. */
export function subscriptionParts(/** @type {string} */ path) {
  const found = /^(.+)\/subscriptions\/([^/]+)$/i.exec(path);
  return found ? { topic: found[1], name: found[2] } : undefined;
}

/**
 * Returns the path of an entity in the API.
 * @param {string} kind `queue`, `topic` or `subscription`
 * @param {string} path
 * @param {string} [subQueue] a key of `SUB_QUEUES`
 */
export function entityPath(kind, path, subQueue = "") {
  const end = SUB_QUEUES[subQueue] ?? "";
  const parts = kind === "subscription" ? subscriptionParts(path) : undefined;
  if (parts) {
    return `topics/${segment(parts.topic)}/subscriptions/${segment(parts.name + end)}`;
  }
  return `${kind === "topic" ? "topics" : "queues"}/${segment(path + end)}`;
}

export { segment };
