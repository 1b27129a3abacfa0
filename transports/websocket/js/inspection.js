// Inspection: messages in any state, locks, sessions, clients, schedules and accepted messages (operation `inspect` of
// docs/reference/websocket.md). Nothing changes, not even the time of the last access (CON-01).

import { encodeMessage } from "./message.js";
import { encodeRule } from "./topics.js";
import { decodeProperties, fromBase64, instant } from "./value.js";

/** Reads the state of entities and of the namespace. Instants are text, as on the wire; `nowUtc` is the broker's clock. */
export class Inspection {
  #connection;

  constructor(connection) {
    this.#connection = connection;
  }

  /** Lists a page of messages without their bodies. `from` is a sequence number or an instant (CON-02). */
  async heads(path, { from, ...query } = {}) {
    const start = typeof from === "number" ? { from } : { fromUtc: from && instant(from) };
    return decodeHeads(await this.#ask("heads", path, { ...query, ...start }));
  }

  /** Reads a part of a body, at most 1 MiB (CON-03). */
  async body(path, sequenceNumber, { from, length } = {}) {
    const part = await this.#ask("body", path, { sequenceNumber, from, length });
    return { kind: part.bodyKind, size: part.bodySize, from: part.from, bytes: fromBase64(part.bodyBase64) };
  }

  /** Lists a page of locks with their holders (CON-25). */
  locks(path, query = {}) {
    return this.#ask("locks", path, query);
  }

  /** Lists a page of sessions with their counts and holders (CON-27). */
  sessions(path, { stateSetAfter, ...query } = {}) {
    return this.#ask("sessions", path, { ...query, stateSetAfterUtc: stateSetAfter && instant(stateSetAfter) });
  }

  /** Reads a part of the state of a session, at most 1 MiB; resolves to undefined if there is none (CON-27). */
  async sessionState(path, sessionId, { from, length } = {}) {
    const { stateSize, stateBase64, ...part } = await this.#ask("sessionState", path, { sessionId, from, length });
    return stateSize === undefined ? undefined : { size: stateSize, from: part.from, bytes: fromBase64(stateBase64) };
  }

  /** Counts messages by instant; without a path, of all entities (CON-28). */
  timeline(path = "", { from, ...query } = {}) {
    return this.#ask("timeline", path, { ...query, fromUtc: from && instant(from) });
  }

  /** Reads counts, gauges and times over time; without a path, of the namespace (CON-31). */
  series(path = "", { from, until, ...query } = {}) {
    return this.#ask("series", path, { ...query, fromUtc: from && instant(from), untilUtc: until && instant(until) });
  }

  /**
   * Reads the stations of a message, also after it is gone, by its number in the entity of `path`, or by its id; without
   * a path, in all entities (CON-29).
   */
  journey(path = "", { sequenceNumber, messageId } = {}) {
    return this.#ask("journey", path, { sequenceNumber, messageId });
  }

  /** Reads the last messages that a topic published, without their bodies (CON-36). */
  async samples(topic, { top } = {}) {
    const { samples, ...page } = await this.#ask("samples", topic, { top });
    return { ...page, samples: samples.map(decodeSample) };
  }

  /**
   * Explains all rules of a topic for a message that would be sent now, or for a stored one: by its number in the
   * entity of `path`, or without a path in the topic and its samples (CON-35).
   */
  async explain(topic, { message, sequenceNumber, path } = {}) {
    const asked = { message: message && encodeMessage(message), sequenceNumber, path };
    const explained = decodeSample(await this.#ask("explain", topic, asked, "explanation"));
    const decode = ({ copies, ...subscription }) => ({ ...subscription, copies: copies.map(decodeSample) });
    return { ...explained, subscriptions: explained.subscriptions.map(decode) };
  }

  /** Tries changes of the rules of a topic on its samples and on messages of its subscriptions (CON-37). */
  async whatIf(topic, changes, { messageCount, top } = {}) {
    const encoded = changes.map(({ rule, ...change }) => ({ ...change, rule: rule && encodeRule(rule) }));
    const found = await this.#ask("whatIf", topic, { changes: encoded, messageCount, top });
    const decode = ({ sample, ...difference }) => ({ ...difference, sample: decodeSample(sample) });
    return { ...found, differences: found.differences.map(decode) };
  }

  /** Lists a page of entities with their counts and rates (CON-04). */
  entities(query = {}) {
    return this.#ask("entities", "", query);
  }

  /** Reads entities and their destinations as nodes and edges, whole or near an entity (CON-38). */
  topology(query = {}) {
    return this.#ask("topology", "", query);
  }

  /** Reads the findings of the last check, the most urgent first (CON-39). */
  checks(query = {}) {
    return this.#ask("checks", "", query);
  }

  /** Lists a page of connected clients with their links (CON-24). */
  clients(query = {}) {
    return this.#ask("clients", "", query);
  }

  /**
   * Reads a page of the audit trail, newest first. `lines` are its lines as text, over which their hashes are made; parse
   * each as JSON (CON-23). Needs the right Manage of the namespace.
   */
  audit({ since, until, ...query } = {}) {
    return this.#ask("audit", "", { ...query, since: since && instant(since), until: until && instant(until) });
  }

  /** Lists a page of jobs on entities that you may read, newest first (CON-19). */
  jobs(query = {}) {
    return this.#jobs("jobs", { list: query });
  }

  /** Reads a job with its progress (CON-19). */
  job(job) {
    return this.#jobs("job", { one: { job } });
  }

  /** Reads the first messages of a job as its deed would store them (CON-14). */
  async jobSamples(job) {
    const { samples, ...page } = await this.#jobs("jobSamples", { samples: { job } });
    return { samples: samples.map(({ message, ...sample }) => ({ message: decodeHead(message), ...sample })), ...page };
  }

  /** Lists messages of a job whose deed was not done (CON-19). */
  jobFailures(job, query = {}) {
    return this.#jobs("jobFailures", { failures: { job, ...query } });
  }

  /** Reads a part of the file that an ended job has exported, at most 256 KiB (CON-22). */
  async jobExport(job, { from, length } = {}) {
    const part = await this.#jobs("jobExport", { export: { job, from, length } });
    return { size: part.size, from: part.from, bytes: fromBase64(part.contentBase64) };
  }

  /** Opens a tap on the messages that an entity accepts from now on; resolves when it is open (CON-34). */
  async tap(path) {
    const read = (tap) => this.#ask("tap", path, { tap });
    return new Tap(read, (await read()).tap);
  }

  /**
   * Searches messages, and yields pages with hits and progress; the last one has `end` (CON-05 to CON-11). Leave the loop
   * to end the search. Aborting `signal` ends it too, and rejects.
   */
  async *search({ signal, ...query } = {}) {
    let step = { begin: query };
    for (;;) {
      signal?.throwIfAborted();
      const { search, hits, ...page } = await this.#ask("search", "", step);
      signal?.throwIfAborted();
      yield { hits: hits.map(decodeHead), ...page };
      if (page.end) {
        return;
      }
      step = { continue: search };
    }
  }

  async #jobs(kind, query) {
    const { findings } = await this.#connection.request("inspect", { path: "", question: { jobs: query } });
    return findings[kind];
  }

  async #ask(kind, path, query, answer = kind) {
    const { findings } = await this.#connection.request("inspect", { path, question: { [kind]: query } });
    return findings[answer];
  }
}

