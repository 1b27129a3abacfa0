// Types of the client of Peeklock; see README.md in this folder.

/** Options of a connection. */
export interface ConnectOptions {
  /**
   * The token, or a function that returns one. It is called for each connect, and before a token with the field `se`
   * expires.
   */
  token?: string | (() => string | Promise<string>);
  /**
   * Connection string that signs tokens, in place of `token`, if the broker is reached by another URL than the string has.
   */
  connectionString?: string;
  /** Lifetime in seconds of tokens signed with a connection string. Default: 3600. */
  tokenSeconds?: number;
  /** Name of the client in the broker's log. */
  client?: string;
  /** Seconds for which the broker keeps a lost connection, at most its setting `websocket.grace`; 0: none. Default: 30. */
  graceSeconds?: number;
  /** Heartbeat in seconds, if it is to be shorter than the broker's. */
  heartbeatSeconds?: number;
  /**
   * Time in seconds after which a failed attempt rejects `connect`. Default: 15. If each attempt fails at once, it rejects
   * after 15 to 35 s with the default pauses; an attempt without an answer fails after at most 10 s.
   */
  connectSeconds?: number;
  /** Seconds for which requests wait for a lost connection. Default: 60; not less than graceSeconds. */
  offlineSeconds?: number;
  /** First and longest pause between attempts; each is shortened at random, by half at most. Default: 200, 20000. */
  reconnectMs?: number;
  reconnectMaxMs?: number;
  /** Maximum number of requests that wait for answers; further ones are refused with ServerBusy. Default: 16384. */
  requestCountMax?: number;
  /** Maximum number of characters in them. Default: 16777216. */
  bufferSizeMax?: number;
  /** A constructor like the WebSocket of browsers, for environments without one. */
  WebSocket?: WebSocketConstructor;
}

/** A connection string, as `peeklock connection-string` prints it. The constructor throws ArgumentError for invalid text. */
export class ConnectionString {
  constructor(text: string);
  /** URL of the broker: `wss://HOST:PORT/`, or `ws://` with `UseDevelopmentEmulator=true`; port 5301 by default. */
  readonly url: string;
  readonly policy: string | undefined;
  readonly entityPath: string | undefined;
  /** Whether it can sign another token after one has expired. */
  readonly renews: boolean;
  /** Resolves to a token that expires at an instant in milliseconds since 1970. */
  token(untilMs: number): Promise<string>;
  /** Throws ArgumentError for an entity outside of `entityPath`. */
  checkEntity(path: string): void;
}

/** The part of a WebSocket that the client uses. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => {
  readonly readyState: number;
  send(text: string): void;
  close(code?: number): void;
};

/** `connecting` before the first welcome, `lost` while the client connects again, `closed` at the end. */
export type ConnectionState = "connecting" | "open" | "lost" | "closed";

/** Detail of the event `state`. */
export interface StateDetail {
  readonly state: ConnectionState;
  /** For `open`: whether the session was resumed; otherwise a new one has begun. */
  readonly resumed?: boolean;
  /** For `lost`: the close code and its reason. */
  readonly code?: number;
  readonly reason?: string;
  /** For `closed`: the reason, unless the caller closed the connection. */
  readonly error?: PeeklockError;
}

export interface ConnectionEvents {
  state: CustomEvent<StateDetail>;
  /** The broker is stopping; messages in hand can be settled for `seconds`. */
  closing: CustomEvent<{ readonly seconds: number }>;
  /** A failure that no caller waits for. */
  problem: CustomEvent<PeeklockError>;
}

/** The welcome of the broker. */
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

/** Opens a connection; rejects with the first attempt that fails after `connectSeconds`, or at once on a refusal. */
export function connect(url: string | URL, options?: ConnectOptions): Promise<Connection>;

/** One connection to the broker, over several sockets in turn. */
export class Connection {
  constructor(url: string | URL, options?: ConnectOptions);
  /** Resolves at the first welcome. */
  readonly ready: Promise<Connection>;
  readonly state: ConnectionState;
  /** Reason of the close, unless the caller closed the connection. */
  readonly error: PeeklockError | undefined;
  readonly welcome: Welcome | undefined;
  /** Number of sessions until now. Each starts without the locks of its predecessor. */
  readonly session: number;
  readonly queues: Queues;
  readonly topics: Topics;
  readonly declarations: Declarations;
  readonly inspection: Inspection;
  readonly holders: Holders;
  sender(path: string, options?: SenderOptions): Sender;
  /** `path` may be a sub-queue: `orders/$deadletterqueue`. */
  receiver(path: string, options?: ReceiverOptions): Receiver;
  /** Locks a session of a queue, even one without messages. */
  acceptSession(path: string, sessionId: string, options?: AcceptOptions): Promise<SessionReceiver>;
  /** Locks the session with the oldest available message, or waits for one: `waitSeconds`, by default 60. */
  acceptNextSession(path: string, options?: AcceptOptions & { waitSeconds?: number }): Promise<SessionReceiver>;
  /** Sends and settlements that take effect together or not at all. */
  beginTransaction(options?: TransactionOptions): Promise<Transaction>;
  authenticate(token: string | (() => string | Promise<string>)): Promise<void>;
  /** Returns the time of the broker's clock in milliseconds since 1970. */
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
  /** Id under which the broker has logged it; absent if this client raised the error. */
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

/** A value with the name of its type, for types that JavaScript does not have. */
export class TypedValue {
  constructor(type: PropertyType, value: string | number | bigint | boolean | null);
  readonly type: PropertyType;
  readonly value: string | number | bigint | boolean | null;
}

/** `typed("i32", 5)` */
export function typed(type: PropertyType, value: string | number | bigint | boolean | null): TypedValue;

/**
 * number: a safe integer is i64, else f64; bigint: i64, or u64 above it; Date: timestamp; Uint8Array: binary. A received i64
 * beyond 2^53 is a bigint; values of other types are TypedValues.
 */
export type PropertyValue = string | boolean | null | number | bigint | Date | Uint8Array | TypedValue;
export type Properties = { readonly [name: string]: PropertyValue };
export type Bytes = ArrayBufferView | ArrayBuffer;

/** A message to send. */
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

/** A received or peeked message. */
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
  /** Has no prototype, so that any name is safe. */
  readonly applicationProperties: Properties;
  readonly sequenceNumber: number;
  readonly enqueuedSequenceNumber: number;
  readonly enqueuedTimeUtc: Date;
  readonly expiresAtUtc: Date | undefined;
  readonly deliveryCount: number;
  readonly state: "Active" | "Deferred" | "Scheduled" | "Delayed";
  /** End of the delay, if the message is delayed. */
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
  /** Returns the message to the queue without counting a failed delivery. */
  release(): Promise<void>;
  /** Resolves to the new end of the lock. */
  renew(): Promise<Date>;
  /** Renews the lock as often as necessary until the returned function is called or the message is settled. */
  keepLocked(options?: { maxSeconds?: number; onLost?: (error: PeeklockError) => void }): () => void;
}

