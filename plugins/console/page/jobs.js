// @ts-check
// Jobs: one change of many messages. A form makes a job, which the address names from then on; the panel of the job shows its
// preview, starts it, and follows it to its end. A page lists all jobs (CON-12 to CON-19, CON-55, CON-62, CON-63).

import { asApiError, change, downloadAddress, entityPath, get, getBytes, mayManage, now, SUB_QUEUES } from "./api.js";
import { counted, useMayOperate } from "./actions.js";
import { DRAFTS } from "./credential.js";
import { utf8 } from "./decode.js";
import { exact, number, propertyText, size, span, visible } from "./format.js";
import { Age, announce, Choice, Copy, Empty, Facts, Moment, Problem, Text, Unknown, useNow, usePageTitle, usePanel } from "./parts.js";
import { preferences } from "./preferences.js";
import { refreshAll, usePages, useResource } from "./resource.js";
import { entityHref, href, kindOfPath, setQuery } from "./route.js";
import { Table } from "./table.js";
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "./view.js";

/** Maximum number of messages that a job names by number. */
const NUMBERS_MAX = 10_000;
/** Deleted messages beyond which the name of the entity is typed (CON-63). */
const TYPED_OVER = 1000;
const RATE = 500;
const RATE_MAX = 10_000;
const LIVE_MS = 1000;
const FAILURES_SHOWN = 200;
/** Bytes of a new body or merge patch (CON-16). */
const BODY_BYTES = 16 << 10;
const zone = () => preferences.value.zone;

const MAIN = ["messages", "found"];
const DEAD = ["dead-letters", "transfer-dead-letters"];
const TIMES = { minutes: "M", hours: "H", days: "D" };
const WHEN = [["now", "Now"], ["at", "At"], ["later", "Later by"], ["earlier", "Earlier by"]];

/** New bodies that are being written. They outlive a reload (CON-61); the oldest make way for others. */
const drafts = {
  name: DRAFTS,
  sizeMax: 1 << 20,
  all: () => {
    try {
      return Object.entries(JSON.parse(sessionStorage.getItem(drafts.name) ?? "{}"));
    } catch {
      return [];
    }
  },
  of: (/** @type {string} */ key) => drafts.all().find(([name]) => name === key)?.[1] ?? {},
  keep: (/** @type {string} */ key, /** @type {object | undefined} */ draft) => {
    const kept = drafts.all().filter(([name]) => name !== key);
    if (draft) {
      kept.push([key, draft]);
    }
    let text = JSON.stringify(Object.fromEntries(kept));
    while (text.length > drafts.sizeMax) {
      kept.shift();
      text = JSON.stringify(Object.fromEntries(kept));
    }
    try {
      sessionStorage.setItem(drafts.name, text);
    } catch {
      // The draft lasts as long as the form.
    }
  },
};

const EXPORT_FORMS = [["ndjson", "Whole messages, as JSON lines"], ["csv", "Table without bodies, as CSV"]];
const BODY = [["", "Stays"], ["body", "New text"], ["mergePatch", "JSON merge patch"]];
const BODY_LABELS = {
  body: "New body",
  mergePatch: "Members to set; null removes one (RFC 7396). Only JSON of at most 256 KiB and 128 levels changes; other messages stay.",
};
/** The text that is sent. A text field replaces line ends by its own, so those of the present body are restored. */
const textOf = (/** @type {any} */ { how, lineEnd = "\n", ...texts }) => (how === "body" ? (texts.body ?? "").replaceAll("\n", lineEnd) : (texts.mergePatch ?? ""));
const edited = (/** @type {any} */ { newId, ...values }) => (newId || values.how) && { edit: { ...(newId && { newMessageId: true }), ...(values.how && { [values.how]: textOf(values) }) } };
const bytesOf = (/** @type {string} */ text) => new TextEncoder().encode(text).length;

/** The line end of a text; undefined if it has several kinds, which a text field cannot keep. */
function lineEndOf(/** @type {string} */ text) {
  const [first = "\n", ...others] = new Set(text.match(/\r\n|\r|\n/g) ?? []);
  return others.length === 0 ? first : undefined;
}

/** Reads the body of a message for a text field. Resolves to the text with its line end, or to a reason that there is none. */
async function readText(/** @type {string} */ path) {
  const { bytes, total, kind } = await getBytes(path, 0, BODY_BYTES);
  const text = utf8(bytes);
  const lineEnd = lineEndOf(text ?? "");
  if (/value|sequence/.test(kind ?? "")) {
    return { reason: "The present body is an AMQP value, which a new one replaces." };
  }
  if (total > bytes.length) {
    return { reason: "The present body has more than 16 KiB; a merge patch can change it." };
  }
  if (text === undefined) {
    return { reason: "The present body is not UTF-8 text." };
  }
  if (lineEnd === undefined) {
    return { reason: "The present body has line ends of several kinds, which a text field would change; a merge patch keeps them." };
  }
  return { text: text.replaceAll(lineEnd, "\n"), lineEnd };
}

