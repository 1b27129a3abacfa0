// The console in a headless Chromium, against a broker without storage.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { chromium } from "playwright-core";
import { atEnd } from "./support.js";

const broker = process.env.PEEKLOCK_HTTP;
// A server for development may serve the files instead of the broker.
const console_ = process.env.PEEKLOCK_CONSOLE ?? `${broker}/$console/`;
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const EVIL =
  '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script><svg onload=window.hacked=3>' +
  "\u202egnp.exe\u0007\u200b\u2066{{7*7}}${alert(1)}javascript:alert(1)\"'`--><style>*{display:none}</style>";
const PHONE = { viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true };
const DESK = { viewport: { width: 1360, height: 820 } };

/** Addresses of all pages after the preparation. */
const PAGES = {
  overview: "#/",
  entities: "#/entities?kind=queue&sort=activeMessageCount&descending=true",
  messages: "#/queue/orders/messages",
  "message beside": "#/queue/orders/messages?at=3",
  message: "#/queue/orders/messages/3",
  "hostile message": "#/queue/orders/messages/5",
  "dead letters": "#/queue/orders/dead-letters",
  "dead letter": "#/queue/orders/dead-letters/1",
  scheduled: "#/queue/orders/scheduled",
  locks: "#/queue/orders/locks",
  charts: "#/queue/orders/charts",
  "settings of a queue": "#/queue/orders/settings",
  sessions: "#/queue/steps/sessions",
  session: `#/queue/steps/sessions?session=${encodeURIComponent(EVIL.slice(0, 100))}`,
  topic: "#/topic/events",
  rules: "#/subscription/events%2FSubscriptions%2Fall/rules",
  schedule: "#/schedule",
  expiring: "#/schedule?of=expiring&slot=3600",
  clients: "#/clients",
  settings: "#/settings",
};

let browser;