export type Decision = "complete" | "abandon" | "defer" | "deadLetter" | "release";

export interface ModifyOptions {
  /** Application properties to set. */
  properties?: Properties | ReadonlyMap<string, PropertyValue>;
}

export interface AbandonOptions extends ModifyOptions {
  /** Delay before the next delivery in milliseconds, at most 7 days; 0 for none. Default: according to the retry policy. */
  delayMilliseconds?: number;
}

/** `reason` and `description` go with deadLetter only. */
export interface SettleOptions extends ModifyOptions {
  reason?: string;
  description?: string;
}

export interface SenderOptions {
  /** Maximum number of requests under way at once; further ones wait. Default: 1024. */
  inFlightMax?: number;
}

/** Sends to one queue or topic. Await each promise: without an answer, it is unknown whether the message is stored. */
export class Sender {
  private constructor();
  readonly path: string;
  /** Resolves to the sequence number, or to 0 for a discarded duplicate. */
  send(message: Sendable): Promise<number>;
  /** Sends messages independently of each other. */
  sendEach(messages: Iterable<Sendable>): Promise<SendOutcome[]>;
  /** All or none. */
  sendBatch(messages: Iterable<Sendable>): Promise<number[]>;
  /** Resolves to the sequence number, which serves to cancel it. */
  schedule(message: Sendable, at: Date | string): Promise<number>;
  /** All or none. */
  cancelScheduled(...sequenceNumbers: (number | number[])[]): Promise<void>;
  close(): Promise<void>;
}

export type SendOutcome =
  | { readonly sequenceNumber: number; readonly error?: undefined }
  | { readonly sequenceNumber?: undefined; readonly error: PeeklockError };

export interface AcceptOptions extends ReceiverOptions {
  /** Cancels a waiting accept; a session that is granted nevertheless is released. */
  signal?: AbortSignal;
}

export interface ReceiverOptions {
  /** Default: peekLock. */
  mode?: "peekLock" | "receiveAndDelete";
  /** Messages that are requested in advance, in addition to one per waiting call. Default: 0. */
  prefetch?: number;
}

export interface SubscribeOptions {
  /** Maximum number of concurrent handlers. Default: 1. */
  concurrency?: number;
  /** Complete when the handler returns. Default: true. */
  autoComplete?: boolean;
  /** Renew locks while handlers run, for at most `maxRenewSeconds` each. Default: true, 300. */
  autoRenew?: boolean;
  maxRenewSeconds?: number;
  /** Leave the text of an error on the abandoned message, as property `peeklock-last-error`. Default: true. */
  reportErrors?: boolean;
  /** Gets errors of handlers and of their settlements; without a message, the error that ends the subscription. */
  onError?: (error: unknown, message: ReceivedMessage | undefined) => void;
}

/** Running handlers of a receiver. */
export interface Consumer {
  /** Takes no further messages and waits for the handlers. */
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
  /** Yields messages as they arrive. */
  messages(options?: { signal?: AbortSignal }): AsyncGenerator<ReceivedMessage, void, void>;
  /** Calls a handler for each message. */
  subscribe(handler: (message: ReceivedMessage) => unknown, options?: SubscribeOptions): Consumer;
  /**
   * Resolves to available messages, or to those that arrive within `waitSeconds` (default 60); at most `maxCount` (default
   * 1).
   */
  receive(options?: { maxCount?: number; waitSeconds?: number; signal?: AbortSignal }): Promise<ReceivedMessage[]>;
  /** Receives deferred messages by sequence number, all or none. */
  receiveDeferred(...sequenceNumbers: (number | number[])[]): Promise<ReceivedMessage[]>;
  /** Peeks at messages without locking them, from `from` or after the last peeked one; at most `maxCount` (default 100). */
  peek(options?: { from?: number; maxCount?: number }): Promise<ReceivedMessage[]>;
  /** Settles messages independently; resolves to a list with undefined or the error for each. */
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
  /** Ends loops and subscriptions, and releases prefetched messages, including those under way. */
  close(): Promise<void>;
}

/**
 * Holds one session: its messages come in order, under one lock. After that lock has ended, or a new session of the
 * connection has begun, all calls fail with SessionLockLost.
 */
export class SessionReceiver extends Receiver {
  readonly sessionId: string;
  /** End of the session lock, and thereby of the locks of its messages; follows renewals. */
  readonly lockedUntilUtc: Date;
  /** By the broker's clock. */
  readonly lockRemainingMs: number;
  /** Resolves to the new end of the session lock. */
  renewSession(): Promise<Date>;
  /** Renews the session lock as often as necessary until the returned function is called or the session is closed. */
  keepSession(options?: { onLost?: (error: PeeklockError) => void }): () => void;
  /** Resolves to text if the state is UTF-8, else to bytes; to undefined if there is none. */
  getState(): Promise<string | Uint8Array | undefined>;
  /** Replaces the state; null clears it. It stays for the next holder. */
  setState(state: string | Bytes | null): Promise<void>;
  /** Releases the session; unsettled messages do not count as delivered. */
  close(): Promise<void>;
}

export interface TransactionOptions {
  /** Allows sends to other queues and topics than the first one used, through that one. Default: false. */
  crossEntity?: boolean;
}

/**
 * Operations on one queue and its dead-letter queues, or on a topic and one of its subscriptions. A refused operation
 * rejects and is left out. The transaction is rolled back two minutes after the first operation (TransactionTimedOut), or
 * when the connection ends.
 */
export class Transaction {
  private constructor();
  /** Sends at the commit, whose result has the sequence number. */
  send(sender: Sender, message: Sendable): Promise<void>;
  sendBatch(sender: Sender, messages: Iterable<Sendable>): Promise<void>;
  schedule(sender: Sender, message: Sendable, at: Date | string): Promise<void>;
  complete(message: ReceivedMessage): Promise<void>;
  abandon(message: ReceivedMessage, options?: AbandonOptions): Promise<void>;
  defer(message: ReceivedMessage, options?: ModifyOptions): Promise<void>;
  deadLetter(message: ReceivedMessage, options?: SettleOptions): Promise<void>;
  /** Extends the lock from the commit on; `message.renew()` extends it at once. */
  renew(message: ReceivedMessage): Promise<void>;
  /** All or none. */
  cancelScheduled(sender: Sender, ...sequenceNumbers: (number | number[])[]): Promise<void>;
  /** Replaces the state; null clears it. */
  setState(session: SessionReceiver, state: string | Bytes | null): Promise<void>;
  /**
   * Commits all operations as one. If it rejects with a condition other than CommunicationProblem or InternalError, nothing
   * was done.
   */
  commit(): Promise<Committed>;
  /** Rolls back all operations; does nothing if the transaction has ended. */
  rollBack(): Promise<void>;
}

/** Results of a commit. */
export interface Committed {
  /** One for each operation, in their order. */
  readonly parts: CommittedPart[];
  /** Numbers of all sent messages, except those for other entities. */
  readonly sequenceNumbers: number[];
}