/** Duration in ISO 8601. */
const period = (/** @type {string} */ count, /** @type {string} */ unit) => `P${unit === "days" ? "" : "T"}${count}${TIMES[unit] ?? "M"}`;

/**
 * Changes that a job can make, by their names in a request. `places` are the tabs that offer it, `fields` the texts to ask for;
 * `read` makes the change of the values of the form, and `past` completes "12 messages are".
 */
const DEEDS = {
  resubmit: {
    verb: "Resubmit", past: "resubmitted", places: [...DEAD, "found"], note: "They are sent again, without the dead-letter reason, and count as new. The originals go.", isSent: true,
    fields: [["to", "Destination, if not where they come from"]], read: ({ to, ...values }) => ({ ...(to && { to }), ...edited(values) }),
  },
  move: {
    verb: "Move", past: "moved", places: [...MAIN, ...DEAD], note: "They are sent to another queue, topic or subscription, and count as new. The originals go.", isSent: true,
    fields: [["to", "Destination: queue, topic, or topic/subscriptions/name", true]], read: ({ to, ...values }) => ({ to, ...edited(values) }),
  },
  deadLetter: {
    verb: "Dead-letter", past: "dead-lettered", places: MAIN, note: "They go to the dead-letter queue. Only active and deferred messages can.",
    fields: [["reason", "Reason"], ["description", "Description"]], read: ({ reason, description }) => ({ ...(reason && { reason }), ...(description && { description }) }),
  },
  undefer: { verb: "Make active", past: "made active", places: [...MAIN, ...DEAD], note: "Deferred messages are delivered again, at their place.", fields: [], read: () => ({}) },
  reschedule: {
    verb: "Reschedule", past: "rescheduled", places: ["scheduled", "found"], note: "Scheduled messages become available at another time.", fields: [], isTimed: true,
    read: ({ when = "now", at, count, unit = "minutes" }) => (when === "now" ? {} : when === "at" ? { atUtc: new Date(zone() === "utc" ? `${at}Z` : at).toISOString() } : { [when]: period(count, unit) }),
  },
  delete: { verb: "Delete", past: "deleted", places: [...MAIN, "scheduled", ...DEAD], note: "They are removed. The preview shows whether that can be undone.", fields: [], isHarm: true, read: () => ({}) },
  export: {
    verb: "Export", past: "exported", places: [...MAIN, "scheduled", ...DEAD], note: "The broker writes them to a file, which you download. Nothing is changed.", fields: [], isExport: true,
    read: ({ form = "ndjson" }) => ({ form }),
  },
  putBack: { verb: "Put back", past: "put back", places: /** @type {string[]} */ ([]), fields: [] },
};

const nameOf = (deed) => Object.keys(deed)[0];
const factsOf = (deed) => DEEDS[nameOf(deed)] ?? { verb: nameOf(deed), past: "done", fields: [] };

/** Values of a change in words. */
function details(deed) {
  const { reason, description, atUtc, later, earlier, ...others } = /** @type {any} */ (Object.values(deed)[0]);
  const known = { reason, description, "new time": atUtc && exact(atUtc, zone()), "later by": later, "earlier by": earlier, "edits": others.edit && JSON.stringify(others.edit), ...others };
  return Object.entries(known).filter(([, value]) => value !== undefined && value !== null && typeof value !== "object");
}

const RESULTS = {
  notFound: "no longer there",
  locked: "locked by a receiver",
  wrongState: "in a state that does not permit this",
  busy: "about to change or leave; try again",
  expired: "expired, so they would be removed at once",
  tooLarge: "without room for reason and description",
  noDestination: "without a destination that exists",
  destinationDisabled: "stopped by the status of the destination",
  destinationTooSmall: "too large for the destination",
  noSession: "without the session that the destination requires",
  duplicate: "known to the destination by their message id; choose new ids",
  refused: "refused by the destination, or not readable",
  notJson: "the patch does not apply to bodies that are not JSON of at most 256 KiB and 128 levels, are compressed, or have a patched member twice",
};

const STATES = {
  selecting: ["◌", "quiet", "selecting"],
  ready: ["○", "look", "not started"],
  waiting: ["◔", "quiet", "waiting"],
  running: ["●", "good", "running"],
  paused: ["❚❚", "look", "paused"],
  done: ["✓", "good", "done"],
  cancelled: ["✕", "quiet", "cancelled"],
  failed: ["✕", "bad", "failed"],
};

const isLive = (job) => /^(selecting|waiting|running)$/.test(job?.state ?? "selecting");
/** Whether the broker may still complete the end of a job, after which it can be undone. */
const isCompleting = (job) => isEnded(job) && job.preview?.undoable && !job.undoUntilUtc && Date.parse(job.endedAtUtc) > now() - 5000;
const isEnded = (job) => /^(done|cancelled|failed)$/.test(job?.state ?? "");

