// @ts-check
// The token of this tab. A connection string is exchanged for a token here: its key is not kept, and never sent.

const NAME = "peeklock.console.token";
const LIFETIME_SECONDS = 8 * 3600;
const encoder = new TextEncoder();

let current = read();

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

/**
 * Makes a token of a connection string, or takes a token as it is.
 * @param {string} text
 */
export async function signIn(text) {
  const given = text.trim();
  if (/^(SharedAccessSignature|Bearer) /i.test(given)) {
    setToken(given);
    return;
  }
  const pairs = given.split(";").map((pair) => [pair.slice(0, pair.indexOf("=")).trim().toLowerCase(), pair.slice(pair.indexOf("=") + 1).trim()]);
  const values = new Map(/** @type {[string, string][]} */ (pairs));
  const signature = values.get("sharedaccesssignature");
  if (signature) {
    setToken(signature);
    return;
  }
  const [endpoint, policy, key] = ["endpoint", "sharedaccesskeyname", "sharedaccesskey"].map((name) => values.get(name));
  if (!endpoint || !policy || !key) {
    throw new Error("A connection string has Endpoint, SharedAccessKeyName and SharedAccessKey. A token begins with SharedAccessSignature or Bearer.");
  }
  if (!globalThis.crypto?.subtle) {
    throw new Error("A browser signs tokens only on pages of https:// and localhost. Paste a token that begins with SharedAccessSignature.");
  }
  const host = endpoint.replace(/^\w+:\/\//, "").replace(/\/.*$/, "");
  const resource = encodeURIComponent(`sb://${host}/${values.get("entitypath") ?? ""}`);
  const expiry = Math.floor(Date.now() / 1000) + LIFETIME_SECONDS;
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const secret = await crypto.subtle.importKey("raw", encoder.encode(key), algorithm, false, ["sign"]);
  const signed = new Uint8Array(await crypto.subtle.sign("HMAC", secret, encoder.encode(`${resource}\n${expiry}`)));
  const sig = encodeURIComponent(btoa(String.fromCharCode(...signed)));
  setToken(`SharedAccessSignature sr=${resource}&sig=${sig}&se=${expiry}&skn=${encodeURIComponent(policy)}`);
}
