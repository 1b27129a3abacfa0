// The client and the page of the example in a headless Chromium, against the served example.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { atEnd, connected, drained, Proxy, queue, url } from "./support.js";

const page = process.env.PEEKLOCK_PAGE;
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
let browser;

before(async () => {
  assert.ok(page, "PEEKLOCK_PAGE names no page; run `./test browser`");
  const which = ["-c", 'command -v "${PEEKLOCK_CHROMIUM:-chromium}"'];
  const executablePath = execFileSync("/bin/sh", which, { encoding: "utf8" }).trim();
  browser = await chromium.launch({ executablePath, headless: true, args: ARGUMENTS });
});

after(() => browser?.close());

/** A page of a new profile. The test fails if the console shows an error. */
async function opened(t, path = "/", { allowed = /^$/, ...options } = {}) {
  const context = await browser.newContext(options);
  const tab = await context.newPage();
  tab.setDefaultTimeout(10_000);
  const complaints = [];
  tab.on("pageerror", (error) => complaints.push(String(error)));
  tab.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  atEnd(t, async () => {
    await context.close();
    assert.deepEqual(complaints.filter((text) => !allowed.test(text)), []);
  });
  await tab.goto(page + path);
  return tab;
}

/** The page with a queue of its own. */
async function openedAt(t, options = {}) {
  const connection = await connected(t);
  const path = await queue(connection, { lockDuration: "PT1M", ...options.queue });
  const tab = await opened(t, `/?queue=${encodeURIComponent(path)}`, options.page);
  await tab.waitForFunction((path) => document.querySelector("#queue").value === path, path);
  return { connection, path, tab, cards: (list = "live") => tab.locator(`#${list} .message`) };
}

const count = (tab, name, wanted) =>
  tab.waitForFunction(([name, wanted]) => document.querySelector(`[data-count=${name}]`).textContent === wanted, [
    name,
    String(wanted),
  ]);

// SET-01, SET-03, RCV-16, MSG-20, SND-05
test("the client works in the browser as it does in Node", async (t) => {
  const connection = await connected(t);
  const path = await queue(connection);
  // Any file of the same origin works. Without an icon the browser's request for one fails.
  const tab = await opened(t, "/style.css", { allowed: /404/ });
  const said = await tab.evaluate(
    async ([url, path]) => {
      const { connect, typed } = await import("/client/peeklock.js");
      const connection = await connect(url);
      const sender = connection.sender(path);
      const numbers = await Promise.all(Array.from({ length: 100 }, (_, place) => sender.send(`m${place}`)));
      await sender.send({ body: Uint8Array.of(0, 255), applicationProperties: { big: 2n ** 62n, i32: typed("i32", 5) } });
      const seen = [];
      const receiver = connection.receiver(path, { prefetch: 10 });
      for await (const message of receiver) {
        seen.push(message.text ?? Array.from(message.bytes));
        await message.complete();
        if (seen.length === 101) {
          const { big, i32 } = message.applicationProperties;
          seen.push(String(big), i32.type, i32.value);
          break;
        }
      }
      const refused = await connection.sender("browser/none").send("x").catch((error) => error);
      const { runtime } = await connection.queues.get(path);
      const { WebSocket } = globalThis;
      const closes = new Promise((resolve) => {
        // The browser determines how the socket ended.
        const { close } = WebSocket.prototype;
        WebSocket.prototype.close = function (code) {
          this.addEventListener("close", ({ wasClean, code }) => resolve([wasClean, code]));
          close.call(this, code);
        };
      });
      await connection.close();
      const total = runtime.totalMessageCount;
      return { numbers, seen, total, refused: [refused.condition, refused.retryable], closed: await closes };
    },
    [url, path],
  );
  assert.deepEqual(said.numbers, Array.from({ length: 100 }, (_, place) => place + 1));
  assert.deepEqual(said.seen.slice(0, 100), Array.from({ length: 100 }, (_, place) => `m${place}`));
  assert.deepEqual(said.seen.slice(100), [[0, 255], String(2n ** 62n), "i32", 5]);
  assert.equal(said.total, 0);
  assert.deepEqual(said.refused, ["EntityNotFound", false]);
  assert.deepEqual(said.closed, [true, 1000]);
});

