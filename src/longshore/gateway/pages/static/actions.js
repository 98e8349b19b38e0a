// Buttons that call the API. What was refused is said in the API's own words.
// Bodies are text from end to end: a number goes as it was typed, however large it is.
import { ask, confirm } from "./dialogs.js";

const root = () => document.body.dataset.root;

export function act() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.action");
    if (button) run(button);
  });
}

export function say(words, isBad = false) {
  const toast = document.createElement("div");
  toast.className = isBad ? "toast bad" : "toast";
  toast.textContent = words;
  document.getElementById("toasts").append(toast);
  setTimeout(() => toast.remove(), isBad ? 12000 : 5000);
}

async function run(button) {
  const { form, fields, plan, title, words, into, place, goto, shows } = button.dataset;
  const go = button.textContent;
  let body = button.dataset.body || null;
  let path = button.dataset.path;
  if (form !== undefined) {
    body = await ask(go, { text: form, go });
    if (body === null) return;
  } else if (fields !== undefined) {
    const given = await ask(title || go, { words, fields: JSON.parse(fields), go });
    if (given === null) return;
    if (place) path += encodeURIComponent(given.get(place)?.words ?? "");
    body = filled(body, into, [...given].filter(([name]) => name !== place));
  } else if ((title || button.dataset.confirm) && plan === undefined) {
    if (!(await confirm(title || button.dataset.confirm, { words, go }))) return;
  }
  if (plan !== undefined) {
    const isQuery = plan === "query";
    const told = await call(button, isQuery ? `${path}?dry_run=true` : path, isQuery ? null : joined(body, '"dry_run":true'));
    if (!told || !(await confirm(title || go, { words: planned(told), go }))) return;
  }
  const answer = await call(button, path, body);
  if (!answer) return;
  if (shows) {
    const value = answer[shows];
    await confirm(button.dataset.done || go, { shown: typeof value === "string" ? value : JSON.stringify(value, null, 2) });
  } else if (answer.removed?.length === 0) say("Nothing was removed: it is in use.", true);
  else say(button.dataset.done || `${go}: ${answer.verdict || "done"}.`.replaceAll("_", " "));
  if (goto) location.href = `${root()}${goto}${answer.number ? `/${answer.number}` : ""}`;
}

// The body with these members: what is in the button, and what was typed.
function filled(body, into, given) {
  const members = (some) => some.map(([name, one]) => `${JSON.stringify(name)}:${one.json}`).join(",");
  if (!into) return joined(body, members(given));
  const inner = `${JSON.stringify(into)}:{${members(given.filter(([, one]) => !one.whole))}}`;
  return joined(body, [inner, members(given.filter(([, one]) => one.whole))].filter(Boolean).join(","));
}

function joined(body, members) {
  const inner = (body || "{}").trim().slice(1, -1).trim();
  return `{${[inner, members].filter(Boolean).join(",")}}`;
}

// Calls the API; answers null, and says why, if it was refused.
export async function call(button, path, body) {
  const { method, match } = button.dataset;
  button.disabled = true;
  try {
    const answer = await fetch(root() + path, {
      method,
      headers: {
        ...(body ? { "Content-Type": "application/json" } : {}),
        ...(method === "POST" ? { "Idempotency-Key": crypto.randomUUID() } : {}),
        ...(match ? { "If-Match": match } : {}),
      },
      body: body || undefined,
    });
    const told = exact(await answer.text());
    if (answer.ok) return told;
    say(told.detail || told.title || `the gateway answered ${answer.status}`, true);
  } catch (error) {
    say(`the gateway does not answer (${error.message}); try again`, true);
  } finally {
    button.disabled = false;
  }
  return null;
}

// JSON with its large integers as they are, where the browser can keep them.
function exact(text) {
  const keep = (key, value, context) =>
    typeof value === "number" && JSON.rawJSON && context?.source && !Number.isSafeInteger(value) ? JSON.rawJSON(context.source) : value;
  try {
    return JSON.parse(text, keep);
  } catch {
    return {};
  }
}

function planned(plan) {
  const part = (keys, words, more = 0) =>
    keys?.length ? `${keys.length + more} ${words}: ${keys.slice(0, 8).join(", ")}${keys.length > 8 ? ", …" : ""}` : "";
  const times = (plan.fires || []).map((one) => one.nominal_at.replace("T", " ").replace(/(\.0+)?Z$/, ""));
  return [
    part(plan.reopened, "jobs run again", plan.more),
    part(plan.retired, "jobs leave the group", plan.more_retired),
    part(plan.running, "jobs must end first"),
    plan.anew !== undefined ? `${plan.anew} jobs run anew, the results of ${plan.taken_over} are taken over` : "",
    part(times, times.length === 1 ? "time is submitted (UTC)" : "times are submitted (UTC)"),
    plan.total_bytes !== undefined ? `Nothing needs ${plan.blobs.toLocaleString("en")} ${plan.blobs === 1 ? "blob" : "blobs"}, ${plan.total_bytes.toLocaleString("en")} bytes in all` : "",
  ].filter(Boolean).join("\n") || "There is nothing to do.";
}
