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