export interface CommittedPart {
  readonly sequenceNumbers: number[];
  /** Numbers under which messages wait to be transferred to another entity. */
  readonly pendingNumbers: number[];
  /** New end of a renewed lock. */
  readonly lockedUntilUtc: Date | undefined;
}

/** Delay before a message is delivered again after a failed delivery; durations are ISO 8601 such as `PT30S`. */
export interface RetryPolicy {
  kind: "fixed" | "linear" | "exponential";
  delay: string;
  delayMax?: string;
  /** Maximum part by which a delay is shortened at random: 0 to 1. */
  jitter?: number;
}

/** Properties that can be set; durations are ISO 8601 such as `PT30S`. */
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
  /** Absent if there is none. */
  retryPolicy?: RetryPolicy;
  /** Absent if it is `hold`. */
  sessionRetryOrder?: "pass";
  path: string;
  runtime: {
    /** Includes locked messages. */
    activeMessageCount: number;
    /** Number of active messages that are delayed; absent if there are none. */
    delayedMessageCount?: number;
    deferredMessageCount: number;
    scheduledMessageCount: number;
    deadLetterMessageCount: number;
    transferMessageCount: number;
    transferDeadLetterMessageCount: number;
    totalMessageCount: number;
    sizeInBytes: number;
    /** For a queue that requires sessions: number of sessions, and of locked ones. */
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
  /** `version`: the `updatedAt` of the version that was read; fails with UpdateConflict after any other change. */
  update(path: string, properties: QueueProperties, options?: { version?: string }): Promise<Queue>;
  /** Deletes the queue with all its messages. */
  delete(path: string): Promise<void>;
  /** Lists a page of queues; repeat with a larger `skip` until the list is empty. */
  list(options?: { skip?: number; top?: number }): Promise<Queue[]>;
  /** Lists ids of sessions in ascending order; give at most one of `withActiveMessages` and `stateSetAfter`. */
  sessions(
    path: string,
    options?: { withActiveMessages?: boolean; stateSetAfter?: Date | string; skip?: number; top?: number },
  ): Promise<string[]>;
  /** Removes available messages of all unlocked sessions; resolves to their number. */
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
    /** Number of rules of its subscriptions with an SQL filter. */
    sqlFilterCount: number;
    /** Number of its other rules. */
    correlationFilterCount: number;
    scheduledMessageCount: number;
    /** Messages sent through the topic that have not reached their destination yet. */
    transferMessageCount: number;
    /** Messages sent through the topic that cannot reach their destination. */
    transferDeadLetterMessageCount: number;
    sizeInBytes: number;
    lastSequenceNumber: number;
    createdAt: string;
    updatedAt: string;
    accessedAt: string;
  };
}

/**
 * On update an absent property keeps its value; `null` clears the two forwarding properties, `userMetadata` and
 * `retryPolicy`.
 */
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
  /** Whether it gets only messages that no other subscription of its topic selects. */
  catchAll?: boolean;
  retryPolicy?: RetryPolicy | null;
  /** Whether a session waits for its delayed messages. */
  sessionRetryOrder?: "hold" | "pass";
}

export interface Subscription
  extends Required<Omit<SubscriptionProperties, "catchAll" | "retryPolicy" | "sessionRetryOrder">> {
  /** Absent if there is none. */
  retryPolicy?: RetryPolicy;
  /** Absent if it is `hold`. */
  sessionRetryOrder?: "pass";
  /** Absent if it is not a catch-all. */
  catchAll?: boolean;
  path: string;
  topic: string;
  name: string;
  runtime: {
    activeMessageCount: number;
    /** Number of active messages that are delayed; absent if there are none. */
    delayedMessageCount?: number;
    deferredMessageCount: number;
    deadLetterMessageCount: number;
    transferMessageCount: number;
    transferDeadLetterMessageCount: number;
    totalMessageCount: number;
    sizeInBytes: number;
    lastSequenceNumber: number;
    /** For a subscription that requires sessions. */
    sessionCount?: number;
    lockedSessionCount?: number;
    createdAt: string;
    updatedAt: string;
    accessedAt: string;
  };
}

/** SQL text with the values of its parameters; the names may begin with `@`. */
export interface SqlText {
  sql: string;
  parameters?: Record<string, PropertyValue>;
}

/** Condition of a rule. */
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
  /** Default: selects each message. */
  filter?: Filter;
  /** Changes the selected messages. */
  action?: SqlText;
}

export interface Rule extends NewRule {
  filter: Filter;
  createdAt: string;
}

/** Effect of a rule on a message, and its reason. */
export interface Explanation {
  rule: string;
  verdict: "matches" | "doesNotMatch" | "unknown" | "filterFailed" | "actionFailed" | "notAsked";
  error?: string;
  /** With `notAsked`: the subscription that selects the message, so that the catch-all was not evaluated. */
  selectedBy?: string;
  /** `null` means unknown, because a property is missing. */
  tests: { text: string; operands: string[]; result: boolean | null }[];
  reads: { name: string; value: string | null }[];
  changes: string[];
}

/** Returns the path from which a subscription is received. */
export function subscriptionPath(topic: string, name: string): string;

/** Management of topics, subscriptions and rules. Subscriptions are named by their path. */
export class Topics {
  private constructor();
  create(path: string, properties?: TopicProperties): Promise<Topic>;
  get(path: string): Promise<Topic>;
  exists(path: string): Promise<boolean>;
  update(path: string, properties: TopicProperties, options?: { version?: string }): Promise<Topic>;
  /** Deletes the topic with its subscriptions and all their messages. */
  delete(path: string): Promise<void>;
  /** Lists a page of topics; repeat with a larger `skip` until the list is empty. */
  list(options?: { skip?: number; top?: number }): Promise<Topic[]>;
  /** Without rules the subscription gets each message. If a rule is invalid, nothing is created. */
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
  /** Lists a page of subscriptions; repeat with a larger `skip` until the list is empty. */
  listSubscriptions(topic: string, options?: { skip?: number; top?: number }): Promise<Subscription[]>;
  createRule(path: string, rule: NewRule): Promise<Rule>;
  getRule(path: string, name: string): Promise<Rule>;
  updateRule(path: string, rule: NewRule): Promise<Rule>;
  deleteRule(path: string, name: string): Promise<void>;
  listRules(path: string, options?: { skip?: number; top?: number }): Promise<Rule[]>;
  explain(path: string, message: Sendable): Promise<Explanation[]>;
}

