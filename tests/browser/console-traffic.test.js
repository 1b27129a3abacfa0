// Sending and taking messages with the console, against a broker without storage.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { as, ask, close, EVIL, isReadable, launch, opened, PHONE, post, visit } from "./console.js";

const send = (tab) => tab.getByRole("form", { name: "Message" });
const go = (tab) => send(tab).getByRole("button", { name: /^Send/ });
const heads = async (path) => (await ask("GET", `${path}/heads?count=50`)).heads;

before(async () => {
  await launch();
  for (const name of ["orders", "copies", "taken", "many", "viewed"]) {
    await ask("PUT", `queues/${name}`, { lockDuration: "PT1M" });
  }
  await ask("PUT", "queues/steps", { requiresSession: true });
});

after(close);

// CON-47, CON-66, CON-68, CON-76: in both schemes and at 320 pixels
for (const [scheme, options] of [["light", { colorScheme: "light" }], ["dark", { colorScheme: "dark" }], ["phone", { colorScheme: "light", ...PHONE }]]) {
  test(`sending and taking are readable and make no element of a text: ${scheme}`, async (t) => {
    const tab = await opened(t, options);
    await post("queues/viewed/messages", { body: EVIL, subject: EVIL.slice(0, 100), applicationProperties: { [EVIL.slice(0, 80)]: EVIL } });
    await visit(tab, "#/queue/viewed/send");
    await send(tab).getByRole("button", { name: "Add a property" }).click();
    await isReadable(tab, "send");
    await visit(tab, "#/queue/viewed/take");
    await tab.getByText("counts as a delivery").waitFor();
    await tab.getByRole("button", { name: "Take a message" }).click();
    const message = tab.getByRole("region", { name: /^Message \d/ });
    await message.getByRole("button", { name: "Dead-letter…" }).click();
    await isReadable(tab, "take");
    await message.getByRole("button", { name: "Complete" }).click();
    await message.getByText("Completed: it is removed.").waitFor();
    await isReadable(tab, "completed");
  });
}

// CON-47: body, typed properties, time to live and schedule arrive as they were written
test("a message is sent with its types", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/queue/orders/send");
  await send(tab).getByLabel("Body", { exact: true }).fill('{"id": 1}');
  await send(tab).getByLabel("Subject").fill("order");
  await send(tab).getByLabel("Content type").fill("application/json");
  for (const [place, [name, type, value]] of [["region", "string", "eu"], ["count", "i32", "7"], ["large", "i64", "9007199254740993"], ["ratio", "f64", "1"]].entries()) {
    await send(tab).getByRole("button", { name: "Add a property" }).click();
    await send(tab).getByLabel(`Name of property ${place + 1}`).fill(name);
    await send(tab).getByLabel(`Type of property ${place + 1}`).selectOption(type);
    await send(tab).getByLabel(`Value of property ${place + 1}`).fill(value);
  }
  await send(tab).getByLabel("Time to live", { exact: true }).fill("5");
  await go(tab).press("Enter");
  await send(tab).getByText("1 of 1 message sent, the last as 1.").waitFor();
  const [head] = await heads("queues/orders");
  assert.deepEqual([head.subject, head.contentType, head.timeToLive, head.bodyStart], ["order", "application/json", "PT5M", '{"id": 1}']);
  const { region, count, ratio } = head.applicationProperties;
  assert.deepEqual({ region, count, ratio }, { region: "eu", count: { type: "i32", value: 7 }, ratio: 1 });
  // The reader of this test would round it.
  assert.match(await (await fetch(`${process.env.PEEKLOCK_HTTP}/$api/v1/queues/orders/messages/1/head`)).text(), /"large":9007199254740993\b.*"ratio":1\.0/);

  await send(tab).getByLabel("Value of property 2").fill("many");
  await go(tab).click();
  await send(tab).getByText("The property count must be a whole number.").waitFor();
  await send(tab).getByLabel("Value of property 2").fill("8");
  await send(tab).getByLabel("Not before").fill("2099-01-01T00:00:00");
  await go(tab).click();
  await send(tab).getByText("1 of 1 message sent").waitFor();
  assert.equal((await ask("GET", "queues/orders")).runtime.scheduledMessageCount, 1);
});

