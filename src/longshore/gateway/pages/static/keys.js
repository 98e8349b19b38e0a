// The keyboard: `?` shows the sheet, `/` searches, `g j` goes to jobs, `j` and `k` walk rows.
let pending = false;

export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input, textarea, select");
    if (event.key === "Escape" && typing) return event.target.blur();
    if (typing || document.querySelector("dialog[open]")) return;
    if (pending) return go(event);
    const done = KEYS[event.key]?.();
    if (done !== undefined) event.preventDefault();
  });
}

const KEYS = {
  "?": () => (document.getElementById("keys").showModal(), true),
  "/": () => (document.querySelector(".query input, #search").focus(), true),
  g: () => ((pending = true), setTimeout(() => (pending = false), 1500), true),
  j: () => step(1),
  k: () => step(-1),
  Enter: () => open(),
  n: () => follow("[rel=next]"),
  p: () => history.back(),
};

function go(event) {
  pending = false;
  const link = document.querySelector(`.top nav a[data-key="${CSS.escape(event.key)}"]`);
  if (link) {
    event.preventDefault();
    link.click();
  }
}

function step(way) {
  const rows = [...document.querySelectorAll("main table.rows tbody tr")];
  if (!rows.length) return undefined;
  const at = rows.findIndex((row) => row.classList.contains("at"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + way))];
  rows[at]?.classList.remove("at");
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
  return true;
}

function open() {
  if (document.activeElement && document.activeElement !== document.body && document.activeElement.id !== "main") return undefined;
  return follow("tr.at a");
}

function follow(what) {
  const link = document.querySelector(what);
  if (!link) return undefined;
  link.click();
  return true;
}