/** Entities in their desired form. Other entities stay unchanged by default. */
export interface Declaration {
  queues?: { path: string; properties?: QueueProperties }[];
  topics?: {
    path: string;
    properties?: TopicProperties;
    subscriptions?: {
      name: string;
      properties?: SubscriptionProperties;
      /**
       * Exact rules of the subscription. Without them, a new subscription selects each message, and an existing one keeps
       * its rules.
       */
      rules?: NewRule[];
      /** Whether other rules stay, except `$Default`. */
      keepOtherRules?: boolean;
    }[];
  }[];
  /** Whether existing entities that differ stay unchanged. */
  keepExisting?: boolean;
  /**
   * Whether existing queues, topics, and subscriptions of declared topics that are not named are deleted with their messages,
   * after all other steps. Needs the right Manage on the namespace.
   */
  deleteUnnamed?: boolean;
}

export interface DeclarationStep {
  readonly kind: "create" | "update" | "delete";
  readonly entity: "queue" | "topic" | "subscription";
  readonly path: string;
  /** For a deletion `created_at`, and of a topic `subscription_count`, with their values before. */
  readonly changes?: { readonly property: string; readonly before?: string; readonly after?: string }[];
}

export interface DeclarationPlan {
  readonly steps: DeclarationStep[];
  /** Steps that `keepExisting` has suppressed. */
  readonly kept?: DeclarationStep[];
  /** Number of named entities that need no step. */
  readonly unchangedCount: number;
  readonly digest: string;
}

export interface CarriedOut {
  /** Number of steps that are done. */
  readonly done: number;
  readonly rest: DeclarationPlan;
  /** Error of the first remaining step, if it was tried. */
  readonly failure?: PeeklockError;
}

/** Plans a declaration and carries it out. */
export class Declarations {
  private constructor();
  /** Returns the plan; changes nothing. */
  plan(declaration: Declaration): Promise<DeclarationPlan>;
  /**
   * Carries out at most 100 steps. Fails with UpdateConflict, without any change, if the plan has changed since the digest.
   */
  carryOut(declaration: Declaration, digest: string, options?: { stepsMax?: number }): Promise<CarriedOut>;
  /** Plans and carries out all steps. On failure it rejects, and earlier steps stay done. */
  declare(declaration: Declaration): Promise<DeclarationPlan>;
}

/** Names of states of a message; exactly one applies, the first in this order. */
export type HeadState = "transferring" | "locked" | "scheduled" | "deferred" | "expired" | "delayed" | "active";

/** Holder of a lock. */
export interface LockHolder {
  readonly clientId: number;
  readonly transport: string;
  /** Name that the client gave when it connected. */
  readonly name?: string;
  readonly address?: string;
  /** Policy whose rights it used. */
  readonly policy?: string;
  /** Whether it is still connected; a lock may outlive the connection. */
  readonly isConnected: boolean;
}

/** A lock, without its token. */
export interface LockFacts {
  readonly takenAtUtc: string;
  readonly lockedUntilUtc: string;
  readonly renewalCount: number;
  readonly isOfSession?: boolean;
  /** Absent if the broker does not know it. */
  readonly holder?: LockHolder;
}

/** A message without its body. */
export interface Head {
  readonly sequenceNumber: number;
  readonly enqueuedSequenceNumber: number;
  readonly state: HeadState;
  /** Whether it has expired and is still stored. */
  readonly isExpired?: boolean;
  readonly enqueuedTimeUtc: string;
  readonly scheduledEnqueueTimeUtc?: string;
  /** Expiry in force, by the message or by the entity. */
  readonly expiresAtUtc?: string;
  readonly delayedUntilUtc?: string;
  readonly deliveryCount: number;
  /** Number of times that it was forwarded. */
  readonly hops: number;
  readonly size: number;
  readonly headerSize: number;
  readonly bodySize: number;
  readonly bodyKind?: BodyKind;
  /** At most 256 bytes: text, cut at a character, if they are UTF-8. Absent if the broker cannot read the message. */
  readonly bodyStart?: string | Uint8Array;
  readonly messageId?: string;
  readonly sessionId?: string;
  readonly partitionKey?: string;
  readonly transactionPartitionKey?: string;
  readonly replyToSessionId?: string;
  readonly correlationId?: string;
  readonly contentType?: string;
  readonly subject?: string;
  readonly to?: string;
  readonly replyTo?: string;
  readonly timeToLive?: string;
  /** Has no prototype, so that any name is safe. */
  readonly applicationProperties: Properties;
  readonly deadLetterSource?: string;
  /** Destination of a message that is sent via this entity. */
  readonly viaDestination?: string;
  readonly lock?: LockFacts;
  /** Whether the broker cannot read it. */
  readonly unreadable?: boolean;
}

export type BodyKind = "data" | "value" | "sequence";

/** A page of a list. `next` is the `after` of the next page; a page with `next` may be short or empty. */
export interface InspectionPage {
  readonly next?: string;
  /** The broker's clock. */
  readonly nowUtc: string;
}

export interface HeadPage extends InspectionPage {
  readonly heads: Head[];
  /** Number of messages that were examined for the page. */
  readonly examined: number;
}

export interface LockPage extends InspectionPage {
  readonly locks: {
    /** The message; for a session, the lowest number under its lock, or 0. */
    readonly sequenceNumber: number;
    readonly sessionId?: string;
    /** Number of messages under the lock. */
    readonly messageCount: number;
    readonly deliveryCount: number;
    readonly lock: LockFacts;
  }[];
  readonly total: number;
}

export interface SessionPage extends InspectionPage {
  readonly sessions: {
    readonly sessionId: string;
    /** Includes locked messages. */
    readonly activeMessageCount: number;
    readonly deferredMessageCount: number;
    readonly scheduledMessageCount: number;
    readonly oldestEnqueuedAtUtc?: string;
    /** Whether the oldest message waits longer than ten lock durations. */
    readonly isStuck: boolean;
    readonly stateSize?: number;
    readonly stateSetAtUtc?: string;
    readonly lock?: LockFacts;
  }[];
  readonly total: number;
}

/**
 * Column of a series: a count over each slot, a gauge at its end, or a percentile of the wait until the first delivery or
 * of the time under lock.
 */
export type SeriesColumn =
  | "accepted" | "delivered" | "completed" | "failed" | "expired" | "forwardedIn" | "forwardedOut" | "duplicates"
  | "deadLetteredExpired" | "deadLetteredDeliveryCount" | "deadLetteredApplication" | "deadLetteredRule"
  | "deadLetteredHeaderSize" | "deadLetteredNoSession" | "deadLetteredForwarding" | "deadLetteredCopyCount"
  | "deadLetteredOperator" | "active" | "locked" | "deferred" | "scheduled" | "deadLetters" | "sizeInBytes" | "oldestAgeMs"
  | "waitP50Us" | "waitP95Us" | "waitP99Us" | "lockP50Us" | "lockP95Us" | "lockP99Us";

/** Values over time. */
export interface Series {
  /** Start of the first slot. */
  readonly fromUtc: string;
  /** Length of each slot: 1, 60 or 900. */
  readonly resolutionSeconds: number;
  /** Values by slot; null: not known, or for a percentile, no message. */
  readonly columns: { readonly [column in SeriesColumn]?: (number | null)[] };
  readonly nowUtc: string;
}

