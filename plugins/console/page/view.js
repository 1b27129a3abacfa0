// @ts-check
// Everything that makes elements: Preact, its hooks, and `html`, the template tag. No other module imports the vendored
// files, and none makes an element in another way.

import { createElement } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = /** @type {any} */ (htm).bind(createElement);
export { Fragment, render } from "./vendor/preact.js";
export {
  useCallback,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "./vendor/hooks.js";