function JobState({ job }) {
  const [shape, tone, word] = STATES[job.state] ?? ["□", "quiet", visible(job.state)];
  return html`<span class=${`state ${tone}`}><span aria-hidden="true">${shape}</span> ${word}</span>`;
}

/** The job that this page has just made. */
const fresh = { id: "" };

/** Splits the path of a sub-queue into its entity and the tab that shows it. */
export function placeOf(/** @type {string} */ path) {
  const [, entity, end = ""] = /^(.*?)(\/\$.*)?$/s.exec(path) ?? ["", path];
  return { entity, kind: kindOfPath(entity), tab: /transfer/i.test(end) ? "transfer-dead-letters" : end === "" ? "messages" : "dead-letters" };
}

/**
 * Buttons for the changes of a selection of a tab. `numbers` are messages, `where` and `states` conditions. The job
 * that is made is named in the address. `what` names a selection by conditions.
 * @param {{ kind: string, path: string, tab: string, numbers?: string[], where?: string, what?: string, states?: string[], without?: string[], onDone?: () => void }} options
 */
export function Acts({ kind, path, tab, numbers, where, what = "everything that matches", states = [], without = [], onDone = () => {} }) {
  const [open, setOpen] = useState("");
  const opener = useRef(/** @type {HTMLElement | null} */ (null));
  const lastOpen = useRef("");
  useLayoutEffect(() => {
    if (open === "" && lastOpen.current !== "") {
      /** @type {HTMLElement | null | undefined} */ (opener.current?.querySelector(`[data-deed="${lastOpen.current}"]`))?.focus();
    }
    lastOpen.current = open;
  }, [open]);
  if (!useMayOperate(path) || numbers?.length === 0) {
    return null;
  }
  if (numbers && numbers.length > NUMBERS_MAX) {
    return html`<span class="quiet">A job takes at most ${number(NUMBERS_MAX)} messages by number; use conditions instead.</span>`;
  }
  const selection = numbers ? { sequenceNumbers: numbers.map(Number) } : { where: where ?? "", ...(states.length > 0 && { states }) };
  const base = entityPath(kind, path, tab in SUB_QUEUES ? tab : "");
  const make = async (request) => {
    const job = await change("POST", `${base}/jobs`, { ...selection, ...request });
    setOpen("");
    onDone();
    fresh.id = job.job;
    setQuery({ job: job.job });
  };
  const offered = Object.entries(DEEDS).filter(([id, { places }]) => places.includes(tab) && !without.includes(id));
  return html`<span class="acts" ref=${opener}>
      ${offered.map(([id, { verb }]) => html`<button type="button" key=${id} data-deed=${id} aria-expanded=${open === id} onClick=${() => setOpen(open === id ? "" : id)}>${verb}…</button>`)}
    </span>
    ${open !== "" && html`<${Form} key=${open} id=${open} what=${numbers ? counted(numbers.length) : what} draft=${`${open} ${base} ${numbers ? `${numbers.length} ${numbers.at(-1)} ${numbers}`.slice(0, 1000) : where}`} one=${numbers?.length === 1 ? `${base}/messages/${numbers[0]}/body` : undefined} make=${make} onClose=${() => setOpen("")} />`}`;
}

