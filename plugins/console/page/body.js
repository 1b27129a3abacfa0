// @ts-check
// Body of a message, as text in the form that fits it. Only its beginning is read; more on demand, all as a download.

import { downloadAddress, getBytes } from "./api.js";
import { token } from "./credential.js";
import { amqp, hexLine, indentXml, packing, protobuf, unpack, utf8 } from "./decode.js";
import { number, size } from "./format.js";
import { format, read } from "./json.js";
import { Choice, Copy, Problem, Text } from "./parts.js";
import { useResource } from "./resource.js";
import { Tree } from "./tree.js";
import { html, useMemo, useState } from "./view.js";

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
