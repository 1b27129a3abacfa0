// Converts application properties between JavaScript and the protocol (MSG-20), and bytes to base64.
//
//   string, boolean, null   unchanged
//   number                  a safe integer: i64; any other: f64
//   bigint                  i64, or u64 above that
//   Date                    timestamp
//   Uint8Array              binary
//   TypedValue              any type by its name, for instance typed("i32", 5)
//
// Values of the broker are converted back the same way, with one loss: an f64 without a fraction becomes a number, and an
// integer is sent as i64. Use typed("f64", 1) to send an f64.

import { argument, PeeklockError } from "./error.js";

const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;
const U64_MAX = 2n ** 64n - 1n;

/** Expands pairs of first number and count; a first number of 0 stands for `count` zeros. */
export const runs = (pairs) =>
  pairs.flatMap(([first, count]) => Array.from({ length: count }, (_, place) => (first === 0 ? 0 : first + place)));

/** A value with the name of its type. */
export class TypedValue {
  constructor(type, value) {
    this.type = type;
    this.value = value;
    Object.freeze(this);
  }
}

/** Makes a value of a type that JavaScript does not have. */
export const typed = (type, value) => new TypedValue(type, value);

/** Encodes properties for a request. */
export function encodeProperties(properties) {
  const encoded = Object.create(null);
  const entries = properties instanceof Map ? properties : Object.entries(properties);
  for (const [name, value] of entries) {
    encoded[name] = encodeValue(name, value);
  }
  return encoded;
}

function encodeValue(name, value) {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      if (Number.isSafeInteger(value)) {
        return value;
      }
      return { type: "f64", value: plain(value) };
    case "bigint":
      if (value >= I64_MIN && value <= I64_MAX) {
        return { type: "i64", value: String(value) };
      }
      if (value > I64_MAX && value <= U64_MAX) {
        return { type: "u64", value: String(value) };
      }
      throw new PeeklockError("ArgumentOutOfRange", `application property \`${name}\` has more than 64 bits`);
    case "object":
      if (value === null) {
        return null;
      }
      if (value instanceof TypedValue) {
        return { type: value.type, value: plain(value.value) };
      }
      if (value instanceof Date) {
        return { type: "timestamp", value: instant(value) };
      }
      if (isBytes(value)) {
        return { type: "binary", value: toBase64(value) };
      }
  }
  throw argument(`application property \`${name}\` has an unsupported type`);
}

/** Returns the JSON of a value whose type is named separately. */
function plain(value) {
  if (typeof value === "bigint") {
    return String(value);
  }
  if (typeof value === "number" && !Number.isFinite(value)) {
    return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  }
  if (value instanceof Date) {
    return instant(value);
  }
  return isBytes(value) ? toBase64(value) : value;
}

/** Decodes the properties of a message; the object has no prototype, so that any name is safe. */
export function decodeProperties(properties) {
  const decoded = Object.create(null);
  for (const [name, value] of Object.entries(properties ?? {})) {
    decoded[name] = decodeValue(value);
  }
  return decoded;
}

function decodeValue(value) {
  if (typeof value !== "object" || value === null) {
    return value;
  }
  switch (value.type) {
    case "binary":
      return fromBase64(value.value);
    case "timestamp": {
      const date = new Date(value.value);
      return Number.isNaN(date.getTime()) ? new TypedValue(value.type, value.value) : date;
    }
    case "f64":
      return Number(value.value);
    default:
      return new TypedValue(value.type, value.value);
  }
}

/** Formats an instant for the protocol. */
export function instant(value) {
  if (typeof value === "string") {
    return value;
  }
  if (value instanceof Date && !Number.isNaN(value.getTime())) {
    return value.toISOString();
  }
  throw argument("an instant must be a valid Date, or text such as 2026-05-01T12:00:00Z");
}

/** Formats a duration for the protocol: text is unchanged, a number is in seconds. */
export function duration(value) {
  if (typeof value === "string") {
    return value;
  }
  if (typeof value === "number" && value >= 0 && Number.isFinite(value)) {
    return `PT${value.toFixed(7).replace(/\.?0+$/, "")}S`;
  }
  throw argument("a duration must be a number of seconds, or text such as PT30S");
}

export const isBytes = (value) => ArrayBuffer.isView(value) || value instanceof ArrayBuffer;

const asBytes = (value) =>
  value instanceof ArrayBuffer
    ? new Uint8Array(value)
    : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);

export function toBase64(value) {
  const bytes = asBytes(value);
  let text = "";
  // A call takes a limited number of arguments.
  for (let place = 0; place < bytes.length; place += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(place, place + 0x8000));
  }
  return btoa(text);
}

export function fromBase64(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) {
    bytes[place] = text.charCodeAt(place);
  }
  return bytes;
}