/** Values of a new job. It ends with a preview, so nothing changes yet. */
function Form({ id, what, draft, one, make, onClose }) {
  const { verb, note, fields, isTimed, isSent, isExport, read } = /** @type {any} */ (DEEDS[id]);
  const [values, setValues] = useState(/** @type {any} */ (() => drafts.of(draft)));
  const [present, setPresent] = useState("");
  const [isLoading, setLoading] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const form = useRef(/** @type {HTMLElement | null} */ (null));
  const describedBy = useId();
  useLayoutEffect(() => {
    /** @type {HTMLElement | null | undefined} */ (form.current?.querySelector("input, select, button"))?.focus();
  }, []);
  const set = (name) => (event) => setValues({ ...values, [name]: event.currentTarget.value });
  const write = (changed) => {
    const next = { ...values, ...changed };
    setValues(next);
    const { how, body, mergePatch, lineEnd, isEmpty } = next;
    drafts.keep(draft, body === undefined && mergePatch === undefined ? undefined : { how, body, mergePatch, lineEnd, isEmpty });
  };
  // The text for a single message begins with its present body.
  const choose = async (how) => {
    write({ how });
    setPresent("");
    if (how !== "body" || !one || values.body !== undefined || isLoading) {
      return;
    }
    setLoading(true);
    setError(undefined);
    try {
      const { text, lineEnd, reason = "" } = await readText(one);
      setPresent(reason);
      setValues((values) => (values.body === undefined && text !== undefined ? { ...values, body: text, lineEnd } : values));
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setLoading(false);
  };
  const long = values.how ? bytesOf(textOf(values)) : 0;
  const check = (element) => element?.setCustomValidity(long > BODY_BYTES ? `The text has ${number(long)} bytes; at most ${number(BODY_BYTES)} are possible.` : "");
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const { rate, trial, breakLocks } = values;
      await make({ deed: { [id]: read(values) }, rate: Number(rate || RATE), ...(trial && { trial: Number(trial) }), ...(breakLocks && { breakLocks: true }) });
      drafts.keep(draft, undefined);
    } catch (thrown) {
      setError(asApiError(thrown));
      setBusy(false);
    }
  };
  const onKeyDown = (event) => {
    if (event.key === "Escape" && !isBusy) {
      event.preventDefault();
      onClose();
    }
  };
  const when = values.when ?? "now";
  return html`<form class="action" ref=${form} aria-label=${`${verb} ${what}`} aria-describedby=${describedBy} onSubmit=${submit} onKeyDown=${onKeyDown}>
    <p id=${describedBy}><strong>${verb} ${what}.</strong> ${note} The preview counts the messages first, and changes nothing.</p>
    ${fields.map(([name, label, isNeeded]) => html`<label key=${name} class="block">${label}<input type="text" required=${isNeeded === true} maxlength="4096" autocomplete="off" value=${values[name] ?? ""} onInput=${set(name)} /></label>`)}
    ${
      isTimed &&
      html`<div class="tools"><label>New time <select value=${when} onChange=${set("when")}>${WHEN.map(([word, shown]) => html`<option key=${word} value=${word} selected=${word === when}>${shown}</option>`)}</select></label>
      ${when === "at" && html`<input type="datetime-local" step="1" required aria-label=${`Time, ${zone() === "utc" ? "UTC" : "local"}`} value=${values.at ?? ""} onInput=${set("at")} />`}
      ${/^(later|earlier)$/.test(when) && html`<input type="number" min="1" max="99999" required aria-label="Number of units" value=${values.count ?? ""} onInput=${set("count")} />
        <select aria-label="Unit" value=${values.unit ?? "minutes"} onChange=${set("unit")}>${Object.keys(TIMES).map((unit) => html`<option key=${unit} value=${unit} selected=${unit === (values.unit ?? "minutes")}>${unit}</option>`)}</select>`}</div>`
    }
    ${isExport && html`<div class="tools"><${Choice} label="File" value=${values.form ?? "ndjson"} options=${EXPORT_FORMS} onChange=${(form) => setValues({ ...values, form })} /></div>`}
    ${
      isSent &&
      html`<div class="tools"><${Choice} label="Body" value=${values.how ?? ""} options=${BODY} onChange=${choose} />${present && html`<span class="quiet">${present}</span>`}</div>
      ${
        values.how &&
        html`<label class="block">${BODY_LABELS[values.how]}<textarea class="mono" rows="8" spellcheck=${false} ref=${check} disabled=${isLoading} required=${!(values.how === "body" && values.isEmpty)} value=${values[values.how] ?? ""} onInput=${(event) => write({ [values.how]: event.currentTarget.value })}></textarea></label>
        <div class="tools"><span class=${long > BODY_BYTES ? "look" : "quiet"}>${number(long)} of ${number(BODY_BYTES)} bytes${values.how === "body" && values.lineEnd?.startsWith("\r") ? `, with ${values.lineEnd === "\r" ? "CR" : "CRLF"} as line ends` : ""}</span>
          ${values.how === "body" && !values.body && html`<label><input type="checkbox" checked=${values.isEmpty === true} onChange=${(event) => write({ isEmpty: event.currentTarget.checked })} />Empty body</label>`}</div>`
      }`
    }
    <div class="tools">
      <label>Messages per second <input type="number" min="1" max=${RATE_MAX} value=${values.rate ?? RATE} onInput=${set("rate")} /></label>
      <label>Trial: pause after <input type="number" min="1" placeholder="no trial" value=${values.trial ?? ""} onInput=${set("trial")} /></label>
      ${isSent && !one && html`<button type="button" onClick=${() => setValues({ ...values, trial: "10" })}>Try on ten</button>`}
      ${!isExport && html`<label><input type="checkbox" checked=${values.breakLocks === true} onChange=${(event) => setValues({ ...values, breakLocks: event.currentTarget.checked })} />Break locks of receivers</label>`}
      ${isSent && html`<label><input type="checkbox" checked=${values.newId === true} onChange=${(event) => setValues({ ...values, newId: event.currentTarget.checked })} />New message ids</label>`}
    </div>
    <${Problem} error=${error} />
    <${Unknown} error=${error}>the broker may have made the job. The page Jobs lists it.<//>
    <div class="tools"><button class="primary" disabled=${isBusy || isLoading}>${isBusy ? "Waiting for the broker…" : "Preview"}</button>
      <button type="button" disabled=${isBusy} onClick=${onClose}>Leave as it is</button></div>
  </form>`;
}

