// @ts-check
// Values of the broker that a page shows: read once for all components that need them, again every 10 s while the tab is
// visible, and after a lost connection with growing pauses. A value stays with its age when reading it fails.

import { asApiError, connection, getAbout, getRoot, hasEnded, needsToken, readStanding } from "./api.js";
import { askTabs, setToken, token, whenGiven, whenSignedOut } from "./credential.js";
import { Store } from "./preferences.js";
import { fitStream, isPaused } from "./stream.js";
import { useEffect, useMemo, useState } from "./view.js";

const EVERY_MS = 10_000;
/** Time without an answer after which the page asks whether the broker is there. */
const SILENCE_MS = 3500;
const KEPT_MAX = 60;
const RETRY_FIRST_MS = 200;
const RETRY_MAX_MS = 20_000;

export { isPaused } from "./stream.js";

/**
 * @template T
 * @typedef {{ value: T | undefined, error: import("./api.js").ApiError | undefined, at: number, isLoading: boolean }} State
 */

/**
 * @template T
 * @extends {Store<State<T>>}
 */
class Resource extends Store {
  #abort = /** @type {AbortController | undefined} */ (undefined);

  /** @param {(signal: AbortSignal, before: T | undefined) => Promise<T>} load */
  constructor(load) {
    super({ value: undefined, error: undefined, at: 0, isLoading: false });
    this.load = load;
    this.every = EVERY_MS;
    /** Instant of the last reading, apart from the stream. */
    this.readAt = 0;
    this.subject = /** @type {import("./stream.js").Subject | undefined} */ (undefined);
    this.fromState = /** @type {((state: any, before: T | undefined) => T | undefined) | undefined} */ (undefined);
    /** Whether the stream has only a part of the value. */
    this.isPartial = false;
    this.isStreamed = false;
    this.isTooLarge = false;
  }

  /** Takes a state of the stream. */
  take(/** @type {any} */ state) {
    const value = this.fromState?.(state, this.value.value);
    if (value !== undefined && value !== this.value.value) {
      this.set({ ...this.value, value, error: undefined, at: Date.now() });
    }
  }

  /** Reads the value. One that is being read already is enough, unless something was changed since it began. */
  async refresh(isForced = false) {
    if (this.value.isLoading) {
      if (!isForced) {
        return;
      }
      this.cancel();
    }
    const abort = new AbortController();
    this.#abort = abort;
    this.set({ ...this.value, isLoading: true });
    this.readAt = Date.now();
    try {
      const value = await this.load(abort.signal, this.value.value);
      if (this.#abort !== abort) {
        return;
      }
      this.set({ value, error: undefined, at: Date.now(), isLoading: false });
    } catch (error) {
      if (this.#abort !== abort) {
        return;
      }
      if (!abort.signal.aborted) {
        const shown = asApiError(error);
        this.set({ ...this.value, error: shown, at: Date.now(), isLoading: false });
      } else {
        this.set({ ...this.value, isLoading: false });
      }
    }
  }

  cancel() {
    this.#abort?.abort();
  }

  get isDue() {
    const isCarried = this.isStreamed && !this.isPartial;
    return this.every > 0 && !isCarried && Date.now() - this.readAt >= this.every - 250;
  }
}

/** @type {Map<string, Resource<any>>} */
const resources = new Map();

const watched = () => [...resources.values()].filter((resource) => resource.listenerCount > 0);

function forget() {
  for (const [key, resource] of resources) {
    if (resources.size <= KEPT_MAX) {
      return;
    }
    if (resource.listenerCount === 0) {
      resource.cancel();
      resources.delete(key);
    }
  }
}

/** Reads everything that the page shows again, because something has changed. */
export function refreshAll() {
  for (const resource of watched()) {
    void resource.refresh(true);
  }
}

