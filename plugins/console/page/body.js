// @ts-check
// Body of a message, as text in the form that fits it. Only its beginning is read; more on demand, all as a download.

import { downloadAddress, getBytes } from "./api.js";
import { token } from "./credential.js";
import { amqp, format, hexLine, indentXml, packing, protobuf, read, unpack, utf8 } from "./decode.js";
import { number, size, visible } from "./format.js";
import { Choice, Copy, Problem, Text } from "./parts.js";
import { useResource } from "./resource.js";
import { html, useId, useMemo, useRef, useState } from "./view.js";

const FIRST_BYTES = 256 << 10;
const FORMATTED_BYTES = 1 << 20;

/** Reads the beginning of a body. */
function useBody(path, count) {
  return useResource(path && `body ${path} ${count}`, async (signal) => {
    const part = await getBytes(path, 0, count, signal);
    const how = packing(part.bytes);
    const isCut = part.total > part.bytes.length;
    const unpacked = how ? await unpack(part.bytes, how) : { bytes: part.bytes, isCut };
    const isUseful = unpacked.bytes.length > 0;
    return {
      kind: part.kind,
      total: part.total,
      readBytes: part.bytes.length,
      packing: isUseful ? how : undefined,
      bytes: isUseful ? unpacked.bytes : part.bytes,
      isCut: isCut || (isUseful && unpacked.isCut),
    };
  }, { every: 0 });
}

