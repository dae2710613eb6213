// Is my translation right? Every word of it with what the model thinks.

import { ask, attempts } from "./api.js";
import { openChoices } from "./choices.js";
import { $, announce, element, percent, rove } from "./dom.js";
import { goOn, shown, words } from "./words.js";

const WAIT = 300;
const LIKELY = 0.5;
const POSSIBLE = 0.1;

const panel = $("#mine");
const own = $("#own");
const judged = $(".judged", panel);

rove(judged, () => [...judged.querySelectorAll("button")], ["ArrowLeft", "ArrowRight"]);

/** Make the view; `changed(text)` hears of what is typed. */
export function mineView(changed) {
  let wait;
  let shownFor;
  const run = attempts($(".status", panel), async (signal, request, translation) => {
    const { sentence } = await ask("v1/score", { ...request, translation }, signal);
    render(sentence, request, signal);
  });
  own.addEventListener("input", () => changed(own.value));

  function render(sentence, request, signal) {
    const found = words(sentence.tokens);
    const good = found.filter((word) => word.probability >= LIKELY).length;
    const all = `${good || "none"} of ${found.length} words and marks`;
    $(".verdict", panel).replaceChildren(
      sentence.probability >= LIKELY ? "It fits: " : "Look again: ",
      "the model finds it ", element("b", {}, percent(sentence.probability)), ` probable, and would have expected ${all}.`,
    );
    announce($(".verdict", panel).textContent);
    judged.lang = own.lang = request.target;
    judged.replaceChildren(...found.flatMap((word) => [word.text.match(/^\s*/)[0], judgement(word, request, signal)]), ...ending(sentence));
    $("button", judged)?.setAttribute("tabindex", 0);
    $(".legend", panel).hidden = false;
  }

  function judgement(word, request, signal) {
    const kind = word.probability >= LIKELY ? "likely" : word.probability >= POSSIBLE ? "possible" : "unlikely";
    const text = word.text.trim();
    const better = word.alternatives.find((one) => one.probability > word.probability);
    if (!word.alternatives.length) return element("span", { class: `judge ${kind}` }, text);
    const instead = element("small", {}, kind !== "likely" && better ? shown(better) : "");
    const button = element("button", {
      type: "button", class: `judge ${kind}`, tabindex: -1, "aria-haspopup": "menu", "aria-expanded": "false",
      onclick: () => openChoices(button, word, request, (one) => replace(word, one)),
    }, text, instead, element("span", { class: "unseen" }, `, ${kind}, ${percent(word.probability)}`));
    if (instead.textContent) {
      goOn(better, request, signal).then(() => { instead.textContent = shown(better); }, () => {});
    }
    return button;
  }

  /** The word alone is exchanged; what the user wrote behind it stays. */
  function replace(word, alternative) {
    const said = shown(alternative).replace(/…$/, "");
    const start = word.from.trimStart();
    const rest = own.value.trim().slice((word.from + word.text).trimStart().length);
    own.value = `${start}${start && /^\s/.test(word.text) ? " " : ""}${said}${rest}`.replace(/ +/g, " ");
    changed(own.value);
    own.focus();
  }

  return {
    show(request, translation) {
      if (own.value !== translation) own.value = translation;
      const key = JSON.stringify([request, translation]);
      if (key === shownFor) return;
      shownFor = key;
      clearTimeout(wait);
      if (translation.trim()) wait = setTimeout(() => run(request, translation.trim()), WAIT);
      else this.clear();
    },
    clear() {
      clearTimeout(wait);
      run.cancel();
      shownFor = undefined;
      $(".verdict", panel).replaceChildren();
      judged.replaceChildren();
      $(".legend", panel).hidden = true;
    },
  };
}

/** Where the model would have gone on instead of ending. */
function ending(sentence) {
  const end = sentence.tokens.at(-1);
  if (end.piece !== "</s>" || end.probability >= LIKELY) return [];
  const more = end.alternatives[0]?.text.trim() ?? "";
  return [" ", element("span", { class: "judge unlikely" }, "(end)", element("small", {}, more && `${more}…`))];
}