/** Kind of a station of a message. */
export type StationKind =
  | "accepted" | "published" | "scheduled" | "pending" | "duplicate" | "materialisedTo" | "materialisedFrom" | "copiedTo"
  | "copiedFrom" | "delivered" | "renewed" | "abandoned" | "lockEnded" | "released" | "deferred" | "deadLettered"
  | "forwardedTo" | "forwardedFrom" | "forwardedOut" | "forwardedIn" | "droppedAt" | "expired" | "completed" | "received"
  | "cancelled" | "deleted" | "job" | "undeferred" | "rescheduled" | "putBack";

/** An event in the life of a message. */
export interface Station {
  readonly atUtc: string;
  /** Path of the entity. */
  readonly path: string;
  /** 0 for a duplicate that got no number. */
  readonly sequenceNumber: number;
  readonly station: StationKind;
  /** The other message of a copy, hop or materialisation. */
  readonly otherPath?: string;
  readonly otherSequenceNumber?: number;
  readonly hop?: number;
  /** Name of the rule that made a copy. */
  readonly rule?: string;
  /** The client that got, held or settled the message. */
  readonly client?: LockHolder;
  /** Failed deliveries until then, or the number of renewals. */
  readonly count?: number;
  readonly cause?:
    | "expired" | "deliveryCount" | "application" | "rule" | "headerSize" | "noSession" | "forwarding" | "copyCount"
    | "operator";
  readonly lockEnd?: "settled" | "timeOver" | "linkEnded" | "sessionEnded" | "operator";
  /** Job of an operator. */
  readonly job?: string;
  /** New instant of a scheduled message. */
  readonly dueAtUtc?: string;
}

/** A message without its body. */
export type MessageProperties = Readonly<Omit<Message, "body" | "timeToLive" | "scheduledEnqueueTimeUtc">> & {
  readonly timeToLive?: string;
  readonly scheduledEnqueueTimeUtc?: string;
  /** Has no prototype, so that any name is safe. */
  readonly applicationProperties: Properties;
};

/** A message on which rules can be tried. */
export interface TopicSample {
  /** In the topic, or in the subscription that has it. */
  readonly sequenceNumber: number;
  /** Absent on a sample of the topic. */
  readonly subscription?: string;
  readonly enqueuedTimeUtc: string;
  readonly size: number;
  /** Only on a sample of the topic. */
  readonly copyCount?: number;
  readonly message: MessageProperties;
}

/** The last messages that a topic published, the newest first. */
export interface TopicSamples {
  readonly samples: TopicSample[];
  readonly total: number;
  readonly nowUtc: string;
}

/** Results of all rules of a topic for one message. */
export interface TopicExplanation {
  readonly message: MessageProperties;
  readonly subscriptions: {
    readonly subscription: string;
    readonly rules: Explanation[];
    /** The copies that the subscription would get, as actions change them. */
    readonly copies: {
      readonly rule?: string;
      readonly message: MessageProperties;
      readonly deadLetterReason?: string;
      readonly deadLetterErrorDescription?: string;
    }[];
  }[];
  /** Reason for which the topic would refuse the message; then no subscription gets a copy. */
  readonly refused?: string;
  /** Number of subscriptions that you may not read. */
  readonly hiddenCount?: number;
  /** Whether rules and copies are left out, since the answer is full. */
  readonly isCut?: boolean;
  readonly nowUtc: string;
}

/** A rule to add or replace, or the name of a rule to remove. */
export type RuleChange = { subscription: string } & ({ rule: NewRule } | { remove: string });

/** Effects of changes of the rules of a topic. */
export interface WhatIf {
  readonly sampleCount: number;
  /** Number of messages of subscriptions that were tried. */
  readonly messageCount: number;
  /** Numbers of messages with the rules of the topic, with the changes, and those that differ. */
  readonly subscriptions: {
    readonly subscription: string;
    readonly before: number;
    readonly after: number;
    readonly gained: number;
    readonly lost: number;
    readonly changed: number;
  }[];
  readonly differenceCount: number;
  /** The subscriptions whose copies of a message differ. */
  readonly differences: {
    readonly sample: TopicSample;
    readonly gained: string[];
    readonly lost: string[];
    readonly changed: string[];
  }[];
  /** Number of subscriptions that you may not read. */
  readonly hiddenCount?: number;
  /** Whether messages were left out. */
  readonly isCut?: boolean;
  readonly nowUtc: string;
}

/** The stations of a message, and of its copies before and after it. */
export interface Journey {
  /** The earliest first, at most 500. */
  readonly stations: Station[];
  /** Instant since which no station of these messages is missing. */
  readonly completeSinceUtc: string;
  /** Whether further stations are left out. */
  readonly isCut?: boolean;
  /** Number of links to entities that you may not read, or that no longer exist. */
  readonly hiddenCount?: number;
  readonly nowUtc: string;
}

/** Counts of messages by slot. */
export interface Timeline {
  readonly slotSeconds: number;
  readonly fromUtc: string;
  readonly counts: number[];
  /** Number of messages before the first slot. */
  readonly before: number;
  /** Number of messages after the last slot. */
  readonly later: number;
  /** Number of entities that were not counted, because there are too many. */
  readonly omittedEntities?: number;
  readonly nowUtc: string;
}

/** Counts of an entity, or sums over several. */
export interface EntityCounts {
  /** Includes locked messages. */
  readonly activeMessageCount: number;
  readonly deferredMessageCount: number;
  readonly scheduledMessageCount: number;
  readonly deadLetterMessageCount: number;
  readonly transferMessageCount: number;
  readonly transferDeadLetterMessageCount: number;
  readonly delayedMessageCount: number;
  readonly totalMessageCount: number;
  readonly lockedMessageCount: number;
  readonly sizeInBytes: number;
  readonly receiverCount: number;
  /** Absent until the counts were read twice. */
  readonly acceptedPerSecond?: number;
  readonly removedPerSecond?: number;
}

export type EntityKind = "queue" | "topic" | "subscription";
export type EntityCondition = "hasDeadLetters" | "grows" | "hasNoReceiver" | "isDisabled" | "isNearlyFull";

/** An entity with its counts and rates. */
export interface EntityRow extends EntityCounts {
  readonly path: string;
  readonly kind: EntityKind;
  readonly status: string;
  /** 0 for a subscription, whose topic has a maximum. */
  readonly maxSizeInBytes: number;
  readonly lastSequenceNumber: number;
  readonly oldestEnqueuedAtUtc?: string;
  readonly conditions: EntityCondition[];
}

