// @ts-check
// A JSON reader that keeps numbers as they are written, the order of keys, and keys that appear twice.

const DEPTH_MAX = 512;
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
        if (open.length >= DEPTH_MAX) {
          throw new SyntaxError(`JSON with more than ${DEPTH_MAX} levels is shown as text`);
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
