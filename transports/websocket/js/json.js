// JSON with 64-bit integers: `JSON.parse` would round integers above 2^53.

const LONG = /\d{16}/;
const WHOLE = /(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;

/** Parses a frame; an integer that does not fit into a `number` becomes a `bigint`. */
export function parse(text) {
  if (!LONG.test(text)) {
    return JSON.parse(text);
  }
  // No value of the protocol is a list that begins with null, so the mark is unambiguous.
  const marked = outside(text, (part) => part.replace(WHOLE, (number) => `[null,"${number}"]`));
  return JSON.parse(marked, (_, value) => {
    if (!Array.isArray(value) || value.length !== 2 || value[0] !== null || typeof value[1] !== "string") {
      return value;
    }
    const number = Number(value[1]);
    return Number.isSafeInteger(number) ? number : BigInt(value[1]);
  });
}

/** Applies `change` to the text outside of strings. */
function outside(text, change) {
  const parts = [];
  let place = 0;
  for (;;) {
    const start = text.indexOf('"', place);
    if (start < 0) {
      parts.push(change(text.slice(place)));
      return parts.join("");
    }
    const end = endOfString(text, start);
    parts.push(change(text.slice(place, start)), text.slice(start, end));
    place = end;
  }
}

/** Returns the index after the string that begins at `start`. */
function endOfString(text, start) {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === "\\") {
      slashes += 1;
    }
    if (slashes % 2 === 0) {
      return end + 1;
    }
  }
  return text.length;
}