/** Entities and their destinations. */
export interface Topology {
  /** Entities in the order of their paths, then destinations that are no entity. */
  readonly nodes: {
    /** Path of an entity; of another destination its scheme and host. */
    readonly name: string;
    /** `foreign`: another broker or a webhook. `unknown`: does not exist, or you may not read it. */
    readonly kind: EntityKind | "foreign" | "unknown";
    /** Absent unless it is an entity. */
    readonly entity?: EntityRow;
    /** Scheme of a `foreign` destination. */
    readonly scheme?: string;
  }[];
  readonly edges: {
    /** Places in `nodes`. */
    readonly from: number;
    readonly to: number;
    readonly kind: "subscription" | "forward" | "deadLetterForward";
    /** Absent until known, and for an entity that forwards both messages and dead letters. */
    readonly perSecond?: number;
    /** Messages that wait to be forwarded; absent for a `subscription`. */
    readonly waiting?: number;
    /** Messages in the transfer dead-letter queue; only for `forward`. */
    readonly failed?: number;
  }[];
  /** Number of all nodes, of which at most 2,000 are listed. */
  readonly nodeCount: number;
  /** Absent if no entity forwards. */
  readonly longestChain?: { readonly hops: number; readonly names: string[] };
  /** At most 20 circles: names in the order of the edges. */
  readonly circles: string[][];
  /** Maximum number of hops of a message. */
  readonly hopCountMax: number;
  readonly countedAtUtc: string;
  readonly nowUtc: string;
}

/** Kind of a finding. */
export type CheckKind =
  | "destinationMissing" | "destinationDisabled" | "chainTooLong" | "diskNearlyFull" | "anonymousBeyondLoopback"
  | "forwardCircle" | "deadLettersUnread" | "backlogWithoutReceiver" | "nearlyFull" | "manyReceivers" | "manyConnections"
  | "lockTooShort" | "timeToLiveTooShort" | "clockStep" | "defaultRuleAmongOthers";

/** Findings of the last check, the most urgent first. */
export interface Checks {
  /** At most 1,000. */
  readonly findings: {
    readonly kind: CheckKind;
    readonly weight: "error" | "warning" | "notice";
    /** Absent for a finding about the broker. */
    readonly path?: string;
    /** Instant of the first check that found it, in this run of the broker. */
    readonly sinceUtc: string;
    /** Values that led to it. */
    readonly detail: string;
    /** Remedy. */
    readonly remedy: string;
    /** Other entities that belong to it. */
    readonly others?: string[];
    readonly muted?: { readonly reason: string; readonly atUtc: string };
  }[];
  readonly total: number;
  readonly mutedCount: number;
  /** Further findings, for which the check had no room. Absent if there is none. */
  readonly leftOutCount?: number;
  readonly checkedAtUtc: string;
  /** Working time of the last check, without the time that it waited. */
  readonly tookUs: number;
  readonly nowUtc: string;
}

export interface EntityPage extends InspectionPage {
  readonly entities: EntityRow[];
  readonly total: number;
  /** Sums over all selected entities. A copy of a message counts in each entity that has one. */
  readonly totals: EntityCounts;
  /** Instant at which the counts were read, at most 1 s ago. */
  readonly countedAtUtc: string;
}

export interface ClientPage extends InspectionPage {
  readonly clients: {
    readonly clientId: number;
    readonly transport: string;
    readonly name?: string;
    readonly address?: string;
    /** Whether the address is the address of a proxy. */
    readonly isByProxy?: boolean;
    readonly policy?: string;
    readonly connectedAtUtc: string;
    readonly lastActivityUtc: string;
    /** Fewer than `linkCount` if they are too many. */
    readonly links: {
      readonly path: string;
      readonly role: "sender" | "receiver" | "browser";
      readonly mode?: "peekLock" | "receiveAndDelete";
      readonly sessionId?: string;
      readonly credit: number;
      /** Number of deliveries, without messages that were received by a request. */
      readonly deliveredCount: number;
      /** Number of these that are not settled. */
      readonly unsettledCount: number;
    }[];
    readonly linkCount: number;
  }[];
  readonly total: number;
}

/** Position and number of rows, 1 to 500. */
export interface PageOptions {
  after?: string | undefined;
  top?: number;
}

/** Columns by which entities are sorted. */
export type EntityColumn = "path" | "kind" | "status" | "maxSizeInBytes" | "oldestEnqueuedAtUtc" | keyof EntityCounts;

/** Bytes of a body or session state, at most 1 MiB of them. */
export interface ContentPart {
  /** Size of the whole. */
  readonly size: number;
  readonly from: number;
  readonly bytes: Uint8Array;
}

export interface AuditPage extends InspectionPage {
  /** Lines of the audit trail. Each is a JSON object as text, over which the hash in the next line is made. */
  readonly lines: string[];
}

