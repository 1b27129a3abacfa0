// @ts-check
// Forms of bodies other than text: packed bytes, AMQP values, Protobuf without a schema, XML with line breaks, and JSON, whose
// reader keeps numbers as they are written, the order of keys, and keys that appear twice.

const UNPACKED_MAX = 8 << 20;
const FIELDS_MAX = 2000;
const DEPTH_MAX = 16;

/** Returns how a body is packed, by its first bytes; undefined for a plain one. */
export function packing(/** @type {Uint8Array} */ bytes) {
  if (bytes[0] === 0x1f && bytes[1] === 0x8b && bytes[2] === 8) {
    return "gzip";
  }
  const isZlib = (bytes[0] & 0x0f) === 8 && bytes[0] >> 4 <= 7 && bytes.length > 2 && ((bytes[0] << 8) | bytes[1]) % 31 === 0;
  return isZlib ? "deflate" : undefined;
}

/** Unpacks at most 8 MiB. `isCut` is set for more, and for a body of which only the beginning was read. */
export async function unpack(/** @type {Uint8Array} */ bytes, /** @type {"gzip" | "deflate"} */ how) {
  const reader = new Blob([/** @type {any} */ (bytes)]).stream().pipeThrough(new DecompressionStream(how)).getReader();
  const parts = [];
  let length = 0;
  let isCut = false;
  try {
    while (length < UNPACKED_MAX) {
      const { done, value } = await reader.read();
      if (done) {
        return { bytes: joined(parts, length), isCut };
      }
      parts.push(value);
      length += value.length;
    }
    isCut = true;
    void reader.cancel();
  } catch {
    isCut = true;
  }
  return { bytes: joined(parts, Math.min(length, UNPACKED_MAX)), isCut };
}

function joined(parts, length) {
  const all = new Uint8Array(length);
  let place = 0;
  for (const part of parts) {
    const room = part.subarray(0, length - place);
    all.set(room, place);
    place += room.length;
  }
  return all;
}

/** Returns bytes as text if they are UTF-8; a character that is cut at the end is left out. */
export function utf8(/** @type {Uint8Array} */ bytes, isCut = false) {
  for (let less = 0; less <= (isCut ? 3 : 0); less += 1) {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(0, bytes.length - less));
    } catch {
      // One byte less may end between two characters.
    }
  }
  return undefined;
}

/** Indents XML by its tags. It stays text: nothing in it is resolved, loaded or made an element. */
export function indentXml(/** @type {string} */ text) {
  const pieces = text.match(/<!--[\s\S]*?-->|<!\[CDATA\[[\s\S]*?\]\]>|<\?[\s\S]*?\?>|<[^>]*>|[^<]+/g) ?? [];
  const lines = [];
  let depth = 0;
  let isOpen = false;
  for (const piece of pieces) {
    if (!piece.startsWith("<")) {
      const value = piece.trim();
      if (value !== "") {
        lines.push(isOpen ? (lines.pop() ?? "") + value : "  ".repeat(depth) + value);
      }
      continue;
    }
    if (piece.startsWith("</")) {
      depth = Math.max(0, depth - 1);
      const last = lines.at(-1);
      if (isOpen && last !== undefined) {
        lines[lines.length - 1] = last + piece;
      } else {
        lines.push("  ".repeat(depth) + piece);
      }
      isOpen = false;
      continue;
    }
    lines.push("  ".repeat(depth) + piece);
    isOpen = !/^<[?!]/.test(piece) && !piece.endsWith("/>");
    depth += isOpen ? 1 : 0;
  }
  return lines.join("\n");
}

/**
 * Reads Protobuf without its schema; undefined if the bytes cannot be Protobuf.
 * @param {Uint8Array} bytes
 */
export function protobuf(bytes) {
  const budget = { left: FIELDS_MAX };
  const lines = fields(bytes, 0, budget);
  return lines && lines.length > 0 ? lines.join("\n") : undefined;
}

