// One load with the JavaScript SDK: `node load.js CONNECTION_STRING LOAD COUNT`.
//
// Says `ready` when everything is warm, waits for a line, carries out the load, and says how many seconds that took.

const { createRequire } = require("node:module");
const { createInterface } = require("node:readline");
const { resolve } = require("node:path");

const { ServiceBusClient } = createRequire(resolve(__dirname, "../../tests/sdk/js/package.json"))("@azure/service-bus");

const QUEUE = "load";
const BODY = Buffer.alloc(1024, "x");
// How many messages a list has.
const LIST = 100;
// Number of warm-up messages, which attach links and compile code.
const WARM = 1000;
// A receive without a message for this time has failed.
const PATIENCE_MS = 20_000;

/** One after the other, each awaited. */
async function single(sender, count) {
  for (let sent = 0; sent < count; sent += 1) await sender.sendMessages({ body: BODY });
}

/** In lists, each awaited. */
async function batch(sender, count) {
  for (let sent = 0; sent < count; sent += LIST) {
    await sender.sendMessages(Array.from({ length: LIST }, () => ({ body: BODY })));
  }
}

/** In lists, of which all messages are completed at the same time. */
async function receive(receiver, count) {
  for (let left = count; left > 0; ) {
    const messages = await receiver.receiveMessages(Math.min(LIST, left), { maxWaitTimeInMs: PATIENCE_MS });
    if (messages.length === 0) throw new Error(`nothing came, and ${left} messages are due`);
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
    left -= messages.length;
  }
}

async function measured(load, handle, count, lines) {
  await load(handle, WARM);
  console.log("ready");
  await lines.next();
  const began = performance.now();
  await load(handle, count);
  console.log((performance.now() - began) / 1000);
  await lines.next();
}

async function main() {
  const [string, name, countText] = process.argv.slice(2);
  const count = Number(countText);
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const client = new ServiceBusClient(string);
  const sender = client.createSender(QUEUE);
  if (name === "receive") {
    await batch(sender, WARM + count);
    await measured(receive, client.createReceiver(QUEUE), count, lines);
  } else {
    await measured({ single, batch }[name], sender, count, lines);
  }
  await client.close();
  process.exit(0);
}

main();
