// A broker process of the built program, and requests beyond the SDK: entities, policies, counts.

import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { cpSync, mkdirSync, openSync, closeSync, readFileSync } from "node:fs";
import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";

export const ROOT = "RootManageSharedAccessKey";

// Short, so that scenarios see locks end.
const SETTINGS = {
  LIMITS__LOCK_DURATION_MIN: "1s",
  SERVER__ARBITERS: "2",
  AMQP__WORKERS: "2",
  LOG__FILTER: "warn",
};

/** Creates a shared access signature like any client. */
export function sign(policy, key, resource, seconds) {
  const encoded = encodeURIComponent(resource);
  const expiry = Math.floor(Date.now() / 1000) + seconds;
  const signature = createHmac("sha256", key).update(`${encoded}\n${expiry}`).digest("base64");
  return `SharedAccessSignature sr=${encoded}&sig=${encodeURIComponent(signature)}&se=${expiry}&skn=${policy}`;
}

/** A process. After `kill`, `start` serves the stored data at the same ports. */
export class Broker {
  /**
   * With the flag `--tls` its certificate is signed by the authority in the folder `authority`, or
   * by a new one.
   */
  constructor(program, directory, flags = [], authority) {
    this.program = program;
    this.directory = directory;
    this.flags = flags;
    this.isSecure = flags.includes("--tls");
    this.ports = { http: 0, ws: 0, amqp: 0 };
    mkdirSync(join(directory, "data"), { recursive: true, mode: 0o700 });
    if (authority) cpSync(authority, join(directory, "data/tls"), { recursive: true });
  }

  async start() {
    const kept = Object.entries(process.env).filter(([name]) => !name.toUpperCase().startsWith("PEEKLOCK"));
    const settings = Object.entries(SETTINGS).map(([name, value]) => [`PEEKLOCK__${name}`, value]);
    const listeners = Object.entries(this.ports).flatMap(([name, port]) => [`--${name}`, `127.0.0.1:${port}`]);
    const log = openSync(join(this.directory, "log"), "a");
    this.process = spawn(this.program, ["serve", "--data-dir", "data", ...this.flags, ...listeners], {
      cwd: this.directory,
      env: Object.fromEntries([...kept, ...settings]),
      stdio: ["ignore", "pipe", log],
    });
    closeSync(log);
    const found = {};
    for await (const line of createInterface({ input: this.process.stdout })) {
      const told = /^\s*(http|websocket|amqp)\s+\S+:(\d+)$/.exec(line);
      if (told) found[told[1]] = Number(told[2]);
      if (Object.keys(found).length === 3) break;
    }
    if (!found.amqp) throw new Error(`the broker did not start; see ${this.directory}/log`);
    this.process.stdout.resume();
    this.ports = { http: found.http, ws: found.websocket, amqp: found.amqp };
    this.amqp = `${this.isSecure ? "localhost" : "127.0.0.1"}:${found.amqp}`;
    const first = readFileSync(join(this.directory, "data/root.connection-string"), "utf8").split("\n")[0];
    this.key = first.split("SharedAccessKey=")[1].split(";")[0];
  }

  /** Sends SIGKILL: data that was not durable is lost. */
  async kill() {
    await this.end("SIGKILL");
  }

  /** Sends SIGTERM, for an orderly end. */
  async stop() {
    await this.end("SIGTERM");
  }

  async end(signal) {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = once(this.process, "exit");
    this.process.kill(signal);
    await ended;
  }

  connectionString({ policy = ROOT, key = this.key, entity, host = this.amqp } = {}) {
    const parts = [`Endpoint=sb://${host}`, `SharedAccessKeyName=${policy}`, `SharedAccessKey=${key}`];
    if (!this.isSecure) parts.push("UseDevelopmentEmulator=true");
    if (entity) parts.push(`EntityPath=${entity}`);
    return parts.join(";");
  }

  tokenString(token) {
    return `Endpoint=sb://${this.amqp};SharedAccessSignature=${token};UseDevelopmentEmulator=true`;
  }

  /** Sends a request to the JSON API. Throws on a refusal. */
  async ask(method, path, body) {
    const { request } = this.isSecure ? https : http;
    const asked = request({
      host: "127.0.0.1",
      port: this.ports.http,
      path: `/$api/v1/${path}`,
      method,
      headers: {
        Authorization: sign(ROOT, this.key, "http://localhost/", 600),
        "Content-Type": "application/json",
      },
      ca: this.isSecure ? readFileSync(join(this.directory, "data/tls/authority.pem")) : undefined,
    });
    asked.end(body === undefined ? undefined : JSON.stringify(body));
    const [answer] = await once(asked, "response");
    const told = await text(answer);
    if (answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer.statusCode} ${told}`);
    return told ? JSON.parse(told) : undefined;
  }
}
