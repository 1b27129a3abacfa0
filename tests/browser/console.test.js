// The console in a headless Chromium, against a broker without storage.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { ask, barriers, close, DESK, EVIL, flaws, foreign, launch, opened, PHONE, post, visit } from "./console.js";

/** Addresses of all pages after the preparation. */
const PAGES = {
  overview: "#/",
  entities: "#/entities?kind=queue&sort=activeMessageCount&descending=true",
  messages: "#/queue/orders/messages",
  "message beside": "#/queue/orders/messages?at=3",
  message: "#/queue/orders/messages/3",
  "hostile message": "#/queue/orders/messages/5",
  journey: "#/queue/travelled/messages/1",
  "journey of an id": `#/journey?id=${encodeURIComponent(EVIL.slice(0, 120))}`,
  "journey of no id": "#/journey",
  "dead letters": "#/queue/orders/dead-letters",
  "dead letter": "#/queue/orders/dead-letters/1",
  scheduled: "#/queue/orders/scheduled",
  locks: "#/queue/orders/locks",
  tail: "#/queue/orders/tail",
  charts: "#/queue/orders/charts",
  "settings of a queue": "#/queue/orders/settings",
  sessions: "#/queue/steps/sessions",
  session: `#/queue/steps/sessions?session=${encodeURIComponent(EVIL.slice(0, 100))}`,
  topic: "#/topic/events",
  rules: "#/subscription/events%2FSubscriptions%2Fall/rules",
  filters: "#/topic/events/filters",
  topology: "#/topology",
  checks: "#/checks",
  schedule: "#/schedule",
  expiring: "#/schedule?of=expiring&slot=3600",
  workbench: "#/queue/orders/workbench",
  jobs: "#/jobs",
  clients: "#/clients",
  audit: "#/audit",
  import: "#/import",
  send: "#/queue/orders/send?copy=queues%2Forders%2Fmessages%2F5",
  take: "#/queue/orders/take",
  settings: "#/settings",
};

before(async () => {
  await launch();
  await ask("PUT", "queues/orders", { lockDuration: "PT5M", userMetadata: EVIL });
  await ask("PUT", "queues/steps", { requiresSession: true });
  await ask("PUT", "queues/idle", {});
  await ask("PUT", "topics/events", {});
  await ask("PUT", "topics/events/subscriptions/all", { rules: [{ name: "evil", filter: { type: "sql", sql: `subject = '${EVIL.replaceAll("'", "''")}'` } }] });
  await post("topics/events/messages", { subject: EVIL.slice(0, 20), applicationProperties: { [EVIL.slice(0, 100)]: EVIL } });
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
  await ask("PUT", "queues/travelled", {});
  await ask("PUT", "topics/travels", {});
  await ask("PUT", "topics/travels/subscriptions/all", { forwardTo: "travelled" });
  await post("topics/travels/messages", { body: "a", messageId: "travelled-id" });
  const travelled = await post("queues/travelled/messages/receive", { maxCount: 1, waitSeconds: 5 }, agent);
  await post(`queues/travelled/locks/${travelled.messages[0].lockToken}/abandon`);
});