/** Reads messages in any state, locks, sessions and clients. Nothing changes; the right Listen is enough. */
export class Inspection {
  private constructor();
  /** Lists messages, which may be in a sub-queue. Give `after`, or `from` as a sequence number or instant. */
  heads(
    path: string,
    options?: {
      states?: HeadState[];
      sort?: "sequenceNumber" | "scheduledTime" | "expiry";
      descending?: boolean;
      from?: number | Date | string;
      sessionId?: string;
      /** Default: 100. */
      count?: number;
      after?: string | undefined;
    },
  ): Promise<HeadPage>;
  body(
    path: string,
    sequenceNumber: number,
    options?: { from?: number; length?: number },
  ): Promise<ContentPart & { readonly kind: BodyKind }>;
  locks(path: string, options?: PageOptions & { sort?: "end" | "age" }): Promise<LockPage>;
  /** Lists sessions; give at most one of `withActiveMessages` and `stateSetAfter`. */
  sessions(
    path: string,
    options?: PageOptions & {
      sort?:
        | "sessionId"
        | "activeMessageCount"
        | "deferredMessageCount"
        | "scheduledMessageCount"
        | "oldestEnqueuedAtUtc"
        | "stateSize"
        | "stateSetAtUtc"
        | "lockedUntilUtc";
      descending?: boolean;
      withActiveMessages?: boolean;
      stateSetAfter?: Date | string;
    },
  ): Promise<SessionPage>;
  /** Resolves to undefined if the session has no state. */
  sessionState(
    path: string,
    sessionId: string,
    options?: { from?: number; length?: number },
  ): Promise<ContentPart | undefined>;
  /** Counts messages by instant, in up to 240 slots of 10 s to 1 day; without a path, of all entities. */
  timeline(
    path?: string,
    options?: { of?: "scheduled" | "expiring"; from?: Date | string; slotSeconds?: number; slots?: number },
  ): Promise<Timeline>;
  /** Reads counts, gauges and times over time, at most 3,600 slots; without a path, of the namespace. */
  series(
    path?: string,
    options?: { columns?: SeriesColumn[]; from?: Date | string; until?: Date | string; resolutionSeconds?: 1 | 60 | 900 },
  ): Promise<Series>;
  /** Reads the stations of a message by its number in the entity of `path`, or by its id. */
  journey(path?: string, options?: { sequenceNumber?: number; messageId?: string }): Promise<Journey>;
  /** Reads the last messages that a topic published, the newest first; 100 by default, at most 500. */
  samples(topic: string, options?: { top?: number }): Promise<TopicSamples>;
  /** Explains all rules of a topic for a message that would be sent now, or for a stored one. */
  explain(
    topic: string,
    of: { message: Sendable } | { sequenceNumber: number; path?: string },
  ): Promise<TopicExplanation>;
  /** Tries changes of the rules of a topic on its samples and on messages of its subscriptions. Nothing changes. */
  whatIf(topic: string, changes: RuleChange[], options?: { messageCount?: number; top?: number }): Promise<WhatIf>;
  /** Lists entities that you may read. `path` is a part of the path. */
  entities(
    options?: PageOptions & {
      path?: string;
      kind?: EntityKind;
      conditions?: EntityCondition[];
      sort?: EntityColumn;
      descending?: boolean;
    },
  ): Promise<EntityPage>;
  /** Reads entities and their destinations; with `around`, those within `hops` (0 to 16, by default 1). */
  topology(options?: { around?: string; hops?: number; top?: number }): Promise<Topology>;
  /** Reads the findings of the last check. `path` is a part of the path. */
  checks(options?: { path?: string; kind?: CheckKind; muted?: boolean }): Promise<Checks>;
  /** Lists clients with their links to entities that you may read. `name` is a part of the name. */
  clients(options?: PageOptions & { transport?: string; path?: string; name?: string }): Promise<ClientPage>;
  /** Reads actions of operators, newest first unless `ascending` is set. Needs the right Manage of the namespace. */
  audit(
    options?: PageOptions & {
      since?: Date | string;
      until?: Date | string;
      policy?: string;
      operation?: string;
      resource?: string;
      result?: string;
      ascending?: boolean;
    },
  ): Promise<AuditPage>;
  /** Lists jobs on entities that you may read, newest first. */
  jobs(options?: { after?: string; top?: number }): Promise<JobPage>;
  /** Reads a job with its progress. */
  job(job: string): Promise<Job>;
  /** Reads the first messages of a job as its deed would store them. */
  jobSamples(job: string): Promise<JobSamplePage>;
  /** Lists messages of a job whose deed was not done. */
  jobFailures(job: string, options?: { skip?: number; top?: number }): Promise<JobFailurePage>;
  /** Reads a part of the file that an ended job has exported, at most 256 KiB. */
  jobExport(job: string, options?: { from?: number; length?: number }): Promise<ContentPart>;
  /** Resolves when the tap is open: it shows the messages that the entity accepts from then on, and takes none. */
  tap(path: string): Promise<Tap>;
  /**
   * Yields pages at least every 200 ms of work, the last one with `end`. Leaving the loop or aborting `signal` ends the
   * search. If you do not read for 2 s, another search may take its place.
   */
  search(options?: SearchOptions): AsyncGenerator<SearchPage, void, void>;
}

/** Tests of a property, body or JSON value. */
export type SearchTest =
  | "exists"
  | "contains"
  | "containsExactly"
  | "equals"
  | "notEquals"
  | "less"
  | "atMost"
  | "greater"
  | "atLeast";

/** A condition, such as `{ field: "deadLetterReason", is: "contains", value: "timeout" }`. */
export interface SearchClause {
  field: string;
  is?: SearchTest;
  value?: string | number | boolean | null;
  /** JSON path of the field `json`. */
  path?: string;
  not?: boolean;
}

/** Messages to look at, and their conditions. */
export interface SearchOptions {
  /** Paths of entities or sub-queues, at most 100; by default all that you may read. */
  entities?: string[];
  subQueues?: ("main" | "deadLetter" | "transferDeadLetter")[];
  states?: HeadState[];
  /** Whether the newest messages of an entity come first. */
  descending?: boolean;
  /** A line such as `reason:timeout body.$.order.id=17 after:-2h`, or its clauses. */
  where?: string | SearchClause[];
  /** Maximum number of hits. */
  hits?: number;
  /** Counts messages instead: by `reason`, `description`, `source`, `subject`, `property:NAME`, `json:PATH`, `slot:SECONDS`. */
  groupBy?: string;
  /** `next` of an earlier search. */
  after?: string | undefined;
  signal?: AbortSignal;
}

/** Messages with the same value. */
export interface SearchGroup {
  /** Absent for messages without a value. */
  readonly value?: string;
  readonly count: number;
  readonly firstUtc: string;
  readonly lastUtc: string;
  readonly samples: { readonly path: string; readonly sequenceNumber: number }[];
}

/** A page of a search: hits since the last page, and the progress. */
export interface SearchPage {
  readonly hits: (Head & {
    readonly path: string;
    /** Place in `property`, or in the bytes `from` to `to` of the body. */
    readonly match?: {
      readonly property?: string;
      readonly from?: number;
      readonly to?: number;
      readonly excerpt: string;
    };
  })[];
  readonly progress: {
    readonly messages: number;
    readonly bytes: number;
    readonly hits: number;
    /** Number of messages for which a condition could not be decided. */
    readonly undecided: number;
    readonly unreadable: number;
    /** Estimated number of messages that are still to be looked at. */
    readonly rest: number;
    readonly path?: string;
    readonly sequenceNumber?: number;
  };
  readonly end?: {
    /** Bound that has ended the search; `next` goes on from there. */
    readonly bound?: "time" | "bytes" | "hits";
    readonly next?: string;
    readonly groups?: SearchGroup[];
    /** Messages with further values. */
    readonly other?: SearchGroup;
  };
  readonly nowUtc: string;
}

/** Change of a message by an operator. */
export type Deed =
  | { delete: Record<string, never> }
  | { deadLetter: { reason?: string; description?: string } }
  | { undefer: Record<string, never> }
  /** One of these, or none for now. */
  | { reschedule: { atUtc?: string; later?: string; earlier?: string } }
  /** Only in a job; `to` is by default the entity in which each message was dead-lettered. */
  | { resubmit: { to?: string; edit?: MessageEdit } }
  /** Only in a job: to another queue, topic or subscription. */
  | { move: { to: string; edit?: MessageEdit } }
  /** Only in the job that undoes another one. */
  | { putBack: { job: string } }
  /** Only in a job, and changes nothing: a file of messages, as JSON lines unless `form` is set. */
  | { export: { form?: "ndjson" | "csv" } };

/** Changes of each message that a job sends, the same for all. Null unsets a property. */
export interface MessageEdit {
  /** Application properties to set, plain or with their exact type. */
  set?: Record<string, string | number | boolean | null | { type: string; value: unknown }>;
  /** Names of application properties to remove. */
  remove?: string[];
  newMessageId?: boolean;
  /** New body of at most 16 KiB; the content type stays, a content encoding does not. Give one of these. */
  body?: string;
  bodyBase64?: string;
  /** JSON merge patch (RFC 7396) for the body, as a string, so that numbers keep their digits. */
  mergePatch?: string;
  subject?: string | null;
  correlationId?: string | null;
  contentType?: string | null;
  /** The partition key is unset. */
  sessionId?: string | null;
  /** An ISO 8601 duration. */
  timeToLive?: string | null;
}