setInterval(() => {
  fitStream(watched());
  if (document.visibilityState !== "visible" || isPaused.value || connection.value.lostAt !== undefined) {
    return;
  }
  for (const resource of watched().filter((one) => one.isDue)) {
    void resource.refresh();
  }
  if (Date.now() - connection.value.answeredAt > SILENCE_MS && !isAsking) {
    void askAbout().catch(() => {});
  }
}, 1000);

document.addEventListener("visibilitychange", () => {
  fitStream(watched());
  if (document.visibilityState === "visible" && !isPaused.value) {
    for (const resource of watched().filter((one) => one.isDue)) {
      void resource.refresh();
    }
  }
});

/** Label and version of the console; asked again after each lost connection. */
export const about = new Store({ label: "", assets: "" });

let isAsking = false;

async function askAbout() {
  isAsking = true;
  try {
    const found = await getAbout();
    const { label, assets } = about.value;
    if (found.label !== label || found.assets !== assets) {
      about.set({ label: String(found.label ?? ""), assets: String(found.assets ?? "") });
    }
  } finally {
    isAsking = false;
  }
}

/** Instant at which the broker was started again while the page was open. */
export const restartedAt = new Store(/** @type {string | undefined} */ (undefined));

let startedAt = /** @type {string | undefined} */ (undefined);

/** Notices whether the broker is another process than before; a client without the right to know gets no instant. */
async function noteStart() {
  const { startedAtUtc } = await getRoot("health", AbortSignal.timeout(5000));
  if (startedAt !== undefined && startedAtUtc !== undefined && startedAtUtc !== startedAt) {
    restartedAt.set(startedAtUtc);
  }
  startedAt = startedAtUtc ?? startedAt;
}

let retryMs = 0;

/** Tries to reach the broker until it answers, with pauses that grow and have a random part. */
function retry() {
  retryMs = Math.min(RETRY_MAX_MS, Math.max(RETRY_FIRST_MS, retryMs * 2));
  setTimeout(async () => {
    try {
      await askAbout();
    } catch {
      // The connection is still marked as lost, or the broker serves no console now.
    }
    if (connection.value.lostAt !== undefined) {
      retry();
    } else {
      retryMs = 0;
      refreshAll();
      void noteStart().catch(() => {});
      void readStanding().catch(() => {});
    }
  }, retryMs * (0.5 + Math.random()));
}

let wasLost = false;
connection.listen(() => {
  const isLost = connection.value.lostAt !== undefined;
  if (isLost && !wasLost) {
    retry();
  }
  wasLost = isLost;
});

askAbout().catch(() => {});
noteStart().catch(() => {});
readStanding().catch(() => {});

// Another tab of this browser may have signed in or out.
needsToken.listen(async () => {
  if (!needsToken.value) {
    return;
  }
  const refused = token();
  if (await askTabs()) {
    await readAgain();
  } else if (refused !== undefined && token() === refused) {
    // Somebody may have signed in meanwhile.
    setToken(undefined);
    hasEnded.set(true);
  }
});
whenGiven(readAgain);
whenSignedOut(readAgain);

/** Reads everything again with other credentials. */
async function readAgain() {
  await readStanding().catch(() => {});
  refreshAll();
}

/**
 * Reads a value, and keeps it fresh while the component is shown.
 * @template T
 * @param {string | undefined} key names the value; undefined reads nothing
 * @param {(signal: AbortSignal, before: T | undefined) => Promise<T>} load
 * @param {{ every?: number, subject?: import("./stream.js").Subject, fromState?: (state: any, before: any) => T | undefined,
 *   isPartial?: boolean }} [options] `every: 0` reads it once; the stream carries the `subject`
 * @returns {State<T> & { refresh: () => Promise<void> }}
 */
