// Application properties between JavaScript and the protocol (MSG-20), and bytes in base64.
//
//   string, boolean, null   as they are
//   number                  whole and safe: i64; any other: f64
//   bigint                  i64, or u64 above that
//   Date                    timestamp
//   Uint8Array              binary
//   TypedValue              any type by its name, for instance typed("i32", 5)
//
// What comes from the broker takes the same way back. One thing is lost: an f64 without a fraction
// comes as a number, and a whole number is sent as i64; say typed("f64", 1) to send one.

import { argument, PeeklockError } from "./error.js";

const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;
const U64_MAX = 2n ** 64n - 1n;

/** The numbers that pairs of first number and count stand for; so many zeros, if the first is 0. */
export const runs = (pairs) =>
  pairs.flatMap(([first, count]) => Array.from({ length: count }, (_, place) => (first === 0 ? 0 : first + place)));

/** A value with its type by name. */
export class TypedValue {
  constructor(type, value) {
    this.type = type;
    this.value = value;
    Object.freeze(this);
  }
}

/** Names the type of a value, where JavaScript has none for it. */
export const typed = (type, value) => new TypedValue(type, value);

/** Properties for a request. */
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

/** The JSON of a value whose type is named beside it. */
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

/** Properties of a message; the object has no prototype, whatever their names are. */
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

/** An instant as the protocol writes it. */
export function instant(value) {
  if (typeof value === "string") {
    return value;
  }
  if (value instanceof Date && !Number.isNaN(value.getTime())) {
    return value.toISOString();
  }
  throw argument("an instant must be a valid Date, or text such as 2026-05-01T12:00:00Z");
}

/** A duration as the protocol writes it: text as it is, a number in seconds. */
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
  // A call takes so many arguments and not many more.
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
