// Dialogs: to confirm, to edit a JSON text, to fill in fields, to show what came of it.

export function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Asks whether to go on; with `shown`, it shows that, and only closes.
export async function confirm(title, more) {
  return (await ask(title, more)) !== null;
}

// Answers the text that was edited, the fields by name ({json, words}), an empty text, or null.
export function ask(title, { words = "", text, fields, shown, go }) {
  const dialog = document.createElement("dialog");
  const form = element("form", "", { method: "dialog" });
  form.append(element("h2", title));
  for (const line of words.split("\n").filter(Boolean)) form.append(element("p", line));
  if (shown !== undefined) form.append(element("pre", shown, { class: "shown", tabindex: "0", "aria-label": title }));
  const area = text === undefined ? null : element("textarea", "", { "aria-label": title, spellcheck: "false" });
  if (area) {
    area.value = text;
    form.append(area);
  }
  const inputs = (fields || []).map((field) => [field, input(field)]);
  for (const [field, box] of inputs) form.append(labelled(field, box));
  const problem = element("p", "", { class: "problem", role: "alert" });
  problem.hidden = true;
  const buttons = element("div", "", { class: "actions" });
  if (go) buttons.append(element("button", "Back", { value: "", formnovalidate: "" }), element("button", go, { value: "go", class: "go" }));
  else buttons.append(element("button", "Close", { value: "", formnovalidate: "" }));
  form.append(problem, buttons);
  dialog.append(form);
  document.body.append(dialog);
  let answer = "";
  form.addEventListener("submit", (event) => {
    if (event.submitter?.value !== "go") return;
    try {
      answer = area ? checked(area.value, "this") : fields ? values(inputs) : "";
    } catch (error) {
      event.preventDefault();
      problem.hidden = false;
      problem.textContent = error.message;
    }
  });
  dialog.showModal();
  if (inputs.length) inputs[0][1].focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "go" ? answer : null);
    });
  });
}

function labelled(field, box) {
  const label = element("label", "", { class: "field" });
  const name = element("span", field.label);
  if (!field.required) name.append(element("small", " may be empty"));
  label.append(name, box);
  if (field.hint) label.append(element("small", field.hint));
  return label;
}

function input(field) {
  const { kind = "text", value = "", choices = [], required } = field;
  const needed = required ? { required: "" } : {};
  if (kind === "choice" || kind === "boolean") {
    const box = element("select", "", needed);
    const offered = kind === "boolean" ? ["true", "false"] : choices;
    for (const one of required ? offered : ["", ...offered]) box.append(element("option", one, { value: one }));
    if (value) box.value = value;
    return box;
  }
  const isLong = kind === "json";
  const type = { number: "text", integer: "text", time: "datetime-local" }[kind] || "text";
  const box = isLong ? element("textarea", "", { rows: "4", spellcheck: "false", ...needed }) : element("input", "", { type, autocomplete: "off", ...needed });
  if (kind === "integer") (box.inputMode = "numeric"), (box.pattern = "[+\\-]?[0-9]+"), (box.title = "a whole number");
  if (kind === "number") box.inputMode = "decimal";
  if (kind === "time") box.step = "1";
  box.value = value;
  return box;
}

// What each field has, as JSON; one that is empty is left out, unless it must be there.
function values(inputs) {
  const found = new Map();
  for (const [field, box] of inputs) {
    const words = field.kind === "text" || !field.kind ? box.value : box.value.trim();
    if (words === "" && !field.required) continue;
    found.set(field.name, { words, json: json(field, words), whole: field.whole });
  }
  return found;
}

function json(field, words) {
  switch (field.kind) {
    case "integer":
      return words.replace(/^\+/, "").replace(/^(-?)0+(?=\d)/, "$1");
    case "number":
    case "json":
      return checked(words, field.label);
    case "boolean":
      return words;
    case "time":
      return JSON.stringify(`${words.length === 16 ? `${words}:00` : words}Z`);
    case "words":
      return JSON.stringify(words.split(",").map((one) => one.trim()).filter(Boolean));
    default:
      return JSON.stringify(words);
  }
}

function checked(text, name) {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`${name} is no JSON: ${error.message}`);
  }
  return text;
}