// SET-01, SET-03, SET-05, SET-07, DEF-02, CNT-01
test("buttons settle messages, and the counts follow", async (t) => {
  const { tab, cards } = await openedAt(t);
  const send = async (body) => {
    await tab.fill("#body", body);
    await tab.click("#send button");
  };
  await send("one");
  await cards().getByText("one").waitFor();
  await count(tab, "activeMessageCount", 1);
  await tab.click('[aria-label="Abandon message 1"]');
  await cards().getByText("delivery 2").waitFor();
  await tab.click('[aria-label="Complete message 1"]');
  await cards().waitFor({ state: "detached" });
  await count(tab, "activeMessageCount", 0);

  await send("two");
  await tab.click('[aria-label="Defer message 2"]');
  await count(tab, "deferredMessageCount", 1);
  await tab.click("#tab-deferred");
  await tab.click('[aria-label="Receive message 2"]');
  await cards("deferred").waitFor({ state: "detached" });
  await tab.click("#tab-live");
  await tab.click('[aria-label="Dead-letter message 2"]');
  await count(tab, "deadLetterMessageCount", 1);
  await tab.click("#tab-dead");
  await cards("dead").getByText("by hand").waitFor();
  await tab.click('[aria-label="Send again message 2"]');
  await count(tab, "deadLetterMessageCount", 0);
  await tab.click("#tab-live");
  await cards().getByText("two").waitFor();
  await tab.click('[aria-label="Renew message 3"]');
  await tab.locator("#log").getByText("renewed the lock of #3").waitFor();
  await tab.click('[aria-label="Complete message 3"]');
  await count(tab, "activeMessageCount", 0);
});

test("content of messages is shown as text", async (t) => {
  const { connection, path, tab, cards } = await openedAt(t);
  const evil = '<img src=x onerror="window.hacked = true"><script>window.hacked = true</script>';
  await connection.sender(path).send({
    body: evil,
    subject: evil,
    applicationProperties: { [evil]: evil, ["__proto__"]: "polluted", bytes: Uint8Array.of(1) },
  });
  await connection.sender(path).send({ body: Uint8Array.of(0x3c, 0x69, 0xff) });
  await cards().nth(1).waitFor();
  assert.equal(await cards().first().locator("pre").textContent(), evil);
  assert.equal(await cards().first().locator("dd").first().textContent(), evil);
  assert.equal(await cards().nth(1).locator("pre").textContent(), "3 bytes: 3c 69 ff");
  await tab.click('[aria-label="Dead-letter message 1"]');
  await tab.click("#tab-dead");
  await cards("dead").waitFor();
  // A refusal that contains the user's input is shown as text as well.
  await tab.click("summary");
  await tab.fill("#path", evil);
  await tab.click("#create button");
  await tab.locator("#log .bad").first().waitFor();
  assert.equal(await tab.locator("main img, main script").count(), 0);
  assert.equal(await tab.evaluate("window.hacked"), undefined);
});

// RCV-16
test("locked messages are limited by the page", async (t) => {
  const { connection, path, tab, cards } = await openedAt(t);
  await tab.fill("#limit", "2");
  await connection.sender(path).sendBatch(["a", "b", "c", "d"]);
  await cards().nth(1).waitFor();
  const others = await drained(connection.receiver(path));
  assert.deepEqual(others.map(({ text }) => text), ["c", "d"]);
  await connection.receiver(path).settle(others, "release");
  await tab.click('[aria-label="Complete message 1"]');
  await cards().getByText("c", { exact: true }).waitFor();
  assert.equal(await cards().count(), 2);
});

test("everything can be done with the keyboard", async (t) => {
  const { tab, cards } = await openedAt(t);
  await tab.focus("#body");
  for (const text of ["first", "second"]) {
    await tab.keyboard.type(text);
    await tab.keyboard.press("Control+Enter");
    await cards().getByText(text).waitFor();
  }
  await tab.focus("#tab-live");
  await tab.keyboard.press("ArrowRight");
  assert.equal(await tab.evaluate("document.activeElement.id"), "tab-deferred");
  assert.equal(await tab.locator("#panel-live").isHidden(), true);
  await tab.keyboard.press("ArrowLeft");
  // Three steps through the controls to the first message.
  for (const step of ["receiving", "limit", "renew"]) {
    await tab.keyboard.press("Tab");
    assert.equal(await tab.evaluate("document.activeElement.id"), step);
  }
  await tab.keyboard.press("Tab");
  const focused = () => tab.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.id");
  assert.equal(await focused(), "Complete message 1");
  await tab.keyboard.press("Enter");
  await cards().getByText("first").waitFor({ state: "detached" });
  assert.equal(await focused(), "Complete message 2");
  await tab.keyboard.press("Space");
  await cards().waitFor({ state: "detached" });
  assert.equal(await focused(), "live");
});

