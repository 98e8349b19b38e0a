// An action on all jobs that match a search: counts them, asks, and begins it.
import { call, say } from "./actions.js";
import { ask } from "./dialogs.js";

export function actOnAll() {
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form.on-all");
    if (!form) return;
    event.preventDefault();
    run(form);
  });
}

async function run(form) {
  const given = new FormData(form);
  const action = given.get("action");
  const value = given.get("value").trim();
  const body = { query: form.dataset.query, action };
  if (action === "priority") {
    if (!/^[+-]?\d{1,5}$/.test(value)) return say("Give the new priority, a whole number like 5.", true);
    body.priority = Number(value);
  } else if (action === "move") {
    if (!value) return say("Give the queue to move to.", true);
    body.queue = value;
  }
  const button = form.querySelector("button");
  const plan = await call(button, button.dataset.path, JSON.stringify({ ...body, plan: true }));
  if (!plan) return;
  if (!plan.would) return say(counted(plan).join("; "));
  const words = form.querySelector("select").selectedOptions[0].textContent.replace("…", value);
  if ((await ask(`${words}: ${amount(plan.would, plan)}?`, { words: counted(plan).join("\n"), go: "Do it" })) === null) return;
  const bulk = await call(button, button.dataset.path, JSON.stringify({ ...body, expected: plan.complete ? plan.matched : 0 }));
  if (bulk) say(`Bulk ${bulk.number} has begun.`);
}

const amount = (count, plan) => `${count.toLocaleString("en")}${plan.complete ? "" : "+"} job${count === 1 ? "" : "s"}`;

function counted(plan) {
  const states = Object.entries(plan.states).map(([state, count]) => `${count.toLocaleString("en")} ${state.replaceAll("_", " ")}`);
  const first = `${amount(plan.matched, plan)} match${plan.matched === 1 ? "es" : ""}${states.length ? `: ${states.join(", ")}` : ""}.`;
  return [first, ...plan.refused.map((one) => `${one.count.toLocaleString("en")} stay as they are: each ${one.why}.`)];
}
