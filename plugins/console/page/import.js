// @ts-check
// The namespace as a file: an export, and an import that shows its plan and then carries out exactly this plan (CON-40).

import { ApiError, asApiError, change, getFile, now, standing } from "./api.js";
import { counted } from "./actions.js";
import { number, visible, words } from "./format.js";
import { announce, Choice, Problem, saveAs, Text, Unknown, usePageTitle } from "./parts.js";
import { refreshAll } from "./resource.js";
import { entityHref } from "./route.js";
import { html, useEffect, useRef, useState } from "./view.js";

/** Maximum bytes of a text, as the broker has it. */
const TEXT_BYTES = 1_000_000;
/** Rows of the plan that are shown at once. */
const ROWS = 100;
/** Word that confirms a deletion. */
const WORD = "delete";
const KINDS = { create: ["+", "good"], update: ["~", "look"], delete: ["−", "bad"] };

export function Import() {
  usePageTitle("Import and export");
  const role = standing.use()?.role;
  return html`<div class="page">
    <h1>Import and export</h1>
    ${
      role !== "admin"
        ? html`<p class="quiet">${role ? "Only an admin exports and imports entities." : "Reading your role."}</p>`
        : html`<section aria-labelledby="export"><h2 id="export">Export</h2><${Export} /></section>
          <section aria-labelledby="import"><h2 id="import">Import</h2><${Plan} /></section>`
    }
  </div>`;
}