function fields(bytes, depth, budget) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const indent = "  ".repeat(depth);
  const lines = [];
  let place = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[place];
      if (byte === undefined) {
        return undefined;
      }
      place += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    return undefined;
  };
  while (place < bytes.length) {
    budget.left -= 1;
    const tag = varint();
    if (tag === undefined || tag >> 3n === 0n || tag >> 3n > 0x1fffffffn || budget.left < 0) {
      return undefined;
    }
    const name = `${indent}${tag >> 3n}:`;
    switch (Number(tag & 7n)) {
      case 0: {
        const value = varint();
        if (value === undefined) {
          return undefined;
        }
        lines.push(`${name} ${value}`);
        break;
      }
      case 1:
        if (place + 8 > bytes.length) {
          return undefined;
        }
        lines.push(`${name} ${view.getFloat64(place, true)} (fixed64 ${view.getBigUint64(place, true)})`);
        place += 8;
        break;
      case 5:
        if (place + 4 > bytes.length) {
          return undefined;
        }
        lines.push(`${name} ${view.getFloat32(place, true)} (fixed32 ${view.getUint32(place, true)})`);
        place += 4;
        break;
      case 2: {
        const length = varint();
        if (length === undefined || BigInt(place) + length > BigInt(bytes.length)) {
          return undefined;
        }
        const part = bytes.subarray(place, place + Number(length));
        place += Number(length);
        const text = utf8(part);
        const inner = part.length > 0 && depth < DEPTH_MAX && !(text && /^[\x20-\x7e\s]+$/.test(text)) ? fields(part, depth + 1, { left: budget.left }) : undefined;
        if (inner) {
          lines.push(`${name} {`, ...inner, `${indent}}`);
          budget.left -= inner.length;
        } else {
          lines.push(`${name} ${text === undefined ? `${hex(part.subarray(0, 64))}${part.length > 64 ? " …" : ""} (${part.length} bytes)` : JSON.stringify(text)}`);
        }
        break;
      }
      default:
        return undefined;
    }
  }
  return lines;
}

