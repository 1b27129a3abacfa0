// The page "Import and export" of the console, against a broker without storage.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { as, ask, close, EVIL, isReadable, launch, opened, PHONE, press, visit } from "./console.js";

const FILE = `
[[queues]]
name = "fresh"
max_delivery_count = 5

[[queues]]
name = "present"
max_delivery_count = 7

[[topics]]
name = "events"
[[topics.subscriptions]]
name = "eu"
[[topics.subscriptions.rules]]
name = "region"
sql = "region = 'eu'"
`;

const plan = (tab) => tab.getByRole("region", { name: "Plan", exact: true });
const show = async (tab, text) => {
  await tab.getByLabel("Text", { exact: true }).fill(text);
  await tab.getByRole("button", { name: "Show the plan" }).click();
};

before(async () => {
  await launch();
  await ask("PUT", "queues/present", { maxDeliveryCount: 3, userMetadata: EVIL });
  await ask("PUT", "queues/other", {});
});

after(close);

// CON-40, CON-66, CON-68, CON-76: in both schemes and at 320 pixels
for (const [scheme, options] of [["light", { colorScheme: "light" }], ["dark", { colorScheme: "dark" }], ["phone", { colorScheme: "light", ...PHONE }]]) {
  test(`the import page is readable and makes no element of a text: ${scheme}`, async (t) => {
    const tab = await opened(t, options, /400/);
    await visit(tab, "#/import");
    await tab.getByRole("heading", { name: "Export", exact: true }).waitFor();
    await isReadable(tab, "empty");
    await tab.getByLabel("Delete entities").check();
    await show(tab, `${FILE}\n[[queues]]\nname = "evil"\nuser_metadata = ${JSON.stringify(EVIL)}\n`);
    await plan(tab).getByText("1 to delete").waitFor();
    await isReadable(tab, "plan");
    await show(tab, `[[queues]]\nname = "${"<b>".repeat(8)}"\nlock_duration = "<img src=x>"\n`);
    await tab.locator(".problem").waitFor();
    await isReadable(tab, "error");
  });
}

// CON-40: a plan has both values; exactly this plan is carried out, or it is refused
test("a file is planned and carried out, with keys", async (t) => {
  const tab = await opened(t, {}, /409/);
  await visit(tab, "#/");
  await press(tab, "g", "i");
  await tab.getByRole("heading", { name: "Import and export", level: 1 }).waitFor();
  await show(tab, FILE);
  await plan(tab).getByText("3 to create, 1 to change, 0 to delete.").waitFor();
  const row = plan(tab).getByRole("row", { name: /update.*present/ });
  assert.deepEqual((await row.getByRole("cell").allInnerTexts()).slice(-3), ["Max delivery count", "3", "7"]);
  assert.match(await plan(tab).innerText(), /rule region[\s\S]*sql: region = 'eu'/);

  await ask("PATCH", "queues/present", { maxDeliveryCount: 4 });
  await tab.getByRole("button", { name: "Do 4 steps" }).press("Enter");
  await tab.locator(".problem").getByText("UpdateConflict").waitFor();
  await tab.locator(".notice").getByText("0 of 4 steps done.").waitFor();
  await assert.rejects(ask("GET", "queues/fresh"), /EntityNotFound/);

  await tab.getByRole("button", { name: "Show the plan" }).press("Enter");
  await tab.getByRole("button", { name: "Do 4 steps" }).press("Enter");
  await tab.locator(".notice").getByText("All 4 steps are done.").waitFor();
  assert.equal((await ask("GET", "queues/present")).maxDeliveryCount, 7);
  assert.equal((await ask("GET", "queues/fresh")).maxDeliveryCount, 5);
  await ask("GET", "queues/other");
  await tab.getByRole("button", { name: "Show the plan" }).press("Enter");
  await plan(tab).getByText("There is nothing to do").waitFor();
});

// CON-40, CON-63, DEC-18: entities are deleted only if asked, after a word was written
test("entities that are not named are deleted only if asked", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/import");
  await tab.getByLabel("Delete entities").check();
  await show(tab, FILE);
  await plan(tab).getByText("1 to delete").waitFor();
  const rows = await plan(tab).getByRole("row").allInnerTexts();
  assert.match(rows.at(-1), /delete[\s\S]*queue other/, "deletions come last");
  const act = tab.getByRole("button", { name: /^Delete 1 entity/ });
  assert.ok(await act.isDisabled());
  await tab.getByLabel("to confirm").fill("delete");
  await act.click();
  await tab.locator(".notice").getByText(/^(The step is|All \d+ steps are) done/).waitFor();
  await assert.rejects(ask("GET", "queues/other"), /EntityNotFound/);
  await ask("GET", "queues/present");
});

// CON-40, DEC-20: the emulator's file, with notes and places; an error names the line
test("the file of the emulator is read, and errors have a place", async (t) => {
  const tab = await opened(t, {}, /400/);
  await visit(tab, "#/import");
  const config = { UserConfig: { Namespaces: [{ Name: "n", Queues: [{ Name: "theirs", Properties: { Colour: "red" } }] }] } };
  await tab.getByLabel("File").setInputFiles({ name: "Config.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(config)) });
  await tab.getByRole("button", { name: "Show the plan" }).click();
  await plan(tab).getByText("Properties.Colour is unknown and ignored").waitFor();
  await plan(tab).getByText("1 to create").waitFor();
  for (const [text, said] of [
    ['[[queues]]\nname = "a"\nlock_durtion = "1m"\n', /file:3:1: unknown key `lock_durtion`/],
    ['[[queues]]\nname = "a"\n[[queues]]\nname = "A"\n', /file:4: queues\[1\]: .*declared twice/],
  ]) {
    await show(tab, text);
    await tab.locator(".problem").getByText(said).waitFor();
    assert.equal(await plan(tab).count(), 0);
  }
  await tab.getByLabel("File").setInputFiles({ name: "large.toml", mimeType: "text/plain", buffer: Buffer.alloc(1_000_001, 35) });
  await tab.getByText("at most 1,000,000 are possible here").waitFor();
});

// CON-40, CON-73: an export is a file that an import does not change; only an admin has both
test("the namespace is exported", async (t) => {
  const tab = await opened(t);
  await visit(tab, "#/import");
  const [download] = await Promise.all([tab.waitForEvent("download"), tab.getByRole("button", { name: "Save as TOML" }).click()]);
  assert.match(download.suggestedFilename(), /^topology-\d{4}-\d\d-\d\d\.toml$/);
  const text = readFileSync(await download.path(), "utf8");
  assert.match(text, /unnamed_is_default = true[\s\S]*\[\[queues\]\]\nname = "fresh"/);
  await show(tab, text);
  await plan(tab).getByText("There is nothing to do").waitFor();
  await as(tab, "operator");
  await tab.reload();
  await tab.getByText("Only an admin exports and imports entities.").waitFor();
});
