// Pan and zoom of the graph of a group: the wheel, dragging, buttons, and the keys + - 0.
const LEAST = 0.05;

export function watchGraphs(root, view) {
  const box = root.querySelector(".graph");
  const svg = box?.querySelector("svg");
  if (!svg) return;
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  box.classList.remove("still");
  const whole = height * Math.min(1, box.clientWidth / width) + 24;
  box.style.height = `${Math.round(Math.max(180, Math.min(innerHeight * 0.7, whole)))}px`;
  let at = view ? view.split(" ").map(Number) : fit();

  function fit() {
    const ratio = box.clientWidth / box.clientHeight || 1;
    const tall = Math.max(height, width / ratio, box.clientHeight);
    return [0, Math.min(0, (height - tall) / 2), tall * ratio, tall];
  }
  function show() {
    svg.setAttribute("viewBox", at.map((one) => one.toFixed(1)).join(" "));
  }
  function zoom(by, x = 0.5, y = 0.5) {
    const wide = Math.max(box.clientWidth * LEAST, Math.min(at[2] * by, 4 * Math.max(width, box.clientWidth)));
    const scale = wide / at[2];
    at = [at[0] + at[2] * (1 - scale) * x, at[1] + at[3] * (1 - scale) * y, wide, at[3] * scale];
    show();
  }
  box.addEventListener("wheel", (event) => {
    event.preventDefault();
    const rect = box.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, (event.clientX - rect.left) / rect.width, (event.clientY - rect.top) / rect.height);
  }, { passive: false });
  let from = null;
  box.addEventListener("pointerdown", (event) => {
    if (event.target.closest("a")) return;
    from = [event.clientX, event.clientY, ...at];
    box.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointermove", (event) => {
    if (!from) return;
    const scale = at[2] / box.clientWidth;
    at = [from[2] - (event.clientX - from[0]) * scale, from[3] - (event.clientY - from[1]) * scale, at[2], at[3]];
    show();
  });
  box.addEventListener("pointerup", () => (from = null));
  box.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "+") zoom(1 / 1.2);
    else if (event.key === "-") zoom(1.2);
    else if (event.key === "0") (at = fit()), show();
    else if (moves[event.key]) {
      at = [at[0] + moves[event.key][0] * at[2] * 0.1, at[1] + moves[event.key][1] * at[3] * 0.1, at[2], at[3]];
      show();
      event.preventDefault();
    }
  });
  for (const button of root.querySelectorAll("[data-zoom]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      if (button.dataset.zoom === "fit") (at = fit()), show();
      else zoom(Number(button.dataset.zoom));
    });
  }
  show();
}
