() => {
  // What a screen reader or a person with weak eyes would stumble over; as words, one a fault.
  const faults = [];
  const shown = (one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const place = (one) => `${one.tagName.toLowerCase()} ${(one.id || one.className?.baseVal || one.className || one.textContent || "").toString().slice(0, 40)}`;
  const name = (one) =>
    (one.getAttribute("aria-label") || one.title || one.textContent || "").trim() ||
    [...(one.labels || [])].map((label) => label.textContent).join("") ||
    one.querySelector("title")?.textContent;
  if (!document.documentElement.lang) faults.push("the page has no language");
  if (!document.title) faults.push("the page has no title");
  if (document.querySelectorAll("main").length !== 1) faults.push("there is not one main");
  for (const one of document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, [tabindex='0']")) {
    if (shown(one) && !name(one)) faults.push(`no name: ${place(one)}`);
  }
  for (const one of document.querySelectorAll("svg")) {
    if (shown(one) && !one.getAttribute("aria-label") && one.getAttribute("aria-hidden") !== "true") faults.push(`no name: ${place(one)}`);
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption) faults.push("a table has no caption");
    if (!table.querySelector("th[scope]")) faults.push("a table has no heads");
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`two have the id ${id}`);

  const light = ([r, g, b]) => {
    const part = (value) => ((value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const colour = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0.99) return found;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || one.closest("svg, script, option") || !shown(one)) continue;
    const style = getComputedStyle(one);
    const [a, b] = [light(colour(style.color)), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) faults.push(`contrast ${ratio.toFixed(2)}: ${place(one)} "${walker.currentNode.data.trim().slice(0, 20)}"`);
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push(`${document.documentElement.scrollWidth} px wide in ${innerWidth}`);
  return [...new Set(faults)];
}