// CON-47: a form is filled from a template, a file, or any message
test("a form is filled from a template, a file and a message", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/queue/copies/send");
  await send(tab).getByLabel("Body", { exact: true }).fill("from a template");
  await send(tab).getByLabel("Subject").fill("kept");
  const name = tab.getByRole("form", { name: "Templates" }).getByLabel("Name");
  await name.fill("mine");
  await name.press("Enter");
  await tab.reload();
  await tab.getByRole("combobox", { name: /^Template/ }).selectOption("mine");
  assert.equal(await send(tab).getByLabel("Subject").inputValue(), "kept");
  await go(tab).click();
  await send(tab).getByText("1 of 1 message sent").waitFor();
  await tab.getByRole("button", { name: "Delete the template" }).click();
  assert.equal(await tab.getByRole("combobox", { name: /^Template/ }).getByRole("option").count(), 1);

  const bytes = Buffer.from([0, 255, 13, 10]);
  await send(tab).getByLabel("Body from a file").setInputFiles({ name: "body.bin", mimeType: "application/octet-stream", buffer: bytes });
  await send(tab).getByText("body.bin").waitFor();
  await go(tab).click();
  await send(tab).getByText("the last as 2").waitFor();

  await post("queues/orders/messages", { body: "a\r\nb", subject: "original", replyToSessionId: "s", applicationProperties: { size: { type: "u8", value: 3 }, whole: { type: "f64", value: 5 }, short: { type: "f32", value: 2 } } });
  const [last] = (await heads("queues/orders")).filter(({ subject }) => subject === "original");
  await visit(tab, `#/queue/orders/messages/${last.sequenceNumber}`);
  await tab.getByRole("link", { name: "Send a copy…" }).click();
  await send(tab).getByText("is sent as it is").waitFor();
  const types = await Promise.all([1, 2, 3].map((place) => send(tab).getByLabel(`Type of property ${place}`).inputValue()));
  assert.deepEqual(types.sort(), ["f32", "f64", "u8"]);
  await send(tab).getByText("The form leaves out its reply-to session.").waitFor();
  await visit(tab, `#/queue/copies/send?copy=${encodeURIComponent(`queues/orders/messages/${last.sequenceNumber}`)}`);
  await send(tab).getByText("is sent as it is").waitFor();
  await go(tab).click();
  await send(tab).getByText("the last as 3").waitFor();
  const [, two, three] = await heads("queues/copies");
  assert.equal(two.bodyStartBase64, bytes.toString("base64"));
  assert.deepEqual([three.bodyStart, three.subject, three.applicationProperties], ["a\r\nb", "original", { size: { type: "u8", value: 3 }, whole: 5, short: { type: "f32", value: 2 } }]);
  assert.match(await (await fetch(`${process.env.PEEKLOCK_HTTP}/$api/v1/queues/copies/messages/3/head`)).text(), /"whole":5\.0/);
});

// CON-47: repetition is bounded, and can be stopped
test("a message is sent several times", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/queue/many/send");
  await send(tab).getByLabel("Send", { exact: false }).first().fill("5");
  await send(tab).getByLabel("per second").fill("50");
  await go(tab).click();
  await send(tab).getByText("5 of 5 messages sent").waitFor();
  assert.equal((await heads("queues/many")).length, 5);
  await send(tab).getByLabel("Send", { exact: false }).first().fill("1001");
  await go(tab).click();
  assert.equal(await send(tab).evaluate((form) => form.checkValidity()), false);
  await send(tab).getByLabel("Send", { exact: false }).first().fill("1000");
  await send(tab).getByLabel("per second").fill("1");
  await go(tab).click();
  await send(tab).getByText("1 of 1,000 messages sent").waitFor();
  await send(tab).getByRole("button", { name: "Stop" }).click();
  await send(tab).getByRole("button", { name: "Send 1,000 messages" }).waitFor();
  assert.ok((await heads("queues/many")).length < 20);
});