/** Heads of messages as an entity accepts them. It takes none. The broker ends a tap that is not read for 10 s. */
export class Tap {
  #read;
  #number;

  constructor(read, number) {
    this.#read = read;
    this.#number = number;
  }

  /**
   * Waits up to a second for messages; without any, `heads` is empty. `omitted` counts messages that are not shown. With
   * `isReopened` the tap had ended, and messages before that are neither shown nor counted.
   */
  async read() {
    const { tap, heads, omitted } = decodeHeads(await this.#read(this.#number));
    const isReopened = tap !== this.#number;
    this.#number = tap;
    return { heads, omitted, isReopened };
  }

  /** Yields each page that has news. Leave the loop to end. */
  async *[Symbol.asyncIterator]() {
    for (;;) {
      const page = await this.read();
      if (page.heads.length > 0 || page.omitted > 0 || page.isReopened) {
        yield page;
      }
    }
  }
}

const decodeHeads = ({ heads, ...page }) => ({ ...page, heads: heads.map(decodeHead) });

const decodeHead = ({ bodyStartBase64, applicationProperties, ...head }) => ({
  ...head,
  ...(bodyStartBase64 === undefined ? {} : { bodyStart: fromBase64(bodyStartBase64) }),
  applicationProperties: decodeProperties(applicationProperties),
});

/** Decodes the message of an object, which has no body. */
const decodeSample = ({ message: { body, applicationProperties, ...message }, ...sample }) => ({
  ...sample,
  message: { ...message, applicationProperties: decodeProperties(applicationProperties) },
});