async function ask(method, path, body, headers = {}) {
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

const post = (path, body, headers) => ask("POST", path, body, headers);

before(async () => {
  assert.ok(broker, "PEEKLOCK_HTTP names no broker; run `./test browser`");
  const which = ["-c", 'command -v "${PEEKLOCK_CHROMIUM:-chromium}"'];
  const executablePath = execFileSync("/bin/sh", which, { encoding: "utf8" }).trim();
  browser = await chromium.launch({ executablePath, headless: true, args: ARGUMENTS });
  await ask("PUT", "queues/orders", { lockDuration: "PT5M", userMetadata: EVIL });
  await ask("PUT", "queues/steps", { requiresSession: true });
  await ask("PUT", "queues/idle", {});
  await ask("PUT", "topics/events", {});
  await ask("PUT", "topics/events/subscriptions/all", { rules: [{ name: "evil", filter: { type: "sql", sql: `subject = '${EVIL.replaceAll("'", "''")}'` } }] });
  const json = JSON.stringify({ id: 12345678901234567890n.toString(), list: [1, { deep: [EVIL] }], [EVIL]: EVIL }).replace('"12345678901234567890"', "12345678901234567890");
  const message = { body: json, contentType: "application/json", subject: "order", applicationProperties: { region: "eu", amount: { type: "i32", value: 7 } } };
  await post("queues/orders/messages/batch", { messages: [message, message, message, message] });
  const fields = ["messageId", "correlationId", "contentType", "subject", "to", "replyTo"];
  const hostile = Object.fromEntries(fields.map((name) => [name, EVIL.slice(0, 120)]));
  await post("queues/orders/messages", { ...hostile, body: EVIL, applicationProperties: { [EVIL.slice(0, 100)]: EVIL, ["__proto__"]: EVIL } });
  await post("queues/steps/messages", { body: EVIL, sessionId: EVIL.slice(0, 100) });
  await post("queues/orders/messages/schedule", { scheduledEnqueueTimeUtc: new Date(Date.now() + 600_000).toISOString(), messages: [{ body: "later", subject: EVIL.slice(0, 100) }] });
  const agent = { "User-Agent": EVIL.replace(/[^\x20-\x7e]/g, "") };
  const received = await post("queues/orders/messages/receive", { maxCount: 2 }, agent);
  await post(`queues/orders/locks/${received.messages[0].lockToken}/dead-letter`, { reason: EVIL, description: EVIL });
});

after(() => browser?.close());

/** A page of a new profile. The test fails for any line on the console, violation of the policy, dialogue or foreign request. */
async function opened(t, options = {}, allowed = /^$/) {
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
async function visit(tab, fragment) {
  await tab.goto(`${console_}${fragment}`);
  await tab.locator("h1").first().waitFor();
  await tab.waitForFunction(() => !/Reading…/.test(document.body.innerText) && document.querySelector("[aria-busy=true]") === null);
}

/** Elements whose text has a contrast below 4.5, and targets below 24 pixels. */
const flaws = () => {
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
const foreign = () =>
  [...document.querySelectorAll("img, iframe, object, embed, style, link[rel=import], base, form[action], svg:not(.bars svg), script:not([src])")]
    .map((element) => element.outerHTML)
    .concat(globalThis.hacked === undefined ? [] : [`hacked ${globalThis.hacked}`]);

for (const [scheme, options] of [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["phone", { colorScheme: "light", ...PHONE }],
]) {
  // CON-42, CON-43, CON-44, CON-46, CON-52, CON-53, CON-56, CON-66, CON-67, CON-68, CON-76: in both schemes and at 320
  // pixels
  test(`every page is readable and makes no element of a text: ${scheme}`, async (t) => {
    const tab = await opened(t, options);
    for (const [name, fragment] of Object.entries(PAGES)) {
      await visit(tab, fragment);
      assert.deepEqual(await tab.evaluate(foreign), [], name);
      assert.deepEqual(await tab.evaluate(flaws), [], name);
      assert.equal(await tab.locator(".problem").count(), 0, name);
      const width = await tab.evaluate("document.documentElement.scrollWidth");
      assert.ok(width <= (options.viewport ?? DESK.viewport).width, `${name}: ${width} pixels wide`);
      const text = await tab.evaluate("document.body.innerText + document.title");
      assert.doesNotMatch(text, /[\0-\x08\x0b-\x1f\u202e\u200b\u2066]|undefined|NaN|\[object/, name);
    }
  });
}

/** Texts that other consoles have taken for markup, addresses, templates, formats or controls. */
const HOSTILE = [
  ...["script", "iframe", "object", "embed", "style", "link", "meta", "base", "form", "template", "noscript", "title"].map((tag) => `<${tag} src=//evil href=//evil>window.hacked=1</${tag}>`),
  ...["img", "svg", "video", "audio", "body", "input", "details", "marquee"].map((tag) => `<${tag} src=x onerror=window.hacked=1 onload=window.hacked=1 ontoggle=window.hacked=1 open autofocus onfocus=window.hacked=1>`),
  ...["javascript:window.hacked=1", "data:text/html,<script>window.hacked=1</script>", "vbscript:x", "//evil.example", "http://evil.example/", "file:///etc/passwd", "blob:x", "#/settings", "?", "../../"],
  ...["${window.hacked=1}", "{{constructor.constructor('window.hacked=1')()}}", "<%= 1 %>", "#{1}", "%s%n%d", "{0}", "$1$&", "\\u003cimg\\u003e", "&lt;img&gt;", "&#60;img&#62;"],
  ...["]]>", "-->", "*/", "';--", "\"'`", "</pre></td></table>", "\\", "\n\r\t", "a\u0000b", "\u001b[31mred\u001b]0;title\u0007"],
  ...["\u202eevil", "\u2066a\u2069", "\u200bzero", "\ufeffmark", "\u{e0041}tag", "\u00adsoft", "e\u0301\u0301\u0301", "ﷺ".repeat(50), "𝕬𝖇", "👩‍🚀"],
  ...["__proto__", "constructor", "toString", "hasOwnProperty", "undefined", "null", "NaN", "[object Object]"],
  "x".repeat(120),
];

// CON-68: each hostile text in each field, in the list and in the message
test("sixty hostile texts stay texts", async (t) => {
  assert.ok(HOSTILE.length >= 60, String(HOSTILE.length));
  await ask("PUT", "queues/hostile", {});
  const messages = HOSTILE.map((text) => ({ body: text, messageId: text.slice(0, 120), correlationId: text, subject: text, contentType: text, to: text, replyTo: text, applicationProperties: { [text]: text, DeadLetterReason: text, DeadLetterErrorDescription: text } }));
  await post("queues/hostile/messages/batch", { messages });
  const tab = await opened(t);
  await visit(tab, "#/queue/hostile/messages");
  await tab.getByRole("grid").focus();
  await tab.keyboard.press("v");
  for (const place of HOSTILE.keys()) {
    const message = tab.getByRole("complementary", { name: `Message ${place + 1}`, exact: true });
    await message.getByText("Application properties").waitFor();
    await message.locator(".body .text").first().waitFor();
    assert.deepEqual(await tab.evaluate(foreign), [], HOSTILE[place]);
    assert.doesNotMatch(await tab.evaluate("document.body.innerText"), /[\0-\x08\x0b-\x1f\u202e\u200b\u2066\u00ad\ufeff]/, HOSTILE[place]);
    const links = await tab.evaluate("[...document.querySelectorAll('a[href]')].map((link) => link.href).filter((href) => !href.startsWith(location.origin))");
    assert.deepEqual(links, [], HOSTILE[place]);
    await tab.keyboard.press("j");
  }
});

// CON-45, CON-46, CON-68
test("a message shows exact numbers, and hostile text as text with escapes", async (t) => {
  const tab = await opened(t);
  await visit(tab, PAGES.message);
  await tab.getByRole("tree").getByText("12345678901234567890").waitFor();
  await tab.getByRole("button", { name: "Formatted" }).click();
  assert.match(await tab.locator("pre").innerText(), /"id": 12345678901234567890,/);
  await visit(tab, PAGES["hostile message"]);
  await tab.getByRole("button", { name: "Text" }).click();
  const shown = await tab.locator("pre").innerText();
  assert.ok(shown.startsWith('<img src=x onerror="window.hacked=1">'), shown);
  assert.match(shown, /\\u\{202e\}gnp\.exe\\x07\\u\{200b\}/);
  await visit(tab, PAGES["dead letter"]);
  assert.match(await tab.locator(".reason").innerText(), /\\u\{202e\}/);
});

// CON-45, CON-68: a copied command is quoted for the shell, and exact
test("a copied command reads the body of its message", async (t) => {
  // The address has a dollar sign.
  const queue = "queues/copied%2Fplain";
  await ask("PUT", queue, {});
  await post(`${queue}/messages`, { body: EVIL });
  const tab = await opened(t, { permissions: ["clipboard-read", "clipboard-write"] });
  await visit(tab, "#/queue/copied%2Fplain/messages/1");
  await tab.getByRole("button", { name: "curl curl command for the body" }).click();
  await tab.getByRole("status").getByText("Copied curl command").waitFor();
  const command = await tab.evaluate("navigator.clipboard.readText()");
  assert.equal(execFileSync("sh", ["-c", command.replace("curl ", "curl -sS ")], { encoding: "utf8" }), EVIL);
});

// CON-46
test("a body is shown in the form that fits it", async (t) => {
  await ask("PUT", "queues/forms", {});
  const bytes = (list) => Buffer.from(list).toString("base64");
  const bodies = [
    [{ bodyBase64: gzipSync('{"packed":[1,2]}').toString("base64") }, "Tree", /packed/],
    [{ body: '<a x="1"><b>t</b><c/></a>' }, "XML", /^<a x="1">\n  <b>t<\/b>\n  <c\/>\n<\/a>/],
    [{ bodyBase64: bytes([8, 0xac, 2, 18, 3, 97, 98, 99, 0x1d, 0, 0, 0x80, 0x3f, 0x22, 2, 0xff, 0xfe]) }, "Protobuf", /1: 300\n2: "abc"\n3: 1 [^]*4: ff fe/],
    [{ bodyBase64: bytes([0xff, 0, 1]) }, "Bytes", /00000000 {2}ff 00 01/],
    [{ body: '{"specversion":"1.0","id":"7","source":"/s","type":"t","data":{"n":1.0}}' }, "CloudEvents", /type: t\n\n\{\n {2}"n": 1\.0\n\}/],
    [{ body: "[1,2", contentType: "application/json" }, "Text", /^\[1,2/],
    [{ body: `[${"[".repeat(600)}${"]".repeat(600)}]` }, "Text", /^\[\[/],
    [{ body: "x".repeat(300_000) }, "Text", /^x+$/],
  ];
  await post("queues/forms/messages/batch", { messages: bodies.map(([body]) => body) });
  const tab = await opened(t);
  for (const [place, [, form, pattern]] of bodies.entries()) {
    await visit(tab, `#/queue/forms/messages/${place + 1}`);
    const chosen = tab.getByRole("group", { name: "Form of the body" }).getByRole("button", { pressed: true });
    assert.equal(await chosen.innerText(), form, String(place));
    assert.match((await tab.locator(".body .text").innerText()).trim(), pattern);
  }
  await tab.getByText("The first 256 KiB of 293 KiB.").waitFor();
  await tab.getByRole("button", { name: "Read up to 1 MiB" }).click();
  await tab.getByText("The first 256 KiB").waitFor({ state: "detached" });
  const download = tab.waitForEvent("download");
  await tab.getByRole("link", { name: "Download" }).click();
  assert.equal((await download).suggestedFilename(), "8.bin");
});

// CON-45
test("a message is compared with another one, line by line", async (t) => {
  await ask("PUT", "queues/alike", {});
  for (const count of [1, 2]) {
    await post("queues/alike/messages", { body: JSON.stringify({ id: 7, lines: [{ sku: "A", count }] }), subject: EVIL.slice(0, 60), messageId: `m-${count}`, applicationProperties: { count } });
  }
  const tab = await opened(t);
  await visit(tab, "#/queue/alike/messages/1");
  await tab.keyboard.press("d");
  const difference = tab.getByLabel("Difference of messages 2 and 1");
  await difference.waitFor();
  const lines = (await difference.innerText()).split("\n").filter((line) => /^[-+]/.test(line));
  assert.deepEqual(lines, ["- messageId: m-2", "+ messageId: m-1", "- count: 2", "+ count: 1", '-       "count": 2', '+       "count": 1']);
  assert.match(tab.url(), /with=2/);
  await tab.keyboard.press("d");
  await difference.waitFor({ state: "detached" });
});

// CON-57, CON-58
test("every page is reached with the keyboard alone", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/");
  const at = async (pattern) => {
    await tab.waitForFunction((source) => new RegExp(source).test(decodeURIComponent(location.hash)), pattern.source);
    await tab.waitForFunction(() => document.querySelector("[aria-busy=true]") === null && !/Reading…/.test(document.body.innerText));
  };
  const press = async (...keys) => {
    for (const key of keys) {
      await tab.keyboard.press(key);
    }
  };
  await press("g", "e");
  await at(/^#\/entities/);
  await press("/");
  await tab.keyboard.type("order");
  await press("Enter");
  await at(/path=order/);
  await press("Escape", "Escape");
  await at(/^#\/entities$/);
  await press("g", "s");
  await at(/^#\/schedule/);
  await press("g", "c");
  await at(/^#\/clients/);
  await press("g", "t");
  await at(/^#\/settings/);
  // Letters are typed, not obeyed, in a field.
  await press("Control+k");
  await tab.keyboard.type("orders");
  await tab.getByRole("option", { name: "orders" }).first().waitFor();
  await press("Enter");
  await at(/^#\/queue\/orders$/);
  await tab.locator("tbody tr").nth(2).waitFor();
  await press("j", "j");
  await tab.locator("tbody tr.active:nth-child(2)").waitFor();
  const second = (await tab.locator("tr.active td").first().innerText()).trim();
  await press("ArrowUp", "Enter");
  await at(/at=\d+/);
  await tab.getByRole("complementary").getByText("Application properties").waitFor();
  await press("Enter");
  await at(/^#\/queue\/orders\/messages\/\d+/);
  await press("j");
  await at(new RegExp(`^#/queue/orders/messages/${second}$`));
  await tab.goBack();
  await at(/^#\/queue\/orders\?at=\d+$/);
  await press("?");
  await tab.getByRole("dialog", { name: "Keys" }).getByText("Previous message").or(tab.getByRole("dialog", { name: "Keys" }).getByText("Previous row")).first().waitFor();
  await press("Escape");
  await tab.getByRole("dialog").waitFor({ state: "detached" });
  await visit(tab, PAGES.scheduled);
  await tab.getByRole("slider").focus();
  await press("ArrowRight", "ArrowRight", "-");
  await at(/slot=300/);
  await visit(tab, PAGES.message);
  await tab.getByRole("tree").focus();
  await press("ArrowDown", "ArrowDown", "ArrowRight");
  assert.match(await tab.evaluate("document.querySelector('[role=treeitem][aria-selected=true]').textContent"), /list|0/);
});

// CON-58: single-letter keys can be switched off
test("single-letter keys are switched off by choice", async (t) => {
  const tab = await opened(t);
  await visit(tab, PAGES.settings);
  await tab.getByRole("group", { name: "Single-letter keys" }).getByRole("button", { name: "Off" }).click();
  await tab.keyboard.press("g");
  await tab.keyboard.press("e");
  await tab.keyboard.press("Control+k");
  await tab.getByRole("dialog").waitFor();
  assert.match(tab.url(), /#\/settings$/);
  await tab.reload();
  assert.equal(await tab.getByRole("group", { name: "Single-letter keys" }).getByRole("button", { name: "Off" }).getAttribute("aria-pressed"), "true");
});

// CON-59, CON-60: long lists are virtual, and rows keep their place while the table has the focus
test("a long list has few rows in the document, and nothing moves under the hand", async (t) => {
  await ask("PUT", "queues/many", {});
  for (let part = 0; part < 10; part += 1) {
    await post("queues/many/messages/batch", { messages: Array.from({ length: 200 }, (_, place) => ({ body: `m${part * 200 + place}` })) });
  }
  const tab = await opened(t);
  await visit(tab, "#/queue/many/messages?order=newest");
  const table = tab.getByRole("grid");
  await table.focus();
  for (let step = 0; step < 12; step += 1) {
    await tab.keyboard.press("End");
    await tab.waitForTimeout(80);
  }
  await tab.locator("tr.active").getByText("m0", { exact: true }).waitFor();
  assert.ok((await tab.locator("tbody tr").count()) <= 120);
  await tab.keyboard.press("Home");
  await tab.locator("tr.active").getByText("m1999", { exact: true }).waitFor();
  await post("queues/many/messages", { body: "newest" });
  await tab.keyboard.press("r");
  await tab.getByRole("button", { name: "1 new" }).waitFor();
  assert.match(await tab.locator("tbody tr:not(.space)").first().innerText(), /m1999/);
  await tab.getByRole("button", { name: "1 new" }).click();
  await tab.getByText("newest", { exact: true }).first().waitFor();
});

// CON-57, CON-62: an address of something that is gone
test("an address of a message that is gone says so beside it", async (t) => {
  const tab = await opened(t, {}, /404/);
  await visit(tab, "#/queue/orders/messages/4000");
  const problem = tab.locator(".problem");
  await problem.getByText("MessageNotFound").waitFor();
  assert.match(await problem.innerText(), /settled, moved or deleted[\s\S]*Tracking id/);
  await visit(tab, "#/topic/orders");
  await tab.getByRole("link", { name: "open it" }).click();
  await tab.getByRole("navigation", { name: "Parts of orders" }).waitFor();
});

// CON-61: a lost connection is said within 5 s, the page goes on by itself, and a restart is shown
test("a lost connection is shown, data stays, and the page continues", async (t) => {
  const tab = await opened(t, {}, /Failed to load resource/);
  const earlier = { status: 200, contentType: "application/json", body: '{"status":"ok","startedAtUtc":"2026-01-01T00:00:00Z"}' };
  await tab.route("**/health", (route) => route.fulfill(earlier));
  await visit(tab, PAGES.messages);
  await tab.unroute("**/health");
  await tab.route("**/*", (route) => route.abort("connectionrefused"));
  await tab.getByText(/no connection, data is/).waitFor({ timeout: 5000 });
  assert.ok((await tab.locator("tbody tr").count()) > 2);
  await tab.unroute("**/*");
  await tab.getByText("live", { exact: true }).waitFor();
  await tab.getByText(/The broker was started again/).waitFor();
});

// CON-33, CON-60: counts follow by the stream; without one the page asks every 10 s
test("a page follows the broker by its stream, and without one by asking", async (t) => {
  const tab = await opened(t, {}, /503/);
  const count = (wanted) => tab.locator(".figure", { hasText: "active" }).first().getByText(String(wanted), { exact: true });
  await ask("PUT", "queues/followed", {});
  await visit(tab, "#/queue/followed");
  await tab.waitForTimeout(2500);
  await post("queues/followed/messages", { body: "one" });
  await count(1).waitFor({ timeout: 4000 });
  const busy = { status: 503, contentType: "application/problem+json", body: '{"code":"ServerBusy","detail":"no stream is free","retryable":true}' };
  await tab.route("**/watch", (route) => route.fulfill(busy));
  await tab.reload();
  await count(1).waitFor();
  await tab.waitForTimeout(2500);
  await post("queues/followed/messages", { body: "two" });
  await count(2).waitFor({ timeout: 12_000 });
});

// CON-65
test("times have the zone that is chosen", async (t) => {
  const tab = await opened(t, { timezoneId: "Asia/Kolkata" });
  await visit(tab, PAGES.message);
  assert.match(await tab.locator("time .exact").first().innerText(), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+05:30$/);
  await visit(tab, PAGES.settings);
  await tab.getByRole("group", { name: "Times" }).getByRole("button", { name: "UTC", exact: true }).click();
  await visit(tab, PAGES.message);
  assert.match(await tab.locator("time .exact").first().innerText(), /\.\d{3}Z$/);
});

// CON-01: looking changes nothing
test("pages leave the entity as it was", async (t) => {
  const before = await ask("GET", "queues/orders");
  const tab = await opened(t);
  for (const fragment of [PAGES.messages, PAGES.message, PAGES["dead letters"], PAGES.locks, PAGES.scheduled]) {
    await visit(tab, fragment);
  }
  const later = await ask("GET", "queues/orders");
  assert.deepEqual(later.runtime, before.runtime);
});

// CON-77: sizes with gzip
test("files stay within their budget", async () => {
  const folder = new URL("../../plugins/console/page/", import.meta.url);
  const names = ["", "vendor/"].flatMap((part) => readdirSync(new URL(part, folder)).filter((name) => /\.(js|css|html|svg)$/.test(name)).map((name) => part + name));
  const sizes = new Map(names.map((name) => [name, gzipSync(readFileSync(new URL(name, folder)), { level: 9 }).length]));
  const sum = (list) => list.reduce((total, name) => total + sizes.get(name), 0);
  const late = ["chart.js", "compare.js", "vendor/uplot.js"];
  assert.ok(names.length <= 40, `${names.length} files`);
  assert.ok(sum(names) <= 200 << 10, `${sum(names)} bytes in all`);
  const first = sum(names.filter((name) => !late.includes(name)));
  assert.ok(first <= 90 << 10, `${first} bytes for the first page`);
});
