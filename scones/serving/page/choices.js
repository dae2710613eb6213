// The list of what could stand in a word's place.

import { $, bar, element, percent, rove } from "./dom.js";
import { goOn, shown } from "./words.js";

const menu = $("#choices");
const items = () => [...menu.querySelectorAll("button")];
let owner;
let asking;

rove(menu, items, ["ArrowUp", "ArrowDown"]);
menu.addEventListener("toggle", (event) => {
  if (event.newState === "open") return;
  asking?.abort();
  owner?.setAttribute("aria-expanded", "false");
  if (menu.contains(document.activeElement) || document.activeElement === document.body) owner?.focus();
});
menu.addEventListener("keydown", (event) => {
  if (event.key === "Tab") menu.hidePopover();
});
addEventListener("resize", () => { if (menu.matches(":popover-open")) place(owner); });

/**
 * Open the list below a word's button. `request` says what to translate, for the server completes
 * words of which only the first piece is known; `choose` gets the alternative that was taken.
 */
export function openChoices(button, word, request, choose) {
  menu.hidePopover();
  owner = button;
  const taken = (alternative) => () => { menu.hidePopover(); if (alternative) choose(alternative); };
  const here = line(word.text.trim(), word.probability, "true", taken());
  const lines = word.alternatives.map((one) => line(shown(one), one.probability, "false", taken(one)));
  menu.setAttribute("aria-label", `Instead of ${word.text.trim()}`);
  menu.replaceChildren(here, ...lines);
  menu.showPopover();
  place(button);
  button.setAttribute("aria-expanded", "true");
  (lines[0] ?? here).focus();
  complete(word.alternatives, lines, request);
}

function line(text, probability, checked, onclick) {
  const label = element("span", { class: "what" }, text);
  return element(
    "button",
    { type: "button", role: "menuitemradio", "aria-checked": checked, tabindex: -1, onclick },
    label, bar(probability), element("span", { class: "number" }, percent(probability)),
  );
}

/** Whole words come one by one, the likely first; two beginnings may lead to the same word. */
async function complete(alternatives, lines, request) {
  const { signal } = (asking = new AbortController());
  const seen = new Set([lines.length ? lines[0].parentNode.firstChild.firstChild.textContent : ""]);
  for (const [index, alternative] of alternatives.entries()) {
    try {
      await goOn(alternative, request, signal);
    } catch {
      return; // what is known so far is there, and choosing asks again
    }
    if (signal.aborted) return;
    $(".what", lines[index]).textContent = shown(alternative);
    if (seen.has(alternative.whole) && document.activeElement !== lines[index]) lines[index].remove();
    seen.add(alternative.whole);
  }
}

function place(button) {
  const box = button.getBoundingClientRect();
  const left = Math.min(box.left, document.documentElement.clientWidth - menu.offsetWidth - 8);
  const below = box.bottom + menu.offsetHeight + 8 < innerHeight;
  const top = below ? box.bottom + 4 : Math.max(8, box.top - menu.offsetHeight - 4);
  menu.style.setProperty("left", `${Math.max(8, left) + scrollX}px`);
  menu.style.setProperty("top", `${top + scrollY}px`);
}
