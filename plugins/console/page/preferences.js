// @ts-check
// Choices of the person at this browser, kept in `localStorage`: scheme, density, zone, single-letter keys, pinned
// entities, columns, searches.

import { useEffect, useState } from "./view.js";

const NAME = "peeklock.console";
const PINNED_MAX = 50;

const DEFAULTS = {
  scheme: /** @type {"system" | "light" | "dark"} */ ("system"),
  density: /** @type {"normal" | "compact"} */ ("normal"),
  zone: /** @type {"local" | "utc"} */ ("local"),
  letters: true,
  pinned: /** @type {string[]} */ ([]),
  columns: /** @type {Record<string, string[]>} */ ({}),
  searches: /** @type {Record<string, string>} */ ({}),
};

/**
 * A value with listeners.
 * @template T
 */
export class Store {
  #listeners = new Set();

  /** @param {T} value */
  constructor(value) {
    this.value = value;
  }

  /** @param {T} value */
  set(value) {
    if (!Object.is(value, this.value)) {
      this.value = value;
      for (const listener of [...this.#listeners]) {
        listener(value);
      }
    }
  }

  /** @param {() => void} listener */
  listen(listener) {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  get listenerCount() {
    return this.#listeners.size;
  }

  /** Returns the value in a component, and draws the component again when it changes. */
  use() {
    const [, draw] = useState({});
    useEffect(() => {
      const seen = this.value;
      const end = this.listen(() => draw({}));
      if (seen !== this.value) {
        draw({});
      }
      return end;
    }, [this]);
    return this.value;
  }
}

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(NAME) ?? "{}");
    const isKept = ([name, value]) =>
      name in DEFAULTS && typeof value === typeof DEFAULTS[name] && Array.isArray(value) === Array.isArray(DEFAULTS[name]);
    return { ...DEFAULTS, ...Object.fromEntries(Object.entries(found).filter(isKept)) };
  } catch {
    return DEFAULTS;
  }
}

export const preferences = new Store(stored());

/** Changes choices, here and in later visits. */
export function prefer(/** @type {Partial<typeof DEFAULTS>} */ changes) {
  preferences.set({ ...preferences.value, ...changes });
  try {
    localStorage.setItem(NAME, JSON.stringify(preferences.value));
  } catch {
    // The choices last as long as the page.
  }
}

/** Pins an entity, or removes its pin. `address` is the part of the fragment that names it. */
export function togglePin(/** @type {string} */ address) {
  const { pinned } = preferences.value;
  const others = pinned.filter((one) => one !== address);
  prefer({ pinned: others.length < pinned.length ? others : [...others, address].slice(-PINNED_MAX) });
}

function show() {
  const { scheme, density } = preferences.value;
  const root = document.documentElement;
  root.dataset.scheme = scheme;
  root.dataset.density = density;
}

preferences.listen(show);
show();

const coarse = matchMedia("(pointer: coarse)");

/** Height of a row in pixels; the styles have the same numbers. */
export const rowHeight = () => (coarse.matches ? 44 : preferences.value.density === "compact" ? 28 : 32);
