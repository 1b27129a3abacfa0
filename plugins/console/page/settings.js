// @ts-check
// Choices of this browser, the token of this tab, policies of the broker, and the broker itself.

import { ApiError, get, getRoot, hasEnded, needsToken, readStanding, setUnlocked, signIn, signOut, standing } from "./api.js";
import { number, visible } from "./format.js";
import { announce, Choice, Facts, Moment, Problem, Text, usePageTitle } from "./parts.js";
import { prefer, preferences } from "./preferences.js";
import { about, refreshAll, useResource } from "./resource.js";
import { html, useState } from "./view.js";

export function Settings() {
  usePageTitle("Settings");
  const { scheme, density, zone, letters } = preferences.use();
  const { label } = about.use();
  const broker = useResource("health", async (signal) => {
    const [health, namespace] = await Promise.all([getRoot("health", signal), get("namespace", {}, signal).catch(() => undefined)]);
    return { health, namespace };
  });
  const { health, namespace } = broker.value ?? {};
  return html`<div class="page narrow-page">
    <h1>Settings</h1>
    <section><h2>This browser</h2>
      <${Facts} rows=${[
        ["Scheme", html`<${Choice} label="Scheme" value=${scheme} options=${[["system", "System"], ["light", "Light"], ["dark", "Dark"]]} onChange=${(value) => prefer({ scheme: value })} />`],
        ["Rows", html`<${Choice} label="Rows" value=${density} options=${[["normal", "Normal"], ["compact", "Compact"]]} onChange=${(value) => prefer({ density: value })} />`],
        ["Times", html`<${Choice} label="Times" value=${zone} options=${[["local", `Local (${Intl.DateTimeFormat().resolvedOptions().timeZone})`], ["utc", "UTC"]]} onChange=${(value) => prefer({ zone: value })} />`],
        ["Single-letter keys", html`<${Choice} label="Single-letter keys" value=${letters ? "on" : "off"} options=${[["on", "On"], ["off", "Off"]]} onChange=${(value) => prefer({ letters: value === "on" })} />`],
      ]} />
    </section>
    <section><h2>Sign-in</h2><${SignInForm} /></section>
    <section><h2>Policies</h2><${Policies} /></section>
    <section><h2>Broker</h2>
      <${Problem} error=${broker.error} onRetry=${broker.refresh} />
      <${Facts} rows=${[
        ["Environment", label && html`<${Text} value=${label} />`],
        ["Namespace", namespace && html`<span class="mono">${visible(namespace.name)}</span>, ${visible(namespace.tier)}`],
        ["State", health && visible(health.status)],
        ["Version", health?.version && visible(health.version)],
        ["Store", health?.store && `${visible(health.store)}, ${health.durable ? "durable" : "not durable"}`],
        ["Entities", health?.entities !== undefined && number(health.entities)],
        ["Started", health?.startedAtUtc && html`<${Moment} at=${health.startedAtUtc} />`],
        ["API", html`<a href=${new URL("../$api/v1/openapi.json", document.baseURI).href}>OpenAPI document</a>`],
      ].map(([name, value]) => [name, value === false ? undefined : value])} />
    </section>
  </div>`;
}

function Policies() {
  const state = useResource("policies", (signal) => get("policies", {}, signal));
  if (state.error) {
    return state.error.code === "Unauthorized" ? html`<p class="quiet">Reading policies needs the right Manage on the namespace.</p>` : html`<${Problem} error=${state.error} onRetry=${state.refresh} />`;
  }
  const policies = state.value?.policies;
  if (policies?.length === 0) {
    return html`<p class="quiet">There are none, so a client needs no token. Make one: <code>peeklock policy create</code></p>`;
  }
  return html`<div class="table-scroll" role="region" tabindex="0" aria-label="Policies"><table class="plain unbroken"><thead><tr><th scope="col">Name</th><th scope="col">Rights</th><th scope="col">Changed</th></tr></thead>
    <tbody>${policies?.map((policy) => html`<tr key=${policy.name}><th scope="row" class="mono"><${Text} value=${policy.name} /></th><td>${policy.rights.join(", ")}</td><td><${Moment} at=${policy.updatedAt ?? policy.createdAt} /></td></tr>`)}</tbody></table></div>`;
}