// CON-47, CON-75: messages are taken under lock and settled; no page shows a lock token
test("messages are taken and settled", async (t) => {
  const tab = await opened(t, {}, /410|404/);
  const tokens = [];
  tab.on("response", async (response) => {
    if (response.url().endsWith("/messages/receive")) {
      tokens.push(...(await response.json()).messages.map(({ lockToken }) => lockToken));
    }
  });
  for (const subject of ["a", "b", "c", "d"]) {
    await post("queues/taken/messages", { body: `body of ${subject}`, subject });
  }
  await visit(tab, "#/queue/taken/take");
  const message = (number) => tab.getByRole("region", { name: `Message ${number}`, exact: true });
  const take = tab.getByRole("button", { name: "Take a message" });
  for (const number of [1, 2, 3, 4]) {
    await take.click();
    await message(number).getByText("body of").waitFor();
    await message(number).getByText("left", { exact: false }).first().waitFor();
  }
  await take.click();
  await tab.getByText("No message is available.").waitFor();
  await message(1).getByRole("button", { name: "Complete" }).press("Enter");
  await message(1).getByText("Completed").waitFor();
  await message(2).getByRole("button", { name: "Abandon" }).click();
  await message(2).getByText("Abandoned").waitFor();
  await message(3).getByRole("button", { name: "Defer" }).click();
  await message(3).getByText("Deferred").waitFor();
  await message(4).getByRole("button", { name: "Renew the lock" }).click();
  await message(4).getByRole("button", { name: "Dead-letter…" }).click();
  await message(4).getByLabel("Reason").fill("by hand");
  await message(4).getByLabel("Description").fill("it was wrong");
  await message(4).getByRole("button", { name: "Dead-letter", exact: true }).click();
  await message(4).getByText("Dead-lettered.").waitFor();
  const [two, three] = await heads("queues/taken");
  assert.deepEqual([two.sequenceNumber, two.deliveryCount, two.state], [2, 1, "active"]);
  assert.deepEqual([three.sequenceNumber, three.state], [3, "deferred"]);
  const [dead] = await heads(`queues/${encodeURIComponent("taken/$DeadLetterQueue")}`);
  assert.deepEqual([dead.applicationProperties.DeadLetterReason, dead.applicationProperties.DeadLetterErrorDescription], ["by hand", "it was wrong"]);
  assert.equal(tokens.length, 4);

  // A lock that another operator has broken.
  await take.click();
  await message(2).first().getByRole("button", { name: "Complete" }).waitFor();
  await post("queues/taken/locks/break", { sequenceNumbers: [2] });
  await message(2).first().getByRole("button", { name: "Complete" }).click();
  await message(2).first().locator(".problem").getByText("MessageLockLost").waitFor();
  const html = await tab.evaluate("document.documentElement.outerHTML");
  assert.equal(tokens.length, 5);
  for (const token of tokens) {
    const place = html.indexOf(token);
    assert.equal(place, -1, `a lock token is in the page: ${html.slice(Math.max(0, place - 200), place + 50)}`);
  }
});

// CON-73: a viewer is offered neither, and an entity with sessions is not taken from
test("sending and taking are offered where they are possible", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/queue/steps/take");
  await tab.getByText("a page cannot hold a session").waitFor();
  assert.ok(await tab.getByRole("button", { name: "Take a message" }).isDisabled());
  await as(tab, "viewer");
  await visit(tab, "#/queue/orders/take");
  await tab.reload();
  await tab.getByText("Taking messages needs the role operator").waitFor();
  assert.equal(await tab.getByRole("link", { name: "Send", exact: true }).count(), 0);
});
