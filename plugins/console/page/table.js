// @ts-check
// The table of every list: rows of equal height, of which only some around the visible part are in the document. The table has the focus
// and names its active row, so that the focus is never lost. While the pointer is on the rows or the table has the focus,
// rows keep their order: values change in place, and new rows wait behind a button.

import { number, visible } from "./format.js";
import { useKeys } from "./keys.js";
import { preferences, rowHeight } from "./preferences.js";
import { go, route } from "./route.js";
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "./view.js";

const AROUND = 12;
const ROWS_MAX = 110;
const HEAD_PX = 34;
const NARROW = 700;
const WIDE_MIN = 130;
const MARK_PX = 40;

/** Scroll position and active row by address, for going back. */
const positions = new Map();
const POSITIONS_MAX = 50;

/**
 * @typedef {{ id: string, name: string, unit?: string, width: number, align?: "right", isWide?: boolean, rank?: number,
 *   sort?: string, mono?: boolean, cell: (row: any) => any, exact?: (row: any) => string | undefined }} Column
 * `rank` 1 columns stay; those with the largest number go first when there is no room. The column that `isWide` takes the
 * rest of the width.
 */

/** Keeps the order of rows while they are under the hand. Returns the rows to show, and how many are new. */
function useSteadyRows(rows, keyOf, isHeld, scope) {
  const shown = useRef(/** @type {any} */ ({ rows, scope }));
  if (isHeld && shown.current.source === rows && shown.current.scope === scope) {
    return shown.current.answer;
  }
  if (shown.current.scope !== scope || !isHeld || shown.current.rows.length === 0) {
    shown.current = { rows, scope };
    return { rows, newCount: 0, accept: () => {} };
  }
  const fresh = new Map(rows.map((row) => [keyOf(row), row]));
  const kept = shown.current.rows.map((row) => {
    const now = fresh.get(keyOf(row));
    fresh.delete(keyOf(row));
    return now ?? { ...row, isGone: true };
  });
  // Rows after the last known one do not move anything.
  const lastKey = kept.length > 0 ? keyOf(kept.at(-1)) : undefined;
  const lastAt = rows.findIndex((row) => keyOf(row) === lastKey);
  const appended = lastAt < 0 ? [] : rows.slice(lastAt + 1).filter((row) => fresh.has(keyOf(row)));
  const all = [...kept, ...appended];
  const answer = { rows: all, newCount: fresh.size - appended.length, accept: () => (shown.current = { rows, scope }) };
  shown.current = { rows: all, scope, source: rows, answer };
  return answer;
}

const NONE = /** @type {Set<string>} */ (new Set());

/** Keys of selected rows, and a function that changes them. Another list has another selection. */
export function useMarks(/** @type {string} */ scope) {
  const [marks, setMarks] = useState({ scope, keys: NONE });
  return /** @type {const} */ ([marks.scope === scope ? marks.keys : NONE, (/** @type {Set<string>} */ keys = NONE) => setMarks({ scope, keys })]);
}

/** Words for the number of rows that were read, and of all. */
function countOf(count, total, hasMore, [one, many]) {
  if (total !== undefined && total > count) {
    return `${number(count)} of ${number(total)} ${many}`;
  }
  return hasMore ? `The first ${number(count)} ${many}` : `${number(count)} ${count === 1 ? one : many}`;
}

/** Chooses the columns that have room, the least important ones last. */
function fitting(/** @type {Column[]} */ columns, /** @type {number} */ width) {
  let shown = columns;
  // In a narrow table the wide column takes less.
  const total = () => shown.reduce((sum, column) => sum + (column.isWide && width < NARROW ? Math.min(column.width, WIDE_MIN) : column.width), 0);
  // The number of a row alone says nothing, so another column stays and is cut.
  while (width > 0 && total() > width && shown.length > 2) {
    const rank = Math.max(...shown.map((column) => column.rank ?? 1));
    if (rank <= 1) {
      break;
    }
    const last = shown.findLastIndex((column) => (column.rank ?? 1) === rank);
    shown = shown.filter((_, place) => place !== last);
  }
  return shown.some((column) => column.isWide) ? shown : shown.map((column, place) => ({ ...column, isWide: place === shown.length - 1 }));
}

/**
 * @param {{ label: string, columns: Column[], rows: any[], keyOf: (row: any) => string, total?: number, scope: string,
 *   hrefOf?: (row: any) => string | undefined, onActive?: (row: any) => void, sort?: string, isDescending?: boolean,
 *   onSort?: (sort: string, isDescending: boolean) => void, hasMore?: boolean, loadMore?: () => void, isLoading?: boolean,
 *   selected?: string, empty?: any, short?: boolean, onOpen?: (row: any) => void, noun: [string, string],
 *   marked?: Set<string>, onMark?: (marked: Set<string>) => void }} options
 * `noun` names one row, and many. `marked` has the keys of selected rows.
 */
