// Softmax beside SCONES: two models that learnt the same, asked the same.

import { ask, attempts } from "./api.js";
import { $, announce, bar, element, percent, rove } from "./dom.js";
import { goOn, shown, words } from "./words.js";

const WAIT = 200;
const SHARE = 0.02;
const WHOLES = 6;
const NAMES = { scones: "SCONES", softmax: "Softmax" };

const panel = $("#twins");
const input = $("#tea");
const line = $(".words", panel);

rove(line, () => [...line.querySelectorAll("button")], ["ArrowLeft", "ArrowRight"]);

/** The SCONES and the softmax model that share a name but for their layer: "tea-scones". */
export function findTwins(models) {
  for (const softmax of models.filter((one) => one.layer === "softmax")) {
    const name = softmax.name.replace("softmax", "scones");
    const scones = models.find((one) => one.name === name && one.layer === "scones");
    if (scones) return { scones, softmax };
  }
  return undefined;
}

/** Make the view; `changed(text)` hears of another sentence, `draw()` gives one. */
export function twinsView({ scones, softmax }, changed, draw) {
  const layers = { scones, softmax };
  let wait;
  let shownFor;
  const request = (layer, text) => ({ model: layers[layer].name, source: scones.source, target: scones.target, text });
  const run = attempts($(".status", panel), async (signal, text) => {
    const { translations: [{ text: translation }] } = await ask("v1/translate", request("scones", text), signal);
    const scored = await Promise.all(["scones", "softmax"].map((layer) =>
      ask("v1/score", { ...request(layer, text), translation, share: SHARE }, signal)));
    render(text, ...scored.map(({ sentence }) => words(sentence.tokens)), signal);
    const wholes = await Promise.all(["softmax", "scones"].map((layer) =>
      ask("v1/alternatives", { ...request(layer, text), n_best: WHOLES }, signal)));
    $(".whole", panel).hidden = false;
    $("#wholes").replaceChildren(
      column("softmax", wholes[0].alternatives, "They share 1 as well: the more are right, the less each can have."),
      column("scones", wholes[1].alternatives, "Each has its own probability."),
    );
  });

  input.addEventListener("input", () => changed(input.value));
  $("#another").addEventListener("click", () => changed(draw()));

  function render(text, ofScones, ofSoftmax, signal) {
    const several = ofScones.map((word, index) => ({ word, twin: ofSoftmax[index] }));
    const buttons = several.map(({ word, twin }, index) => element("button", {
      type: "button", class: word.alternatives.some((one) => one.probability >= 0.1) ? "word several" : "word",
      "aria-pressed": "false", tabindex: -1, onclick: () => select(index, word, twin),
    }, word.text.trim()));
    line.replaceChildren(...buttons.flatMap((button, index) => [ofScones[index].text.match(/^\s*/)[0], button]));
    const ambiguous = several.reduce((best, { word }, index) => (sum(word) > sum(several[best].word) ? index : best), 0);
    select(ambiguous, several[ambiguous].word, several[ambiguous].twin);

    function select(index, word, twin) {
      buttons.forEach((button, at) => {
        button.setAttribute("aria-pressed", String(at === index));
        button.tabIndex = at === index ? 0 : -1;
      });
      const rows = beside(word, twin);
      const totals = ["softmax", "scones"].map((layer) => rows.reduce((total, one) => total + one[layer], 0));
      const paint = () => $("#shared").replaceChildren(
        column("softmax", rows.map((one) => ({ text: one.text(), probability: one.softmax })), "Together never more than 100 %: they share it.", true),
        column("scones", rows.map((one) => ({ text: one.text(), probability: one.scones })), "Each by itself: several may be right."),
      );
      paint();
      const completed = rows.map(({ one }) => one && goOn(one, request("scones", text), signal).catch(() => {}));
      Promise.all(completed).then(() => { if (!signal.aborted && buttons[index].tabIndex === 0) paint(); });
      announce(`At “${word.text.trim()}”: softmax shares ${percent(totals[0])}, SCONES gives ${percent(totals[1])} in all.`);
    }
  }

  return {
    show(text) {
      const wanted = text || shownFor || draw();
      if (input.value !== wanted) input.value = wanted;
      if (wanted === shownFor) return;
      shownFor = wanted;
      clearTimeout(wait);
      wait = setTimeout(() => run(wanted), WAIT);
    },
  };
}

const sum = (word) => word.alternatives.reduce((total, one) => total + one.probability, word.probability);

/** The words that either model finds likely here, with the probabilities of both. */
function beside(word, twin) {
  const rows = new Map([[word.text, { text: () => word.text.trim(), scones: word.probability, softmax: twin.probability }]]);
  for (const [layer, { alternatives }] of Object.entries({ scones: word, softmax: twin })) {
    for (const one of alternatives) {
      const row = rows.get(one.start) ?? { one, text: () => shown(one), scones: 0, softmax: 0 };
      row[layer] = one.probability;
      rows.set(one.start, row);
    }
  }
  return [...rows.values()].sort((a, b) => b.scones - a.scones);
}

/** One model's bars; `together` sets them one behind the other too, for they share a whole. */
function column(layer, rows, note, together = false) {
  const total = rows.reduce((all, one) => all + one.probability, 0);
  const list = element("ol", { class: "bars" }, ...rows.map(({ text, probability }) => element("li", {},
    element("span", { class: "number" }, percent(probability)), bar(probability), element("span", { class: "what", lang: "en" }, text))));
  const joined = element("div", { class: "joined", "aria-hidden": "true" }, ...rows.map((one) => bar(one.probability)));
  return element("div", { class: `side ${layer}` }, element("h3", {}, NAMES[layer]), ...(together ? [joined] : []), list,
    element("p", {}, element("b", {}, `In all ${percent(total)}. `), note));
}
