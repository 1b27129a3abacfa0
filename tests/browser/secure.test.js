// TLS and connection strings: a broker that requires a token, and whose authority Node trusts.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import WebSocket from "ws";
import { ConnectionString, connect } from "peeklock";
import { atEnd } from "./support.js";

const string = process.env.PEEKLOCK_CONNECTION_STRING;

async function connected(t, text, options = {}) {
  const connection = await connect(text, { WebSocket, ...options });
  atEnd(t, () => connection.close({ seconds: 1 }));
  return connection;
}

/** Sockets that report the tokens that they send. */
function listening(told) {
  return class extends WebSocket {
    send(text) {
      for (const request of JSON.parse(text).requests) {
        const token = request.hello?.token ?? request.authenticate?.token;
        if (token) {
          told(Number(/&se=([0-9]+)/.exec(token)[1]));
        }
      }
      super.send(text);
    }
  };
}

// TLS-06, TLS-07, SEC-20, SEC-21: a client needs only a connection string, over TLS and for its
// entity.
test("a connection string has address, policy and entity", async (t) => {
  assert.match(new ConnectionString(string).url, /^wss:/);
  const connection = await connected(t, string);
  await connection.queues.create("secure");
  await connection.queues.create("other");
  const only = await connected(t, `${string};EntityPath=Secure`);
  await only.sender("secure").send("two coffees");
  const [message] = await only.receiver("secure").receive({ waitSeconds: 5 });
  assert.equal(message.text, "two coffees");
  await message.complete();
  const refused = { condition: "ArgumentError", message: /EntityPath/ };
  assert.throws(() => only.sender("other"), refused);
  assert.throws(() => only.receiver("other/$deadletterqueue"), refused);
  assert.throws(() => only.sender("secure", { via: "other" }), refused);
  await assert.rejects(only.queues.get("other"), refused);
  await assert.rejects(only.acceptSession("other", "a"), refused);
});

// TLS-08: a token is renewed before it expires, and open links continue.
test("tokens are renewed before they end", async (t) => {
  const ends = [];
  let third;
  const renewed = new Promise((resolve) => {
    third = resolve;
  });
  const told = (end) => {
    ends.push(end);
    if (ends.length === 4) {
      third();
    }
  };
  const admin = await connected(t, string);
  await admin.queues.create("renewed");
  const connection = await connected(t, string, { WebSocket: listening(told), tokenSeconds: 3 });
  const problems = [];
  connection.addEventListener("problem", ({ detail }) => problems.push(detail));
  const waiting = connection.receiver("renewed").receive({ waitSeconds: 30 });
  await renewed;
  assert.ok(Date.now() / 1000 >= ends[0], "the first token has ended");
  assert.deepEqual(ends, [...ends].sort((a, b) => a - b));
  await connection.sender("renewed").send("still there");
  const [message] = await waiting;
  assert.equal(message.text, "still there");
  await message.complete();
  assert.deepEqual(problems, []);
});

// TLS-08: a function that provides tokens is called again before its token expires.
test("a function is called for another token", async (t) => {
  const signer = new ConnectionString(string);
  let count = 0;
  let again;
  const asked = new Promise((resolve) => {
    again = resolve;
  });
  const token = () => {
    count += 1;
    if (count === 3) {
      again();
    }
    return signer.token(Date.now() + 3000);
  };
  const connection = await connected(t, signer.url, { token });
  await asked;
  await connection.queues.list();
});

// TLS-06: an unknown authority is not trusted, and the error names the remedy.
test("an untrusted broker is refused with a hint", async () => {
  const script = `
    import WebSocket from "ws";
    import { connect } from "peeklock";
    await connect(process.env.PEEKLOCK_CONNECTION_STRING, { WebSocket, connectSeconds: 0.1 });
  `;
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { env });
  await assert.rejects(run, ({ stderr }) => {
    assert.match(stderr, /NODE_EXTRA_CA_CERTS/);
    assert.doesNotMatch(stderr, /SharedAccessKey=/);
    return true;
  });
});

// SEC-18, SEC-19, SEC-22: the error names the fault in a connection string, and never a secret.
test("an invalid connection string is refused", () => {
  const key = "SharedAccessKeyName=a;SharedAccessKey=hidden";
  for (const [text, word] of [
    [key, /Endpoint/],
    [`Endpoint=http://a;${key}`, /sb:\/\/HOST/],
    [`Endpoint=sb://a/b;${key}`, /sb:\/\/HOST/],
    [`Endpoint=sb://a:99999;${key}`, /sb:\/\/HOST/],
    [`Endpoint=sb://a;Endpoint=sb://b;${key}`, /twice/],
    ["Endpoint=sb://a;SharedAccessKey=hidden", /SharedAccessKeyName and/],
    [`Endpoint=sb://a;${key};SharedAccessSignature=hidden`, /SharedAccessKeyName and/],
    [`Endpoint=sb://a;${key};UseDevelopmentEmulator=1`, /true or false/],
    ["Endpoint=sb://a;hidden", /not Key=Value/],
  ]) {
    assert.throws(
      () => new ConnectionString(text),
      (error) => error.condition === "ArgumentError" && word.test(error.message) && !/hidden/.test(error.message),
      text,
    );
  }
  const read = new ConnectionString(` endpoint = sb://[::1]/ ; ${"SHAREDACCESSKEYNAME=A;sharedaccesskey=hidden"}==;Other=1;usedevelopmentemulator=TRUE;`);
  assert.equal(read.url, "ws://[::1]:5301/");
  assert.equal(read.policy, "A");
});