export function Table(options) {
  const { label, columns, keyOf, total, scope, hrefOf, sort, isDescending, onSort, hasMore, loadMore, isLoading, selected, empty, noun, marked, onMark } = options;
  preferences.use();
  const id = useId();
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const grid = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 400, width: 0 });
  const [active, setActive] = useState(/** @type {string | undefined} */ (selected));
  const [held, setHeld] = useState({ pointer: false, focus: false });
  const [, draw] = useState({});
  const { rows, newCount, accept } = useSteadyRows(options.rows, keyOf, held.pointer || held.focus || Boolean(marked?.size), scope);
  const lastMarked = useRef(/** @type {string | undefined} */ (undefined));
  const height = rowHeight();
  const address = `${route.value.parts.join("/")}|${scope}`;

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) {
      return undefined;
    }
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight, width: element.clientWidth });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, [rows.length === 0]);

  const restored = useRef("");
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element || restored.current === address || rows.length === 0) {
      return;
    }
    restored.current = address;
    const position = positions.get(address);
    const chosen = selected ?? position?.active;
    const at = rows.findIndex((row) => keyOf(row) === chosen);
    element.scrollTop = position?.top ?? Math.max(0, (at - 3) * height);
    setActive(chosen);
  });

  useEffect(() => {
    if (selected !== undefined) {
      setActive(selected);
    }
  }, [selected]);

  const remember = (change) => {
    positions.set(address, { ...positions.get(address), ...change });
    if (positions.size > POSITIONS_MAX) {
      positions.delete(positions.keys().next().value);
    }
  };
  const onScroll = (event) => {
    const { scrollTop, clientHeight, clientWidth } = event.currentTarget;
    remember({ top: scrollTop });
    setView({ top: scrollTop, height: clientHeight, width: clientWidth });
  };
  const bodyTop = Math.max(0, view.top - HEAD_PX);
  const first = Math.max(0, Math.min(Math.floor(bodyTop / height) - AROUND, rows.length));
  const last = Math.min(rows.length, first + Math.min(ROWS_MAX, Math.ceil(view.height / height) + 2 * AROUND));
  useEffect(() => {
    if (hasMore && !isLoading && last >= rows.length - 20) {
      loadMore?.();
    }
  });

  const place = rows.findIndex((row) => keyOf(row) === active);
  const move = (to) => {
    const bounded = Math.max(0, Math.min(rows.length - 1, to));
    const row = rows[bounded];
    if (!row) {
      return;
    }
    setActive(keyOf(row));
    remember({ active: keyOf(row) });
    options.onActive?.(row);
    const element = scroller.current;
    if (element) {
      const top = bounded * height;
      const room = element.clientHeight - HEAD_PX - 2;
      if (top < element.scrollTop) {
        element.scrollTop = top;
      } else if (top + height > element.scrollTop + room) {
        element.scrollTop = top + height - room;
      }
    }
  };
  const open = (row) => {
    if (options.onOpen) {
      options.onOpen(row);
      return;
    }
    const target = hrefOf?.(row);
    if (target) {
      go(target);
    }
  };
  const focus = () => {
    grid.current?.focus({ preventScroll: true });
    if (place < 0) {
      move(first > 0 ? first + AROUND : 0);
    }
  };
  /** Selects a row or removes it; with `isRange` all rows from the last one. */
  const mark = (index, isRange) => {
    const row = rows[index];
    if (!row || !onMark) {
      return;
    }
    const next = new Set(marked);
    const from = isRange ? rows.findIndex((one) => keyOf(one) === lastMarked.current) : -1;
    if (from >= 0) {
      rows.slice(Math.min(from, index), Math.max(from, index) + 1).forEach((one) => next.add(keyOf(one)));
    } else if (!next.delete(keyOf(row))) {
      next.add(keyOf(row));
    }
    lastMarked.current = keyOf(row);
    onMark(next);
  };
  const marking = onMark && [
    { keys: "x", does: "Select the row, or remove it from the selection", act: () => { focus(); mark(Math.max(0, place), false); } },
    { keys: "X", does: "Select all rows from the last selected one", act: () => { focus(); mark(Math.max(0, place), true); } },
  ];
  useKeys([
    ...(marking ?? []),
    { keys: "j", does: "Next row", act: () => { focus(); move(place + 1); } },
    { keys: "k", does: "Previous row", act: () => { focus(); move(Math.max(0, place - 1)); } },
  ]);
  const onKeyDown = (event) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const page = Math.max(1, Math.floor((view.height - HEAD_PX) / height) - 1);
    const steps = { ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + page, PageUp: place - page, Home: 0, End: rows.length - 1 };
    if (event.key in steps) {
      event.preventDefault();
      move(steps[event.key]);
    } else if (event.key === "Enter" && rows[place]) {
      event.preventDefault();
      open(rows[place]);
    }
  };
  const onFocus = (event) => {
    if (event.target === grid.current) {
      setHeld((was) => ({ ...was, focus: true }));
      if (place < 0 && rows.length > 0) {
        move(Math.ceil(bodyTop / height));
      }
    }
  };
  const onBlur = (event) => event.target === grid.current && setHeld((was) => ({ ...was, focus: false }));

  if (rows.length === 0 && empty && !isLoading) {
    return empty;
  }
  const shownColumns = fitting(columns, view.width - (onMark ? MARK_PX : 0));
  const sortBy = (column) => onSort?.(column.sort, column.sort === sort ? !isDescending : column.align === "right");
  const activeRow = rows[place];
  const notes = activeRow ? columns.map((column) => [column.name, column.exact?.(activeRow)]).filter(([, text]) => text) : [];
  return html`<div class=${`table-box ${options.short ? "short" : ""}`}>
    <div class="table-scroll" ref=${scroller} onScroll=${onScroll}
      onPointerEnter=${(event) => event.pointerType === "mouse" && setHeld((was) => ({ ...was, pointer: true }))}
      onPointerLeave=${() => setHeld((was) => ({ ...was, pointer: false }))}>
      <table ref=${grid} role="grid" tabindex="0" aria-multiselectable=${onMark ? "true" : undefined} aria-label=${label} aria-rowcount=${(total ?? rows.length) + 1}
        aria-colcount=${shownColumns.length + (onMark ? 1 : 0)} aria-busy=${Boolean(isLoading)}
        aria-activedescendant=${place >= first && place < last ? `${id}-${place}` : undefined}
        onKeyDown=${onKeyDown} onFocusIn=${onFocus} onFocusOut=${onBlur}>
        <colgroup>${onMark && html`<col key="mark" style=${{ width: `${MARK_PX}px` }} />`}${shownColumns.map((column) => html`<col key=${column.id} style=${column.isWide ? {} : { width: `${column.width}px` }} />`)}</colgroup>
        <thead><tr role="row" aria-rowindex="1">
          ${
            onMark &&
            html`<th role="columnheader" scope="col" class="mark"><label><input type="checkbox" tabindex="-1" aria-label=${`Select all ${noun[1]} that were read`}
              checked=${rows.length > 0 && rows.every((row) => marked?.has(keyOf(row)))}
              onChange=${(event) => onMark(new Set(event.currentTarget.checked ? rows.map(keyOf) : []))} /></label></th>`
          }
          ${shownColumns.map((column) => {
            const isSorted = column.sort !== undefined && column.sort === sort;
            const name = html`${column.name}${column.unit ? html` <span class="unit">${column.unit}</span>` : null}`;
            return html`<th key=${column.id} role="columnheader" scope="col" class=${column.align ?? ""}
              aria-sort=${isSorted ? (isDescending ? "descending" : "ascending") : undefined}>
              ${
                column.sort && onSort
                  ? html`<button type="button" onClick=${() => sortBy(column)}>${name}<span class="arrow" aria-hidden="true">${isSorted ? (isDescending ? "▼" : "▲") : ""}</span></button>`
                  : name
              }
            </th>`;
          })}
        </tr></thead>
        <tbody>
          ${first > 0 ? html`<tr aria-hidden="true" class="space" style=${{ height: `${first * height}px` }}></tr>` : null}
          ${rows.slice(first, last).map((row, offset) => {
            const index = first + offset;
            const key = keyOf(row);
            const target = hrefOf?.(row);
            return html`<tr key=${key} id=${`${id}-${index}`} role="row" aria-rowindex=${index + 2}
              aria-selected=${onMark ? marked?.has(key) === true : key === (selected ?? active)} class=${`${row.isGone ? "gone" : ""} ${key === active ? "active" : ""}`}
              onClick=${(event) => {
                if (event.target.closest("a, button, label") === null && String(getSelection()) === "") {
                  move(index);
                  open(row);
                }
              }}>
              ${
                onMark &&
                html`<td role="gridcell" class="mark"><label><input type="checkbox" tabindex="-1" aria-label=${`Select ${visible(key)}`} checked=${marked?.has(key) === true}
                  onClick=${(event) => mark(index, event.shiftKey)} /></label></td>`
              }
              ${shownColumns.map(
                (column, place) => html`<td key=${column.id} role="gridcell" class=${`${column.align ?? ""} ${column.mono ? "mono" : ""}`}>
                  ${place === 0 && target ? html`<a href=${target} tabindex="-1">${column.cell(row)}</a>` : column.cell(row)}
                </td>`,
              )}
            </tr>`;
          })}
          ${last < rows.length ? html`<tr aria-hidden="true" class="space" style=${{ height: `${(rows.length - last) * height}px` }}></tr>` : null}
        </tbody>
      </table>
    </div>
    <div class="table-foot">
      <span>${countOf(rows.length, total, hasMore, noun)}</span>
      ${notes.map(([name, text]) => html`<span key=${name}>${name} <span class="exact">${visible(text)}</span></span>`)}
      ${newCount > 0 && html`<button type="button" class="new" onClick=${() => { accept(); draw({}); }}>${number(newCount)} new</button>`}
    </div>
  </div>`;
}
