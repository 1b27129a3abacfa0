// @ts-check
// Frame of every page: rail of pages and pinned entities, bar with label, search, state of the connection; dialogs for
// going anywhere and for the list of keys.

import { connection, get, standing } from "./api.js";
import { span, visible } from "./format.js";
import { allBindings, pageKeys, useKeys } from "./keys.js";
import { Age, announcement, pageTitle, Problem, Text, useNow } from "./parts.js";
import { preferences, Store } from "./preferences.js";
import { about, isPaused, refreshAll, restartedAt, useResource } from "./resource.js";
import { entityHref, go, href, route } from "./route.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./view.js";

const LOST_SHOWN_MS = 3000;
const FOUND_MAX = 12;
const PAGES = [
  ["overview", "Overview", []],
  ["entities", "Entities", ["entities"]],
  ["search", "Search", ["search"]],
  ["topology", "Topology", ["topology"]],
  ["schedule", "Schedule", ["schedule"]],
  ["jobs", "Jobs", ["jobs"]],
  ["clients", "Clients", ["clients"]],
  ["checks", "Checks", ["checks"]],
  ["audit", "Audit", ["audit"]],
  ["import", "Import and export", ["import"]],
  ["settings", "Settings", ["settings"]],
];

const dialog = new Store(/** @type {"" | "find" | "keys" | "rail"} */ (""));

/** Name of the page in the rail that an address belongs to. */
const section = (parts) => (/^(queue|topic|subscription)$/.test(parts[0]) ? "entities" : (parts[0] ?? "overview"));

export function Frame({ children }) {
  const { parts } = route.use();
  const { label, assets } = about.use();
  const title = pageTitle.use();
  const open = dialog.use();
  const paused = isPaused.use();
  const restarted = restartedAt.use();
  useEffect(() => {
    document.title = [visible(title), label && visible(label), "Peeklock"].filter(Boolean).join(" · ");
  }, [title, label]);
  useEffect(() => {
    dialog.set("");
  }, [parts]);
  useKeys([
    { keys: "Ctrl+k", does: "Find an entity, message or page", act: () => dialog.set("find"), isGlobal: true },
    { keys: "?", does: "List of keys", act: () => dialog.set("keys") },
    { keys: "/", does: "Filter", act: () => /** @type {HTMLElement | null} */ (document.querySelector("main [data-filter]"))?.focus() },
    ...(open === "rail" ? [{ keys: "Escape", does: "Close the pages", act: () => dialog.set("") }] : []),
    { keys: ".", does: "Pause or continue reading", act: () => isPaused.set(!isPaused.value) },
    { keys: "r", does: "Read again now", act: refreshAll },
    ...pageKeys,
  ]);
  const own = new URL(".", import.meta.url).pathname.split("/").at(-2);
  const isOld = assets !== "" && own !== "assets" && own !== assets;
  const current = section(parts);
  return html`<div class="frame">
    <header class="bar">
      <a class="skip" href="#content" onClick=${(event) => {
        event.preventDefault();
        document.getElementById("content")?.focus();
      }}>Skip to content</a>
      <button type="button" class="menu" aria-label="Pages" aria-expanded=${open === "rail"} onClick=${() => dialog.set(open === "rail" ? "" : "rail")}>☰</button>
      <a class="brand" href="#/">Peeklock</a>
      ${label && html`<strong class="label"><${Text} value=${label} max=${40} /></strong>`}
      <button type="button" class="find" onClick=${() => dialog.set("find")}>Find<span class="wide"> an entity or message</span> <kbd>Ctrl K</kbd></button>
      <${Connection} paused=${paused} />
      <${Role} />
      <button type="button" class="help" aria-label="List of keys" onClick=${() => dialog.set("keys")}>?</button>
    </header>
    <nav class=${`rail ${open === "rail" ? "open" : ""}`} aria-label="Pages">
      ${PAGES.map(([id, name, to]) => html`<a key=${id} href=${href(/** @type {string[]} */ (to))} aria-current=${id === current ? "page" : undefined}>${name}</a>`)}
      <${Pinned} />
    </nav>
    <main id="content" tabindex="-1">
      ${isOld && html`<p class="notice">The broker has another version of this page. <button type="button" onClick=${() => location.reload()}>Reload</button></p>`}
      ${restarted && html`<p class="notice">The broker was started again <${Age} at=${restarted} suffix=" ago" />. <button type="button" onClick=${() => restartedAt.set(undefined)}>Close</button></p>`}
      ${children}
    </main>
    <div class="hidden" role="status">${useAnnouncement()}</div>
    ${open === "find" && html`<${Find} />`}
    ${open === "keys" && html`<${KeyList} />`}
  </div>`;
}

