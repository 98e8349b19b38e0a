// Follows the log of a job over the API, after the lines that the page came with.
import { showAges } from "./ages.js";

const MOST_LINES = 5000;

export function followLog() {
  const list = document.querySelector("ol.log[data-follow]");
  if (!list) return;
  let source = null;
  let last = null;
  const open = () => {
    if (source || document.hidden) return;
    const place = last ? list.dataset.follow.replace(/after=[\d-]+/, `after=${last}`) : list.dataset.follow;
    source = new EventSource(document.body.dataset.root + place);
    source.addEventListener("line", (event) => {
      last = event.lastEventId;
      add(list, JSON.parse(event.data));
    });
    source.addEventListener("end", () => close(true));
    source.addEventListener("error", (event) => event.data && close(true));
  };
  const close = (forEver = false) => {
    source?.close();
    source = forEver ? "closed" : null;
  };
  document.addEventListener("visibilitychange", () => {
    if (source === "closed") return;
    document.hidden ? close() : open();
  });
  addEventListener("pagehide", () => source !== "closed" && close());
  open();
}

function add(list, line) {
  const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  const item = document.createElement("li");
  const kind = /^[a-z]+$/i.test(line.stream) ? line.stream : "other";
  item.className = `o-${kind === "engine" ? "step" : kind}`;
  if (/^[a-z]+$/i.test(line.level)) item.classList.add(`l-${line.level.toLowerCase()}`);
  const time = document.createElement("time");
  time.dateTime = line.at;
  time.dataset.clock = "";
  const text = document.createElement("span");
  text.textContent = line.text;
  item.append(time, text);
  list.append(item);
  while (list.children.length > MOST_LINES) list.firstChild.remove();
  showAges(list);
  document.getElementById("log-note").textContent = "";
  if (isAtEnd) list.scrollTop = list.scrollHeight;
}