export function useResource(key, load, { every = EVERY_MS, subject = undefined, fromState = undefined, isPartial = false } = {}) {
  const [, draw] = useState({});
  const resource = useMemo(() => {
    if (key === undefined) {
      return undefined;
    }
    const found = resources.get(key) ?? new Resource(load);
    // The last used is the last forgotten.
    resources.delete(key);
    resources.set(key, found);
    return found;
  }, [key]);
  if (resource) {
    resource.load = load;
    resource.every = every;
    Object.assign(resource, { subject, fromState, isPartial });
  }
  useEffect(() => {
    if (!resource) {
      return undefined;
    }
    const end = resource.listen(() => draw({}));
    forget();
    if (resource.value.at === 0 || resource.value.error || (every > 0 && Date.now() - resource.value.at > 1000)) {
      void resource.refresh();
    }
    draw({});
    return end;
  }, [resource]);
  const state = resource?.value ?? { value: undefined, error: undefined, at: 0, isLoading: false };
  // The first reading begins after the first drawing.
  const isLoading = state.isLoading || (resource !== undefined && state.at === 0 && state.error === undefined);
  return { ...state, isLoading, refresh: () => resource?.refresh(true) ?? Promise.resolve() };
}

/**
 * A list that is read page by page. A refresh reads the pages that are there again, at most the first `FRESH_PAGES`.
 * @template R
 * @param {string | undefined} key
 * @param {(after: string | undefined, signal: AbortSignal) => Promise<{ rows: R[], next?: string, total?: number }>} load
 */
export function usePages(key, load, /** @type {{ every?: number, kind?: string, subject?: import("./stream.js").Subject }} */ options = {}) {
  const shown = key === undefined ? undefined : resources.get(key)?.value.value;
  const { kind, subject, ...others } = options;
  // The stream carries one page.
  const streamed = {
    ...others,
    subject: (shown?.pages.length ?? 1) <= 1 ? subject : undefined,
    fromState: (state) => ({ pages: [{ rows: state[kind ?? ""], next: state.next, total: state.total }], total: state.total }),
  };
  const state = useResource(
    key,
    async (signal, /** @type {Pages<R> | undefined} */ before) => {
      const wanted = Math.min(before?.pages.length ?? 1, FRESH_PAGES);
      const pages = [];
      let after;
      let total;
      for (let place = 0; place < wanted; place += 1) {
        const page = await loadPage(load, after, signal);
        pages.push(page);
        total = page.total ?? total;
        after = page.next;
        if (after === undefined) {
          break;
        }
      }
      const rest = (after !== undefined && before?.pages.slice(wanted)) || [];
      return { pages: [...pages, ...rest], total };
    },
    streamed,
  );
  const [more, setMore] = useState(/** @type {{ key?: string, error?: import("./api.js").ApiError, isLoading: boolean }} */ ({ isLoading: false }));
  const pages = state.value?.pages ?? [];
  const rows = useMemo(() => pages.flatMap((page) => page.rows), [state.value]);
  const next = pages.at(-1)?.next;
  const loadMore = async () => {
    const resource = key === undefined ? undefined : resources.get(key);
    if (next === undefined || more.isLoading || !resource || resource.value.isLoading) {
      return;
    }
    setMore({ isLoading: true });
    try {
      const page = await loadPage(load, next, new AbortController().signal);
      const { value } = resource.value;
      if (value?.pages.at(-1)?.next === next) {
        resource.set({ ...resource.value, value: { pages: [...value.pages, page], total: page.total ?? value.total } });
      }
      setMore({ isLoading: false });
    } catch (error) {
      setMore({ isLoading: false, error: /** @type {import("./api.js").ApiError} */ (error) });
    }
  };
  return { ...state, rows, total: state.value?.total, hasMore: next !== undefined, loadMore, error: state.error ?? more.error };
}

const FRESH_PAGES = 2;
/** Pages that have no row although there are more. */
const EMPTY_PAGES_MAX = 20;

/**
 * @template R
 * @typedef {{ pages: { rows: R[], next?: string, total?: number }[], total?: number }} Pages
 */

/** Loads a page; the broker may answer with an empty one that has a next. */
async function loadPage(load, after, signal) {
  let page = await load(after, signal);
  for (let place = 0; page.rows.length === 0 && page.next !== undefined && place < EMPTY_PAGES_MAX; place += 1) {
    page = await load(page.next, signal);
  }
  return page;
}
