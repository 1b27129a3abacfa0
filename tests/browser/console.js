// Shared parts of the console's tests: requests to the broker, a page that reports each complaint of the browser, and checks
// of its content.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { atEnd } from "./support.js";

export const broker = process.env.PEEKLOCK_HTTP;
// A server for development may serve the files instead of the broker.
export const console_ = process.env.PEEKLOCK_CONSOLE ?? `${broker}/$console/`;
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
export const EVIL =
  '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script><svg onload=window.hacked=3>' +
  "\u202egnp.exe\u0007\u200b\u2066{{7*7}}${alert(1)}javascript:alert(1)\"'`--><style>*{display:none}</style>";
export const PHONE = { viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true };
export const DESK = { viewport: { width: 1360, height: 820 } };

let browser;

/** Starts the browser that all pages of a test file share. */
export async function launch() {
  assert.ok(broker, "PEEKLOCK_HTTP names no broker; run `./test browser`");
  const which = ["-c", 'command -v "${PEEKLOCK_CHROMIUM:-chromium}"'];
  const executablePath = execFileSync("/bin/sh", which, { encoding: "utf8" }).trim();
  browser = await chromium.launch({ executablePath, headless: true, args: ARGUMENTS });
}

export const close = () => browser?.close();

export async function ask(method, path, body, headers = {}) {
  const url = new URL(`$api/v1/${path}`, `${broker}/`);
  const text = await new Promise((resolve, reject) => {
    const asked = request(url, { method, headers: { "Content-Type": "application/json", ...headers } }, (answer) => {
      let text = "";
      answer.on("data", (part) => (text += part));
      answer.on("end", () => (answer.statusCode < 300 ? resolve(text) : reject(new Error(`${method} ${path}: ${text}`))));
    });
    asked.on("error", reject).end(body === undefined ? undefined : JSON.stringify(body));
  });
  return text === "" ? undefined : JSON.parse(text);
}

export const post = (path, body, headers) => ask("POST", path, body, headers);

/** A page of a new profile. The test fails for any line on the console, violation of the policy, dialogue or foreign request. */
export async function opened(t, options = {}, allowed = /^$/) {
  const context = await browser.newContext({ ...DESK, ...options });
  const tab = await context.newPage();
  tab.setDefaultTimeout(10_000);
  const complaints = [];
  await tab.addInitScript(() =>
    addEventListener("securitypolicyviolation", (event) => console.error(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`)),
  );
  tab.on("pageerror", (error) => complaints.push(String(error)));
  tab.on("console", (line) => complaints.push(line.text()));
  tab.on("dialog", (dialog) => {
    complaints.push(`dialogue ${dialog.message()}`);
    void dialog.dismiss();
  });
  tab.on("request", (asked) => {
    if (new URL(asked.url()).origin !== new URL(console_).origin) {
      complaints.push(`request to ${asked.url()}`);
    }
  });
  atEnd(t, async () => {
    await context.close();
    assert.deepEqual(complaints.filter((text) => !allowed.test(text)), []);
  });
  return tab;
}

/** Goes to a page and waits until it has been read. */
export async function visit(tab, fragment) {
  await tab.goto(`${console_}${fragment}`);
  await tab.locator("h1").first().waitFor();
  await tab.waitForFunction(() => !/Reading…/.test(document.body.innerText) && document.querySelector("[aria-busy=true]") === null);
}

/** Elements whose text has a contrast below 4.5, and targets below 24 pixels. */
export const flaws = () => {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (color) => {
    const [red, green, blue] = channels(color).slice(0, 3).map((value) => value / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let place = element; place; place = place.parentElement) {
      const { backgroundColor } = getComputedStyle(place);
      if ((channels(backgroundColor)[3] ?? 1) > 0) {
        return backgroundColor;
      }
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim() !== "");
    if (!element.checkVisibility() || element.closest(".hidden, :disabled, svg")) {
      continue;
    }
    if (hasText) {
      const [one, other] = [light(getComputedStyle(element).color), light(behind(element))];
      const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      if (contrast < 4.5) {
        found.push(`${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}: contrast ${contrast.toFixed(2)}`);
      }
    }
    if (element.matches("button, input, select, summary, .button, .tabs a, .rail a")) {
      const { width, height } = element.getBoundingClientRect();
      if (!element.matches("[type=checkbox]") && (height < 23.5 || width < 23.5)) {
        found.push(`${element.tagName} ${element.textContent.slice(0, 40)}: ${width.toFixed()} × ${height.toFixed()} pixels`);
      }
    }
    if (element.matches("button, a[href], input, select, textarea, [role=grid], [role=slider], [role=tree]")) {
      const name = element.getAttribute("aria-label") ?? (element.labels?.[0]?.textContent || element.textContent);
      if (name.trim() === "") {
        found.push(`${element.outerHTML.slice(0, 100)}: no name`);
      }
    }
  }
  return found;
};

/** Elements that only hostile text could have made. */
export const foreign = () =>
  [...document.querySelectorAll("img, iframe, object, embed, style, link[rel=import], base, form[action], svg:not(.bars svg, .map svg), script:not([src])")]
    .map((element) => element.outerHTML)
    .concat(globalThis.hacked === undefined ? [] : [`hacked ${globalThis.hacked}`]);

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Findings of an accessibility engine. */
export async function barriers(tab) {
  await tab.evaluate(axe);
  const { violations } = await tab.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`);
}

export const rows = (tab) => tab.locator("tbody tr:not(.space)");

export const press = async (tab, ...keys) => {
  for (const key of keys) {
    await tab.keyboard.press(key);
  }
};

/** Answers questions about the role as if the client had this one. */
export const as = (tab, role) => tab.route("**/sign-in*", (route) => route.fulfill({ status: 200, contentType: "application/json", body: JSON.stringify({ role, isSignedIn: true, nowUtc: new Date().toISOString() }) }));

/** Checks a page in its present state. */
export async function isReadable(tab, name) {
  assert.deepEqual(await tab.evaluate(foreign), [], name);
  assert.deepEqual(await tab.evaluate(flaws), [], name);
  assert.deepEqual(await barriers(tab), [], name);
  const [width, room] = await tab.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(width <= room, `${name}: ${width} pixels wide`);
  const text = await tab.evaluate("document.body.innerText + document.title");
  assert.doesNotMatch(text, /[\0-\x08\x0b-\x1f\u202e\u200b\u2066]|undefined|NaN|\[object/, name);
}
