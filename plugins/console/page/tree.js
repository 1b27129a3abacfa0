// @ts-check
// A JSON value as a tree: lines of equal height, moved through with the arrow keys.

import { number, visible } from "./format.js";
import { Copy, Text } from "./parts.js";
import { html, useId, useMemo, useRef, useState } from "./view.js";

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

export function Tree({ node: root, label }) {
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