/** Returns bytes as hexadecimal pairs. */
export const hex = (/** @type {Uint8Array} */ bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");

/** Returns a line of a hexadecimal view: place, bytes in two groups, and printable ASCII. */
export function hexLine(/** @type {Uint8Array} */ bytes, /** @type {number} */ at) {
  const part = bytes.subarray(at, at + 16);
  const groups = `${hex(part.subarray(0, 8)).padEnd(23)}  ${hex(part.subarray(8)).padEnd(23)}`;
  const text = Array.from(part, (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
  return `${at.toString(16).padStart(8, "0")}  ${groups}  ${text}`;
}

/**
 * Reads an AMQP value or sequence as a line of JSON-like text; undefined if it cannot be read.
 * @param {Uint8Array} bytes
 */
export function amqp(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let place = 0;
  let left = FIELDS_MAX;
  const skip = (count) => {
    place += count;
    if (place > bytes.length) {
      throw new RangeError("cut");
    }
    return place - count;
  };
  const text = (length) => {
    const at = skip(length);
    return new TextDecoder().decode(bytes.subarray(at, at + length));
  };
  const list = (length, count, isMap, depth) => {
    const end = place + length;
    const values = [];
    for (let each = 0; each < count && place < end; each += 1) {
      values.push(value(depth + 1));
    }
    place = end;
    const inside = isMap ? values.flatMap((one, at) => (at % 2 ? [] : [`${one}: ${values[at + 1]}`])) : values;
    return isMap ? `{ ${inside.join(", ")} }` : `[${inside.join(", ")}]`;
  };
  const constructors = {
    0x40: () => "null", 0x41: () => "true", 0x42: () => "false", 0x43: () => "0", 0x44: () => "0", 0x45: () => "[]",
    0x50: () => String(bytes[skip(1)]), 0x51: () => String(view.getInt8(skip(1))), 0x52: () => String(bytes[skip(1)]),
    0x53: () => String(bytes[skip(1)]), 0x54: () => String(view.getInt8(skip(1))), 0x55: () => String(view.getInt8(skip(1))),
    0x56: () => (bytes[skip(1)] ? "true" : "false"), 0x60: () => String(view.getUint16(skip(2))), 0x61: () => String(view.getInt16(skip(2))),
    0x70: () => String(view.getUint32(skip(4))), 0x71: () => String(view.getInt32(skip(4))), 0x72: () => String(view.getFloat32(skip(4))),
    0x73: () => JSON.stringify(String.fromCodePoint(view.getUint32(skip(4)))), 0x80: () => String(view.getBigUint64(skip(8))),
    0x81: () => String(view.getBigInt64(skip(8))), 0x82: () => String(view.getFloat64(skip(8))),
    0x83: () => new Date(Number(view.getBigInt64(skip(8)))).toISOString(),
    0x98: () => hex(bytes.subarray(skip(16), place)).replaceAll(" ", "").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-"),
    0xa0: () => binary(bytes[skip(1)]), 0xa1: () => JSON.stringify(text(bytes[skip(1)])), 0xa3: () => text(bytes[skip(1)]),
    0xb0: () => binary(view.getUint32(skip(4))), 0xb1: () => JSON.stringify(text(view.getUint32(skip(4)))), 0xb3: () => text(view.getUint32(skip(4))),
    0xc0: (depth) => { const length = bytes[skip(1)]; return list(length - 1, bytes[skip(1)], false, depth); },
    0xc1: (depth) => { const length = bytes[skip(1)]; return list(length - 1, bytes[skip(1)], true, depth); },
    0xd0: (depth) => { const length = view.getUint32(skip(4)); return list(length - 4, view.getUint32(skip(4)), false, depth); },
    0xd1: (depth) => { const length = view.getUint32(skip(4)); return list(length - 4, view.getUint32(skip(4)), true, depth); },
  };
  const binary = (length) => `binary ${hex(bytes.subarray(skip(length), place))}`;
  function value(depth) {
    left -= 1;
    const code = bytes[skip(1)];
    const read = constructors[code];
    if (!read || depth > DEPTH_MAX || left < 0) {
      throw new RangeError("not an AMQP value");
    }
    return read(depth);
  }
  try {
    const lines = [];
    while (place < bytes.length) {
      // A section may have its descriptor before the value.
      if (bytes[place] === 0 && bytes[place + 1] === 0x53) {
        place += 3;
      }
      lines.push(value(0));
    }
    return lines.length > 0 ? lines.join("\n") : undefined;
  } catch {
    return undefined;
  }
}

const NESTED_MAX = 512;
const SPACE = /[ \t\r\n]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /true|false|null/y;

/**
 * @typedef {{ type: "object" | "array" | "string" | "number" | "word", text: string, entries: [string, Node][] }} Node
 * `text` is the value of a string, or a number or word as it is written.
 */

/**
 * Reads a text; throws a SyntaxError with the place of the first mistake.
 * @param {string} source
 * @returns {Node}
 */
export function read(source) {
  let place = source.charCodeAt(0) === 0xfeff ? 1 : 0;
  const take = (/** @type {RegExp} */ pattern) => {
    pattern.lastIndex = place;
    const found = pattern.exec(source)?.[0];
    place += found?.length ?? 0;
    return found;
  };
  const fail = () => {
    const before = source.slice(0, place).split("\n");
    throw new SyntaxError(`not JSON at line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}`);
  };
  const string = () => {
    const found = take(STRING);
    return found === undefined ? fail() : JSON.parse(found);
  };
  const scalar = () => {
    const first = source[place];
    if (first === '"') {
      return { type: "string", text: string(), entries: [] };
    }
    const number = take(NUMBER);
    if (number) {
      return { type: "number", text: number, entries: [] };
    }
    const word = take(WORD);
    return word ? { type: "word", text: word, entries: [] } : fail();
  };
  /** @type {{ node: any, key: string }[]} */
  const open = [];
  let done;
  take(SPACE);
  for (;;) {
    let value;
    const first = source[place];
    if (first === "{" || first === "[") {
      place += 1;
      value = { type: first === "{" ? "object" : "array", text: "", entries: [] };
      take(SPACE);
      if (source[place] === (first === "{" ? "}" : "]")) {
        place += 1;
      } else {
        if (open.length >= NESTED_MAX) {
          throw new SyntaxError(`JSON with more than ${NESTED_MAX} levels is shown as text`);
        }
        open.push({ node: value, key: key(value) });
        continue;
      }
    } else {
      value = scalar();
    }
    // The value is complete: it may complete those around it.
    for (;;) {
      take(SPACE);
      const around = open.at(-1);
      if (!around) {
        done = value;
        break;
      }
      around.node.entries.push([around.key, value]);
      if (source[place] === ",") {
        place += 1;
        take(SPACE);
        around.key = key(around.node);
        break;
      }
      if (source[place] !== (around.node.type === "object" ? "}" : "]")) {
        fail();
      }
      place += 1;
      value = around.node;
      open.pop();
    }
    if (done) {
      break;
    }
  }
  if (place < source.length) {
    fail();
  }
  return done;

  function key(node) {
    if (node.type === "array") {
      return String(node.entries.length);
    }
    const name = string();
    take(SPACE);
    if (source[place] !== ":") {
      fail();
    }
    place += 1;
    take(SPACE);
    return name;
  }
}

const STEP = /\.([\w$\u0080-\uffff-]+)|\[(-?\d+)\]|\[("(?:[^"\\]|\\.)*")\]|\[('(?:[^'\\]|\\.)*')\]/y;

/**
 * Reads a JSON path that selects one value, such as `$.order.lines[0].sku`; undefined for another text.
 * @param {string} text
 * @returns {(string | number)[] | undefined}
 */
export function readPath(text) {
  const steps = [];
  STEP.lastIndex = 1;
  while (text[0] === "$" && STEP.lastIndex < text.length) {
    const found = STEP.exec(text);
    if (!found) {
      return undefined;
    }
    const [, name, index, double, single] = found;
    try {
      steps.push(name ?? (index === undefined ? JSON.parse(double ?? `"${single.slice(1, -1).replace(/"/g, '\\"').replace(/\\'/g, "'")}"`) : Number(index)));
    } catch {
      return undefined;
    }
  }
  return steps.length > 0 ? steps : undefined;
}

/** Returns the value at a path; undefined if there is none. */
export function valueAt(/** @type {Node} */ node, /** @type {(string | number)[]} */ steps) {
  let found = /** @type {Node | undefined} */ (node);
  for (const step of steps) {
    if (typeof step === "number") {
      found = found?.type === "array" ? found.entries.at(step)?.[1] : undefined;
    } else {
      found = found?.type === "object" ? found.entries.findLast(([name]) => name === step)?.[1] : undefined;
    }
  }
  return found;
}

/** Writes a value with one entry in each line. */
export function format(/** @type {Node} */ node, indent = "") {
  const parts = [];
  write(node, indent, parts);
  return parts.join("");
}

function write(node, indent, parts) {
  const isObject = node.type === "object";
  if (!isObject && node.type !== "array") {
    parts.push(node.type === "string" ? JSON.stringify(node.text) : node.text);
    return;
  }
  const [open, close] = isObject ? "{}" : "[]";
  if (node.entries.length === 0) {
    parts.push(open, close);
    return;
  }
  const inner = `${indent}  `;
  parts.push(open);
  node.entries.forEach(([name, value], place) => {
    parts.push(place > 0 ? ",\n" : "\n", inner, isObject ? `${JSON.stringify(name)}: ` : "");
    write(value, inner, parts);
  });
  parts.push("\n", indent, close);
}
