// Opens a page in a headless Chromium and prints its text after each change, until it is killed:
// `look.mjs URL`.

import { execFileSync } from "node:child_process";
import { chromium } from "playwright-core";

const which = ["-c", 'command -v "${PEEKLOCK_CHROMIUM:-chromium}"'];
const executablePath = execFileSync("/bin/sh", which, { encoding: "utf8" }).trim();
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const browser = await chromium.launch({ executablePath, headless: true, args });
const page = await browser.newPage();
page.on("pageerror", (error) => console.log(`page error: ${error}`));
await page.exposeFunction("print", (text) => console.log(text));
await page.addInitScript(() => {
  addEventListener("DOMContentLoaded", () => {
    const report = () => globalThis.print(document.body.innerText);
    new MutationObserver(report).observe(document.body, { childList: true, subtree: true, characterData: true });
    report();
  });
});
await page.goto(process.argv[2]);