/** A job by its id: its preview, its progress, its result. */
export function JobPanel({ id }) {
  const key = `job ${id}`;
  const [live, setLive] = useState(true);
  const state = useResource(key, (signal) => get(`jobs/${encodeURIComponent(id)}`, {}, signal), { every: live ? LIVE_MS : 10_000 });
  const job = state.value;
  const close = () => setQuery({ job: "" });
  const seen = useRef("");
  const element = usePanel();
  useEffect(() => {
    if (!job) {
      return;
    }
    setLive(isLive(job) || isCompleting(job));
    if (seen.current !== job.state) {
      // A job that ends while it is shown has changed the lists of the page.
      if (seen.current !== "" && (isEnded(job) || job.state === "paused")) {
        refreshAll();
      }
      if (seen.current !== "" && job.state !== "running" && job.state !== "waiting") {
        announce(`The job is ${STATES[job.state]?.[2] ?? job.state}`);
      }
      seen.current = job.state;
    }
  }, [job]);
  // The lists are refreshed by this panel only.
  useEffect(() => () => {
    if (/^(waiting|running)$/.test(seen.current)) {
      refreshAll();
    }
  }, []);
  // The form that made the job is gone, so the focus comes here.
  useEffect(() => {
    if (fresh.id === id) {
      fresh.id = "";
      element.current?.focus();
    }
  }, [id]);
  return html`<section class="panel job" aria-label="Job" tabindex="-1" ref=${element}>
    ${job ? html`<${Job} job=${job} onClose=${close} reread=${state.refresh} keepFocus=${() => element.current?.focus({ preventScroll: true })} />` : html`<div class="beside-head"><h2>Job</h2><button type="button" onClick=${close}>Close</button></div>`}
    <${Problem} error=${state.error} onRetry=${state.refresh} />
    ${!job && !state.error && html`<p class="quiet">Reading…</p>`}
  </section>`;
}

