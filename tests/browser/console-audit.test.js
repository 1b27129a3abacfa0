// The audit page of the console, against a broker without storage.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { ask, close, EVIL, isReadable, launch, opened, PHONE, post, press, rows, visit } from "./console.js";

const entry = (tab) => tab.getByRole("region", { name: "Action" });
const report = (tab) => tab.getByRole("region", { name: "Verification" });

before(async () => {
  await launch();
  await ask("PUT", "queues/ledger", { userMetadata: "one" });
  await ask("PATCH", "queues/ledger", { userMetadata: EVIL, lockDuration: "PT2M" });
  await ask("PUT", "queues/other", {});
  await post("queues/ledger/locks/break", { sequenceNumbers: [1] });
});

after(close);

// CON-23, CON-55, CON-66, CON-68, CON-76: in both schemes and at 320 pixels
for (const [scheme, options] of [["light", { colorScheme: "light" }], ["dark", { colorScheme: "dark" }], ["phone", { colorScheme: "light", ...PHONE }]]) {
  test(`the audit page is readable and makes no element of a text: ${scheme}`, async (t) => {
    const tab = await opened(t, options);
    await visit(tab, "#/audit");
    await rows(tab).nth(3).waitFor();
    await isReadable(tab, "actions");
    await visit(tab, "#/audit?operation=updateEntity&resource=ledger");
    await rows(tab).first().getByRole("link").click();
    await entry(tab).getByText("<img src=x").first().waitFor();
    await isReadable(tab, "an action");
    await tab.getByRole("button", { name: "Verify the trail" }).click();
    await report(tab).getByText("Sound").waitFor();
    await isReadable(tab, "verification");
    await visit(tab, `#/audit?resource=${encodeURIComponent(EVIL.slice(0, 60))}`);
    await tab.getByText("No action matches").waitFor();
    await isReadable(tab, "no action");
  });
}

// CON-23, CON-57, CON-58: an action has its request and result in one row; filters are in the address
test("actions are filtered, and one is opened with keys", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/");
  await press(tab, "g", "a");
  await tab.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
  await rows(tab).nth(3).waitFor();
  const all = (await rows(tab).allInnerTexts()).filter((text) => /ledger/.test(text));
  assert.equal(all.length, 3, "each action has one row");
  await press(tab, "/");
  await tab.keyboard.type("ledger");
  await press(tab, "Enter");
  await tab.getByText("3 actions", { exact: true }).waitFor();
  await tab.getByLabel("Operation").selectOption("updateEntity");
  await tab.getByText("1 action", { exact: true }).waitFor();
  assert.match(tab.url(), /operation=updateEntity&resource=ledger|resource=ledger&operation=updateEntity/);
  await tab.getByRole("grid").focus();
  await press(tab, "Home", "Enter");
  const changes = entry(tab).getByRole("region", { name: "Changed values" });
  await changes.getByText("PT2M").waitFor();
  assert.match(await entry(tab).innerText(), /Entries\s+\d+ and \d+/);
  await tab.reload();
  await changes.getByText("PT2M").waitFor();
  await tab.getByRole("group", { name: "Result" }).getByRole("button", { name: "Unknown" }).click();
  await tab.getByText("No action matches").waitFor();
  await tab.getByRole("button", { name: "Show all actions" }).click();
  await rows(tab).nth(3).waitFor();
});

// CON-23: the export, and its verification in the browser
test("the trail is saved and verified, and a changed or missing entry is found", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/audit");
  const download = tab.waitForEvent("download");
  await tab.getByRole("button", { name: "Save the trail" }).click();
  const saved = readFileSync(await (await download).path(), "utf8");
  assert.equal(JSON.parse(saved.split("\n")[0]).number, 1);
  await tab.getByRole("button", { name: "Verify the trail" }).click();
  await report(tab).getByText("Sound").waitFor();
  const noted = /\d+:[0-9a-f]{64}/.exec(await report(tab).innerText())[0];
  await report(tab).getByLabel("Noted before").fill(noted);
  await report(tab).getByText("The noted entry is unchanged.").waitFor();
  await report(tab).getByLabel("Noted before").fill(noted.replace(/^\d+/, "2"));
  await report(tab).getByText("The noted entry is changed.").waitFor();
  await report(tab).getByLabel("Noted before").fill(noted.replace(/^\d+/, "999999"));
  await report(tab).getByText("The noted entry is missing.").waitFor();
  const lines = saved.split("\n");
  const damages = {
    "entry 2 was changed: entry 3 has the hash of another text": lines.with(1, lines[1].replace(/"operation":"\w+"/, '"operation":"x"')).join("\n"),
    "entries between 2 and 4 are missing": lines.toSpliced(2, 1).join("\n"),
    "line 2 is not an entry": lines.with(1, EVIL.replace(/\n/g, "")).join("\n"),
    "the export was cut": saved.slice(0, -10),
  };
  for (const [fault, text] of Object.entries(damages)) {
    await tab.route("**/audit/export", (route) => route.fulfill({ status: 200, contentType: "application/x-ndjson", body: text }), { times: 1 });
    await tab.getByRole("button", { name: "Verify the trail" }).click();
    await report(tab).getByText("Damaged").waitFor();
    await report(tab).getByText(fault).waitFor();
  }
  await isReadable(tab, "damaged");
  for (const [body, text] of [["x\n".repeat(30), "and 10 more"], ["", "The trail has no entry yet"]]) {
    await tab.route("**/audit/export", (route) => route.fulfill({ status: 200, contentType: "application/x-ndjson", body }), { times: 1 });
    await tab.getByRole("button", { name: "Verify the trail" }).click();
    await report(tab).getByText(text).waitFor();
  }
  assert.equal(await report(tab).getByText(/Damaged|Sound/).count(), 0);
});

// CON-55: the operator of a job is found from the job
test("a job leads to its requests in the trail", async (t) => {
  await post("queues/other/messages", { body: "one" });
  const { job } = await post("queues/other/jobs", { where: "", deed: { delete: {} } });
  const tab = await opened(t);
  await visit(tab, `#/jobs?job=${job}`);
  await tab.getByRole("button", { name: "Delete 1 message" }).click();
  await tab.getByRole("link", { name: "Who started it" }).click();
  await rows(tab).getByText(`start job ${job}`).waitFor();
  await rows(tab).first().getByRole("link").click();
  await entry(tab).getByText("127.0.0.1").first().waitFor();
});