const useAnnouncement = () => announcement.use();

function Pinned() {
  const { pinned } = preferences.use();
  const { text } = route.use();
  if (pinned.length === 0) {
    return null;
  }
  return html`<p class="rail-head" id="pinned">Pinned</p>
    ${pinned.map((address) => {
      const [, kind, path] = address.split("/").map((part) => decodeURIComponent(part));
      return html`<a key=${address} class="pin mono" href=${`#${address}`} title=${`${kind} ${visible(path)}`} aria-current=${text === address ? "page" : undefined}><${Text} value=${path} /></a>`;
    })}`;
}

/** Whether the broker answers and how old the data is. A lost connection is announced within 5 s. */
function Connection({ paused }) {
  const { lostAt, answeredAt } = connection.use();
  useNow();
  const isLost = lostAt !== undefined;
  const age = answeredAt === 0 ? undefined : Date.now() - answeredAt;
  const isAnnounced = isLost && Date.now() - lostAt > LOST_SHOWN_MS;
  let [tone, word] = ["good", "live"];
  if (isLost) {
    [tone, word] = ["bad", age === undefined ? "no connection" : `no connection, data is ${span(age)} old`];
  } else if (paused) {
    [tone, word] = ["look", `paused, data is ${span(age ?? 0)} old`];
  } else if (answeredAt === 0) {
    [tone, word] = ["quiet", "connecting"];
  }
  const shape = isLost ? "✕" : paused ? "❚❚" : "●";
  return html`<span class="connection">
    <button type="button" class=${`state ${tone}`} aria-pressed=${paused} title=${paused ? "Continue reading (.)" : "Pause reading (.)"}
      onClick=${() => isPaused.set(!paused)}><span aria-hidden="true">${shape}</span> <span class="word">${word}</span></button>
    <span class="hidden" role="alert">${isAnnounced ? "The connection to the broker is lost. The page tries again by itself." : ""}</span>
  </span>`;
}

/** Role of this page, with a link to the place where it can be changed. */
function Role() {
  const state = standing.use();
  if (!state) {
    return null;
  }
  const title = state.policy ? `Policy ${visible(state.policy)}` : "Without signing in";
  return html`<a class="role" href="#/settings" title=${title}>${state.role ?? "no role"}</a>`;
}

/** A dialog over the page. The browser keeps the focus in it and gives it back. */
function Dialog({ label, className = "", children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  // The dialog has the focus before the next key is read.
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    element.current?.showModal();
    element.current?.querySelector("input")?.focus();
    return () => before?.focus?.({ preventScroll: true });
  }, []);
  const onClick = (event) => event.target === element.current && dialog.set("");
  return html`<dialog ref=${element} class=${className} aria-label=${label} onClose=${() => dialog.set("")} onClick=${onClick}>
    <div class="dialog-inside">${children}</div>
  </dialog>`;
}

/** The entity of the present page, where a number is the number of a message. */
function presentEntity() {
  const [kind, path, tab] = route.value.parts;
  return /^(queue|topic|subscription)$/.test(kind ?? "") && path ? { kind, path, tab } : undefined;
}