/** Change of messages by an operator. */
export interface Act {
  sequenceNumbers: Iterable<number>;
  deed: Deed;
  /** Whether locks of receivers are broken, uncounted. */
  breakLocks?: boolean;
  /** A GUID, and a number that grows with each step of the job. */
  step?: { job: string; number: number };
}

/** Result for a message that an operator acted on. */
export interface ActedMessage {
  readonly sequenceNumber: number;
  readonly result:
    | "done" | "notFound" | "locked" | "wrongState" | "busy" | "expired" | "tooLarge" | "leaving"
    | "noDestination" | "destinationDisabled" | "destinationFull" | "destinationTooSmall" | "noSession"
    | "duplicate" | "refused" | "notJson";
}

/** Request for a job: `sequenceNumbers`, or `where` with `states` and `count`. */
export interface JobDraft {
  /** 1 to 10,000 messages. */
  sequenceNumbers?: number[];
  /** Conditions as one line, or as clauses; an empty line selects all messages. */
  where?: string | SearchClause[];
  states?: HeadState[];
  /** 1 to 100,000 messages, those with the lowest numbers. */
  count?: number;
  deed: Deed;
  /** Whether locks of receivers are broken, uncounted. */
  breakLocks?: boolean;
  /** Messages per second, 1 to 10,000; by default 500. */
  rate?: number;
  /** Number of messages after which the job pauses once. */
  trial?: number;
}

/** Change of the state of a job. */
export type JobControl =
  | { start: { digest: string } }
  | { pause: Record<string, never> }
  | { resume: Record<string, never> }
  | { cancel: Record<string, never> }
  /** Undoes a job that has ended; the answer is the job that does it. */
  | { undo: Record<string, never> };

/** Job: one change of many messages. */
export interface Job {
  /** A GUID. */
  readonly job: string;
  readonly path: string;
  readonly state: "selecting" | "ready" | "waiting" | "running" | "paused" | "done" | "cancelled" | "failed";
  /** Why the job pauses, has failed, or cannot continue for now. */
  readonly problem?: string;
  readonly deed: Deed;
  readonly breakLocks?: boolean;
  readonly rate: number;
  readonly trial?: number;
  readonly createdAtUtc: string;
  readonly startedAtUtc?: string;
  readonly endedAtUtc?: string;
  /** Instant until which the ended job can be undone. */
  readonly undoUntilUtc?: string;
  /** Bytes of the file that the ended job has exported; absent if there is none, or none any more. */
  readonly exportBytes?: number;
  /** Messages that were tried; until the preview is ready, that were selected. */
  readonly tried: number;
  readonly done: number;
  readonly failed: number;
  /** Result of the dry run; absent while the messages are selected. */
  readonly preview?: {
    /** Digest that the start presents. */
    readonly digest: string;
    /** Instant until which the job can be started. */
    readonly untilUtc: string;
    readonly count: number;
    readonly bytes: number;
    readonly oldestUtc?: string;
    readonly newestUtc?: string;
    /** Whether more messages meet the conditions than the job takes. */
    readonly cut?: boolean;
    /** Whether the job can be undone for 24 h after its end. */
    readonly undoable?: boolean;
    /** Messages that the deed would leave alone now. */
    readonly refused: { readonly result: ActedMessage["result"]; readonly count: number }[];
    /** Messages by dead-letter reason, at most 20. */
    readonly reasons: { readonly reason?: string; readonly count: number }[];
    /** The first messages, at most 20. */
    readonly samples: number[];
  };
  /** Absent in a list. */
  readonly nowUtc?: string;
}

/** A page of jobs. */
export interface JobPage {
  readonly jobs: Job[];
  readonly total: number;
  /** `after` of the next page. */
  readonly next?: string;
  readonly nowUtc: string;
}

/** The first messages of a job that are still there, at most 20. */
export interface JobSamplePage {
  readonly samples: {
    /** The message as the deed would store it, with its present number; one to be deleted as it is now. */
    readonly message: Head;
    /** Result of the deed, if it would leave the message alone now. */
    readonly refused?: ActedMessage["result"];
  }[];
  readonly nowUtc: string;
}

/** A page of messages whose deed was not done. */
export interface JobFailurePage {
  readonly failures: ActedMessage[];
  /** All failures, of which at most 10,000 are listed. */
  readonly total: number;
  /** `skip` of the next page. */
  readonly next?: number;
  readonly nowUtc: string;
}

/** Acts on messages, locks and connections of others. Needs the rights Listen and Send of the entity, or Manage of the namespace. */
export class Holders {
  private constructor();
  /**
   * Breaks locks of at most 500 messages; resolves to their number. Messages without a lock are skipped. With `counted` each
   * delivery counts as failed.
   */
  breakLocks(path: string, sequenceNumbers: Iterable<number>, options?: { counted?: boolean }): Promise<number>;
  /**
   * Acts on 1 to 256 messages by number, all together or none; resolves to the result for each. A repeated `step` changes
   * nothing and resolves to the results of its first run.
   */
  act(path: string, act: Act): Promise<ActedMessage[]>;
  /** Makes a job: resolves to the job, which selects its messages first. Nothing changes before its start. */
  createJob(path: string, draft: JobDraft): Promise<Job>;
  /** Starts, pauses, resumes, cancels or undoes a job; resolves to the job, or to the one that undoes it. */
  controlJob(job: string, control: JobControl): Promise<Job>;
  /** Forgets the last step of a job that has ended. */
  forgetJob(path: string, job: string): Promise<void>;
  /** Resolves to whether a receiver held the session. */
  breakSession(path: string, sessionId: string, options?: { counted?: boolean }): Promise<boolean>;
  /** Sets the state of a session that no receiver holds; null clears it. */
  setSessionState(path: string, sessionId: string, state: string | Uint8Array | null): Promise<void>;
  /** Mutes a finding about an entity, or with an empty path about the broker: one line of 1 to 256 characters. */
  muteFinding(path: string, kind: CheckKind, reason: string): Promise<void>;
  /** Reports a muted finding again. */
  unmuteFinding(path: string, kind: CheckKind): Promise<void>;
  /** Closes the connection of a client. The messages in its hands are available at once, and no delivery counts. */
  closeClient(clientId: number): Promise<void>;
}

/** Messages that a tap has shown since the last page. */
export interface TapPage {
  readonly heads: Head[];
  /** Number of accepted messages that are not shown. */
  readonly omitted: number;
  /** Whether the tap had ended; messages before that are neither shown nor counted. */
  readonly isReopened: boolean;
}

/** Heads of messages as an entity accepts them, at most 50 a second. The broker ends a tap that is not read for 10 s. */
export class Tap {
  private constructor();
  /** Waits up to a second for messages; without any, `heads` is empty. */
  read(): Promise<TapPage>;
  /** Yields each page that has news, until you leave the loop. */
  [Symbol.asyncIterator](): AsyncGenerator<TapPage, void, void>;
}
