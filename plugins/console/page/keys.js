// @ts-check
// Keys. A single-letter key acts neither while typing nor with Ctrl, Alt or Meta, and can be switched off.

import { preferences } from "./preferences.js";
import { go, href } from "./route.js";
import { useEffect, useRef } from "./view.js";

/** @typedef {{ keys: string, does: string, act: (event: KeyboardEvent) => void, isGlobal?: boolean }} Binding */

/** @type {Set<{ current: Binding[] }>} */
const layers = new Set();
const SEQUENCE_MS = 1200;
let prefix = "";
let prefixAt = 0;

/** Keys that act on every page. */
const PAGES = [
  ["g o", "Overview", []],
  ["g e", "Entities", ["entities"]],
  ["g f", "Search", ["search"]],
  ["g w", "Topology", ["topology"]],
  ["g s", "Schedule", ["schedule"]],
  ["g j", "Jobs", ["jobs"]],
  ["g c", "Clients", ["clients"]],
  ["g k", "Checks", ["checks"]],
  ["g a", "Audit", ["audit"]],
  ["g i", "Import and export", ["import"]],
  ["g t", "Settings", ["settings"]],
];

export const pageKeys = PAGES.map(([keys, name, parts]) => ({
  keys: /** @type {string} */ (keys),
  does: `Go to ${name}`,
  act: () => go(href(/** @type {string[]} */ (parts))),
}));

/** Binds keys while a component is shown; later components come first. */
export function useKeys(/** @type {Binding[]} */ bindings) {
  const layer = useRef(bindings);
  layer.current = bindings;
  useEffect(() => {
    layers.add(layer);
    return () => void layers.delete(layer);
  }, []);
}

/** Returns all bindings of the page shown, for the list of keys. */
export const allBindings = () => [...layers].flatMap((layer) => layer.current);

const isTyping = (/** @type {EventTarget | null} */ target) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName) || isTextInput(target));

const isTextInput = (/** @type {HTMLElement} */ target) =>
  target instanceof HTMLInputElement && !/^(checkbox|radio|button|range)$/.test(target.type);

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing) {
    return;
  }
  const isChord = event.ctrlKey || event.metaKey;
  const key = isChord ? `Ctrl+${event.key.toLowerCase()}` : event.key;
  const isLetter = !isChord && event.key.length === 1;
  if (event.altKey || (isLetter && (isTyping(event.target) || !preferences.value.letters))) {
    return;
  }
  const inDialog = document.querySelector("dialog[open]") !== null;
  const whole = prefix && Date.now() - prefixAt < SEQUENCE_MS ? `${prefix} ${key}` : key;
  prefix = "";
  const bindings = [...layers].reverse().flatMap((layer) => layer.current);
  const found = bindings.find((binding) => binding.keys.split(", ").includes(whole) && (!inDialog || binding.isGlobal));
  if (found) {
    event.preventDefault();
    found.act(event);
  } else if (isLetter && !inDialog && bindings.some((binding) => binding.keys.startsWith(`${key} `))) {
    prefix = key;
    prefixAt = Date.now();
  }
});