function Export() {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const save = async () => {
    setBusy(true);
    setError(undefined);
    try {
      saveAs(await getFile("declaration/export", {}, AbortSignal.timeout(600_000)), `topology-${new Date(now()).toISOString().slice(0, 10)}.toml`);
      announce("The file is saved");
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  return html`<p>Queues, topics, subscriptions and rules as TOML, for an import, the configuration file or <code>peeklock apply</code>. It has no messages, policies and keys.</p>
    <p><button type="button" disabled=${isBusy} onClick=${save}>${isBusy ? "Reading…" : "Save as TOML"}</button></p>
    <${Problem} error=${error} />`;
}

/** Text, plan and result of an import. A changed text or choice needs a new plan. */
function Plan() {
  const [text, setText] = useState("");
  const [deletes, setDeletes] = useState(false);
  const [plan, setPlan] = useState(/** @type {any} */ (undefined));
  const [word, setWord] = useState("");
  const [busy, setBusy] = useState("");
  const [progress, setProgress] = useState({ done: 0, total: 0 });
  const [flaw, setFlaw] = useState("");
  const [error, setError] = useState(/** @type {any} */ (undefined));
  const [result, setResult] = useState("");
  const isShown = useRef(true);
  const stops = useRef(false);
  const head = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => () => void (isShown.current = false), []);
  useEffect(() => {
    if (plan || result) {
      head.current?.focus();
    }
  }, [plan, result]);
  const reset = () => {
    setPlan(undefined);
    setError(undefined);
    setFlaw("");
    setResult("");
    setWord("");
  };
  const choose = async (event) => {
    const [file] = event.currentTarget.files;
    if (!file) {
      return;
    }
    reset();
    if (file.size > TEXT_BYTES) {
      setFlaw(`The file has ${number(file.size)} bytes; at most ${number(TEXT_BYTES)} are possible here. Use peeklock apply.`);
      return;
    }
    setText(await file.text());
  };
  const body = { text, deleteUnnamed: deletes };
  const look = async (event) => {
    event.preventDefault();
    reset();
    setBusy("plan");
    try {
      const found = await change("POST", "declaration/text?dryRun=true", body);
      setPlan(found);
      announce(found.steps.length === 0 ? "There is nothing to do" : `The plan has ${counted(found.steps.length, "step")}`);
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy("");
  };
  // A request carries out at most 100 steps; each answer has the digest of the rest.
  const carryOut = async (event) => {
    event.preventDefault();
    const total = plan.steps.length;
    let [done, digest] = [0, plan.digest];
    stops.current = false;
    setBusy("carry");
    setError(undefined);
    setProgress({ done, total });
    try {
      while (done < total && isShown.current && !stops.current) {
        const part = await change("POST", `declaration/text?digest=${digest}`, body);
        done += part.done;
        digest = part.rest.digest;
        setProgress({ done, total });
        if (part.failure) {
          const [step] = part.rest.steps;
          const { condition, detail, trackingId, retryable } = part.failure;
          setError(new ApiError("", { code: condition, detail: `${step.kind} ${step.entity} ${step.path} failed: ${detail}`, trackingId, retryable }));
          break;
        }
        if (part.done === 0) {
          break;
        }
      }
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy("");
    setPlan(undefined);
    setWord("");
    const said = done < total ? `${number(done)} of ${counted(total, "step")} done. Show the plan again to do the rest.` : total === 1 ? "The step is done." : `All ${counted(total, "step")} are done.`;
    setResult(said);
    announce(said);
    refreshAll();
  };
  const count = (kind) => plan?.steps.filter((step) => step.kind === kind).length ?? 0;
  const deletions = count("delete");
  const below = (plan?.steps ?? []).filter(({ kind }) => kind === "delete").flatMap(({ changes }) => changes ?? [])
    .filter(({ property }) => property === "subscription_count").reduce((sum, { before }) => sum + Number(before), 0);
  const isReady = deletions === 0 || word.trim().toLowerCase() === WORD;
  return html`<form onSubmit=${look}>
      <p>Paste or choose a TOML file, or the <code>Config.json</code> of the Service Bus emulator. The plan shows each change first.</p>
      <label class="block">Text<textarea class="mono" rows="10" spellcheck=${false} maxlength=${TEXT_BYTES} required disabled=${busy !== ""} value=${text}
        onInput=${(event) => { reset(); setText(event.currentTarget.value); }}></textarea></label>
      <div class="tools"><label>File <input type="file" accept=".toml,.json,text/plain" disabled=${busy !== ""} onChange=${choose} /></label></div>
      <p><label><input type="checkbox" checked=${deletes} disabled=${busy !== ""} onChange=${(event) => { reset(); setDeletes(event.currentTarget.checked); }} /> Delete entities that the text does not name</label></p>
      <p><button disabled=${busy !== "" || text.trim() === ""}>${busy === "plan" ? "Waiting for the broker…" : "Show the plan"}</button></p>
      ${flaw && html`<p class="problem">${flaw}</p>`}
    </form>
    ${result && html`<p class="notice" tabindex="-1" ref=${head}>${result}</p>`}
    <${Problem} error=${error} />
    <${Unknown} error=${error}>some of the steps may be done. Show the plan again.<//>
    ${
      plan &&
      html`<section class="plan" aria-labelledby="plan"><h2 id="plan" tabindex="-1" ref=${head}>Plan</h2>
        ${plan.notes.length > 0 && html`<ul class="plain-list">${plan.notes.slice(0, ROWS).map((note, place) => html`<li key=${place} class="look"><${Text} value=${note} max=${500} /></li>`)}${plan.notes.length > ROWS && html`<li>and ${number(plan.notes.length - ROWS)} more notes</li>`}</ul>`}
        <p>${plan.steps.length === 0 ? "There is nothing to do: everything is as the text has it. " : `${number(count("create"))} to create, ${number(count("update"))} to change, ${number(deletions)} to delete. `}${counted(plan.unchangedCount, "entity", "entities")} of the text ${plan.unchangedCount === 1 ? "stays" : "stay"} unchanged.</p>
        ${plan.steps.length > 0 && html`<${Steps} steps=${plan.steps} />
          <form onSubmit=${carryOut} aria-label="Carry out the plan">
            ${deletions > 0 && html`<p class="bad">${counted(deletions, "entity", "entities")} and their messages are deleted${below > 0 ? `, and ${counted(below, "subscription")} of these topics` : ""}. This cannot be undone.</p>
              <p><label>Write <code>${WORD}</code> to confirm <input type="text" autocomplete="off" spellcheck=${false} value=${word} disabled=${busy !== ""} onInput=${(event) => setWord(event.currentTarget.value)} /></label></p>`}
            <div class="tools"><button class=${deletions > 0 ? "harm" : "primary"} disabled=${busy !== "" || !isReady}>${deletions > 0 ? `Delete ${counted(deletions, "entity", "entities")} and do ${counted(plan.steps.length, "step")}` : `Do ${counted(plan.steps.length, "step")}`}</button>
              ${busy === "carry" && html`<progress aria-label="Steps done" max=${progress.total} value=${progress.done}></progress> <span>${number(progress.done)} of ${number(progress.total)}</span>
                <button type="button" onClick=${() => (stops.current = true)}>Stop after these steps</button>`}</div>
          </form>`}
      </section>`
    }`;
}

/** Steps of a plan as rows of one property each, a page at a time. */
function Steps({ steps }) {
  const [kind, setKind] = useState("");
  const [start, setStart] = useState(0);
  const rows = steps
    .filter((step) => kind === "" || step.kind === kind)
    .flatMap((step) => (step.changes?.length > 0 ? step.changes.map((one, place) => ({ step, ...one, isFirst: place === 0 })) : [{ step, isFirst: true }]));
  const shown = rows.slice(start, start + ROWS);
  const value = (text) => (text === undefined ? html`<span class="quiet">none</span>` : html`<${Text} value=${text} max=${400} />`);
  return html`<div class="tools"><${Choice} label="Kind of step" value=${kind} options=${[["", "All"], ["create", "Create"], ["update", "Change"], ["delete", "Delete"]]} onChange=${(word) => { setKind(word); setStart(0); }} />
      ${rows.length > ROWS && html`<button type="button" disabled=${start === 0} onClick=${() => setStart(start - ROWS)}>Previous rows</button>
        <button type="button" disabled=${start + ROWS >= rows.length} onClick=${() => setStart(start + ROWS)}>Next rows</button>
        <span class="quiet">${number(start + 1)} to ${number(Math.min(rows.length, start + ROWS))} of ${number(rows.length)}</span>`}</div>
    <div class="table-scroll" role="region" tabindex="0" aria-label="Steps"><table class="plain"><thead><tr><th scope="col">Step</th><th scope="col">Entity</th><th scope="col">Property</th><th scope="col">Now</th><th scope="col">Then</th></tr></thead>
      <tbody>${shown.map(({ step, property, before, after, isFirst }, place) => {
        const [sign, tone] = KINDS[step.kind] ?? ["", "quiet"];
        const isShown = isFirst || place === 0;
        return html`<tr key=${start + place}><td class=${tone}>${isShown && html`<span aria-hidden="true">${sign}</span> ${visible(step.kind)}`}</td>
          <th scope="row" class="mono">${isShown ? html`${visible(step.entity)} ${step.kind === "create" ? html`<${Text} value=${step.path} max=${200} />` : html`<a href=${entityHref(step.entity, step.path)}><${Text} value=${step.path} max=${200} /></a>`}` : html`<span class="hidden"><${Text} value=${step.path} max=${200} /></span>`}</th>
          <td>${property === undefined ? "" : html`<${Text} value=${property.startsWith("rule ") ? property : words(property.replaceAll("_", " "))} max=${120} />`}</td>
          <td class="mono">${property === undefined || step.kind === "create" ? "" : value(before)}</td>
          <td class="mono">${property === undefined || step.kind === "delete" ? "" : value(after)}</td></tr>`;
      })}</tbody></table></div>`;
}