function Job({ job, onClose, reread, keepFocus }) {
  const { verb, past, isHarm } = factsOf(job.deed);
  const { preview } = job;
  const { entity, kind, tab } = placeOf(job.path);
  const mayOperate = useMayOperate(entity);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const control = async (operation, body = {}) => {
    setBusy(true);
    setError(undefined);
    try {
      await change("POST", `jobs/${job.job}/${operation}`, body);
      // The button that was pressed goes.
      keepFocus();
      await reread();
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  const undo = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const { job: id } = await change("POST", `jobs/${job.job}/undo`, {});
      fresh.id = id;
      setQuery({ job: id });
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  const download = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const link = document.createElement("a");
      link.href = await downloadAddress(`jobs/${job.job}/export`);
      link.download = `${entity.split("/").at(-1)}.${job.deed.export?.form ?? "ndjson"}`;
      link.click();
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  const button = (operation, label, body = undefined, className = "") => html`<button type="button" key=${operation} class=${className} disabled=${isBusy} onClick=${() => control(operation, body)}>${label}</button>`;
  const count = preview?.count ?? 0;
  const isOpen = /^(waiting|running|paused)$/.test(job.state);
  return html`<div class="beside-head"><h2>${verb} messages of <a class="mono" href=${entityHref(kind, entity, tab)}><${Text} value=${job.path} max=${200} /></a> <${JobState} job=${job} /></h2>
      <button type="button" onClick=${onClose}>Close</button></div>
    ${details(job.deed).length > 0 && html`<p class="quiet">${details(job.deed).map(([name, value], place) => html`<span key=${name}>${place > 0 && ", "}${name} <span class="mono"><${Text} value=${value} max=${300} /></span></span>`)}</p>`}
    ${job.problem && html`<p class="notice"><${Text} value=${job.problem} max=${1000} /></p>`}
    ${job.state === "selecting" && html`<p>Selecting messages: ${number(job.tried)} until now. Nothing is changed.</p>`}
    ${preview && (job.state === "ready" || job.startedAtUtc === undefined) && html`<${Preview} job=${job} />`}
    ${(isOpen || (isEnded(job) && job.startedAtUtc)) && html`<${Progress} job=${job} past=${past} />`}
    <${Problem} error=${error} />
    <${Unknown} error=${error}>the broker may have done this. The state above is read again by itself.<//>
    ${
      mayOperate &&
      !isEnded(job) &&
      html`<div class="tools">
      ${job.state === "ready" && count > 0 && html`<${Start} key=${job.job} job=${job} entity=${entity} label=${`${verb} ${counted(count)}`} isHarm=${isHarm} isBusy=${isBusy} start=${() => control("start", { digest: preview.digest })} />`}
      ${/^(waiting|running)$/.test(job.state) && button("pause", "Pause")}
      ${job.state === "paused" && button("resume", "Resume", undefined, "primary")}
      ${button("cancel", job.state === "ready" || job.state === "selecting" ? "Leave as it is" : "Cancel the rest")}
    </div>`
    }
    ${mayOperate && job.undoUntilUtc && html`<div class="tools"><button type="button" disabled=${isBusy} onClick=${undo}>Undo ${counted(job.done)}</button><span class="quiet">possible for <${Left} until=${job.undoUntilUtc} /></span></div>`}
    ${job.exportBytes > 0 && html`<div class="tools"><button type="button" disabled=${isBusy} onClick=${download}>Download ${size(job.exportBytes)}</button><span class="quiet">The file is kept with the job, until newer exports need the room.</span></div>`}
    ${job.failed > 0 && html`<${Failures} key=${job.job} job=${job} mayOperate=${mayOperate} />`}
    <${Made} job=${job} />`;
}

const Left = ({ until }) => html`${span(Math.max(0, Date.parse(until) - useNow()))}`;

/** Result of the dry run. */
function Preview({ job }) {
  const { count, bytes, oldestUtc, newestUtc, cut, refused, reasons, samples, untilUtc } = job.preview;
  const time = useNow();
  const left = Date.parse(untilUtc) - time;
  const would = refused.reduce((sum, one) => sum + one.count, 0);
  return html`<p><strong>${counted(count)}</strong>${count > 0 ? html`, ${size(bytes)}, enqueued ${html`<${Age} at=${oldestUtc} />`}${oldestUtc === newestUtc ? "" : html` to <${Age} at=${newestUtc} />`} ago` : " meet the conditions"}.
      ${cut && html` <span class="look">More messages meet the conditions than one job takes; these are the ones with the lowest numbers.</span>`}</p>
    ${would > 0 && html`<ul class="plain-list look" aria-label="Messages that would stay">${refused.map((one) => html`<li key=${one.result}>${number(one.count)} would stay: ${RESULTS[one.result] ?? visible(one.result)}.</li>`)}</ul>`}
    ${reasons.some(({ reason }) => reason !== undefined) && html`<details><summary>Dead-letter reasons</summary><table class="plain"><thead><tr><th scope="col" class="right">Messages</th><th scope="col">Reason</th></tr></thead>
      <tbody>${reasons.map((one, place) => html`<tr key=${place}><td class="right">${number(one.count)}</td><td>${one.reason === undefined ? html`<span class="quiet">none</span>` : html`<${Text} value=${one.reason} max=${300} />`}</td></tr>`)}</tbody></table></details>`}
    ${/** @type {any} */ (Object.values(job.deed)[0])?.edit?.mergePatch !== undefined && html`<p class="quiet">The counts leave the merge patch out: only the samples try it. A message to which it does not apply stays, and is listed.</p>`}
    ${samples.length > 0 && html`<${Samples} key=${job.job} job=${job} /><p class="quiet">At most ${number(job.rate)} per second${job.trial ? `, and a pause after ${number(job.trial)}` : ""}${job.breakLocks ? ", locks are broken" : ""}.</p>`}
    ${job.state === "ready" && count > 0 && html`<p class=${job.preview.undoable || job.deed.export ? "quiet" : "look"}>${job.deed.export ? "It changes no message." : job.preview.undoable ? "It can be undone for 24 h after its end." : "It cannot be undone."}</p>`}
    ${job.state === "ready" && html`<p class="quiet">${left > 0 ? `Nothing is changed yet. The job can be started for ${span(left)}.` : "The time to start this job is over."}</p>`}`;
}

/** The first messages of a job as it would store them. */
function Samples({ job }) {
  const [isOpen, setOpen] = useState(false);
  const list = useResource(isOpen ? `samples ${job.job}` : undefined, (signal) => get(`jobs/${job.job}/samples`, {}, signal), { every: 0 });
  const samples = list.value?.samples ?? [];
  const { entity, kind, tab } = placeOf(job.path);
  const text = (value, max = 100) => value !== undefined && html`<${Text} value=${value} max=${max} />`;
  const row = ({ message, refused }) => html`<tr key=${message.sequenceNumber}><td class="right mono"><a href=${entityHref(kind, entity, tab, {}, message.sequenceNumber)}>${String(message.sequenceNumber)}</a></td>
      <td>${text(message.subject)}</td><td class="mono">${text(message.messageId)}</td>
      <td class="mono">${Object.entries(message.applicationProperties ?? {}).map(([name, value]) => html`<div key=${name}>${text(name)}: ${text(propertyText(value), 200)}</div>`)}</td>
      <td class="mono">${message.bodyStart === undefined ? size(message.bodySize) : text(message.bodyStart, 256)}</td>
      <td>${refused && html`<span class="look">${RESULTS[refused] ?? visible(refused)}</span>`}</td></tr>`;
  return html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>${/^(delete|export)$/.test(nameOf(job.deed)) ? "Samples" : "Samples as they would be stored"}</summary>
    <${Problem} error=${list.error} onRetry=${list.refresh} />
    ${list.value && samples.length === 0 && html`<p class="quiet">None of the first messages is there any more.</p>`}
    ${
      samples.length > 0 &&
      html`<div class="table-scroll small-scroll" role="region" tabindex="0" aria-label="Samples"><table class="plain"><thead><tr><th scope="col" class="right">Number</th><th scope="col">Subject</th><th scope="col">Message id</th><th scope="col">Properties</th><th scope="col">Body</th><th scope="col">Would stay</th></tr></thead>
        <tbody>${samples.map(row)}</tbody></table></div>`
    }
  </details>`;
}

/** The start. Deleting many messages wants the name of the entity. */
function Start({ job, entity, label, isHarm, isBusy, start }) {
  const isTyped = isHarm && !job.preview.undoable && job.preview.count > TYPED_OVER;
  const [typed, setTyped] = useState("");
  const submit = (event) => {
    event.preventDefault();
    start();
  };
  return html`<form class="tools" aria-label="Start of the job" onSubmit=${submit}>
    ${isTyped && html`<label class="confirm">Type <span class="mono"><${Text} value=${entity} max=${200} /></span> <input type="text" class="mono" autocomplete="off" spellcheck=${false} value=${typed} onInput=${(event) => setTyped(event.currentTarget.value)} /></label>`}
    <button class=${isHarm ? "harm" : "primary"} disabled=${isBusy || (isTyped && typed !== entity)}>${label}</button>
  </form>`;
}

function Progress({ job, past }) {
  const { tried, done, failed, preview } = job;
  const count = preview?.count ?? tried;
  // The rate of the last readings; a pause begins a new one.
  const readings = useRef(/** @type {{ state: string, tried: number, at: number }[]} */ ([]));
  if (readings.current.at(-1)?.tried !== tried || readings.current.at(-1)?.state !== job.state) {
    readings.current = [...readings.current.filter(({ state }) => state === job.state), { state: job.state, tried, at: Date.now() }].slice(-10);
  }
  const [first, last] = [readings.current[0], readings.current.at(-1)];
  const perSecond = last && last.at > first.at ? ((last.tried - first.tried) * 1000) / (last.at - first.at) : undefined;
  const left = job.state === "running" && perSecond ? ((count - tried) / perSecond) * 1000 : undefined;
  return html`<progress class="whole" aria-label="Progress of the job" max=${Math.max(1, count)} value=${tried}></progress>
    <p>${number(done)} of ${counted(count)} ${past}${failed > 0 ? html`, <span class="look">${number(failed)} left alone</span>` : ""}.
      ${job.state === "running" && html` <span class="quiet">${perSecond ? `About ${number(Math.round(perSecond))} per second` : `At most ${number(job.rate)} per second`}${left === undefined || left < 1000 ? "" : `, ${span(left)} left`}.</span>`}
      ${job.state === "paused" && job.trial !== undefined && tried <= job.trial && html` <span class="quiet">Look at the result of the trial, then resume or cancel.</span>`}</p>`;
}

/** Messages that stay, with their reasons. Their numbers can be the selection of a next job. */
function Failures({ job, mayOperate }) {
  const [isOpen, setOpen] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const list = useResource(isOpen ? `failures ${job.job}` : undefined, async (signal) => ({ ...(await get(`jobs/${job.job}/failures`, { top: NUMBERS_MAX }, signal)), failed: job.failed }), { every: 0 });
  const failures = list.value?.failures ?? [];
  useEffect(() => {
    if (list.value && list.value.failed !== job.failed && !list.isLoading) {
      void list.refresh();
    }
  }, [job.failed, list.value]);
  const { entity, kind, tab } = placeOf(job.path);
  const again = async () => {
    setError(undefined);
    try {
      const next = await change("POST", `${entityPath(kind, entity, tab)}/jobs`, {
        sequenceNumbers: failures.map(({ sequenceNumber }) => Number(sequenceNumber)), deed: job.deed, rate: job.rate, ...(job.breakLocks && { breakLocks: true }),
      });
      fresh.id = next.job;
      setQuery({ job: next.job });
    } catch (thrown) {
      setError(asApiError(thrown));
    }
  };
  return html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>${counted(job.failed)} left alone</summary>
    <${Problem} error=${list.error} onRetry=${list.refresh} />
    ${
      failures.length > 0 &&
      html`<div class="tools failures">
        <${Copy} what="numbers of these messages" text=${() => failures.map(({ sequenceNumber }) => String(sequenceNumber)).join("\n")} />
        ${mayOperate && isEnded(job) && !job.deed.putBack && html`<button type="button" onClick=${again}>Preview the same for these</button>`}
      </div>
      <${Problem} error=${error} />
      <${Unknown} error=${error}>the broker may have made the job. The page Jobs lists it.<//>
      <div class="table-scroll small-scroll" role="region" tabindex="0" aria-label="Messages that were left alone"><table class="plain"><thead><tr><th scope="col" class="right">Number</th><th scope="col">Reason</th></tr></thead>
        <tbody>${failures.slice(0, FAILURES_SHOWN).map(({ sequenceNumber, result }) => html`<tr key=${sequenceNumber}><td class="right mono"><a href=${entityHref(kind, entity, tab, {}, sequenceNumber)}>${String(sequenceNumber)}</a></td><td>${RESULTS[result] ?? visible(result)}</td></tr>`)}</tbody></table></div>
      ${list.value.total > FAILURES_SHOWN && html`<p class="quiet">The first ${number(Math.min(FAILURES_SHOWN, failures.length))} of ${number(list.value.total)}.</p>`}`
    }
  </details>`;
}

/** Instants of a job, and where its operator is recorded. */
const Made = ({ job }) => html`<${Facts} rows=${[
  ["Created", html`<${Moment} at=${job.createdAtUtc} />`],
  ["Started", job.startedAtUtc && html`<${Moment} at=${job.startedAtUtc} />`],
  ["Ended", job.endedAtUtc && html`<${Moment} at=${job.endedAtUtc} />`],
  ["Job", html`<span class="mono">${visible(job.job)}</span> <${Copy} text=${job.job} what="id of the job" />${mayManage() && html` <a href=${href(["audit"], { resource: job.path, operation: job.startedAtUtc ? "controlJob" : "createJob" })}>Who ${job.startedAtUtc ? "started" : "made"} it</a>`}`],
]} />`;

const column = (name) => (job) => html`<span class=${job[name] === 0 ? "zero" : ""}>${number(job[name])}</span>`;
const share = (job) => (job.preview?.count ? Math.floor((100 * job.tried) / job.preview.count) : undefined);

const columns = [
  { id: "entity", name: "Entity", width: 220, isWide: true, rank: 1, mono: true, cell: (job) => html`<${Text} value=${job.path} max=${200} />` },
  { id: "change", name: "Change", width: 118, rank: 1, cell: (job) => visible(factsOf(job.deed).verb) },
  { id: "state", name: "State", width: 124, rank: 2, cell: (job) => html`<${JobState} job=${job} />` },
  { id: "count", name: "Messages", width: 96, align: "right", rank: 3, cell: (job) => (job.preview ? number(job.preview.count) : "–") },
  { id: "share", name: "Tried", unit: "%", width: 84, align: "right", rank: 4, cell: (job) => (share(job) === undefined ? "–" : number(share(job))) },
  { id: "done", name: "Done", width: 84, align: "right", rank: 4, cell: column("done") },
  { id: "failed", name: "Left alone", width: 98, align: "right", rank: 5, cell: column("failed") },
  { id: "rate", name: "At most", unit: "1/s", width: 100, align: "right", rank: 8, cell: (job) => number(job.rate) },
  { id: "created", name: "Created", width: 92, align: "right", rank: 6, cell: (job) => html`<${Age} at=${job.createdAtUtc} />`, exact: (job) => exact(job.createdAtUtc, zone()) },
  { id: "problem", name: "Problem", width: 180, rank: 7, cell: (job) => job.problem && html`<${Text} value=${job.problem} max=${160} />` },
];

const SHOWN = [["", "All"], ["open", "Not ended"], ["ended", "Ended"]];

export function Jobs({ query }) {
  usePageTitle("Jobs");
  const [shown, selected] = ["state", "job"].map((name) => query.get(name) ?? "");
  const [live, setLive] = useState(false);
  const list = usePages("jobs", async (after, signal) => {
    const answer = await get("jobs", { top: 100, after }, signal);
    return { rows: answer.jobs, next: answer.next, total: answer.total };
  }, { every: live ? 2 * LIVE_MS : 10_000 });
  useEffect(() => setLive(list.rows.some((job) => isLive(job))), [list.rows]);
  const rows = shown === "" ? list.rows : list.rows.filter((job) => isEnded(job) === (shown === "ended"));
  return html`<div class="page fill">
    <h1>Jobs</h1>
    <div class="tools"><${Choice} label="Jobs" value=${shown} options=${SHOWN} onChange=${(value) => setQuery({ state: value })} /></div>
    <${Problem} error=${list.error} onRetry=${list.refresh} />
    ${selected && html`<${JobPanel} key=${selected} id=${selected} />`}
    <${Table} noun=${["job", "jobs"]} label="Jobs" columns=${columns} rows=${rows} total=${shown === "" ? list.total : undefined} keyOf=${(job) => job.job} scope=${`jobs ${shown}`}
      hrefOf=${(job) => href(["jobs"], { state: shown, job: job.job })} selected=${selected || undefined} hasMore=${list.hasMore} loadMore=${list.loadMore} isLoading=${list.isLoading && list.at === 0}
      empty=${list.error ? null : html`<${Empty} title=${shown === "" ? "No job" : "No such job"}><p>A job changes many messages: select some in a list, or search for them, and choose a change. It shows a preview first. Ended jobs stay here for 7 days.</p><//>`} />
  </div>`;
}
