// Says how long ago times were. The server sends the times, the browser has the clock.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

function span(seconds) {
  for (const [length, unit] of UNITS) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds)} s`;
}

function words(kind, seconds) {
  if (kind === "for") return span(Math.max(0, seconds));
  if (seconds < 0) return `in ${span(-seconds)}`;
  return seconds < 1 ? "just now" : `${span(seconds)} ago`;
}

export function showAges(root) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[data-age]")) {
    const seconds = (now - Date.parse(time.dateTime)) / 1000;
    const text = words(time.dataset.age, seconds);
    if (time.textContent !== text) time.textContent = text;
  }
  for (const bars of root.querySelectorAll("svg[data-first]")) grow(bars, now);
  for (const time of root.querySelectorAll("time[data-clock]:not([data-said])")) {
    const at = new Date(time.dateTime);
    const clock = at.toLocaleTimeString([], { hour12: false });
    time.textContent = `${clock}.${String(at.getMilliseconds()).padStart(3, "0")}`;
    time.dataset.said = "";
  }
}

// Bars are in seconds since the first: what goes on grows, and the rest takes less of the whole.
function grow(bars, now) {
  const whole = Math.max(0.001, (now - Date.parse(bars.dataset.first)) / 1000);
  bars.setAttribute("viewBox", `0 0 ${whole} 10`);
  for (const rect of bars.querySelectorAll("[data-grows]")) {
    rect.setAttribute("width", Math.max(0, whole - Number(rect.getAttribute("x"))));
  }
}

export function keepAges() {
  showAges(document);
  setInterval(() => document.hidden || showAges(document), 1000);
}
