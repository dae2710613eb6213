// All translations above a probability: their number, whether that is all, the lattice, the list.

import { ask, attempts } from "./api.js";
import { $, announce, bar, element, percent } from "./dom.js";
import { drawLattice } from "./lattice.js";

const STEPS = [0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01];
const DRAWN = 40;
const LISTED = 20;
const LIMITS = {
  states: "as many beginnings as the server allows were looked at",
  time: "the time that the server allows was over",
  length: "some were still unfinished at the longest length that it tries",
  memory: "the memory that the server allows was used up",
};

const panel = $("#all");
const slider = $("#least");
slider.max = STEPS.length - 1;

/** Make the view; `changed(threshold)` hears of the slider. */
export function allView(changed) {
  const run = attempts($(".status", panel), async (signal, request, threshold) => {
    const found = await ask("v1/alternatives", { ...request, threshold }, signal);
    render(found, threshold, request.target);
  });
  let wait;
  let shown;

  const label = (threshold) => {
    slider.value = STEPS.indexOf(threshold);
    $("#least-shown").textContent = percent(threshold);
    slider.setAttribute("aria-valuetext", percent(threshold));
  };

  slider.addEventListener("input", () => {
    label(STEPS[slider.value]);
    changed(STEPS[slider.value]);
  });

  return {
    show(request, threshold) {
      label(nearest(threshold));
      const key = JSON.stringify([request, threshold]);
      if (key === shown) return;
      shown = key;
      clearTimeout(wait);
      wait = setTimeout(() => run(request, nearest(threshold)), 120);
    },
    clear(threshold) {
      label(nearest(threshold));
      clearTimeout(wait);
      run.cancel();
      shown = undefined;
      $(".verdict", panel).replaceChildren();
      $(".drawing", panel).hidden = true;
      $(".bars", panel).replaceChildren();
    },
  };
}

const nearest = (threshold) => STEPS.reduce((a, b) => (Math.abs(b - threshold) < Math.abs(a - threshold) ? b : a));

function render({ alternatives, certificate, lattice }, threshold, language) {
  const every = alternatives.flatMap((one) => [one, ...one.variants]).sort((a, b) => b.probability - a.probability);
  const said = verdict(lattice.translations, certificate, threshold);
  $(".verdict", panel).replaceChildren(...said);
  announce($(".verdict", panel).textContent);
  const drawing = $(".drawing", panel);
  drawing.hidden = every.length === 0;
  if (every.length) drawing.replaceChildren(drawLattice(every.slice(0, DRAWN), getComputedStyle(drawing).font));
  const rows = alternatives.map((one) => row(one, language));
  const more = rows.splice(LISTED);
  if (more.length) rows.push(element("li", {}, element("details", { class: "more" }, element("summary", {}, `${more.length} more`), element("ol", { class: "bars" }, ...more))));
  $(".bars", panel).replaceChildren(...rows);
}

function verdict(count, certificate, threshold) {
  const number = element("b", {}, count === 1 ? "1 translation" : `${count} translations`);
  const least = `of at least ${percent(threshold)}`;
  const drawn = count > DRAWN ? ` The ${DRAWN} most probable are drawn.` : "";
  if (certificate.complete) {
    const all = count === 0 ? "None is so probable, which is proved." : "This is all of them: it is proved that none is missing.";
    return [number, ` ${least}. ${all}${drawn}`];
  }
  const missing = `There may be more: ${LIMITS[certificate.stopped_by] ?? "the search was stopped"}`;
  return [number, ` ${least}. ${missing}, and what was not looked at is at most ${percent(certificate.upper_bound)} probable.${drawn}`];
}

function row({ text, probability, variants }, language) {
  const made = element("li", {}, element("span", { class: "number" }, percent(probability)), bar(probability),
    element("span", { class: "what", lang: language }, text));
  if (variants.length) {
    const spelled = element("ul", { lang: language }, ...variants.map((one) => element("li", {}, `${one.text} `, element("small", {}, percent(one.probability)))));
    const many = variants.length === 1 ? "one more" : `${variants.length} more`;
    made.append(element("details", {}, element("summary", {}, `${many} in marks or capitals`), spelled));
  }
  return made;
}
