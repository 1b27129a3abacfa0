// @ts-check
// Texts of values: numbers, sizes, durations, instants, and text of others with its invisible characters as escapes.

/** Characters that act on a terminal, change the order of letters, or cannot be seen; the command line has the same. */
const UNPRINTABLE =
  /[\0-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const HAS_UNPRINTABLE = new RegExp(UNPRINTABLE.source);

/**
 * Returns the escape of an unprintable character.
 * @param {string} character
 */
function escaped(character) {
  const short = { "\n": "\\n", "\t": "\\t", "\r": "\\r" }[character];
  const code = /** @type {number} */ (character.codePointAt(0));
  return short ?? (code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`);
}

/**
 * Splits text into parts that can be shown, and escapes.
 * @param {unknown} value
 * @param {boolean} [lines] keeps line breaks and tabs
 * @returns {{ text: string, isEscape: boolean }[]}
 */
export function parts(value, lines = false) {
  const text = String(value);
  if (!HAS_UNPRINTABLE.test(text)) {
    return text === "" ? [] : [{ text, isEscape: false }];
  }
  const found = [];
  let place = 0;
  for (const { 0: character, index } of text.matchAll(UNPRINTABLE)) {
    if (lines && (character === "\n" || character === "\t")) {
      continue;
    }
    if (lines && character === "\r" && text[index + 1] === "\n") {
      found.push({ text: text.slice(place, index), isEscape: false });
      place = index + 1;
      continue;
    }
    if (index > place) {
      found.push({ text: text.slice(place, index), isEscape: false });
    }
    found.push({ text: escaped(character), isEscape: true });
    place = index + character.length;
  }
  if (place < text.length) {
    found.push({ text: text.slice(place), isEscape: false });
  }
  return found;
}

/** Returns text as a single line, for titles and names of controls. */
export const visible = (/** @type {unknown} */ value) => parts(value).map(({ text }) => text).join("");

/** Cuts a text after a number of characters, never inside a character. */
export function cut(/** @type {string} */ text, /** @type {number} */ count) {
  if (text.length <= count) {
    return text;
  }
  const end = /[\ud800-\udbff]/.test(text[count - 1]) ? count - 1 : count;
  return `${text.slice(0, end)}…`;
}

const grouped = new Intl.NumberFormat("en-GB");

/** Returns an integer with its digits in groups. */
export const number = (/** @type {number | bigint | undefined} */ value) => (value === undefined ? "–" : grouped.format(value));

/** Returns a rate with up to three digits; small rates keep a fraction. */
export function rate(/** @type {number | undefined} */ value) {
  if (value === undefined) {
    return "–";
  }
  if (value === 0 || value >= 9.95) {
    return grouped.format(Math.round(value));
  }
  return value < 0.1 ? "<0.1" : value.toFixed(1);
}

/** Returns a count of bytes in the largest unit that leaves at least one. */
export function size(/** @type {number | undefined} */ bytes) {
  if (bytes === undefined) {
    return "–";
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = Number(bytes);
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.95 ? grouped.format(Math.round(value)) : value.toFixed(1)} ${units[unit]}`;
}

/** Returns a duration in its two largest units. */
export function span(/** @type {number} */ ms) {
  const seconds = Math.floor(Math.abs(ms) / 1000);
  const counts = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  const first = counts.findIndex((count) => count > 0);
  if (first < 0) {
    return "0 s";
  }
  const words = counts.map((count, unit) => `${grouped.format(count)} ${["d", "h", "min", "s"][unit]}`);
  const isOne = first === 3 || counts[first + 1] === 0 || (first === 0 && counts[0] >= 10);
  return isOne ? words[first] : `${words[first]} ${words[first + 1]}`;
}

/** Returns a duration in its largest unit only, for narrow columns. */
export const shortSpan = (/** @type {number} */ ms) => span(ms).replace(/^([\d,]+ \w+) .*$/, "$1");

/** Parses an ISO 8601 duration into milliseconds; undefined for another text. */
export function parseDuration(/** @type {string | undefined} */ text) {
  const found = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/.exec(text ?? "");
  if (!found) {
    return undefined;
  }
  const [days, hours, minutes, seconds] = found.slice(1).map((part) => Number(part ?? 0));
  return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000;
}

/** Returns an ISO 8601 duration in words; durations without an end have a word of their own. */
export function duration(/** @type {string | undefined} */ text) {
  const ms = parseDuration(text);
  if (ms === undefined) {
    return visible(text ?? "–");
  }
  return ms > 86_400_000 * 365 * 1000 ? "unlimited" : span(ms);
}

/** Returns the offset of a zone at an instant, as in ISO 8601. */
function offset(/** @type {Date} */ date) {
  const minutes = -date.getTimezoneOffset();
  const two = (/** @type {number} */ value) => String(Math.floor(Math.abs(value))).padStart(2, "0");
  return `${minutes < 0 ? "-" : "+"}${two(minutes / 60)}:${two(Math.abs(minutes) % 60)}`;
}

/**
 * Returns an instant in ISO 8601 to 1 ms with its offset.
 * @param {string | number} instant
 * @param {"local" | "utc"} zone
 */
export function exact(instant, zone) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) {
    return visible(instant);
  }
  if (zone === "utc") {
    return date.toISOString();
  }
  const local = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, -1) + offset(date);
}

/** Returns the time of day of an instant in the zone, to 1 s. */
export const clock = (/** @type {string | number} */ instant, /** @type {"local" | "utc"} */ zone) => exact(instant, zone).slice(11, 19);

/**
 * Returns the age of an instant, or the time until it.
 * @param {string | number} instant
 * @param {number} now
 */
export function age(instant, now) {
  const ms = now - new Date(instant).getTime();
  if (Number.isNaN(ms)) {
    return visible(instant);
  }
  return ms < -999 ? `in ${shortSpan(ms)}` : shortSpan(Math.max(0, ms));
}

/** Quotes a text for a POSIX shell; control characters need the form of bash, zsh and ksh. */
export function quoted(/** @type {string} */ text) {
  if (/^[\w@%+=:,./-]+$/.test(text)) {
    return text;
  }
  if (!HAS_UNPRINTABLE.test(text)) {
    return `'${text.replaceAll("'", "'\\''")}'`;
  }
  const bytes = new TextEncoder().encode(text);
  const escape = (/** @type {number} */ byte) =>
    byte >= 0x20 && byte < 0x7f && byte !== 0x27 && byte !== 0x5c ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`;
  // Each escape is a byte, so that no digit after it becomes a part.
  return `$'${Array.from(bytes, escape).join("")}'`;
}

/** Words of a name in camel case. */
export const words = (/** @type {string} */ name) => name.replace(/Utc$|In(Mega|Kilo)?[Bb]ytes$/, "").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().replace(/^./, (first) => first.toUpperCase());

/** Returns the value of an application property as text. */
export function propertyText(value) {
  if (value !== null && typeof value === "object") {
    return String(value.value);
  }
  return typeof value === "string" ? value : String(value);
}

/** Returns the type of an application property. A plain number is an i64 if it is whole. */
export function propertyType(value) {
  if (value === null) {
    return "null";
  }
  if (typeof value === "object") {
    return String(value.type);
  }
  return { string: "string", boolean: "bool", bigint: "i64" }[typeof value] ?? (Number.isInteger(value) ? "i64" : "f64");
}
