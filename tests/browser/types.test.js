// The types declare exactly the exports of the client.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import * as client from "peeklock";

const declared = await readFile(new URL("../../transports/websocket/js/peeklock.d.ts", import.meta.url), "utf8");

test("exports of the types exist", () => {
  const names = [...declared.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(names.sort(), Object.keys(client).sort());
});

test("methods of the types exist", () => {
  for (const [, name, body] of declared.matchAll(/^export class (\w+)[^{]*\{\n([^]*?)^\}/gm)) {
    const { prototype } = client[name];
    for (const [, method] of body.matchAll(/^ {2}(\w+)[<(]/gm)) {
      if (method !== "constructor") {
        assert.equal(typeof prototype[method], "function", `${name}.${method}`);
      }
    }
  }
});
