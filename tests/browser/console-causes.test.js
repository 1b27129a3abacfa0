// The ten usual causes for which a message does not arrive: a walk for each, as the table of the how-to page describes it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { ask, close, isReadable, launch, opened, PHONE, post, press, rows, visit } from "./console.js";
import { connected } from "./support.js";

const PAGE = readFileSync(new URL("../../docs/how-to/find-why-a-message-did-not-arrive.md", import.meta.url), "utf8");
const HOUR_MS = 3_600_000;

/** Rows of the table: names of links and buttons to press, text that is shown then, and the cause. */
const WALKS = [...PAGE.matchAll(/^\| [^|]+ \| ([^|]+) \| [^|]*`([^`|]+)` \| \[([^\]]+)\]\(#[^)]+\) \| `peeklock [^`|]+` \|$/gm)].map(
  ([, way, sign, cause]) => ({ steps: [...way.matchAll(/\*\*([^*]+)\*\*/g)].map(([, name]) => name), sign, cause }),
);

before(launch);
after(close);

/** Asks until the answer meets a condition. */
async function until(path, isMet) {
  for (;;) {
    const answer = await ask("GET", path);
    if (isMet(answer)) {
      return;
    }
  }
}

/** Waits until the series of an entity have a value other than 0 in a column. */
const counted = (entity, column) => {
  const fromUtc = new Date(Date.now() - HOUR_MS / 6).toISOString();
  return until(`${entity}/series?column=${column}&fromUtc=${fromUtc}`, ({ columns }) => columns[column].some((count) => count > 0));
};

const send = (entity, message = {}) => post(`${entity}/messages`, { body: "two coffees", ...message });
const typed = (tab) => tab.getByLabel("Test a message without sending it");
const settled = async (queue, how, body) => {
  const { messages } = await post(`${queue}/messages/receive`, {});
  await post(`${queue}/locks/${messages[0].lockToken}/${how}`, body);
};

/**
 * A case for each cause: `make` creates it, in the entity with the path. `within` selects the part of the page that shows
 * the cause, `before` acts before the step of that name, and `look` after the walk.
 */
