// Small helpers around the document.

export const $ = (selector, within = document) => within.querySelector(selector);

/** Make an element: element("button", {type: "button", onclick}, "text", child). */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** "98 %", and no false zero: "< 1 %". */
export function percent(probability) {
  if (probability > 0 && probability < 0.01) return "< 1 %";
  return `${Math.round(100 * probability)} %`;
}

/** A bar as long as the probability. Lengths are set by script: the page allows no inline style. */
export function bar(probability, attributes = {}) {
  const made = element("span", { class: "bar", "aria-hidden": "true", ...attributes });
  setBar(made, probability);
  return made;
}

export function setBar(made, share) {
  made.style.setProperty("--share", Math.max(0, Math.min(1, share)));
}

let announced;

/** Tell a screen reader, once things have settled. */
export function announce(text) {
  clearTimeout(announced);
  announced = setTimeout(() => { $("#announce").textContent = text; }, 600);
}

/** Arrow keys, Home and End move the focus among `items()`; only one of them takes a Tab. */
export function rove(container, items, [back, onwards]) {
  container.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    if (at < 0) return;
    const to = { [back]: at - 1, [onwards]: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    all[(to + all.length) % all.length].focus();
  });
  container.addEventListener("focusin", (event) => {
    const all = items();
    if (all.includes(event.target)) for (const one of all) one.tabIndex = one === event.target ? 0 : -1;
  });
}
