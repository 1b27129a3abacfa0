// Types of the client of Peeklock; see README.md beside this file.

/** Options of a connection. */
export interface ConnectOptions {
  /** The token, or what gives one: at each connect, and before the last one ends if it has a field `se`. */
  token?: string | (() => string | Promise<string>);
  /** In place of a token: what tokens are signed with, where the broker is reached by another URL than it says. */
  connectionString?: string;
  /** How long a token is good that is signed with a connection string. Default: 3600. */
  tokenSeconds?: number;
  /** A name for the broker's log. */
  client?: string;
  /** Seconds for which the broker keeps a lost connection, at most its setting `websocket.grace`; 0: none. Default: 30. */
  graceSeconds?: number;
  /** A shorter heartbeat than the broker's. */
  heartbeatSeconds?: number;
  /**
   * The first attempt that fails after this time rejects `connect`. Default: 15. If each attempt fails at once, that is after
   * 15 to 35 s with the default pauses; an attempt without an answer fails after at most 10 s.
   */
  connectSeconds?: number;
  /** How long requests wait for a lost connection. Default: 60; not less than graceSeconds. */
  offlineSeconds?: number;
  /** The first pause between attempts, and the longest; a random half of each is left out. Default: 200, 20000. */
  reconnectMs?: number;
  reconnectMaxMs?: number;
  /** Requests that may wait for their answers; further ones are refused with ServerBusy. Default: 16384. */
  requestCountMax?: number;
  /** Characters of all of them. Default: 16777216. */
  bufferSizeMax?: number;
  /** A constructor like the WebSocket of browsers, where there is none. */
  WebSocket?: WebSocketConstructor;
}

/** A connection string, as `peeklock connection-string` prints it. Throws ArgumentError for what is none. */
export class ConnectionString {
  constructor(text: string);
  /** Where the broker is: `wss://HOST:PORT/`, or `ws://` with `UseDevelopmentEmulator=true`; port 5301 unless said. */
  readonly url: string;
  readonly policy: string | undefined;
  readonly entityPath: string | undefined;
  /** Whether it can sign another token when one has ended. */
  readonly renews: boolean;
  /** A token that is good until an instant in milliseconds since 1970. */
  token(untilMs: number): Promise<string>;
  /** Throws ArgumentError for another entity than its own. */
  checkEntity(path: string): void;
}

/** What is used of a WebSocket. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => {
  readonly readyState: number;
  send(text: string): void;
  close(code?: number): void;
};

/** `connecting` before the first welcome, `lost` while the client connects again, `closed` at the end. */
export type ConnectionState = "connecting" | "open" | "lost" | "closed";

/** Of the event `state`. */
export interface StateDetail {
  readonly state: ConnectionState;
  /** Of `open`: whether everything goes on, or a new session has begun. */
  readonly resumed?: boolean;
  /** Of `lost`: the close code and its reason. */
  readonly code?: number;
  readonly reason?: string;
  /** Of `closed`: why, if the caller did not close it. */
  readonly error?: PeeklockError;
}

export interface ConnectionEvents {
  state: CustomEvent<StateDetail>;
  /** The broker is being stopped; what is in hand can be settled for so long. */
  closing: CustomEvent<{ readonly seconds: number }>;
  /** Something went wrong that no caller waits for. */
  problem: CustomEvent<PeeklockError>;
}

/** What the broker said. */
export interface Welcome {
  readonly resumed: boolean;
  readonly graceSeconds: number;
  readonly heartbeatSeconds: number;
  readonly nowUtc: string;
  readonly namespace: string;
  readonly server: string;
  readonly frameBytesMax: number;
  readonly commandCountMax: number;
  readonly linkCountMax: number;
  readonly unsettledCountMax: number;
}

/** Opens a connection; rejects with the first attempt that fails after `connectSeconds`, or at once if the broker refuses. */
export function connect(url: string | URL, options?: ConnectOptions): Promise<Connection>;