/** Returns the forms that a body can be shown in, the best one first. */
function formsOf({ bytes, isCut, kind }, contentType) {
  const forms = [];
  const text = utf8(bytes, isCut);
  const start = text?.trimStart()[0] ?? "";
  if (kind === "value" || kind === "sequence") {
    const value = isCut ? undefined : amqp(bytes);
    if (value !== undefined) {
      forms.push({ id: "amqp", name: "AMQP value", text: value });
    }
  }
  if (text !== undefined && bytes.length <= FORMATTED_BYTES && !isCut && /[[{"\d-]/.test(start)) {
    try {
      const node = read(text);
      const event = cloudEvent(node);
      if (event !== undefined) {
        forms.push({ id: "event", name: "CloudEvents", text: event });
      }
      if (node.entries.length > 0) {
        forms.push({ id: "tree", name: "Tree", node }, { id: "json", name: "Formatted", text: format(node) });
      }
    } catch (error) {
      if (/json/i.test(contentType)) {
        forms.push({ id: "flaw", name: "Text", text, note: /** @type {Error} */ (error).message });
      }
    }
  }
  if (text !== undefined && start === "<" && bytes.length <= FORMATTED_BYTES) {
    forms.push({ id: "xml", name: "XML", text: indentXml(text) });
  }
  if (text !== undefined && !forms.some(({ id }) => id === "flaw")) {
    forms.push({ id: "text", name: "Text", text });
  }
  if (!isCut && bytes.length > 0 && bytes.length <= FORMATTED_BYTES && (text === undefined || /proto/i.test(contentType))) {
    const lines = protobuf(bytes);
    if (lines !== undefined) {
      const form = { id: "proto", name: "Protobuf", text: lines, note: "without a schema: field numbers, and the likely type" };
      /proto/i.test(contentType) ? forms.unshift(form) : forms.push(form);
    }
  }
  forms.push({ id: "hex", name: "Bytes", bytes });
  return forms;
}

/** Returns attributes and data of an event in the structured form of CloudEvents; undefined for other JSON. */
function cloudEvent(node) {
  const attributes = new Map(node.type === "object" ? node.entries : []);
  if (!["specversion", "id", "source", "type"].every((name) => attributes.get(name)?.type === "string")) {
    return undefined;
  }
  const isData = (name) => name === "data" || name === "data_base64";
  const lines = node.entries.filter(([name]) => !isData(name)).map(([name, value]) => `${name}: ${value.type === "string" ? value.text : format(value)}`);
  const data = node.entries.find(([name]) => isData(name));
  return data ? [...lines, "", data[1].type === "string" ? data[1].text : format(data[1])].join("\n") : lines.join("\n");
}

const HEX_BYTES = 16 << 10;

export function Body({ path, head }) {
  const [wanted, setWanted] = useState(FIRST_BYTES);
  const [chosen, setChosen] = useState("");
  const [hexBytes, setHexBytes] = useState(HEX_BYTES);
  const [failure, setFailure] = useState(/** @type {any} */ (undefined));
  const bodyPath = `${path}/messages/${head.sequenceNumber}/body`;
  const hasBody = head.bodySize > 0 && !head.unreadable;
  const state = useBody(hasBody ? bodyPath : undefined, wanted);
  const { value } = state;
  const contentType = head.contentType ?? "";
  const forms = useMemo(() => (value ? formsOf(value, contentType) : []), [value, contentType]);
  if (head.unreadable) {
    return html`<p class="problem">The store cannot read this message. <code>peeklock verify</code> shows the damage when the broker is stopped.</p>`;
  }
  if (!hasBody) {
    return html`<p class="quiet">The body is empty.</p>`;
  }
  if (!value) {
    return html`<${Problem} error=${state.error} onRetry=${state.refresh} />${!state.error && html`<p class="quiet">Reading…</p>`}`;
  }
  const form = forms.find(({ id }) => id === chosen) ?? forms[0];
  const name = `${head.sequenceNumber}.bin`;
  const download = async (event) => {
    if (token() === undefined) {
      return;
    }
    // A link carries no token.
    event.preventDefault();
    try {
      const link = document.createElement("a");
      link.href = await downloadAddress(bodyPath);
      link.download = name;
      link.click();
    } catch (error) {
      setFailure(error);
    }
  };
  const shownText = form.text ?? (form.node ? format(form.node) : "");
  return html`<div class="body">
    <div class="tools">
      <${Choice} label="Form of the body" value=${form.id} options=${forms.map(({ id, name }) => [id, name])} onChange=${setChosen} />
      <span class="quiet">${size(value.total)}${value.packing ? `, ${value.packing}, ${size(value.bytes.length)} unpacked` : ""}${contentType ? html`, <${Text} value=${contentType} max=${60} />` : null}</span>
      <span class="gap"></span>
      ${form.id !== "hex" && html`<${Copy} text=${() => shownText} what="body" />`}
      <a class="button" href=${new URL(`../$api/v1/${bodyPath}`, document.baseURI).href} download=${name} onClick=${download}>Download</a>
    </div>
    <${Problem} error=${failure} />
    ${form.note && html`<p class="quiet">${form.note}</p>`}
    ${form.id === "tree" ? html`<${Tree} node=${form.node} label="Body as a tree" />` : null}
    ${form.id === "hex" ? html`<${Hex} bytes=${form.bytes} shown=${hexBytes} onMore=${() => setHexBytes(hexBytes * 4)} />` : null}
    ${form.text !== undefined ? html`<pre class="text" tabindex="0" aria-label="Body"><${Text} value=${form.text} lines=${true} /></pre>` : null}
    ${
      value.readBytes < value.total &&
      html`<p class="quiet">The first ${size(value.readBytes)} of ${size(value.total)}.
      ${value.readBytes < FORMATTED_BYTES ? html` <button type="button" onClick=${() => setWanted(FORMATTED_BYTES)}>Read up to 1 MiB</button>` : " Download it for the rest."}</p>`
    }
  </div>`;
}

function Hex({ bytes, shown, onMore }) {
  const end = Math.min(shown, bytes.length);
  const text = useMemo(() => Array.from({ length: Math.ceil(end / 16) }, (_, line) => hexLine(bytes.subarray(0, end), line * 16)).join("\n"), [bytes, end]);
  return html`<pre class="text hex" tabindex="0" aria-label="Bytes of the body">${text}</pre>
    ${end < bytes.length && html`<p class="quiet">${number(end)} of ${number(bytes.length)} bytes. <button type="button" onClick=${onMore}>Show more</button></p>`}`;
}

const OPENED_MAX = 500;
const NODES_MAX = 5000;
const TEXT_MAX = 2000;

/** Chooses the nodes that are open at first: level by level, while they have at most 500 entries together. */
function opened(root) {
  const open = new Set([root]);
  let count = root.entries.length;
  let level = [root];
  while (level.length > 0) {
    const next = level.flatMap((node) => node.entries.map(([, value]) => value)).filter((value) => value.entries.length > 0);
    const added = next.reduce((sum, value) => sum + value.entries.length, 0);
    if (count + added > OPENED_MAX) {
      break;
    }
    count += added;
    next.forEach((value) => open.add(value));
    level = next;
  }
  return open;
}

/** Lines of the open nodes, at most `NODES_MAX`. */
function linesOf(root, open) {
  const lines = [];
  const stack = [{ node: root, name: undefined, depth: 0, path: "$" }];
  while (stack.length > 0 && lines.length < NODES_MAX) {
    const line = /** @type {any} */ (stack.pop());
    lines.push(line);
    if (open.has(line.node)) {
      const isArray = line.node.type === "array";
      for (let place = Math.min(line.node.entries.length, NODES_MAX) - 1; place >= 0; place -= 1) {
        const [name, node] = line.node.entries[place];
        const step = isArray ? `[${name}]` : /^[A-Za-z_]\w*$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`;
        stack.push({ node, name, depth: line.depth + 1, path: line.path + step, isIndex: isArray });
      }
    }
  }
  return { lines, isCut: stack.length > 0 };
}

/** A JSON value as a tree: lines of equal height, moved through with the arrow keys. */
function Tree({ node: root, label }) {
  const id = useId();
  const [open, setOpen] = useState(() => opened(root));
  const [active, setActive] = useState(0);
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const { lines, isCut } = useMemo(() => linesOf(root, open), [root, open]);
  const at = Math.min(active, lines.length - 1);
  const toggle = (node, on) => {
    const next = new Set(open);
    on ? next.add(node) : next.delete(node);
    setOpen(next);
  };
  const move = (place) => {
    const to = Math.max(0, Math.min(lines.length - 1, place));
    setActive(to);
    list.current?.children[to]?.scrollIntoView({ block: "nearest" });
  };
  const onKeyDown = (event) => {
    const line = lines[at];
    const isParent = line.node.entries.length > 0;
    const isOpen = open.has(line.node);
    const acts = {
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at - 1),
      Home: () => move(0),
      End: () => move(lines.length - 1),
      ArrowRight: () => (isParent && !isOpen ? toggle(line.node, true) : move(at + 1)),
      ArrowLeft: () => (isParent && isOpen ? toggle(line.node, false) : move(lines.findLastIndex((one, place) => place < at && one.depth < line.depth))),
      Enter: () => isParent && toggle(line.node, !isOpen),
    };
    if (event.key in acts && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      acts[event.key]();
    }
  };
  return html`<ul class="tree text" role="tree" tabindex="0" aria-label=${label} ref=${list} aria-activedescendant=${`${id}-${at}`} onKeyDown=${onKeyDown}>
      ${lines.map(({ node, name, depth, isIndex }, place) => {
        const isParent = node.entries.length > 0;
        const isOpen = open.has(node);
        return html`<li key=${place} id=${`${id}-${place}`} role="treeitem" aria-level=${depth + 1} aria-expanded=${isParent ? isOpen : undefined}
          aria-selected=${place === at} class=${place === at ? "active" : ""} style=${{ paddingLeft: `${depth * 16 + 4}px` }}
          onClick=${() => {
            setActive(place);
            if (isParent && String(getSelection()) === "") {
              toggle(node, !isOpen);
            }
          }}>
          <span class="twig" aria-hidden="true">${isParent ? (isOpen ? "▾" : "▸") : ""}</span>${name !== undefined && html`<span class=${isIndex ? "index" : "key"}><${Text} value=${name} max=${200} /></span>: `}<${Value} node=${node} />
        </li>`;
      })}
    </ul>
    <p class="quiet small">${lines[at] && html`<span class="mono"><${Text} value=${lines[at].path} max=${300} /></span> <${Copy} text=${() => lines[at].path} what=${`path ${visible(lines[at].path.slice(0, 80))}`} label="Copy path" />`}
      ${isCut && html` The first ${number(NODES_MAX)} lines; download the body for the rest.`}</p>`;
}

function Value({ node }) {
  switch (node.type) {
    case "object":
      return html`<span class="quiet">${node.entries.length === 0 ? "{}" : `{ ${number(node.entries.length)} }`}</span>`;
    case "array":
      return html`<span class="quiet">${node.entries.length === 0 ? "[]" : `[ ${number(node.entries.length)} ]`}</span>`;
    case "string":
      return html`<span class="string">"<${Text} value=${node.text} max=${TEXT_MAX} />"</span>`;
    default:
      return html`<span class=${node.type}>${node.text}</span>`;
  }
}
