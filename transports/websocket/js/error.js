// The only error class of this client. A program branches on `condition` (docs/spec/19-errors.md) and on `retryable`; the
// text is for people.

/** A refusal or failure, with a name of the error catalogue (SND-03 to SND-05, ERR-02). */
export class PeeklockError extends Error {
  constructor(condition, detail, { retryable = false, trackingId, entity, timestamp, closeCode, cause } = {}) {
    const place = trackingId ? ` TrackingId:${trackingId}, Entity:${entity ?? ""}, Timestamp:${timestamp}` : "";
    super(`${condition}: ${detail}${place}`, cause === undefined ? undefined : { cause });
    this.name = "PeeklockError";
    this.condition = condition;
    this.detail = detail;
    this.retryable = retryable;
    this.trackingId = trackingId;
    this.entity = entity;
    this.timestamp = timestamp;
    this.closeCode = closeCode;
  }

  /** Makes an error from the form of the protocol. */
  static of({ condition, detail, ...rest }) {
    return new PeeklockError(condition, detail, rest);
  }
}

/**
 * Returns the error with a stack that names the awaiting code: answers of the broker arrive in the event loop, which has no
 * caller. Call it in the `catch` of an async function.
 */
export const traced = (error) => {
  if (error instanceof PeeklockError) {
    Error.captureStackTrace?.(error, traced);
  }
  return error;
};

/** Error of an invalid value; nothing was sent. */
export const argument = (detail) => new PeeklockError("ArgumentError", detail);

/** Error of a lost connection; whether the request was carried out is unknown (ERR-06). */
export const lost = (detail, more) => new PeeklockError("CommunicationProblem", detail, { retryable: true, ...more });

/** Error of a request that the caller has cancelled. */
export const cancelled = (detail) => new PeeklockError("OperationCancelled", detail, { retryable: true });

/** Maximum bytes of an error on a message, with the mark of a longer one (SET-43). */
const ERROR_BYTES_MAX = 1024;
const CUT_MARK = "… [cut]";
/** Maximum number of causes of an error. */
const CAUSE_COUNT_MAX = 32;

/** Returns the text of any thrown value with its causes, cut to the size that a message carries. Never throws. */
export function errorText(error) {
  let text;
  try {
    text = withCauses(error);
  } catch {
    text = "the error has no text";
  }
  // Encoding replaces halves of characters, which the broker would refuse.
  const bytes = new TextEncoder().encode(text.slice(0, ERROR_BYTES_MAX + 1));
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  if (bytes.length <= ERROR_BYTES_MAX) {
    return decoder.decode(bytes);
  }
  let end = ERROR_BYTES_MAX - new TextEncoder().encode(CUT_MARK).length;
  while ((bytes[end] & 0xc0) === 0x80) {
    end -= 1;
  }
  return decoder.decode(bytes.subarray(0, end)) + CUT_MARK;
}

function withCauses(error) {
  let text = String(error);
  let { cause } = Object(error);
  for (let count = 0; count < CAUSE_COUNT_MAX && (cause ?? undefined) !== undefined && text.length <= ERROR_BYTES_MAX; count += 1) {
    // The texts of many errors end with the text of their cause.
    const part = String(cause);
    text += text.endsWith(part) ? "" : `: ${part}`;
    ({ cause } = Object(cause));
  }
  return text;
}
