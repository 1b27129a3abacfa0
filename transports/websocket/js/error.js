// The one error of this client. A program branches on `condition` (docs/spec/19-errors.md) and on
// `retryable`; the text is for people.

/** What was refused or what broke, by a name of the error catalogue (SND-03 to SND-05, ERR-02). */
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

  /** As the broker said it. */
  static of({ condition, detail, ...rest }) {
    return new PeeklockError(condition, detail, rest);
  }
}

/**
 * The same error, with a stack that names the code that awaits it: answers of the broker come from the event loop, where
 * no caller is known. Call it in the `catch` of an async function.
 */
export const traced = (error) => {
  if (error instanceof PeeklockError) {
    Error.captureStackTrace?.(error, traced);
  }
  return error;
};

/** A value that cannot be sent; nothing was. */
export const argument = (detail) => new PeeklockError("ArgumentError", detail);

/** The connection is gone, and with it the knowledge whether something was carried out (ERR-06). */
export const lost = (detail, more) => new PeeklockError("CommunicationProblem", detail, { retryable: true, ...more });

/** The caller ended it. */
export const cancelled = (detail) => new PeeklockError("OperationCancelled", detail, { retryable: true });
