// JSON with whole numbers of 64 bits: `JSON.parse` would round what is above 2^53.

const LONG = /\d{16}/;
const WHOLE = /(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;

/** Parses a frame; a whole number that a `number` cannot hold comes as a `bigint`. */
export function parse(text) {
  if (!LONG.test(text)) {
    return JSON.parse(text);
  }
  // No value of the protocol is a list that begins with null, so this cannot be taken for another.
  const marked = outside(text, (part) => part.replace(WHOLE, (number) => `[null,"${number}"]`));
  return JSON.parse(marked, (_, value) => {
    if (!Array.isArray(value) || value.length !== 2 || value[0] !== null || typeof value[1] !== "string") {
      return value;
    }
    const number = Number(value[1]);
    return Number.isSafeInteger(number) ? number : BigInt(value[1]);
  });
}

/** Changes what stands outside of strings. */
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

/** The place after the string that begins at `start`. */
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
