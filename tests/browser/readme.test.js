// The programs of the client's README run unchanged.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { url } from "./support.js";

const readme = await readFile(new URL("../../transports/websocket/js/README.md", import.meta.url), "utf8");

test("the programs of the README run", async (t) => {
  const programs = [...readme.matchAll(/^```js\n([^]*?)^```/gm)].map(([, program]) => program);
  assert.equal(programs.length, 9);
  // A folder in which their imports resolve.
  const folder = await mkdtemp(new URL("node_modules/.readme-", import.meta.url).pathname);
  t.after(() => rm(folder, { recursive: true }));
  const lines = [];
  t.mock.method(console, "log", (...line) => lines.push(line.join(" ")));
  t.mock.method(console, "error", (...line) => assert.fail(line.join(" ")));
  for (const [place, program] of programs.entries()) {
    assert.ok(program.includes("ws://127.0.0.1:5301/"));
    const file = `${folder}/${place}.mjs`;
    await writeFile(file, program.replace("ws://127.0.0.1:5301/", url));
    await import(pathToFileURL(file));
  }
  const explained = "unknown region = @region NULL,'eu'";
  const declared = ["create sales", "create coffees", "create sales/Subscriptions/eu"];
  const inspected = ["1 locked one billing", "2 active two ", "three 0", "1 2 "];
  const received = ["poison poison", "order-17 ship", "bill 17 is paid"];
  const expected = ["1 two coffees", '2 {"tea":1}', explained, ...declared, ...received, ...inspected, "closed "];
  assert.deepEqual(lines, expected);
});