after(close);

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
      assert.deepEqual(await barriers(tab), [], name);
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
  await press("g", "j");
  await at(/^#\/jobs/);
  await press("g", "c");
  await at(/^#\/clients/);
  await press("g", "t");
  await at(/^#\/settings/);
  // Letters are typed, not obeyed, in a field.
  await press("Control+k");
  await tab.waitForFunction(() => document.activeElement?.getAttribute("role") === "combobox");
  await tab.keyboard.type("orders");
  await tab.getByRole("option", { name: "orders" }).first().waitFor();
  await press("Enter");
  await at(/^#\/queue\/orders$/);
  await tab.locator("tbody tr").nth(2).waitFor();
  await press("j", "j");
  await tab.locator("tbody tr.active:nth-child(2)").waitFor();
  const second = (await tab.locator("tr.active td:not(.mark)").first().innerText()).trim();
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
  // Each press goes to the end of the rows that are loaded, and the next rows are loaded there.
  const oldest = tab.locator("tr.active").getByText("m0", { exact: true });
  for (const until = Date.now() + 30_000; !(await oldest.isVisible()) && Date.now() < until; ) {
    await tab.keyboard.press("End");
    await tab.waitForTimeout(20);
  }
  await oldest.waitFor();
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

// CON-76: the focus stays on the column that sorts
test("sorting a table keeps the focus", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/entities");
  await tab.getByRole("columnheader").getByRole("button", { name: "Active" }).focus();
  await tab.keyboard.press("Enter");
  await tab.locator("th[aria-sort=descending]").getByText("Active").waitFor();
  assert.match(await tab.evaluate("document.activeElement.textContent"), /^Active/);
});

// CON-44, CON-68: columns by application property and by path in a JSON body, also of a body longer than its head
test("a column shows a property, or a value of a JSON body", async (t) => {
  await ask("PUT", "queues/columns", {});
  const long = { note: "x".repeat(400), customer: { name: "Ada" }, lines: [{ sku: "A" }, { sku: EVIL.slice(0, 90) }], id: 0 };
  const body = JSON.stringify(long).replace('"id":0', '"id":12345678901234567890');
  await post("queues/columns/messages/batch", { messages: [{ body, applicationProperties: { region: "eu" } }, { body: '{"customer":{"name":"Bob"}}' }, { body: "no JSON" }, { body: "{" }, { body: JSON.stringify({ customer: { name: "Eve" }, more: "x".repeat(70_000) }) }] });
  const tab = await opened(t);
  await visit(tab, "#/queue/columns/messages");
  await tab.getByText("Columns", { exact: true }).click();
  const field = tab.getByLabel(/path in a JSON body/);
  for (const wrong of ["$", "$..name", "$.lines[*]", "$.a[", "$['a"]) {
    await field.fill(wrong);
    await field.press("Enter");
    await tab.getByRole("alert").getByText("A path names one value").waitFor();
  }
  for (const name of ["region", "$.customer.name", "$.lines[-1]['sku']", "$.id"]) {
    await field.fill(name);
    await field.press("Enter");
  }
  await field.press("Escape");
  const cells = async (column) => {
    const heads = await tab.locator("thead th").allInnerTexts();
    const place = heads.findIndex((text) => text.trim() === column);
    assert.ok(place > 0, `${column} of ${heads}`);
    return tab.locator(`tbody tr:not(.space) td:nth-child(${place + 1})`).allInnerTexts();
  };
  await tab.getByText("Ada", { exact: true }).waitFor();
  assert.deepEqual(await cells("$.customer.name"), ["Ada", "Bob", "", "", ""]);
  assert.deepEqual(await cells("$.id"), ["12345678901234567890", "", "", "", ""]);
  assert.deepEqual((await cells("region"))[0], "eu");
  assert.ok((await cells("$.lines[-1]['sku']"))[0].startsWith("<img src=x"));
  assert.deepEqual(await tab.evaluate(foreign), []);
  await tab.reload();
  await tab.getByText("Ada", { exact: true }).waitFor();
});

// CON-44, CON-58: rows are selected one by one and by range, with keys and the pointer
test("rows are selected with keys, by range and with the pointer", async (t) => {
  await ask("PUT", "queues/chosen", {});
  await post("queues/chosen/messages/batch", { messages: Array.from({ length: 30 }, (_, place) => ({ body: `m${place}` })) });
  const tab = await opened(t, { permissions: ["clipboard-read", "clipboard-write"] });
  await visit(tab, "#/queue/chosen/messages");
  const press = async (...keys) => {
    for (const key of keys) {
      await tab.keyboard.press(key);
    }
  };
  await tab.getByRole("grid").focus();
  await press("j", "x", "j", "j", "j", "Shift+X");
  const bar = tab.getByRole("group", { name: "Selection" });
  await bar.getByText("4 messages selected").waitFor();
  await press("k", "x");
  await bar.getByText("3 messages selected").waitFor();
  // New rows wait while something is selected, also without focus and pointer.
  await bar.getByRole("button", { name: "Numbers" }).click();
  await tab.getByRole("status").getByText("Copied numbers of the selection").waitFor();
  assert.equal(await tab.evaluate("navigator.clipboard.readText()"), "2\n3\n5");
  await bar.getByRole("button", { name: "NDJSON" }).click();
  await tab.getByRole("status").getByText("Copied heads of the selection").waitFor();
  const lines = (await tab.evaluate("navigator.clipboard.readText()")).split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines.map(({ sequenceNumber, bodyStart }) => [sequenceNumber, bodyStart]), [[2, "m1"], [3, "m2"], [5, "m4"]]);
  await tab.getByLabel("Select 7", { exact: true }).click();
  await tab.getByLabel("Select 10", { exact: true }).click({ modifiers: ["Shift"] });
  await bar.getByText("7 messages selected").waitFor();
  assert.deepEqual(await barriers(tab), []);
  await tab.getByLabel("Select all messages that were read").click();
  await bar.getByText("30 messages selected").waitFor();
  await tab.getByRole("grid").focus();
  await press("Escape");
  await bar.waitFor({ state: "detached" });
});

// CON-54: a tail starts with a key, is held, filtered, stopped, and takes nothing
test("a tail shows messages as they are accepted", async (t) => {
  await ask("PUT", "queues/tailed", {});
  const tab = await opened(t);
  await tab.clock.install();
  await visit(tab, "#/queue/tailed/tail");
  await tab.getByText("The tail is stopped").waitFor();
  await tab.keyboard.press("t");
  await tab.getByText("No message yet").waitFor();
  await tab.clock.runFor(3000);
  await tab.waitForTimeout(1500);
  await post("queues/tailed/messages/batch", { messages: [{ body: "first", subject: EVIL.slice(0, 60) }, { body: "second", applicationProperties: { region: "eu" } }] });
  const rows = tab.locator("tbody tr:not(.space)");
  await rows.nth(1).waitFor();
  assert.match(await rows.first().innerText(), /second/);
  assert.deepEqual(await tab.evaluate(foreign), []);
  assert.deepEqual(await barriers(tab), []);
  await tab.keyboard.press("h");
  await post("queues/tailed/messages", { body: "third" });
  await tab.locator(".tail-state").getByText("Held, 1 waiting").waitFor();
  assert.equal(await rows.count(), 2);
  await tab.keyboard.press("h");
  await rows.getByText("third").waitFor();
  await tab.getByLabel("Text in a row").fill("REGION=e");
  await tab.getByLabel("Text in a row").press("Enter");
  await rows.nth(1).waitFor({ state: "detached" });
  assert.match(await rows.innerText(), /second/);
  const download = tab.waitForEvent("download");
  await tab.getByRole("button", { name: "Save as NDJSON" }).click();
  const saved = readFileSync(await (await download).path(), "utf8");
  assert.equal(JSON.parse(saved).bodyStart, "second");
  const { runtime } = await ask("GET", "queues/tailed");
  assert.equal(runtime.activeMessageCount, 3, "it takes nothing");
  await tab.clock.runFor(14 * 60_000);
  assert.equal(await tab.getByRole("button", { name: "Stop" }).count(), 1);
  await tab.clock.runFor(61_000);
  const said = (text) => tab.locator(".tail-state").getByText(text).waitFor();
  await said("Stopped after 15 minutes");
  await tab.getByRole("button", { name: "Start" }).click();
  await tab.evaluate(() => {
    Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await said("Stopped while the page was hidden");
});

// CON-54: 500 rows are kept, messages that the broker left out are counted, and an interruption is reported
test("a tail keeps 500 rows and counts the others", async (t) => {
  const tab = await opened(t);
  const head = (number) => ({ sequenceNumber: number, state: "active", enqueuedTimeUtc: new Date().toISOString(), deliveryCount: 0, size: 90, bodySize: 1, bodyStart: "m" });
  const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
  const events = Array.from({ length: 12 }, (_, place) => event("heads", { subject: 0, heads: Array.from({ length: 50 }, (_, at) => head(place * 50 + at + 1)), omitted: 100 }));
  let asked = 0;
  await tab.route("**/watch", (route) => {
    const isTail = route.request().postDataJSON().subjects[0].name === "tap";
    asked += isTail ? 1 : 0;
    // A further stream that ends would be a further interruption.
    return isTail && asked > 2 ? undefined : route.fulfill({ status: 200, contentType: "text/event-stream", body: event("begin", {}) + (isTail && asked === 1 ? events.join("") : "") });
  });
  await visit(tab, "#/queue/orders/tail");
  await tab.keyboard.press("t");
  await tab.getByText("600 shown, 1,200 not shown, 1 interruption, during which messages are missing, the last 500 are kept").waitFor();
  await tab.getByText("500 messages", { exact: true }).waitFor();
  assert.ok((await tab.locator("tbody tr").count()) <= 120);
  assert.match(await tab.locator("tbody tr").first().innerText(), /600/);
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

// CON-29, CON-45, CON-57, CON-58: the stations of a message, also in other entities and after it is gone
test("a message has its journey, also when it is gone", async (t) => {
  const { messages } = await post("queues/travelled/messages/receive", { maxCount: 1, waitSeconds: 5 });
  await post(`queues/travelled/locks/${messages[0].lockToken}/complete`);
  const tab = await opened(t, {}, /404|410/);
  await visit(tab, PAGES.journey);
  const journey = tab.getByRole("region", { name: "Journey" });
  await journey.getByText("Completed").waitFor();
  const stations = ["Published", "Copied to", "Copied from", "Forwarded to", "Forwarded from", "Delivered", "Abandoned", "Delivered", "Completed"];
  assert.deepEqual(await journey.locator("li strong").allInnerTexts(), stations);
  assert.match(await journey.locator("li").nth(2).innerText(), /travels 1, rule \$Default/);
  assert.match(await journey.locator("li").nth(7).innerText(), /after 1 failed delivery, by /);
  await journey.getByText("From the first station on, none is forgotten.").waitFor();
  assert.deepEqual(await tab.evaluate(flaws), []);
  assert.equal(await journey.locator("a[tabindex='-1']").count(), 0, "each link is a tab stop");
  const addresses = await journey.getByRole("link").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
  const subscription = "#/subscription/travels%2FSubscriptions%2Fall";
  for (const wanted of ["#/topic/travels", `${subscription}/messages/1`, `${subscription}/rules`]) {
    assert.ok(addresses.includes(wanted), `${wanted}: ${addresses}`);
  }
  await journey.getByRole("link", { name: "travels/Subscriptions/all 1" }).first().focus();
  await tab.keyboard.press("Enter");
  await tab.getByRole("heading", { name: "Message 1" }).waitFor();
  await tab.getByRole("region", { name: "Journey" }).getByText("Copied from").waitFor();
  await tab.keyboard.press("Control+k");
  await tab.keyboard.type("travelled-id");
  await tab.getByRole("option", { name: "Message id travelled-id" }).waitFor();
  await tab.keyboard.press("Enter");
  await tab.getByRole("heading", { name: "Journey", level: 1 }).waitFor();
  await journey.getByText("Completed").waitFor();
  assert.deepEqual(await journey.locator("li strong").allInnerTexts(), stations);
  await tab.getByRole("searchbox", { name: "Sent to queue or topic" }).fill("orders");
  await journey.getByText(/No station is known/).waitFor();
  await ask("DELETE", "queues/travelled");
  await visit(tab, PAGES.journey);
  await tab.locator(".problem").getByText("EntityNotFound").first().waitFor();
  await journey.getByText("Completed").waitFor();
  assert.deepEqual(await journey.locator("li strong").allInnerTexts(), stations);
});

// CON-30, CON-68: forgotten stations are named, and journeys that are switched off
test("a journey states its gaps", async (t) => {
  const tab = await opened(t, {}, /400/);
  const holder = { clientId: 1, transport: "amqp", name: EVIL, isConnected: true };
  const station = (atUtc, name, facts) => ({ atUtc, path: "orders", sequenceNumber: 3, station: name, ...facts });
  const stations = [
    station("2026-01-01T00:00:00Z", "abandoned", { count: 2, client: holder }),
    station("2026-01-01T00:00:00.25Z", "deadLettered", { cause: "deliveryCount", count: 2 }),
    station("2026-01-02T01:00:00Z", "forwardedTo", { otherPath: "orders", otherSequenceNumber: 9 }),
  ];
  const json = (status, body) => ({ status, contentType: "application/json", body: JSON.stringify(body) });
  const answers = [
    json(200, { stations, completeSinceUtc: "2026-01-01T12:00:00Z", isCut: true, hiddenCount: 1, nowUtc: "2026-01-03T00:00:00Z" }),
    json(200, { stations: [], completeSinceUtc: "2026-01-01T12:00:00Z", nowUtc: "2026-01-03T00:00:00Z" }),
    json(400, { code: "InvalidOperation", detail: "journeys are switched off; set `console.journeys` and restart the broker" }),
  ];
  let answer;
  await tab.route("**/journey", (route) => route.fulfill(answer));
  const journey = tab.getByRole("region", { name: "Journey" });
  const seen = [];
  for (answer of answers) {
    await visit(tab, PAGES.message);
    await tab.reload();
    await journey.locator("p").first().waitFor();
    await tab.waitForFunction(() => !/Reading…/.test(document.body.innerText));
    seen.push(await journey.innerText());
    assert.deepEqual(await tab.evaluate(foreign), []);
    assert.deepEqual(await barriers(tab), []);
  }
  assert.match(seen[0], /Other stations before 2026-01-01T.* are forgotten\. Further stations are left out\. Not shown: 1 link to entities/);
  assert.match(seen[0], /\+ 250 ms\s+Dead-lettered delivery count, 2 failed deliveries/);
  assert.match(seen[0], /\+ 1 d\s+Forwarded to orders 9/);
  assert.match(seen[1], /No station is known\. Stations before 2026-01-01T.* are forgotten\./);
  assert.match(seen[2], /journeys are switched off/);
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
  const late = ["actions.js", "audit.js", "holders.js", "import.js", "jobs.js", "rates.js", "rules.js", "schedule.js", "search.js", "topology.js", "traffic.js", "workbench.js", "vendor/uplot.js"];
  assert.ok(names.length <= 40, `${names.length} files`);
  assert.ok(sum(names) <= 200 << 10, `${sum(names)} bytes in all`);
  const first = sum(names.filter((name) => !late.includes(name)));
  assert.ok(first <= 90 << 10, `${first} bytes for the first page`);
});
