// Buttons that call the API. What was refused is said in the API's own words.
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
  const { confirm, form, plan, goto } = button.dataset;
  let body = button.dataset.body || null;
  if (form !== undefined) {
    body = await ask(button.textContent, { text: form, go: button.textContent });
    if (body === null) return;
  } else if (plan !== undefined) {
    const told = await call(button, { ...JSON.parse(body || "{}"), dry_run: true });
    if (!told || (await ask(button.textContent, { words: planned(told), go: button.textContent })) === null) return;
  } else if (confirm && (await ask(confirm, { go: button.textContent })) === null) {
    return;
  }
  const answer = await call(button, body && JSON.parse(body));
  if (!answer) return;
  say(button.dataset.done || `${button.textContent}: ${answer.verdict || "done"}.`.replaceAll("_", " "));
  if (goto && answer.number) location.href = `${root()}${goto}/${answer.number}`;
}

// Calls the API; answers null, and says why, if it was refused.
export async function call(button, body) {
  button.disabled = true;
  try {
    const answer = await fetch(root() + button.dataset.path, {
      method: button.dataset.method,
      headers: {
        ...(body ? { "Content-Type": "application/json" } : {}),
        ...(button.dataset.method === "POST" ? { "Idempotency-Key": crypto.randomUUID() } : {}),
      },
      body: body ? JSON.stringify(body) : undefined,
    });
    const told = await answer.json().catch(() => ({}));
    if (answer.ok) return told;
    say(told.detail || told.title || `the gateway answered ${answer.status}`, true);
  } catch (error) {
    say(`the gateway does not answer (${error.message}); try again`, true);
  } finally {
    button.disabled = false;
  }
  return null;
}

function planned(plan) {
  const part = (keys, words) => (keys?.length ? `${keys.length} ${words}: ${keys.slice(0, 8).join(", ")}${keys.length > 8 ? ", …" : ""}` : "");
  return [
    part(plan.reopened, "jobs run again"),
    part(plan.retired, "jobs leave the group"),
    part(plan.running, "jobs must end first"),
    plan.anew !== undefined ? `${plan.anew} jobs run anew, the results of ${plan.taken_over} are taken over` : "",
  ].filter(Boolean).join("\n") || "There is nothing to do.";
}

// Asks in a dialog; answers the text that was edited, an empty text, or null if it was left.
export function ask(title, { words = "", text, go }) {
  const dialog = document.createElement("dialog");
  const form = element("form", "", { method: "dialog" });
  form.append(element("h2", title));
  for (const line of words.split("\n").filter(Boolean)) form.append(element("p", line));
  const area = text === undefined ? null : element("textarea", "", { "aria-label": title, spellcheck: "false" });
  if (area) {
    area.value = text;
    form.append(area);
  }
  const problem = element("p", "", { class: "problem", role: "alert" });
  problem.hidden = true;
  const buttons = element("div", "", { class: "actions" });
  buttons.append(element("button", "Back", { value: "", formnovalidate: "" }), element("button", go, { value: "go", class: "go" }));
  form.append(problem, buttons);
  dialog.append(form);
  document.body.append(dialog);
  form.addEventListener("submit", (event) => {
    if (!area || event.submitter?.value !== "go") return;
    try {
      JSON.parse(area.value);
    } catch (error) {
      event.preventDefault();
      problem.hidden = false;
      problem.textContent = `this is no JSON: ${error.message}`;
    }
  });
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "go" ? (area ? area.value : "") : null);
    });
  });
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
