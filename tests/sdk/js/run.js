// Runs the scenarios against a broker of their own: `node run.js PROGRAM [PART OF A TITLE]`. Ends
// with a line `ok N scenarios`, or prints the failures.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Broker } from "./broker.js";
import { TIME_MAX, World, scenarios, sleep } from "./world.js";

// Scenarios that run at the same time.
const WIDTH = 24;

const [program, ...part] = process.argv.slice(2);
const authority = process.env.PEEKLOCK_TEST_AUTHORITY;
if (!authority) process.exit(goOnTrusting(mkdtempSync(join(tmpdir(), "peeklock-sdk-js-trust-"))));

/**
 * Node reads trusted authorities when it starts, so this continues in a process that trusts a
 * development authority. Returns its exit code.
 */
function goOnTrusting(place) {
  try {
    const made = spawnSync(program, ["tls", "init", "--data-dir", place], { stdio: ["ignore", "ignore", "inherit"] });
    if (made.status !== 0) return 1;
    const folder = join(place, "tls");
    const env = {
      ...process.env,
      PEEKLOCK_TEST_AUTHORITY: folder,
      NODE_EXTRA_CA_CERTS: join(folder, "authority.pem"),
    };
    return spawnSync(process.execPath, process.argv.slice(1), { env, stdio: "inherit" }).status ?? 1;
  } finally {
    rmSync(place, { recursive: true });
  }
}

const folder = new URL("scenarios/", import.meta.url);
for (const file of readdirSync(folder).sort()) await import(new URL(file, folder));
const chosen = scenarios.filter(({ title }) => part.every((word) => title.includes(word)));
const place = mkdtempSync(join(tmpdir(), "peeklock-sdk-js-"));
const broker = new Broker(program, join(place, "broker"));
await broker.start();

const failed = [];
const took = [];
const waiting = chosen.map((one, number) => ({ ...one, number }));

async function work() {
  for (let next = waiting.shift(); next; next = waiting.shift()) {
    const began = Date.now();
    const world = new World(broker, next.number, authority);
    const late = sleep(TIME_MAX, undefined, { ref: false }).then(() => {
      throw new Error("it takes too long");
    });
    try {
      await Promise.race([next.run(world), late]);
    } catch (error) {
      failed.push(next.title);
      console.log(`--- ${next.title}\n${error?.stack ?? error}\n${error?.code ?? ""}`);
    }
    await Promise.race([world.close(), sleep(10_000)]);
    took.push([Date.now() - began, next.title]);
  }
}

// A failure in an operation that no scenario awaits must not stay unnoticed.
process.on("unhandledRejection", (error) => {
  failed.push("unhandled rejection");
  console.log(`--- unhandled rejection\n${error?.stack ?? error}`);
});
await Promise.all(Array.from({ length: WIDTH }, work));
await broker.kill();
const log = readFileSync(join(place, "broker/log"), "utf8");
if (log.includes("panicked")) {
  failed.push("log");
  console.log(`--- the broker panicked\n${log}`);
}
took.sort((one, other) => other[0] - one[0]);
console.log(`slowest: ${took.slice(0, 5).map(([ms, title]) => `${title} ${(ms / 1000).toFixed(1)} s`).join(", ")}`);
if (failed.length > 0) {
  console.log(`${failed.length} of ${chosen.length} scenarios failed; the broker's log is in ${place}`);
  process.exit(1);
}
rmSync(place, { recursive: true });
console.log(`ok ${chosen.length} scenarios`);
process.exit(0);
