// @ts-check
// Entry: chooses the page by the address, and draws it inside of the frame.

import { needsToken } from "./api.js";
import { Entities } from "./entities.js";
import { Entity } from "./entity.js";
import { Frame } from "./frame.js";
import { Journeys, Message } from "./message.js";
import { Overview } from "./overview.js";
import { Empty, late } from "./parts.js";
import { route } from "./route.js";
import { Settings, SignIn } from "./settings.js";
import { html, render, useEffect, useErrorBoundary, useRef } from "./view.js";

const Schedule = late(() => import("./schedule.js"), "Schedule");
const Search = late(() => import("./search.js"), "Search");
const Jobs = late(() => import("./jobs.js"), "Jobs");
const Audit = late(() => import("./audit.js"), "Audit");
const [Topology, Checks] = ["Topology", "Checks"].map((name) => late(() => import("./topology.js"), name));
const Import = late(() => import("./import.js"), "Import");
const Clients = late(() => import("./holders.js"), "Clients");

function Page() {
  const { parts, query } = route.use();
  const isSignedOut = needsToken.use();
  const [page, path, tab, sequence] = parts;
  const [error, reset] = useErrorBoundary((thrown) => console.error(thrown));
  const before = useRef(parts);
  useEffect(() => {
    if (before.current[0] !== page || before.current[1] !== path || before.current[3] !== sequence) {
      reset();
      scrollTo(0, 0);
      // A key or link that leads to another page leaves the focus on nothing.
      if (document.activeElement === document.body) {
        document.getElementById("content")?.focus({ preventScroll: true });
      }
    }
    before.current = parts;
  }, [parts]);
  if (error) {
    return html`<${Empty} title="This page has failed"><p>${String(error)}</p><p><button type="button" onClick=${reset}>Try again</button></p><//>`;
  }
  if (isSignedOut && page !== "settings") {
    return html`<${SignIn} />`;
  }
  switch (page) {
    case undefined:
      return html`<${Overview} />`;
    case "entities":
      return html`<${Entities} query=${query} />`;
    case "queue":
    case "topic":
    case "subscription":
      if (path && sequence) {
        return html`<${Message} key=${`${page} ${path} ${tab}`} kind=${page} path=${path} tab=${tab} sequence=${sequence} query=${query} />`;
      }
      return path ? html`<${Entity} key=${`${page} ${path}`} kind=${page} path=${path} tab=${tab} query=${query} />` : html`<${Entities} query=${query} />`;
    case "search":
      return html`<${Search} query=${query} />`;
    case "journey":
      return html`<${Journeys} query=${query} />`;
    case "topology":
      return html`<${Topology} query=${query} />`;
    case "checks":
      return html`<${Checks} query=${query} />`;
    case "schedule":
      return html`<${Schedule} query=${query} />`;
    case "jobs":
      return html`<${Jobs} query=${query} />`;
    case "clients":
      return html`<${Clients} query=${query} />`;
    case "audit":
      return html`<${Audit} query=${query} />`;
    case "import":
      return html`<${Import} />`;
    case "settings":
      return html`<${Settings} />`;
    default:
      return html`<${Empty} title="There is no such page"><p><a href="#/">Go to the overview</a></p><//>`;
  }
}

render(html`<${Frame}><${Page} /><//>`, /** @type {HTMLElement} */ (document.getElementById("page")));