/** One connection to the broker, over as many sockets as it takes. */
export class Connection {
  constructor(url: string | URL, options?: ConnectOptions);
  /** Resolves at the first welcome. */
  readonly ready: Promise<Connection>;
  readonly state: ConnectionState;
  /** Why it is closed, if the caller did not close it. */
  readonly error: PeeklockError | undefined;
  readonly welcome: Welcome | undefined;
  /** Counts the times that the broker began anew; locks of an earlier session are gone. */
  readonly session: number;
  readonly queues: Queues;
  readonly topics: Topics;
  readonly declarations: Declarations;
  sender(path: string, options?: SenderOptions): Sender;
  /** `path` may be a sub-queue: `orders/$deadletterqueue`. */
  receiver(path: string, options?: ReceiverOptions): Receiver;
  /** Locks a session of a queue, also one that has no message yet. */
  acceptSession(path: string, sessionId: string, options?: AcceptOptions): Promise<SessionReceiver>;
  /** Locks the session with the oldest available message, or waits for one: `waitSeconds`, by default 60. */
  acceptNextSession(path: string, options?: AcceptOptions & { waitSeconds?: number }): Promise<SessionReceiver>;
  /** Sends and settlements that take effect together or not at all. */
  beginTransaction(options?: TransactionOptions): Promise<Transaction>;
  authenticate(token: string | (() => string | Promise<string>)): Promise<void>;
  /** The broker's clock in milliseconds since 1970. */
  brokerNow(): number;
  /**
   * Closes the receivers, waits for answers, and ends the connection cleanly. Waits at most `seconds` (default: 5) for each.
   * Messages in hand stay locked until their locks expire.
   */
  close(options?: { seconds?: number }): Promise<void>;
  addEventListener<K extends keyof ConnectionEvents>(
    type: K,
    listener: (event: ConnectionEvents[K]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof ConnectionEvents>(
    type: K,
    listener: (event: ConnectionEvents[K]) => void,
    options?: boolean | EventListenerOptions,
  ): void;
}

/** A refusal or failure, by a name of the error catalogue. */
export class PeeklockError extends Error {
  constructor(
    condition: Condition,
    detail: string,
    more?: {
      retryable?: boolean;
      trackingId?: string;
      entity?: string;
      timestamp?: string;
      closeCode?: number;
      cause?: unknown;
    },
  );
  readonly condition: Condition;
  /** For people; not stable. */
  readonly detail: string;
  /** Whether the same request can succeed later. */
  readonly retryable: boolean;
  /** Under which the broker has logged it; absent if this client raised it. */
  readonly trackingId: string | undefined;
  readonly entity: string | undefined;
  readonly timestamp: string | undefined;
  /** The code with which the socket was closed. */
  readonly closeCode: number | undefined;
}

/** The names of docs/spec/19-errors.md that can occur here; later brokers may have more. */
export type Condition =
  | "ArgumentError"
  | "ArgumentOutOfRange"
  | "InvalidOperation"
  | "NotImplemented"
  | "Unauthorized"
  | "EntityNotFound"
  | "EntityAlreadyExists"
  | "EntityDisabled"
  | "QuotaExceeded"
  | "MessageSizeExceeded"
  | "MessageLockLost"
  | "MessageNotFound"
  | "SessionCannotBeLocked"
  | "SessionLockLost"
  | "ServiceTimeout"
  | "ServerBusy"
  | "TransactionTimedOut"
  | "TransactionUnknown"
  | "TransactionRolledBack"
  | "UpdateConflict"
  | "OperationCancelled"
  | "CommunicationProblem"
  | "InternalError"
  | (string & {});

/** Types of application properties. */
export type PropertyType =
  | "null" | "bool" | "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "f32" | "f64"
  | "decimal128" | "char" | "string" | "uuid" | "timestamp" | "binary" | "uri" | "dateTimeOffset" | "timeSpan";

/** A value with its type by name, where JavaScript has no type of its own for it. */
export class TypedValue {
  constructor(type: PropertyType, value: string | number | bigint | boolean | null);
  readonly type: PropertyType;
  readonly value: string | number | bigint | boolean | null;
}

/** `typed("i32", 5)` */
export function typed(type: PropertyType, value: string | number | bigint | boolean | null): TypedValue;

/**
 * number: whole and safe is i64, else f64; bigint: i64, or u64 above it; Date: timestamp; Uint8Array: binary.
 * A received i64 beyond 2^53 is a bigint; what has no type in JavaScript is a TypedValue.
 */
export type PropertyValue = string | boolean | null | number | bigint | Date | Uint8Array | TypedValue;
export type Properties = { readonly [name: string]: PropertyValue };
export type Bytes = ArrayBufferView | ArrayBuffer;

/** A message to be sent. */
export interface Message {
  body?: string | Bytes;
  messageId?: string;
  sessionId?: string;
  partitionKey?: string;
  transactionPartitionKey?: string;
  replyToSessionId?: string;
  correlationId?: string;
  contentType?: string;
  subject?: string;
  to?: string;
  replyTo?: string;
  /** Seconds, or ISO 8601 such as `PT10M`. */
  timeToLive?: number | string;
  scheduledEnqueueTimeUtc?: Date | string;
  forcePersistence?: boolean;
  applicationProperties?: Properties | ReadonlyMap<string, PropertyValue>;
}

/** A message, or only its body. A received one may be sent on. */
export type Sendable = string | Bytes | Message | ReceivedMessage;

/** A message that was received or looked at. */
export class ReceivedMessage {
  private constructor();
  /** Text if it is UTF-8, else bytes. */
  readonly body: string | Uint8Array;
  /** The body if it is text. */
  readonly text: string | undefined;
  readonly bytes: Uint8Array;
  json(): unknown;
  readonly messageId: string | undefined;
  readonly sessionId: string | undefined;
  readonly partitionKey: string | undefined;
  readonly transactionPartitionKey: string | undefined;
  readonly replyToSessionId: string | undefined;
  readonly correlationId: string | undefined;
  readonly contentType: string | undefined;
  readonly subject: string | undefined;
  readonly to: string | undefined;
  readonly replyTo: string | undefined;
  /** ISO 8601. */
  readonly timeToLive: string | undefined;
  readonly scheduledEnqueueTimeUtc: Date | undefined;
  /** Without prototype, whatever the names are. */
  readonly applicationProperties: Properties;
  readonly sequenceNumber: number;
  readonly enqueuedSequenceNumber: number;
  readonly enqueuedTimeUtc: Date;
  readonly expiresAtUtc: Date | undefined;
  readonly deliveryCount: number;
  readonly state: "Active" | "Deferred" | "Scheduled" | "Delayed";
  /** Until when nobody gets it, if it is delayed. */
  readonly delayedUntilUtc?: Date;
  readonly size: number;
  /** The queue or subscription in which it was dead-lettered before it was forwarded here. */
  readonly deadLetterSource: string | undefined;
  /** Only under a lock. */
  readonly lockToken: string | undefined;
  /** Follows renewals. */
  readonly lockedUntilUtc: Date | undefined;
  /** By the broker's clock. */
  readonly lockRemainingMs: number;
  /** The decision that the broker has confirmed. */
  readonly settled: Decision | undefined;
  complete(): Promise<void>;
  abandon(options?: AbandonOptions): Promise<void>;
  defer(options?: ModifyOptions): Promise<void>;
  deadLetter(options?: SettleOptions): Promise<void>;
  /** Gives it back without counting a failed delivery. */
  release(): Promise<void>;
  /** Resolves to the new end of the lock. */
  renew(): Promise<Date>;
  /** Renews as often as needed until the function that it returns is called, or the message is settled. */
  keepLocked(options?: { maxSeconds?: number; onLost?: (error: PeeklockError) => void }): () => void;
}

export type Decision = "complete" | "abandon" | "defer" | "deadLetter" | "release";

export interface ModifyOptions {
  /** Application properties to set. */
  properties?: Properties | ReadonlyMap<string, PropertyValue>;
}

export interface AbandonOptions extends ModifyOptions {
  /** For how long nobody gets it, at most 7 days; 0 for not at all, and by default as the retry policy says. */
  delayMilliseconds?: number;
}

/** `reason` and `description` go with deadLetter only. */
export interface SettleOptions extends ModifyOptions {
  reason?: string;
  description?: string;
}

export interface SenderOptions {
  /** Requests under way at once; further ones wait for their turn. Default: 1024. */
  inFlightMax?: number;
}

/** Sends to one queue. Every promise must be looked at: a send without an answer is not known to be stored. */
export class Sender {
  private constructor();
  readonly path: string;
  /** Resolves to the sequence number; 0 for a duplicate that was dropped. */
  send(message: Sendable): Promise<number>;
  /** Each by itself. */
  sendEach(messages: Iterable<Sendable>): Promise<SendOutcome[]>;
  /** All or none. */
  sendBatch(messages: Iterable<Sendable>): Promise<number[]>;
  /** Resolves to the number that serves to cancel it. */
  schedule(message: Sendable, at: Date | string): Promise<number>;
  /** All or none. */
  cancelScheduled(...sequenceNumbers: (number | number[])[]): Promise<void>;
  close(): Promise<void>;
}

export type SendOutcome =
  | { readonly sequenceNumber: number; readonly error?: undefined }
  | { readonly sequenceNumber?: undefined; readonly error: PeeklockError };

export interface AcceptOptions extends ReceiverOptions {
  /** Ends an accept that waits; what was granted in spite of it is given back. */
  signal?: AbortSignal;
}

export interface ReceiverOptions {
  /** Default: peekLock. */
  mode?: "peekLock" | "receiveAndDelete";
  /** Messages that are requested in advance, in addition to one per waiting call. Default: 0. */
  prefetch?: number;
}

export interface SubscribeOptions {
  /** Handlers at once. Default: 1. */
  concurrency?: number;
  /** Complete when the handler returns. Default: true. */
  autoComplete?: boolean;
  /** Renew locks while handlers run, for at most `maxRenewSeconds` each. Default: true, 300. */
  autoRenew?: boolean;
  maxRenewSeconds?: number;
  /** What handlers throw, what settling them refuses; without a message: the end of the subscription. */
  onError?: (error: unknown, message: ReceivedMessage | undefined) => void;
}

/** Handlers at work on one receiver. */
export interface Consumer {
  /** Takes no more and waits for the handlers. */
  stop(): Promise<void>;
  /** Resolves after stop; rejects when the queue delivers no more. */
  readonly done: Promise<void>;
}

/** Receives from one queue or sub-queue. */
export class Receiver implements AsyncIterable<ReceivedMessage> {
  protected constructor();
  readonly path: string;
  readonly mode: "peekLock" | "receiveAndDelete";
  [Symbol.asyncIterator](): AsyncGenerator<ReceivedMessage, void, void>;
  /** Messages as they come. */
  messages(options?: { signal?: AbortSignal }): AsyncGenerator<ReceivedMessage, void, void>;
  /** Calls a handler for each message. */
  subscribe(handler: (message: ReceivedMessage) => unknown, options?: SubscribeOptions): Consumer;
  /** What is there, or comes within `waitSeconds` (default 60), at most `maxCount` (default 1). */
  receive(options?: { maxCount?: number; waitSeconds?: number; signal?: AbortSignal }): Promise<ReceivedMessage[]>;
  /** Deferred messages by sequence number, all or none. */
  receiveDeferred(...sequenceNumbers: (number | number[])[]): Promise<ReceivedMessage[]>;
  /** Messages without locks, from `from` or after the last peeked one; at most `maxCount` (default 100). */
  peek(options?: { from?: number; maxCount?: number }): Promise<ReceivedMessage[]>;
  /** Each by itself: undefined or the error at the place of each. */
  settle(
    messages: Iterable<ReceivedMessage>,
    decision: Decision,
    options?: SettleOptions & AbandonOptions,
  ): Promise<(PeeklockError | undefined)[]>;
  renew(messages: Iterable<ReceivedMessage>): Promise<(PeeklockError | undefined)[]>;
  /** Deletes up to `maxCount` available messages, the oldest first; resolves to their count. */
  deleteBatch(options?: { maxCount?: number; enqueuedBefore?: Date | string }): Promise<number>;
  /** Deletes all available messages; resolves to their count. */
  purge(options?: { enqueuedBefore?: Date | string }): Promise<number>;
  /** Deletes a deferred message; needs the right Manage. */
  deleteDeferred(sequenceNumber: number): Promise<void>;
  /** Ends loops and subscriptions, and releases prefetched messages, also those on their way. */
  close(): Promise<void>;
}

/**
 * Holds one session: its messages come in order, under one lock. When that has ended, or a new session of
 * the connection has begun, everything fails with SessionLockLost.
 */
export class SessionReceiver extends Receiver {
  readonly sessionId: string;
  /** Follows renewals, and so does that of the messages. */
  readonly lockedUntilUtc: Date;
  /** By the broker's clock. */
  readonly lockRemainingMs: number;
  /** Resolves to the new end of the session lock. */
  renewSession(): Promise<Date>;
  /** Renews as often as needed until the function that it returns is called, or the session is closed. */
  keepSession(options?: { onLost?: (error: PeeklockError) => void }): () => void;
  /** Text if it is UTF-8, else bytes; undefined if there is none. */
  getState(): Promise<string | Uint8Array | undefined>;
  /** null clears it. It stays for the next holder. */
  setState(state: string | Bytes | null): Promise<void>;
  /** Gives the session back; what is not settled does not count as delivered. */
  close(): Promise<void>;
}

export interface TransactionOptions {
  /** Send also to other queues and topics than the first one used, by way of that one. Default: false. */
  crossEntity?: boolean;
}

/**
 * Operations of one queue with its dead-letter queues, or of a topic with one of its subscriptions. One that is refused
 * rejects and is left out. Two minutes after the first it is rolled back (TransactionTimedOut), and so it is at the end
 * of the connection.
 */
export class Transaction {
  private constructor();
  /** The commit tells its number. */
  send(sender: Sender, message: Sendable): Promise<void>;
  sendBatch(sender: Sender, messages: Iterable<Sendable>): Promise<void>;
  schedule(sender: Sender, message: Sendable, at: Date | string): Promise<void>;
  complete(message: ReceivedMessage): Promise<void>;
  abandon(message: ReceivedMessage, options?: AbandonOptions): Promise<void>;
  defer(message: ReceivedMessage, options?: ModifyOptions): Promise<void>;
  deadLetter(message: ReceivedMessage, options?: SettleOptions): Promise<void>;
  /** Extends the lock from the commit on; `message.renew()` does it at once. */
  renew(message: ReceivedMessage): Promise<void>;
  /** All or none. */
  cancelScheduled(sender: Sender, ...sequenceNumbers: (number | number[])[]): Promise<void>;
  /** null clears it. */
  setState(session: SessionReceiver, state: string | Bytes | null): Promise<void>;
  /** Carries everything out as one; when it rejects with another condition than CommunicationProblem or InternalError, nothing was done. */
  commit(): Promise<Committed>;
  /** Ends it as if nothing of it had been; does nothing if it has ended. */
  rollBack(): Promise<void>;
}

/** What a commit has done. */
export interface Committed {
  /** For each operation, in their order. */
  readonly parts: CommittedPart[];
  /** Of all messages that were sent, without those for other entities. */
  readonly sequenceNumbers: number[];
}

export interface CommittedPart {
  readonly sequenceNumbers: number[];
  /** Under which messages wait to be transferred to another entity. */
  readonly pendingNumbers: number[];
  /** Of a lock that was renewed. */
  readonly lockedUntilUtc: Date | undefined;
}

/** After which delay a message comes again whose delivery has failed; durations are ISO 8601 such as `PT30S`. */
export interface RetryPolicy {
  kind: "fixed" | "linear" | "exponential";
  delay: string;
  delayMax?: string;
  /** By which part of it a delay is shortened at random, at most: 0 to 1. */
  jitter?: number;
}

/** What can be set; durations are ISO 8601 such as `PT30S`. */
export interface QueueProperties {
  lockDuration?: string;
  maxSizeInMegabytes?: number;
  requiresDuplicateDetection?: boolean;
  duplicateDetectionHistoryTimeWindow?: string;
  requiresSession?: boolean;
  defaultMessageTimeToLive?: string;
  deadLetteringOnMessageExpiration?: boolean;
  maxDeliveryCount?: number;
  enableBatchedOperations?: boolean;
  status?: "Active" | "Disabled" | "SendDisabled" | "ReceiveDisabled";
  forwardTo?: string | null;
  forwardDeadLetteredMessagesTo?: string | null;
  autoDeleteOnIdle?: string;
  enablePartitioning?: boolean;
  enableExpress?: boolean;
  maxMessageSizeInKilobytes?: number;
  userMetadata?: string | null;
  retryPolicy?: RetryPolicy | null;
  /** Whether a session waits for its delayed messages. */
  sessionRetryOrder?: "hold" | "pass";
}

/** A queue with its counts. */
export interface Queue extends Required<Omit<QueueProperties, "retryPolicy" | "sessionRetryOrder">> {
  /** Left out if there is none. */
  retryPolicy?: RetryPolicy;
  /** Left out if it is `hold`. */
  sessionRetryOrder?: "pass";
  path: string;
  runtime: {
    /** Locked ones included. */
    activeMessageCount: number;
    /** Of the active ones, those that are delayed; left out if there are none. */
    delayedMessageCount?: number;
    deferredMessageCount: number;
    scheduledMessageCount: number;
    deadLetterMessageCount: number;
    transferMessageCount: number;
    transferDeadLetterMessageCount: number;
    totalMessageCount: number;
    sizeInBytes: number;
    /** Of a queue that requires sessions: those that exist, and those that a receiver holds. */
    sessionCount?: number;
    lockedSessionCount?: number;
    createdAt: string;
    updatedAt: string;
    accessedAt: string;
  };
}

/** Management of queues. */
export class Queues {
  private constructor();
  create(path: string, properties?: QueueProperties): Promise<Queue>;
  get(path: string): Promise<Queue>;
  exists(path: string): Promise<boolean>;
  /** `version`: the `updatedAt` it is based on; a later one gives UpdateConflict. */
  update(path: string, properties: QueueProperties, options?: { version?: string }): Promise<Queue>;
  /** With all its messages. */
  delete(path: string): Promise<void>;
  /** A page of them: ask on with `skip` until none come. */
  list(options?: { skip?: number; top?: number }): Promise<Queue[]>;
  /** Ids of sessions in ascending order; one of `withActiveMessages` and `stateSetAfter`, or neither. */
  sessions(
    path: string,
    options?: { withActiveMessages?: boolean; stateSetAfter?: Date | string; skip?: number; top?: number },
  ): Promise<string[]>;
  /** Removes available messages of all sessions that nobody holds. */
  deleteUnlocked(path: string, options?: { maxCount?: number; enqueuedBefore?: Date | string }): Promise<number>;
}

/** On update an absent property keeps its value; `null` clears `userMetadata`. */
export interface TopicProperties {
  maxSizeInMegabytes?: number;
  requiresDuplicateDetection?: boolean;
  duplicateDetectionHistoryTimeWindow?: string;
  defaultMessageTimeToLive?: string;
  enableBatchedOperations?: boolean;
  status?: "Active" | "Disabled" | "SendDisabled";
  autoDeleteOnIdle?: string;
  enablePartitioning?: boolean;
  enableExpress?: boolean;
  supportOrdering?: boolean;
  maxMessageSizeInKilobytes?: number;
  userMetadata?: string | null;
}

export interface Topic extends Required<TopicProperties> {
  path: string;
  runtime: {
    subscriptionCount: number;
    /** Rules of its subscriptions whose filter is in SQL. */
    sqlFilterCount: number;
    /** Their other rules. */
    correlationFilterCount: number;
    scheduledMessageCount: number;
    /** Sent by way of the topic, and not at their destination yet. */
    transferMessageCount: number;
    /** Sent by way of the topic, and cannot go on. */
    transferDeadLetterMessageCount: number;
    sizeInBytes: number;
    lastSequenceNumber: number;
    createdAt: string;
    updatedAt: string;
    accessedAt: string;
  };
}

/** On update an absent property keeps its value; `null` clears the two of forwarding, `userMetadata` and `retryPolicy`. */
export interface SubscriptionProperties {
  lockDuration?: string;
  requiresSession?: boolean;
  defaultMessageTimeToLive?: string;
  deadLetteringOnMessageExpiration?: boolean;
  enableDeadLetteringOnFilterEvaluationExceptions?: boolean;
  maxDeliveryCount?: number;
  enableBatchedOperations?: boolean;
  status?: "Active" | "Disabled" | "ReceiveDisabled";
  forwardTo?: string | null;
  forwardDeadLetteredMessagesTo?: string | null;
  autoDeleteOnIdle?: string;
  userMetadata?: string | null;
  /** Gets only those messages that no other subscription of its topic selects. */
  catchAll?: boolean;
  retryPolicy?: RetryPolicy | null;
  /** Whether a session waits for its delayed messages. */
  sessionRetryOrder?: "hold" | "pass";
}

export interface Subscription
  extends Required<Omit<SubscriptionProperties, "catchAll" | "retryPolicy" | "sessionRetryOrder">> {
  /** Left out if there is none. */
  retryPolicy?: RetryPolicy;
  /** Left out if it is `hold`. */
  sessionRetryOrder?: "pass";
  /** Left out if it is none. */
  catchAll?: boolean;
  path: string;
  topic: string;
  name: string;
  runtime: {
    activeMessageCount: number;
    /** Of the active ones, those that are delayed; left out if there are none. */
    delayedMessageCount?: number;
    deferredMessageCount: number;
    deadLetterMessageCount: number;
    transferMessageCount: number;
    transferDeadLetterMessageCount: number;
    totalMessageCount: number;
    sizeInBytes: number;
    lastSequenceNumber: number;
    /** Of a subscription that requires sessions. */
    sessionCount?: number;
    lockedSessionCount?: number;
    createdAt: string;
    updatedAt: string;
    accessedAt: string;
  };
}

/** An SQL text with the values of its parameters, `@` before their names or not. */
export interface SqlText {
  sql: string;
  parameters?: Record<string, PropertyValue>;
}

/** What a rule selects. */
export type Filter =
  | { type: "true" }
  | { type: "false" }
  | ({ type: "sql" } & SqlText)
  | {
      type: "correlation";
      correlationId?: string;
      messageId?: string;
      to?: string;
      replyTo?: string;
      subject?: string;
      sessionId?: string;
      replyToSessionId?: string;
      contentType?: string;
      /** Application properties. */
      properties?: Record<string, PropertyValue>;
    };

export interface NewRule {
  name: string;
  /** Without it, every message is selected. */
  filter?: Filter;
  /** Changes what is selected. */
  action?: SqlText;
}

export interface Rule extends NewRule {
  filter: Filter;
  createdAt: string;
}

/** What a rule would make of a message, and why. */
export interface Explanation {
  rule: string;
  verdict: "matches" | "doesNotMatch" | "unknown" | "filterFailed" | "actionFailed" | "notAsked";
  error?: string;
  /** With `notAsked`: the subscription that selects the message, for which a catch-all was not asked. */
  selectedBy?: string;
  /** `null` is unknown: something is not there. */
  tests: { text: string; operands: string[]; result: boolean | null }[];
  reads: { name: string; value: string | null }[];
  changes: string[];
}

/** The path from which a subscription is received. */
export function subscriptionPath(topic: string, name: string): string;

/** Management of topics, subscriptions and rules. Subscriptions are named by their path. */
export class Topics {
  private constructor();
  create(path: string, properties?: TopicProperties): Promise<Topic>;
  get(path: string): Promise<Topic>;
  exists(path: string): Promise<boolean>;
  update(path: string, properties: TopicProperties, options?: { version?: string }): Promise<Topic>;
  /** With its subscriptions and all their messages. */
  delete(path: string): Promise<void>;
  /** A page of them: ask on with `skip` until none come. */
  list(options?: { skip?: number; top?: number }): Promise<Topic[]>;
  /** Without rules it gets every message; if one is invalid, nothing is created. */
  createSubscription(
    topic: string,
    name: string,
    options?: { properties?: SubscriptionProperties; rules?: NewRule[] },
  ): Promise<Subscription>;
  getSubscription(path: string): Promise<Subscription>;
  subscriptionExists(path: string): Promise<boolean>;
  updateSubscription(
    path: string,
    properties: SubscriptionProperties,
    options?: { version?: string },
  ): Promise<Subscription>;
  deleteSubscription(path: string): Promise<void>;
  /** A page of them: ask on with `skip` until none come. */
  listSubscriptions(topic: string, options?: { skip?: number; top?: number }): Promise<Subscription[]>;
  createRule(path: string, rule: NewRule): Promise<Rule>;
  getRule(path: string, name: string): Promise<Rule>;
  updateRule(path: string, rule: NewRule): Promise<Rule>;
  deleteRule(path: string, name: string): Promise<void>;
  listRules(path: string, options?: { skip?: number; top?: number }): Promise<Rule[]>;
  explain(path: string, message: Sendable): Promise<Explanation[]>;
}

/** Entities as they shall be. What it does not name stays as it is. */
export interface Declaration {
  queues?: { path: string; properties?: QueueProperties }[];
  topics?: {
    path: string;
    properties?: TopicProperties;
    subscriptions?: {
      name: string;
      properties?: SubscriptionProperties;
      /** With these it has exactly these; without, one that selects all when it is created, and later those it has. */
      rules?: NewRule[];
      /** Whether other rules stay, but for `$Default`. */
      keepOtherRules?: boolean;
    }[];
  }[];
  /** Whether entities that are there and differ are left as they are. */
  keepExisting?: boolean;
}

export interface DeclarationStep {
  readonly kind: "create" | "update";
  readonly entity: "queue" | "topic" | "subscription";
  readonly path: string;
  readonly changes?: { readonly property: string; readonly before?: string; readonly after?: string }[];
}

export interface DeclarationPlan {
  readonly steps: DeclarationStep[];
  /** What would be steps without `keepExisting`. */
  readonly kept?: DeclarationStep[];
  /** How many of the entities named need no step. */
  readonly unchangedCount: number;
  readonly digest: string;
}

export interface CarriedOut {
  /** So many of the first steps are done. */
  readonly done: number;
  readonly rest: DeclarationPlan;
  /** Why the first of the rest failed, if it was tried. */
  readonly failure?: PeeklockError;
}

/** Plans a declaration and carries it out. */
export class Declarations {
  private constructor();
  /** Changes nothing. */
  plan(declaration: Declaration): Promise<DeclarationPlan>;
  /** At most 100 steps at once. `UpdateConflict`, and nothing is done, if the steps of the digest are others by now. */
  carryOut(declaration: Declaration, digest: string, options?: { stepsMax?: number }): Promise<CarriedOut>;
  /** All of it. Rejects with what ends it: steps before that stay done. */
  declare(declaration: Declaration): Promise<DeclarationPlan>;
}
