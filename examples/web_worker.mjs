// A web worker in one file, with Node's standard modules only: no part of Longshore is used.
//
//     $ longshore up &
//     $ node examples/web_worker.mjs --gateway http://127.0.0.1:7700 --port 8002
//     $ longshore submit word_count text="to be or not to be" --wait
//
// It answers four routes: GET /health_check/, POST /jobs/, GET /jobs/ID, DELETE /jobs/ID. It tells a
// gateway where it is, runs what it is given, and reports how that ended.

import { createHash, createHmac, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const { values: given } = parseArgs({
  options: {
    gateway: { type: "string", default: "http://127.0.0.1:7700" },
    host: { type: "string", default: "127.0.0.1" },
    port: { type: "string", default: "0" },
    "max-jobs": { type: "string", default: "4" },
  },
});
const maxJobs = Number(given["max-jobs"]);
const jobs = new Map(); // by id
const answered = new Map(); // when each health check was answered, by its number
let stopAt = Infinity;
let adoption = 0; // grows with every gateway that takes over
let registration = { id: "", secret: "" };

// Every handler heeds its signal: a job that must stop is aborted.
const handlers = {
  async word_count(args) {
    const counts = {};
    for (const word of args.text.split(/\s+/).filter(Boolean)) counts[word] = (counts[word] ?? 0) + 1;
    return counts;
  },
  async wait({ seconds }, signal) {
    await sleep(seconds * 1000, undefined, { signal });
    return "waited";
  },
  async fail({ words = "as it was told" }) {
    throw new Error(words);
  },
};

// what the gateway is told

function signed(method, path, body) {
  if (!registration.secret) return {};
  const now = String(Math.floor(Date.now() / 1000));
  const digest = createHash("sha256").update(body).digest("hex");
  const said = ["worker", method, path, now, digest].join("\n");
  const made = createHmac("sha256", registration.secret).update(said).digest("hex");
  return { "Longshore-Time": now, "Longshore-Signature": made };
}

async function ask(method, path, document) {
  const body = document === undefined ? "" : JSON.stringify(document);
  const headers = { "Longshore-Worker": registration.id, ...signed(method, path, body) };
  if (body) headers["Content-Type"] = "application/json";
  if (!registration.id) delete headers["Longshore-Worker"];
  try {
    const answer = await fetch(given.gateway + path, { method, headers, body: body || undefined });
    return { status: answer.status, document: await answer.json() };
  } catch {
    return { status: 0, document: {} };
  }
}

async function register(port) {
  const me = {
    hostname: given.host,
    port,
    maxJobs,
    handlers: Object.fromEntries(Object.keys(handlers).map((kind) => [kind, {}])),
    instance: randomUUID(),
  };
  for (;;) {
    const { status, document } = await ask("PUT", "/dispatcher/workers/", me);
    if (status === 200 || status === 201) return (registration = document);
    if (status && status !== 503) throw new Error(`refused: ${JSON.stringify(document)}`);
    await sleep(200);
  }
}

// jobs

function take(job) {
  if (jobs.get(job.id)?.token === job.token) return 202;
  if (!registration.id || jobs.size >= maxJobs || !handlers[job.kind]) return 409;
  job.stop = new AbortController();
  jobs.set(job.id, job);
  run(job);
  return 202;
}

async function run(job) {
  let end;
  try {
    end = { status: "succeeded", result: await handlers[job.kind](job.args, job.stop.signal) };
  } catch (error) {
    const told = { type: error.name, message: error.message };
    end = job.stop.signal.aborted ? { status: "cancelled" } : { status: "failed", error: told };
  }
  while (jobs.get(job.id) === job) {
    const path = `/dispatcher/jobs/${job.id}/result`;
    const { status } = await ask("PUT", path, { token: job.token, ...end });
    if (status >= 200 && status < 500 && status !== 408) break;
    await sleep(500);
  }
  // Only now: while it is listed, nobody else gets the job.
  if (jobs.get(job.id) === job) jobs.delete(job.id);
}

function stop(id, token) {
  const job = jobs.get(id);
  if (!job || String(job.token) !== token) return 404;
  job.stop.abort();
  return 202;
}

// the lease

function health(check, counted, leaseS) {
  for (const no of answered.keys()) if (no < counted) answered.delete(no);
  if (answered.has(counted)) stopAt = answered.get(counted) + (leaseS - Math.min(5, leaseS / 3)) * 1000;
  answered.set(check, performance.now());
  return { jobs: [...jobs.values()].map(({ id, token }) => ({ id, token })) };
}

setInterval(() => {
  if (performance.now() > stopAt) jobs.forEach((job) => job.stop.abort());
}, 500).unref();

// the four routes

// Whether a gateway speaks that was frozen while another one took over.
function isLate(given) {
  if (given > adoption) answered.clear();
  adoption = Math.max(given, adoption);
  return given < adoption;
}

async function route(request) {
  const { pathname, searchParams } = new URL(request.url, "http://worker");
  const id = pathname.slice("/jobs/".length);
  const number = (name) => Number(request.headers[`longshore-${name}`] ?? 0);
  if (isLate(number("adoption"))) return [409, {}];
  if (request.method === "GET" && pathname === "/health_check/") {
    return [200, health(number("check"), number("counted"), number("lease-s"))];
  }
  if (request.method === "POST" && pathname === "/jobs/") {
    return [take(JSON.parse(await text(request))), {}];
  }
  if (request.method === "DELETE") return [stop(id, searchParams.get("token")), {}];
  const job = jobs.get(id);
  return job ? [200, { id: job.id, token: job.token }] : [404, {}];
}

const server = createServer(async (request, response) => {
  const [status, document] = await route(request).catch(() => [400, {}]);
  const body = JSON.stringify(document);
  const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) };
  response.writeHead(status, { ...headers, ...signed(request.method, request.url, body) });
  response.end(body);
});

process.on("SIGTERM", async () => {
  await ask("DELETE", `/dispatcher/workers/${registration.id}`);
  process.exit(0);
});

server.listen(Number(given.port), given.host, async () => {
  await register(server.address().port);
  console.log(`registered as ${registration.id} at port ${server.address().port}`);
});
