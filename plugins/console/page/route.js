// @ts-check
// Addresses of pages: everything is in the fragment, which reaches no server, proxy or log.
//
//   #/                                            overview
//   #/entities?path=ord&condition=hasDeadLetters  entities
//   #/queue/orders/messages/17?state=active       a message of a queue; also with `topic` and `subscription`
//   #/search?where=reason:timeout&entity=orders   search
//   #/jobs?job=ID                                 jobs, and the chosen one
//   #/topology?around=orders, #/checks, #/schedule, #/clients, #/audit, #/import, #/settings

import { Store } from "./preferences.js";
import { subscriptionParts } from "./api.js";

/** @typedef {{ parts: string[], query: URLSearchParams, text: string }} Route */

/** @returns {Route} */
function read() {
  const text = location.hash.replace(/^#/, "") || "/";
  const end = text.indexOf("?");
  const path = end < 0 ? text : text.slice(0, end);
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts, query: new URLSearchParams(end < 0 ? "" : text.slice(end + 1)), text };
}

function decoded(/** @type {string} */ part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = new Store(read());

addEventListener("hashchange", () => route.set(read()));

/** Builds the address of a page. Empty values of the query are left out. */
export function href(/** @type {(string | number | bigint)[]} */ parts, /** @type {Record<string, unknown>} */ query = {}) {
  const values = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== "" && one !== false) {
        values.append(name, String(one));
      }
    }
  }
  const path = parts.map((part) => encodeURIComponent(String(part))).join("/");
  return `#/${path}${values.size > 0 ? `?${values}` : ""}`;
}

/** Goes to a page; with `replace` the present one is left out of the history. */
export function go(/** @type {string} */ address, { replace = false } = {}) {
  if (replace) {
    history.replaceState(history.state, "", address);
    route.set(read());
  } else {
    location.hash = address;
  }
}

/** Changes parameters of the present page. */
export function setQuery(/** @type {Record<string, unknown>} */ changes, { replace = true } = {}) {
  const { parts, query } = route.value;
  const values = {};
  for (const name of new Set(query.keys())) {
    const all = query.getAll(name);
    values[name] = all.length > 1 ? all : all[0];
  }
  go(href(parts, { ...values, ...changes }), { replace });
}

/** Returns the address of an entity, one of its tabs, or a message in a tab. */
export function entityHref(
  /** @type {string} */ kind,
  /** @type {string} */ path,
  /** @type {string | undefined} */ tab = undefined,
  /** @type {Record<string, unknown>} */ query = {},
  /** @type {number | bigint | string | undefined} */ sequence = undefined,
) {
  return href([kind, path, ...(tab ? [tab] : []), ...(sequence === undefined ? [] : [sequence])], query);
}

/** Guesses the kind of an entity by its path: a link to a queue or topic finds out by asking. */
export const kindOfPath = (/** @type {string} */ path) => (subscriptionParts(path) ? "subscription" : "queue");