function Find() {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const [place, setPlace] = useState(0);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(text.trim()), 120);
    return () => clearTimeout(timer);
  }, [text]);
  // The list fits the text, also before the broker has answered.
  const wanted = text.trim().toLowerCase();
  const isNumber = /^#?\d+$/.test(wanted);
  const entities = useResource(`find ${asked}`, (signal) => get("entities", { path: asked, top: FOUND_MAX }, signal), { every: 0 });
  const known = useRef(/** @type {any[]} */ ([]));
  known.current = entities.value?.entities ?? known.current;
  const found = useMemo(() => {
    const present = presentEntity();
    const list = [];
    if (present && isNumber) {
      const tab = /^(dead-letters|transfer-dead-letters)$/.test(present.tab ?? "") ? present.tab : "messages";
      const sequence = wanted.replace("#", "");
      list.push({ name: `Message ${sequence} of ${visible(present.path)}`, kind: "message", href: entityHref(present.kind, present.path, tab, {}, sequence) });
    }
    const rank = ({ path }) => (path.toLowerCase() === wanted ? 0 : path.toLowerCase().startsWith(wanted) ? 1 : 2);
    const matching = known.current.filter(({ path }) => path.toLowerCase().includes(wanted));
    for (const { path, kind } of matching.sort((one, other) => rank(one) - rank(other))) {
      list.push({ name: visible(path), kind, href: entityHref(kind, path) });
    }
    for (const [, name, to] of PAGES) {
      if (String(name).toLowerCase().includes(wanted)) {
        list.push({ name, kind: "page", href: href(/** @type {string[]} */ (to)) });
      }
    }
    // It comes last, after the broker has answered, so that no key chooses it early.
    if (wanted !== "" && entities.value && asked.toLowerCase() === wanted) {
      list.push({ name: `Message id ${visible(asked)}`, kind: "journey", href: href(["journey"], { id: asked }) });
    }
    return list;
  }, [entities.value, asked, wanted]);
  const active = Math.min(place, found.length - 1);
  const choose = (one) => {
    dialog.set("");
    go(one.href);
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setPlace(Math.max(0, Math.min(found.length - 1, active + step)));
    } else if (event.key === "Enter" && found[active]) {
      event.preventDefault();
      choose(found[active]);
    }
  };
  return html`<${Dialog} label="Find" className="find-dialog">
    <input type="text" role="combobox" aria-expanded="true" aria-controls="found" aria-label="Part of a path, a number or id of a message, or a page"
      placeholder="Part of a path, a number or id of a message, or a page" aria-activedescendant=${found[active] ? `found-${active}` : undefined}
      autocomplete="off" spellcheck=${false} value=${text}
      onInput=${(event) => { setText(event.currentTarget.value); setPlace(0); }} onKeyDown=${onKeyDown} />
    <${Problem} error=${entities.error} />
    <ul id="found" role="listbox" aria-label="Found">
      ${found.map(
        (one, index) => html`<li key=${one.href} id=${`found-${index}`} role="option" aria-selected=${index === active} onClick=${() => choose(one)}>
          <span class="mono">${one.name}</span><span class="quiet">${one.kind}</span>
        </li>`,
      )}
    </ul>
    ${found.every(({ kind }) => kind === "journey") && !entities.isLoading && html`<p class="quiet">Nothing has this in its path.</p>`}
  <//>`;
}

function KeyList() {
  const { letters } = preferences.use();
  const seen = new Map(allBindings().map(({ keys, does }) => [does, keys]));
  const rows = [...seen, ["First, last, one page in a table", "Home, End, PageUp, PageDown"], ["Open the row", "Enter"], ["Close, clear a field", "Esc"]];
  return html`<${Dialog} label="Keys" className="keys-dialog">
    <h2>Keys</h2>
    ${!letters && html`<p class="quiet">Single-letter keys are switched off in the settings.</p>`}
    <table class="plain"><tbody>
      ${rows.map(([does, keys]) => html`<tr key=${does}><th scope="row">${does}</th><td>${keys.split(", ").map((key) => html`<kbd>${key.replace("Ctrl+k", "Ctrl+K").replace(/^[A-Z]$/, "Shift+$&")}</kbd> `)}</td></tr>`)}
    </tbody></table>
    <button type="button" onClick=${() => dialog.set("")}>Close</button>
  <//>`;
}
