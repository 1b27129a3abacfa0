// Measures the console with many entities and messages (CON-78): start `peeklock serve --ephemeral`, then
// `PEEKLOCK_HTTP=http://127.0.0.1:5300 PEEKLOCK_WS=ws://127.0.0.1:5301 node console-speed.mjs`. Prints times by the clock,
// and the processor time of the page's main thread, which other programs do not change.

import { ask, close, console_, launch, opened, post, visit } from "./console.js";

const ENTITIES = 10_000;
const RUNS = 5;
const STEPS = 200;

await launch();
const test = { after: () => {} };
const { total } = await ask("GET", "entities?top=1");
for (let first = total; first < ENTITIES; first += 50) {
  await Promise.all(Array.from({ length: Math.min(50, ENTITIES - first) }, (_, at) => ask("PUT", `queues/many%2Fqueue-${String(first + at).padStart(5, "0")}`, {})));
}
await ask("PUT", "queues/many%2Fqueue-00000", {}).catch(() => {});
for (let part = 0; part < 10; part += 1) {
  await post("queues/many%2Fqueue-00000/messages/batch", { messages: Array.from({ length: 200 }, (_, at) => ({ body: JSON.stringify({ id: part * 200 + at, text: "x".repeat(200) }) })) });
}

/** Processor time of the main thread of a page in milliseconds. */
async function clockOf(tab) {
  const session = await tab.context().newCDPSession(tab);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  return async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return 1000 * metrics.find(({ name }) => name === "TaskDuration").value;
  };
}

const median = (values) => values.sort((one, other) => one - other)[Math.floor(values.length / 2)];
const report = (name, values) => console.log(`${name}: median ${median(values).toFixed(0)} ms of ${values.length}, longest ${Math.max(...values).toFixed(0)} ms`);

const list = [];
for (let run = 0; run < RUNS; run += 1) {
  const begin = performance.now();
  await ask("GET", "entities?sort=activeMessageCount&descending=true&top=200");
  list.push(performance.now() - begin);
}
report("list of entities, sorted, 200 rows", list);

const overviews = [];
const overviewWork = [];
for (let run = 0; run < RUNS; run += 1) {
  const tab = await opened(test);
  const used = await clockOf(tab);
  await tab.goto(`${console_}#/`);
  await tab.getByText("active messages").waitFor();
  overviews.push(await tab.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now()))))));
  overviewWork.push(await used());
  await tab.context().close();
}
report("overview, from the request to the picture, empty cache", overviews);
report("  processor time of the page", overviewWork);

const tab = await opened(test);
const used = await clockOf(tab);

/** Times between frames while a table scrolls. */
async function frames() {
  return tab.evaluate(async (steps) => {
    const element = document.querySelector(".table-box .table-scroll");
    const times = [];
    let last = await new Promise(requestAnimationFrame);
    for (let step = 0; step < steps; step += 1) {
      element.scrollTop += 240;
      const now = await new Promise(requestAnimationFrame);
      times.push(now - last);
      last = now;
    }
    return times;
  }, STEPS);
}

for (const [name, fragment] of [["entities", "#/entities"], ["messages", "#/queue/many%2Fqueue-00000/messages"]]) {
  await visit(tab, fragment);
  const before = await used();
  const times = await frames();
  console.log(`processor time of a frame while scrolling ${name}: mean ${(((await used()) - before) / STEPS).toFixed(1)} ms`);
  const late = times.filter((time) => time > 50).length;
  report(`frames while scrolling ${name}`, times);
  console.log(`  ${late} of ${times.length} frames over 50 ms, ${await tab.locator("tbody tr").count()} rows in the document`);
}

const openings = [];
await visit(tab, "#/queue/many%2Fqueue-00000/messages?at=1");
for (let number = 2; number < 12; number += 1) {
  openings.push(
    await tab.evaluate(async (wanted) => {
      const begin = performance.now();
      location.hash = location.hash.replace(/at=\d+/, `at=${wanted}`);
      while (!document.querySelector(".beside")?.textContent.includes(`id: ${wanted - 1}`)) {
        await new Promise(requestAnimationFrame);
      }
      return performance.now() - begin;
    }, number),
  );
}
report("opening a message", openings);
await tab.context().close();
await close();
