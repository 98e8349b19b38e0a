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
  for (const time of root.querySelectorAll("time[data-clock]:not([data-said])")) {
    const at = new Date(time.dateTime);
    const clock = at.toLocaleTimeString([], { hour12: false });
    time.textContent = `${clock}.${String(at.getMilliseconds()).padStart(3, "0")}`;
    time.dataset.said = "";
  }
}

export function keepAges() {
  showAges(document);
  setInterval(() => document.hidden || showAges(document), 1000);
}
