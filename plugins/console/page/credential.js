// @ts-check
// The console token of this tab, which other tabs of this browser may ask for; and the signed token that is exchanged for
// it. A key of a connection string signs here, and is neither kept nor sent.

const NAME = "peeklock.console.token";
/** Name of the texts that are being written in this tab. A sign-out removes them. */
export const DRAFTS = "peeklock.drafts";
/** The broker accepts no longer lifetime of a console token. */
const LIFETIME_SECONDS = 8 * 3600;
const ASK_MS = 300;
const encoder = new TextEncoder();

let current = read();
/** The token that this tab gave up last, which another tab may still have. @type {string | undefined} */
let givenUp;
/** @type {((token: string) => void) | undefined} */
let onAnswer;
/** @type {(() => void) | undefined} */
let onLateAnswer;
/** @type {(() => void) | undefined} */
let onEnd;
/** Actions that remove what a page has kept of the broker. @type {(() => void)[]} */
const onForgotten = [];

const tabs = new BroadcastChannel(NAME);
tabs.onmessage = ({ data }) => {
  if (data?.ask === true && current !== undefined) {
    tabs.postMessage({ token: current });
  } else if (typeof data?.token === "string" && data.token !== givenUp) {
    if (onAnswer !== undefined) {
      onAnswer(data.token);
    } else if (current === undefined) {
      setToken(data.token);
      onLateAnswer?.();
    }
  } else if (typeof data?.ended === "string" && data.ended === current) {
    setToken(undefined);
    forgetDrafts();
    onEnd?.();
  }
};

function read() {
  try {
    return sessionStorage.getItem(NAME) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Returns the value of the Authorization header; undefined without a token. */
export const token = () => current;

/** Keeps a token until the tab closes, or forgets it. */
export function setToken(/** @type {string | undefined} */ text) {
  if (text === undefined) {
    givenUp = current ?? givenUp;
  }
  current = text;
  try {
    if (text === undefined) {
      sessionStorage.removeItem(NAME);
    } else {
      sessionStorage.setItem(NAME, text);
    }
  } catch {
    // The token lasts as long as the page.
  }
}

/** Forgets the token in all tabs, with the drafts of each. */
export function forgetToken() {
  if (current !== undefined) {
    tabs.postMessage({ ended: current });
  }
  setToken(undefined);
  forgetDrafts();
}

function forgetDrafts() {
  onForgotten.forEach((action) => action());
  try {
    sessionStorage.removeItem(DRAFTS);
  } catch {
    // Then there are none.
  }
}

/** Calls an action at each sign-out, of this tab or another. */
export function whenForgotten(/** @type {() => void} */ action) {
  onForgotten.push(action);
}

/** Calls an action when another tab has signed out. */
export function whenSignedOut(/** @type {() => void} */ action) {
  onEnd = action;
}

/** Calls an action when another tab has given its token later than `askTabs` waits. */
export function whenGiven(/** @type {() => void} */ action) {
  onLateAnswer = action;
}

/** Asks other tabs for their token. Resolves to whether one has another token than this tab. */
export function askTabs() {
  return new Promise((resolve) => {
    const timer = setTimeout(() => finish(false), ASK_MS);
    const finish = (/** @type {boolean} */ isFound) => {
      clearTimeout(timer);
      onAnswer = undefined;
      resolve(isFound);
    };
    onAnswer = (text) => {
      if (text !== current) {
        setToken(text);
        finish(true);
      }
    };
    tabs.postMessage({ ask: true });
  });
}

/** Returns the entity that a signed token is for; empty for the namespace or another kind of token. */
function pathOf(/** @type {string} */ signed) {
  const resource = /[?& ]sr=([^&]*)/i.exec(signed)?.[1] ?? "";
  try {
    return decodeURIComponent(resource).replace(/^\w+:\/\/[^/]*\/?/, "");
  } catch {
    return "";
  }
}

/**
 * Makes a signed token of a connection string, or of the name and key of a policy; or takes a token as it is. `at` is the
 * time of the broker. Resolves to the value of the Authorization header and the entity that it is for.
 * @param {string} text
 * @param {number} at
 */
export async function signedToken(text, at) {
  const given = text.trim();
  if (/^(SharedAccessSignature|Bearer) /i.test(given)) {
    return { authorization: given, path: pathOf(given) };
  }
  const pairs = given.split(";").map((pair) => [pair.slice(0, pair.indexOf("=")).trim().toLowerCase(), pair.slice(pair.indexOf("=") + 1).trim()]);
  const values = new Map(/** @type {[string, string][]} */ (pairs));
  const signature = values.get("sharedaccesssignature");
  if (signature) {
    return { authorization: signature, path: pathOf(signature) };
  }
  const [policy, key] = ["sharedaccesskeyname", "sharedaccesskey"].map((name) => values.get(name));
  if (!policy || !key) {
    throw new Error("A connection string has SharedAccessKeyName and SharedAccessKey. A token begins with SharedAccessSignature or Bearer.");
  }
  if (!globalThis.crypto?.subtle) {
    throw new Error("A browser signs tokens only on pages of https:// and localhost. Paste a token that begins with SharedAccessSignature.");
  }
  const host = (values.get("endpoint") ?? location.host).replace(/^\w+:\/\//, "").replace(/\/.*$/, "");
  const path = values.get("entitypath") ?? "";
  const resource = encodeURIComponent(`sb://${host}/${path}`);
  const expiry = Math.floor(at / 1000) + LIFETIME_SECONDS;
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const secret = await crypto.subtle.importKey("raw", encoder.encode(key), algorithm, false, ["sign"]);
  const signed = new Uint8Array(await crypto.subtle.sign("HMAC", secret, encoder.encode(`${resource}\n${expiry}`)));
  const sig = encodeURIComponent(btoa(String.fromCharCode(...signed)));
  return { authorization: `SharedAccessSignature sr=${resource}&sig=${sig}&se=${expiry}&skn=${encodeURIComponent(policy)}`, path };
}