// SET-21
test("a cut socket is reopened, and locked messages stay locked", async (t) => {
  const connection = await connected(t);
  const proxy = await Proxy.open(t);
  const path = await queue(connection);
  await connection.sender(path).sendBatch(["one", "two", "three"]);
  // The page's policy does not allow the address of the proxy.
  const tab = await opened(t, "/style.css", { bypassCSP: true, allowed: /WebSocket|404/ });
  await tab.route("**/broker.json", (route) => route.fulfill({ json: { url: proxy.url } }));
  await tab.goto(`${page}/?queue=${encodeURIComponent(path)}`);
  const cards = tab.locator("#live .message");
  await cards.nth(2).waitFor();
  for (const number of [1, 2, 3]) {
    proxy.cut();
    await tab.locator("#log").getByText("went on where it was").nth(number - 1).waitFor();
    await tab.click(`[aria-label="Complete message ${number}"]`);
    await tab.locator("#log").getByText(`completed #${number}`).waitFor();
  }
  assert.equal(await cards.count(), 0);
  assert.equal((await connection.queues.get(path)).runtime.totalMessageCount, 0);
  assert.ok(proxy.connections >= 4);
});

// SET-32
test("leaving the page releases locked messages uncounted", async (t) => {
  const { connection, path, tab, cards } = await openedAt(t);
  await connection.sender(path).send("left");
  await cards().waitFor();
  await tab.goto("about:blank");
  const [message] = await connection.receiver(path).receive({ waitSeconds: 5 });
  assert.deepEqual([message.text, message.deliveryCount], ["left", 1]);
});

// SEC-23
test("other pages cannot connect, and other host names are refused", async (t) => {
  const other = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<title>other</title>"));
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  const tab = await opened(t, "/", { allowed: /WebSocket/ });
  await tab.goto(`http://127.0.0.1:${other.address().port}/`);
  const code = await tab.evaluate(
    (url) =>
      new Promise((resolve) => {
        const socket = new WebSocket(url, ["peeklock.v1.json"]);
        socket.onclose = (event) => resolve(event.code);
        socket.onopen = () => resolve("open");
      }),
    url,
  );
  assert.equal(code, 1006);
  other.closeAllConnections();
  other.close();
  const status = await new Promise((resolve, reject) => {
    const asked = request(page, { headers: { Host: "evil.example" } }, ({ statusCode }) => resolve(statusCode));
    asked.on("error", reject).end();
  });
  assert.equal(status, 421);
});

test("the page fits a phone, and is readable in light and dark", async (t) => {
  for (const colorScheme of ["light", "dark"]) {
    const { connection, path, tab, cards } = await openedAt(t, { page: { colorScheme, viewport: { width: 320, height: 640 } } });
    await connection.sender(path).send({ body: "x".repeat(500), subject: "y".repeat(80), applicationProperties: { ["z".repeat(90)]: "v".repeat(90) } });
    await cards().waitFor();
    assert.ok((await tab.evaluate("document.documentElement.scrollWidth")) <= 320, colorScheme);
    const low = await tab.evaluate(() => {
      const channels = (color) => color.match(/[\d.]+/g).slice(0, 3).map((value) => Number(value) / 255);
      const light = (color) => {
        const [red, green, blue] = channels(color).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
      };
      const behind = (element) => {
        for (let place = element; place; place = place.parentElement) {
          const { backgroundColor } = getComputedStyle(place);
          if (backgroundColor !== "rgba(0, 0, 0, 0)") {
            return backgroundColor;
          }
        }
        return "rgb(255, 255, 255)";
      };
      const found = [];
      for (const element of document.querySelectorAll("h1, h2, h3, small, label, button, summary, pre, dt, dd, p, time, span")) {
        if (element.checkVisibility() && element.textContent) {
          const [one, other] = [light(getComputedStyle(element).color), light(behind(element))];
          const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
          if (contrast < 4.5) {
            found.push(`${element.textContent}: ${contrast.toFixed(2)}`);
          }
        }
      }
      return found;
    });
    assert.deepEqual(low, [], colorScheme);
  }
});