/** Replaces a page while the broker wants a token. */
export function SignIn() {
  usePageTitle("Sign in");
  return html`<div class="page narrow-page"><h1>Sign in</h1><p>This broker asks every client for a token.</p><${SignInForm} /></div>`;
}

function SignInForm() {
  needsToken.use();
  const isOver = hasEnded.use();
  const state = standing.use();
  const [text, setText] = useState("");
  const [role, setRole] = useState("");
  const [flaw, setFlaw] = useState(/** @type {any} */ (undefined));
  const [isBusy, setBusy] = useState(false);
  const attempt = async (act, done) => {
    setBusy(true);
    setFlaw(undefined);
    try {
      await act();
      setText("");
      announce(done);
    } catch (error) {
      setFlaw(error);
    }
    setBusy(false);
    refreshAll();
  };
  const submit = (event) => {
    event.preventDefault();
    void attempt(() => signIn(text, role), "Signed in");
  };
  const end = async () => {
    await attempt(signOut, "Signed out");
    await readStanding().catch(() => {});
  };
  const failure = flaw instanceof ApiError ? html`<${Problem} error=${flaw} />` : flaw && html`<p class="problem">${flaw.message}</p>`;
  if (state?.isSignedIn) {
    return html`<${Facts} rows=${[
        ["Role", state?.role],
        ["Policy", state?.policy && html`<span class="mono"><${Text} value=${state.policy} /></span>`],
        ["Until", state?.endsAtUtc && html`<${Moment} at=${state.endsAtUtc} /> <span class="quiet">or 30 minutes without use</span>`],
        ["Unlocked until", state?.unlockedUntilUtc && html`<${Moment} at=${state.unlockedUntilUtc} />`],
      ]} />
      ${state.isLocked && html`<p>You are an admin. This page only looks until you unlock it.</p>`}
      ${failure}<p class="buttons">
        ${state.isLocked && html`<button type="button" disabled=${isBusy} onClick=${() => attempt(() => setUnlocked(true), "Unlocked")}>Unlock for 15 minutes</button>`}
        ${state.unlockedUntilUtc && html`<button type="button" disabled=${isBusy} onClick=${() => attempt(() => setUnlocked(false), "Locked")}>Lock</button>`}
        <button type="button" disabled=${isBusy} onClick=${end}>Sign out</button></p>`;
  }
  return html`<form class="sign-in" onSubmit=${submit}>
    ${state?.role && html`<p>Without signing in, this page has the role <strong>${state.role}</strong>.</p>`}
    <label class="block" for="credential">Connection string or token</label>
    <input id="credential" type="password" autocomplete="off" spellcheck=${false} value=${text} aria-invalid=${flaw !== undefined} aria-describedby="credential-help" onInput=${(event) => setText(event.currentTarget.value)} />
    <label>Role <select value=${role} onChange=${(event) => setRole(event.currentTarget.value)}>
      ${ROLES.map(([id, name]) => html`<option key=${id} value=${id} selected=${id === role}>${name}</option>`)}
    </select></label>
    <button disabled=${isBusy || text.trim() === ""}>Sign in</button>
    ${failure}
    ${isOver && html`<p class="problem">The token of this tab has ended.</p>`}
    <p class="quiet" id="credential-help"><code>peeklock connection-string</code> prints one. This page signs a token with its key, and the broker exchanges it for a token of this browser that lasts 8 hours, or 30 minutes without use. The key is not kept and not sent.</p>
  </form>`;
}

const ROLES = [["", "the highest of the policy"], ["viewer", "viewer: looks only"], ["operator", "operator: also sends and settles"], ["admin", "admin: also changes entities"]];
