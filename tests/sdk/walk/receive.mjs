// The other team's program: `receive.mjs receive|send STRING`. Prints in JSON the received
// messages, or the refusal.

import { createRequire } from "node:module";

const require = createRequire(new URL("../js/package.json", import.meta.url));
const { ServiceBusClient } = require("@azure/service-bus");

const [what, string] = process.argv.slice(2);
const client = new ServiceBusClient(string, { retryOptions: { maxRetries: 0, timeoutInMs: 20_000 } });

async function receive() {
  const receiver = client.createReceiver("orders");
  const bodies = [];
  while (bodies.length < 2) {
    const some = await receiver.receiveMessages(2, { maxWaitTimeInMs: 20_000 });
    if (some.length === 0) break;
    for (const message of some) {
      bodies.push(String(message.body));
      await receiver.completeMessage(message);
    }
  }
  return { bodies };
}

async function send() {
  await client.createSender("orders").sendMessages({ body: "x" });
  return {};
}

try {
  console.log(JSON.stringify(await { receive, send }[what]()));
} catch ({ code, message }) {
  console.log(JSON.stringify({ code, message }));
}
await client.close();