const CASES = {
  "No rule selects it": {
    path: "sales/Subscriptions/eu",
    within: "section[aria-label='Result of the test']",
    make: async () => {
      await ask("PUT", "topics/sales", {});
      await ask("PUT", "topics/sales/subscriptions/eu", { rules: [{ name: "europe", filter: { type: "sql", sql: "region = 'eu'" } }] });
      await send("topics/sales", { applicationProperties: { region: "us" } });
    },
    before: { Test: (tab) => typed(tab).fill('{"applicationProperties": {"region": "us", "amount": 9007199254740993}}') },
    look: async (tab) => {
      const result = tab.getByRole("region", { name: "Result of the test" });
      assert.match(await result.innerText(), /europe does not select it[^]*region = 'eu'\s+false\s+'us' and 'eu'/);
      assert.equal(await tab.evaluate("document.activeElement.textContent"), "Test", "the focus is not lost");
      await typed(tab).fill('{"applicationProperties": {"region": "eu"}}');
      await press(tab, "Tab", "Enter");
      await result.getByText("The subscription gets 1 copy.").waitFor();
      await typed(tab).fill("{");
      await press(tab, "Tab", "Enter");
      await tab.locator(".problem").getByText("NotJson").waitFor();
      assert.equal((await ask("GET", "topics/sales/subscriptions/eu")).runtime.activeMessageCount, 0, "nothing was sent");
    },
  },
  "It has expired": {
    path: "stale",
    within: ".totals",
    make: async () => {
      await ask("PUT", "queues/stale", {});
      await send("queues/stale", { timeToLive: "PT0.05S" });
      await until("queues/stale/heads", ({ heads }) => heads.every(({ isExpired }) => isExpired));
      assert.deepEqual((await post("queues/stale/messages/receive", {})).messages, []);
      await counted("queues/stale", "expired");
    },
    look: async (tab) => assert.match(await tab.locator(".totals").innerText(), /accepted\s+1\s+expired\s+1\s*$/),
  },
  "A dead worker holds its lock": {
    path: "brewing",
    within: "tbody",
    make: async () => {
      await ask("PUT", "queues/brewing", { lockDuration: "PT5M" });
      await send("queues/brewing");
      await post("queues/brewing/messages/receive", {}, { "User-Agent": "worker-7", Connection: "close" });
      await until("queues/brewing/locks", ({ locks }) => !locks[0].lock.holder.isConnected);
    },
    look: async (tab) => assert.match(await rows(tab).innerText(), /worker-7/),
  },
  "It is scheduled": {
    path: "tomorrow",
    within: "figcaption",
    make: async () => {
      await ask("PUT", "queues/tomorrow", {});
      await send("queues/tomorrow", { scheduledEnqueueTimeUtc: new Date(Date.now() + HOUR_MS / 2).toISOString() });
    },
    look: (tab) => tab.getByRole("grid").getByText(/^in (29|30) min$/).waitFor(),
  },
  "It is deferred": {
    path: "aside",
    within: "tbody",
    make: async () => {
      await ask("PUT", "queues/aside", {});
      await send("queues/aside");
      await settled("queues/aside", "defer");
    },
  },
  "It is a dead letter": {
    path: "refused",
    within: "tbody",
    make: async () => {
      await ask("PUT", "queues/refused", {});
      await send("queues/refused");
      await settled("queues/refused", "dead-letter", { reason: "SoldOut", description: "no coffee left" });
    },
  },
  "It is a duplicate": {
    path: "once",
    within: ".totals",
    make: async () => {
      await ask("PUT", "queues/once", { requiresDuplicateDetection: true });
      await send("queues/once", { messageId: "order-1" });
      await settled("queues/once", "complete");
      assert.equal((await send("queues/once", { messageId: "order-1" })).sequenceNumber, 0);
      await counted("queues/once", "duplicates");
      await counted("queues/once", "completed");
    },
    look: async (tab) => {
      // An empty list has the same totals.
      await tab.getByRole("navigation", { name: "Parts of once" }).getByRole("link", { name: "Messages" }).click();
      await tab.getByText("In the last hour:").waitFor();
      assert.match(await tab.locator(".totals").innerText(), /accepted\s+1\s+dropped as duplicates\s+1\s+delivered\s+1\s+completed\s+1\s*$/);
    },
  },
  "A receiver holds its session": {
    path: "steps",
    within: "tbody",
    make: async (t) => {
      const connection = await connected(t, { client: "packer" });
      await connection.queues.create("steps", { requiresSession: true, lockDuration: "PT5M" });
      await connection.sender("steps").sendBatch([{ body: "pack", sessionId: "order-17" }]);
      await connection.acceptSession("steps", "order-17");
    },
    look: async (tab) => assert.match(await rows(tab).innerText(), /order-17\s+1\b[^]*\d (min|s)\b/),
  },
  "It was forwarded": {
    path: "inbox",
    within: ".title",
    make: async () => {
      await ask("PUT", "queues/archive", {});
      await ask("PUT", "queues/inbox", { forwardTo: "archive" });
      await send("queues/inbox", { messageId: "cake-1" });
      await until("queues/archive/heads", ({ heads }) => heads.length === 1);
    },
    look: async (tab) => {
      await tab.locator(".title").getByRole("link", { name: "archive" }).focus();
      await press(tab, "Enter");
      await rows(tab).getByText("cake-1").waitFor();
    },
  },
  "The entity is disabled": {
    path: "closed",
    within: ".title",
    make: () => ask("PUT", "queues/closed", { status: "ReceiveDisabled" }),
    look: async (tab) => {
      await visit(tab, "#/");
      await tab.getByRole("link", { name: "closed is disabled" }).waitFor();
    },
  },
};

/** Goes from the overview to an entity with keys only. */
async function goTo(tab, path) {
  await visit(tab, "#/");
  await press(tab, "Control+k");
  await tab.getByRole("combobox").waitFor();
  await tab.keyboard.type(path);
  await tab.getByRole("option", { selected: true }).getByText(path, { exact: true }).waitFor();
  await press(tab, "Enter");
  await tab.locator("h1").getByText(path, { exact: true }).waitFor();
}

test("the page has a walk and a section for each of the ten causes", () => {
  assert.equal(WALKS.length, 10);
  assert.deepEqual(WALKS.map(({ cause }) => cause).sort(), Object.keys(CASES).sort());
  for (const { cause } of WALKS) {
    assert.ok(PAGE.includes(`\n## ${cause}\n`), cause);
  }
});

// CON-31, CON-43, CON-44, CON-52, CON-53, CON-58: each cause is reached and named, with keys only
for (const { steps, sign, cause } of WALKS) {
  const { path, within, make, before: acts = {}, look } = CASES[cause];
  test(`the walk leads to the cause: ${cause}`, async (t) => {
    await make(t);
    const tab = await opened(t);
    await goTo(tab, path);
    for (const name of steps) {
      await acts[name]?.(tab);
      const main = tab.getByRole("main");
      await main.getByRole("link", { name }).or(main.getByRole("button", { name })).first().focus();
      await press(tab, "Enter");
    }
    await tab.locator(within).getByText(sign).first().waitFor();
    await look?.(tab);
  });
}

// CON-66: the new parts have room on a phone
test("the causes are readable on a phone", async (t) => {
  const tab = await opened(t, PHONE);
  for (const fragment of ["#/queue/once", "#/queue/stale/charts", "#/queue/inbox", "#/subscription/sales%2FSubscriptions%2Feu/rules"]) {
    await visit(tab, fragment);
    await isReadable(tab, fragment);
  }
  await tab.getByRole("button", { name: "Test", exact: true }).click();
  await tab.getByRole("region", { name: "Result of the test" }).waitFor();
  await isReadable(tab, "a test of rules");
});
