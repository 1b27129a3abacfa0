// Signing in to the console, against a broker that admits nobody without a key and has no entity yet.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { ask, barriers, close, console_, launch, opened, visit } from "./console.js";

const connectionString = process.env.PEEKLOCK_CONNECTION_STRING ?? "";
const [, policy, key] = /SharedAccessKeyName=([^;]+);SharedAccessKey=([^;]+)/.exec(connectionString) ?? [];

before(launch);
after(close);

/** Signs in on the page that asks for it. */
async function signIn(tab, text = connectionString, role = "") {
  await tab.getByLabel("Connection string or token").fill(text);
  await tab.getByLabel("Role").selectOption(role);
  await tab.getByRole("button", { name: "Sign in" }).click();
}

const role = (tab, name) => tab.getByRole("banner").getByRole("link", { name, exact: true }).waitFor();
const asks = (tab) => tab.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
const stored = (tab) => tab.evaluate(() => sessionStorage.getItem("peeklock.console.token"));

// CON-71, CON-75: a key is exchanged for a token, and leaves the browser in no request
test("a connection string is exchanged for a token of the tab", async (t) => {
  const tab = await opened(t, {}, /401/);
  const sent = [];
  tab.on("request", (asked) => sent.push(`${asked.url()} ${JSON.stringify(asked.headers())} ${asked.postData()}`));
  await tab.goto(`${console_}#/`);
  await asks(tab);
  assert.deepEqual(await barriers(tab), []);
  await signIn(tab, connectionString.replace(/SharedAccessKey=./, "SharedAccessKey=!"));
  await tab.locator(".problem").getByText("Unauthorized").waitFor();
  await signIn(tab);
  await role(tab, "admin");
  const token = await stored(tab);
  assert.match(token, /^Console [\w-]{43}$/);
  assert.ok(sent.every((text) => !text.includes(key) && !text.includes(encodeURIComponent(key))));
  assert.doesNotMatch(await tab.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie), new RegExp(key.slice(0, 20).replace(/[+/]/g, "\\$&")));
  await visit(tab, "#/settings");
  assert.deepEqual(await barriers(tab), []);
  // An action that a lower role may not do is not offered.
  await tab.getByRole("button", { name: "Sign out" }).click();
  await tab.getByRole("button", { name: "Sign in" }).waitFor();
  assert.equal(await stored(tab), null);
  await assert.rejects(ask("GET", "queues", undefined, { Authorization: token }), /Unauthorized/);
  await signIn(tab, `SharedAccessKeyName=${policy};SharedAccessKey=${key}`, "viewer");
  await role(tab, "viewer");
  await visit(tab, "#/");
  await tab.getByText("peeklock queue create hello").waitFor();
  assert.equal(await tab.getByRole("button", { name: /Create the queue/ }).count(), 0);
});

// CON-42: with no entity, the overview makes one and sends a message
test("an empty broker shows how to make a queue and to send a message", async (t) => {
  const tab = await opened(t, {}, /401/);
  await tab.goto(`${console_}#/`);
  await signIn(tab);
  await tab.getByRole("heading", { name: "Nothing here yet" }).waitFor();
  for (const command of ["peeklock queue create hello", "peeklock send hello 'two coffees'", `curl -X PUT '${new URL("../$api/v1/queues/hello", console_).href}'`]) {
    await tab.getByText(command, { exact: true }).waitFor();
  }
  assert.deepEqual(await barriers(tab), []);
  await tab.getByRole("button", { name: "Create the queue hello and send a message to it" }).click();
  await tab.locator("tbody tr").getByText("two coffees").waitFor();
  assert.match(tab.url(), /#\/queue\/hello$/);
});

// CON-61, CON-71: other tabs of the browser get the token, and lose it at sign-out, with their drafts
test("tabs of a browser share their sign-in", async (t) => {
  const first = await opened(t, {}, /401/);
  await first.goto(`${console_}#/`);
  await signIn(first);
  await role(first, "admin");
  const second = await first.context().newPage();
  await second.goto(`${console_}#/queue/hello/messages/1`);
  await role(second, "admin");
  assert.equal(await stored(second), await stored(first));
  // A link carries no token: the address is for one use.
  const download = second.waitForEvent("download");
  await second.getByRole("link", { name: "Download" }).click();
  const file = await download;
  assert.match(file.url(), /downloads\/[\w-]{43}$/);
  assert.equal(readFileSync(await file.path(), "utf8"), "two coffees");
  for (const tab of [first, second]) {
    await tab.evaluate("sessionStorage.setItem('peeklock.drafts', '{}')");
  }
  await first.goto(`${console_}#/settings`);
  await first.getByRole("button", { name: "Sign out" }).click();
  await first.getByRole("button", { name: "Sign in" }).waitFor();
  await asks(second);
  assert.equal(await stored(second), null);
  for (const tab of [first, second]) {
    assert.equal(await tab.evaluate("sessionStorage.getItem('peeklock.drafts')"), null);
  }
});

// CON-47, CON-71: the next person at the page does not see the messages that were taken before
test("taken messages leave the page at a sign-out", async (t) => {
  const tab = await opened(t, {}, /401/);
  await tab.goto(`${console_}#/settings`);
  await signIn(tab);
  await role(tab, "admin");
  await visit(tab, "#/queue/hello/take");
  await tab.getByRole("button", { name: "Take a message" }).click();
  const message = tab.getByRole("region", { name: /^Message \d/ });
  await message.getByText("two coffees").waitFor();
  await visit(tab, "#/settings");
  await tab.getByRole("button", { name: "Sign out" }).click();
  await tab.getByRole("button", { name: "Sign in" }).waitFor();
  await signIn(tab);
  await role(tab, "admin");
  await visit(tab, "#/queue/hello/take");
  await tab.getByText("counts as a delivery").waitFor();
  assert.equal(await message.count(), 0);
});

// CON-71: a regenerated key ends the token
test("a regenerated key ends the sign-in", async (t) => {
  const tab = await opened(t, {}, /401/);
  await tab.goto(`${console_}#/entities`);
  await signIn(tab);
  await role(tab, "admin");
  const token = await stored(tab);
  await ask("POST", `policies/${policy}/regenerate`, { key: "primary" }, { Authorization: token });
  await tab.keyboard.press("r");
  await asks(tab);
  await tab.getByText("The token of this tab has ended.").waitFor();
});
