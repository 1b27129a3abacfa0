// Credential of a client: a fixed token, a function that returns tokens, or a connection string with the key to sign them
// here. A function or key gives new tokens before the last one expires, so the connection lasts as long as the key (SEC-10,
// SEC-11, SEC-15).

import { argument, PeeklockError } from "./error.js";

const STRING_CHARS_MAX = 16 << 10;
/** Default port of the broker for WebSocket. */
const PORT = 5301;
/** A token is renewed when this part of its lifetime is left. */
const LEFT = 0.25;
/** Pause in milliseconds after a function returned a token that expires no later than the last one. */
const AGAIN_MS = 30_000;
const KEYS = [
  "endpoint",
  "sharedaccesskeyname",
  "sharedaccesskey",
  "sharedaccesssignature",
  "entitypath",
  "usedevelopmentemulator",
];

const encoder = new TextEncoder();

/** Whether a text is a connection string and not a URL. */
export const isConnectionString = (text) => /^\s*(endpoint|shared\w+|entitypath|usedevelopmentemulator)\s*=/i.test(text);

/** A connection string (SEC-18 to SEC-21). Errors about an invalid one contain no secret. */
export class ConnectionString {
  #key;
  #token;

  constructor(text) {
    const refuse = (flaw) => argument(`the connection string ${flaw}`);
    if (text.length > STRING_CHARS_MAX) {
      throw refuse("is longer than 16 KiB");
    }
    const found = new Map();
    for (const pair of text.split(";").map((part) => part.trim())) {
      if (pair === "") {
        continue;
      }
      const at = pair.indexOf("=");
      if (at < 0) {
        throw refuse("has a part that is not Key=Value");
      }
      const key = pair.slice(0, at).trim().toLowerCase();
      if (!KEYS.includes(key)) {
        continue;
      }
      if (found.has(key)) {
        throw refuse(`has ${key} twice`);
      }
      found.set(key, pair.slice(at + 1).trim());
    }
    const [endpoint, policy, key, signature, entityPath, emulator] = KEYS.map((name) => found.get(name));
    if (endpoint === undefined) {
      throw refuse("has no Endpoint; add one such as Endpoint=sb://localhost:5301");
    }
    const hasKey = policy && key && signature === undefined;
    const hasToken = policy === undefined && key === undefined && signature;
    if (!hasKey && !hasToken) {
      throw refuse("needs SharedAccessKeyName and SharedAccessKey, or only SharedAccessSignature");
    }
    if (emulator !== undefined && !/^(true|false)$/i.test(emulator)) {
      throw refuse("has a UseDevelopmentEmulator that must be true or false");
    }
    const authority = /^sb:\/\/((?:\[[0-9a-f:.]+\]|[^\s/?#@:[\]]+)(?::([1-9][0-9]{0,4}))?)\/?$/i.exec(endpoint);
    if (!authority || Number(authority[2] ?? PORT) > 65_535) {
      throw refuse("must have an Endpoint of the form sb://HOST or sb://HOST:PORT");
    }
    this.#key = hasKey ? key : undefined;
    this.#token = hasToken ? signature : undefined;
    /** Host and port. */
    this.authority = authority[2] ? authority[1] : `${authority[1]}:${PORT}`;
    this.policy = policy;
    /** Entity to which the connection string is restricted. */
    this.entityPath = entityPath || undefined;
    /** Without TLS only with `UseDevelopmentEmulator=true`. */
    this.url = `${emulator?.toLowerCase() === "true" ? "ws" : "wss"}://${this.authority}/`;
  }

  /** Whether it can sign another token after one has expired. */
  get renews() {
    return this.#key !== undefined;
  }

  /** Throws for an entity outside of `entityPath` (SEC-20). */
  checkEntity(path) {
    const only = this.entityPath?.toLowerCase();
    const asked = String(path).replace(/^\/+|\/+$/g, "").toLowerCase();
    if (only !== undefined && asked !== "" && asked !== only && !asked.startsWith(`${only}/`)) {
      throw argument(`the connection string is only for \`${this.entityPath}\` (EntityPath), not for \`${path}\``);
    }
  }

  /** Resolves to a token that expires at an instant in milliseconds since 1970. */
  async token(untilMs) {
    if (this.#token !== undefined) {
      return this.#token;
    }
    const { subtle } = globalThis.crypto ?? {};
    if (!subtle) {
      const detail = "tokens can only be signed on pages of https:// and localhost; pass a token as the option `token`";
      throw new PeeklockError("Unauthorized", detail);
    }
    const resource = encodeURIComponent(`sb://${this.authority}/${this.entityPath ?? ""}`);
    const expiry = Math.floor(untilMs / 1000);
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    const key = await subtle.importKey("raw", encoder.encode(this.#key), algorithm, false, ["sign"]);
    const signed = new Uint8Array(await subtle.sign("HMAC", key, encoder.encode(`${resource}\n${expiry}`)));
    const signature = encodeURIComponent(btoa(String.fromCharCode(...signed)));
    const policy = encodeURIComponent(this.policy);
    return `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expiry}&skn=${policy}`;
  }
}

/** Provides tokens, and decides when a new one is due. */
export class Credential {
  #source;
  #spanMs;
  #expiresMs;
  #notBefore = 0;

  /** `source`: a token, a function that returns one, or a connection string; `tokenSeconds`: lifetime of signed tokens. */
  constructor(source, tokenSeconds) {
    this.#source = source;
    this.#spanMs = tokenSeconds * 1000;
  }

  /** Resolves to a token that is valid from now on, by the broker's clock. */
  async token(nowMs) {
    const source = this.#source;
    const isSigned = source instanceof ConnectionString;
    if (!isSigned && typeof source !== "function") {
      return source;
    }
    const token = isSigned ? await source.token(nowMs + this.#spanMs) : await source();
    const expiresMs = isSigned && !source.renews ? undefined : expiryOf(token);
    if (!isSigned && expiresMs !== undefined) {
      this.#spanMs = Math.max(0, expiresMs - nowMs);
      // A function that returns the same token again is called only after a pause.
      this.#notBefore = this.#expiresMs !== undefined && expiresMs <= this.#expiresMs ? nowMs + AGAIN_MS : 0;
    }
    this.#expiresMs = expiresMs;
    return token;
  }

  /** Whether a new token is due, also if the last one expires too late by the broker's clock. */
  isDue(nowMs) {
    if (this.#expiresMs === undefined || nowMs < this.#notBefore) {
      return false;
    }
    const leftMs = this.#expiresMs - nowMs;
    const isSigned = this.#source instanceof ConnectionString;
    return leftMs <= LEFT * this.#spanMs || (isSigned && leftMs > this.#spanMs);
  }
}

/** Expiry of a token in milliseconds since 1970; undefined if the token has none. */
function expiryOf(token) {
  const found = /[ &]se=([0-9]+)/.exec(String(token));
  return found ? Number(found[1]) * 1000 : undefined;
}
