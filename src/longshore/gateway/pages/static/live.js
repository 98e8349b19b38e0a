// Keeps a page as the server sees it: one stream a tab, closed while the tab is hidden.
// The server sends the regions that changed; each replaces what was there.
import { showAges } from "./ages.js";

let source = null;
let retry = 0;

export function follow(onSwap) {
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(location.href.split("#")[0]);
    source.addEventListener("regions", (event) => {
      retry = 0;
      mark(true);
      const { regions, gone } = JSON.parse(event.data);
      for (const [name, html] of Object.entries(regions)) swap(name, html, onSwap);
      for (const name of gone) swap(name, "", onSwap);
      colour();
    });
    source.addEventListener("error", (event) => {
      mark(false);
      if (event.data || source?.readyState === EventSource.CLOSED) {
        close();
        retry = Math.min(30, retry * 2 + 1);
        setTimeout(open, retry * 1000);
      }
    });
  };
  const close = () => {
    source?.close();
    source = null;
    mark(false);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

// Colours the boxes of a graph whose drawing came without its states.
function colour() {
  const told = document.querySelector("[data-states]")?.dataset.states.split(",");
  told?.forEach((state, n) => {
    const box = document.getElementById(`n-${n}`);
    if (!box || box.dataset.state === state) return;
    box.dataset.state = state;
    for (const rect of box.querySelectorAll("rect")) rect.setAttribute("class", `g-box f-${state}`);
    box.querySelector(".g-quiet").textContent = state.replaceAll("_", " ");
  });
}

function mark(on) {
  const sign = document.getElementById("live");
  sign.hidden = false;
  sign.toggleAttribute("data-on", on);
  sign.textContent = on ? "live" : "not live";
}

// Puts a region's new HTML in place, and keeps what the reader did there: focus, opened and closed
// details, scrolled boxes, what was typed, the chosen row.
function swap(name, html, onSwap) {
  const region = document.getElementById(`r-${name}`);
  if (!region || region.dataset.html === html) return;
  const first = region.dataset.html === undefined;
  region.dataset.html = html;
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  if (first && same(region, fresh.content)) return;
  if (region.contains(document.activeElement) && document.activeElement.matches("input, textarea")) {
    if (document.activeElement.value !== document.activeElement.defaultValue) return;
  }
  const kept = remember(region);
  region.replaceChildren(fresh.content);
  showAges(region);
  restore(region, kept);
  onSwap(region, kept.view);
}

function same(region, content) {
  const strip = (node) => {
    const copy = node.cloneNode(true);
    for (const time of copy.querySelectorAll("time")) {
      time.textContent = "";
      delete time.dataset.said;
    }
    const holder = document.createElement("div");
    holder.append(...copy.childNodes);
    return holder.innerHTML;
  };
  return strip(region) === strip(content);
}

const FOCUSABLE = "a, button, input, summary, [tabindex]";
const at = (region, element, kind) => [...region.querySelectorAll(kind)].indexOf(element);

function remember(region) {
  const active = document.activeElement;
  const inside = region.contains(active);
  return {
    focus: inside ? at(region, active, FOCUSABLE) : -1,
    href: inside ? active.getAttribute("href") : null,
    details: [...region.querySelectorAll("details")].map((one) => one.open),
    scrolls: [...region.querySelectorAll("pre, .log, .graph")].map((one) => [one.scrollTop, one.scrollLeft]),
    row: region.querySelector("tr.at a")?.getAttribute("href"),
    view: region.querySelector(".graph svg")?.getAttribute("viewBox"),
  };
}

function restore(region, kept) {
  const details = [...region.querySelectorAll("details")];
  if (details.length === kept.details.length) details.forEach((one, n) => (one.open = kept.details[n]));
  const boxes = [...region.querySelectorAll("pre, .log, .graph")];
  if (boxes.length === kept.scrolls.length) {
    boxes.forEach((one, n) => ([one.scrollTop, one.scrollLeft] = kept.scrolls[n]));
  }
  if (kept.focus >= 0) {
    const link = kept.href && [...region.querySelectorAll("a")].find((one) => one.getAttribute("href") === kept.href);
    (link || region.querySelectorAll(FOCUSABLE)[kept.focus])?.focus({ preventScroll: true });
  }
  if (kept.row) {
    const link = [...region.querySelectorAll("tr a")].find((one) => one.getAttribute("href") === kept.row);
    link?.closest("tr").classList.add("at");
  }
}
