// The page: type, and it translates; choose another word, and the rest follows.

import { allView } from "./all.js";
import { Refusal, ask, attempts } from "./api.js";
import { openChoices } from "./choices.js";
import { $, announce, element, percent, rove, setBar } from "./dom.js";
import { mineView } from "./mine.js";
import { readAddress, state, writeAddress } from "./state.js";
import { findTwins, twinsView } from "./twins.js";
import { goOn, shown, words } from "./words.js";

const DEBOUNCE = 70;
const EXAMPLES = 3;
const MOST_AMBIGUOUS = 3; // where that gauge is full

const box = $("#text");
const output = $("#translation");
const views = {};
let models = [];
let phrases = {};
let sentences = [];
let current = 0;
let waiting;

// ------------------------------------------------------------------------------- translating

const translate = attempts($("#status"), async (signal) => {
  const asked = state.text;
  const { translations: [{ text, sentences: found }] } = await ask("v1/translate", { ...pair(), text: asked }, signal);
  for (const [index, prefix] of state.kept) if (found[index]) await keep(found, index, prefix, signal);
  if (state.text !== asked) return; // somebody typed meanwhile: the next answer is on its way
  [sentences, current] = [between(found, text), Math.min(current, Math.max(0, found.length - 1))];
  render();
});

/** Begin a sentence as a link says; where the model cannot, the link is old or odd. */
async function keep(found, index, prefix, signal) {
  try {
    const { sentence } = await ask("v1/continue", { ...pair(), text: found[index].source, prefix }, signal);
    found[index] = sentence;
  } catch (failure) {
    if (!(failure instanceof Refusal)) throw failure;
    state.kept.delete(index);
  }
}

const carryOn = attempts($("#status"), async (signal, index, alternative) => {
  const sentence = await goOn(alternative, { ...pair(), text: sentences[index].source }, signal);
  state.kept.set(index, alternative.prefix);
  [sentences[index], current] = [{ ...sentence, gap: sentences[index].gap }, index];
  render();
  focusWord(index, alternative.prefix.length);
});

const pair = () => ({ source: state.source, target: state.target });

/** Remember with each sentence what stands before it in the whole text: a space or a new line. */
function between(found, whole) {
  let at = 0;
  return found.map((sentence) => {
    const start = sentence.text ? whole.indexOf(sentence.text, at) : -1;
    const gap = start < 0 ? " " : whole.slice(at, start);
    at = start < 0 ? at : start + sentence.text.length;
    return { ...sentence, gap };
  });
}

function typed() {
  clearTimeout(waiting);
  const longest = model()?.limits?.max_characters;
  const many = state.text.length.toLocaleString("en");
  const over = longest && state.text.length > longest;
  $("#length").textContent = over ? `${many} characters; at most ${longest.toLocaleString("en")} are translated at a time.` : "";
  $("#clear").hidden = !state.text;
  writeAddress();
  if (state.text.trim() && !over) waiting = setTimeout(translate, DEBOUNCE);
  else empty();
}

function empty() {
  translate.cancel();
  sentences = [];
  views.all.clear(state.least);
  views.mine.clear();
  render();
}

// ------------------------------------------------------------------------------- showing

function render() {
  output.lang = state.target;
  output.replaceChildren(...sentences.flatMap((sentence, index) => [sentence.gap, ...spell(sentence, index)]));
  $(".word", output)?.setAttribute("tabindex", 0);
  const many = output.querySelectorAll(".word").length;
  $("#hint").hidden = many === 0;
  $("#undo").hidden = state.kept.size === 0 || !sentences.length;
  $("#copy").hidden = !sentences.length;
  $("#examples").hidden = Boolean(state.text.trim()) || !(phrases[state.source]?.length);
  if (sentences.length) announce(`${output.textContent} ${many === 1 ? "1 word has" : `${many} words have`} alternatives.`);
  showSentence();
  writeAddress();
}

/** The words of a sentence; those with alternatives are buttons. */
function spell(sentence, index) {
  const found = words(sentence.tokens);
  const exact = found.map((word) => word.text).join("").trim() === sentence.text;
  if (!exact) return [sentence.text]; // pieces that spell it otherwise: shown as it is
  return found.flatMap((word, at) => {
    const [, space, text] = word.text.match(/^(\s*)(.*)$/s);
    return [at ? space : "", word.alternatives.length ? wordButton(word, index, text) : text];
  });
}

function wordButton(word, index, text) {
  const request = () => ({ ...pair(), text: sentences[index].source });
  const kept = word.pieces.length < (state.kept.get(index)?.length ?? 0);
  const button = element("button", {
    type: "button", class: kept ? "word kept" : "word", tabindex: -1, "aria-haspopup": "menu", "aria-expanded": "false",
    "data-at": `${index}.${word.pieces.length}`,
    onclick: () => openChoices(button, word, request(), (one) => carryOn(index, one)),
    onfocus: () => select(index),
  }, text);
  return button;
}

/** The first word behind a place in a sentence, or else the last before it. */
function focusWord(index, at) {
  const all = [...output.querySelectorAll(`[data-at^="${index}."]`)];
  const next = all.find((one) => Number(one.dataset.at.split(".")[1]) >= at) ?? all.at(-1);
  if (next) next.focus();
}

function select(index) {
  if (index === current) return;
  current = index;
  showSentence();
}

/** Gauges and views are about one sentence: the one last looked at. */
function showSentence() {
  const sentence = sentences[current];
  $("#about").hidden = !sentence;
  $("#which").hidden = sentences.length < 2;
  for (const place of document.querySelectorAll("q.sentence")) place.textContent = sentence?.source ?? "…";
  if (!sentence) return;
  $("#which-text").textContent = `Sentence ${current + 1} of ${sentences.length}`;
  gauges(sentence);
  showView();
}

function gauges(sentence) {
  const found = words(sentence.tokens);
  const most = (value) => found.reduce((a, b) => (Math.max(...b.tokens.map(value)) > Math.max(...a.tokens.map(value)) ? b : a), found[0]);
  const open = most((token) => token.ambiguity);
  const unsure = most((token) => token.doubt);
  const instead = open?.alternatives.filter((one) => /[\p{L}\p{N}]/u.test(one.start)).slice(0, 2).map((one) => `“${shown(one)}”`).join(" or ");
  gauge("ambiguity", sentence.ambiguity?.toFixed(1) ?? "–", (sentence.ambiguity - 1) / (MOST_AMBIGUOUS - 1),
    `How many words would be right at a place, on average: ${instead ? `instead of “${open.text.trim()}” it could go on with ${instead}` : "in this sentence hardly more than one anywhere"}.`);
  gauge("doubt", percent(sentence.doubt ?? 0), sentence.doubt,
    `How likely it is at a place that no word at all is right, on average: most of all at “${unsure?.text.trim() ?? "…"}”.`);
  const sure = [sentence.finished ? `The model finds this translation ${percent(sentence.probability)} probable`
    : "The translation broke off at the longest length that the model tries"];
  if (sentence.confidence !== null) sure.push(`; such translations are acceptable in ${percent(sentence.confidence)} of cases`);
  $("#sure").textContent = `${sure.join("")}.`;
}

function gauge(name, value, share, text) {
  const place = $(`#${name}`);
  const bar = $(".bar", place);
  $("b", place).textContent = value;
  $("p", place).textContent = text;
  setBar(bar, share);
  for (const [key, said] of Object.entries({ valuemin: 0, valuemax: 1, valuenow: Math.min(1, Math.max(0, share)).toFixed(2), valuetext: value })) {
    bar.setAttribute(`aria-${key}`, said);
  }
}

// ------------------------------------------------------------------------------- views

const tabs = () => [...document.querySelectorAll("[role=tab]:not([hidden])")];

function showView() {
  for (const tab of tabs()) {
    const chosen = tab.id === `tab-${state.view}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    $(`#${tab.getAttribute("aria-controls")}`).hidden = !chosen;
  }
  const sentence = sentences[current];
  const request = sentence && { ...pair(), text: sentence.source };
  if (state.view === "twins") views.twins.show(state.tea);
  else if (!sentence) views[state.view].clear(state.least);
  else views[state.view].show(request, state.view === "all" ? state.least : state.mine);
}

function openView(name) {
  state.view = name;
  writeAddress();
  showView();
}

/** Keep what a view says was changed in it, and show that. */
const change = (name) => (value) => {
  state[name] = value;
  writeAddress();
  showView();
};

// ------------------------------------------------------------------------------- directions, examples

const model = () => models.find((one) => one.source === state.source && one.target === state.target);
const language = new Intl.DisplayNames(["en"], { type: "language" });

function showDirections() {
  const choices = models.map(({ source, target }) => element("label", {},
    element("input", { type: "radio", name: "direction", value: `${source} ${target}`, onchange: () => turn(source, target) }),
    element("span", {}, `${language.of(source)} → ${language.of(target)}`)));
  $("#directions").append(...choices);
  if (!model()) ({ source: state.source, target: state.target } = models[0]);
}

/** Another direction; what was translated last is translated back. */
function turn(source, target) {
  const back = source === state.target && target === state.source;
  if (back && sentences.length) state.text = box.value = output.textContent.trim();
  Object.assign(state, { source, target, kept: new Map(), mine: "" });
  showLanguages();
  offer();
  typed();
}

function showLanguages() {
  $(`#directions [value="${state.source} ${state.target}"]`).checked = true;
  $("#source-language").textContent = language.of(state.source);
  $("#target-language").textContent = language.of(state.target);
  box.lang = state.source;
}

function offer() {
  const drawn = draw(phrases[state.source] ?? [], EXAMPLES);
  $("#examples ul").replaceChildren(...drawn.map((text) =>
    element("li", {}, element("button", { type: "button", lang: state.source, onclick: () => take(text) }, text))));
}

function take(text) {
  Object.assign(state, { text, kept: new Map(), mine: "" });
  current = 0;
  box.value = text;
  box.focus();
  typed();
}

/** Some of a list at random, each once. */
function draw(list, many) {
  const left = [...list];
  return Array.from({ length: Math.min(many, left.length) }, () => left.splice(Math.floor(Math.random() * left.length), 1)[0]);
}

// ------------------------------------------------------------------------------- beginning

function listen() {
  box.addEventListener("input", () => {
    Object.assign(state, { text: box.value, kept: new Map() });
    typed();
  });
  rove(output, () => [...output.querySelectorAll(".word")], ["ArrowLeft", "ArrowRight"]);
  output.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && event.target.matches(".word")) event.target.click();
  });
  const [bar] = document.getElementsByClassName("tabs");
  rove(bar, tabs, ["ArrowLeft", "ArrowRight"]);
  for (const name of ["all", "mine", "twins"]) $(`#tab-${name}`).addEventListener("click", () => openView(name));
  bar.addEventListener("focusin", (event) => openView(event.target.getAttribute("aria-controls")));
  $("#clear").addEventListener("click", () => take(""));
  $("#others").addEventListener("click", offer);
  $("#undo").addEventListener("click", () => { state.kept.clear(); typed(); });
  $("#previous").addEventListener("click", () => select((current + sentences.length - 1) % sentences.length));
  $("#next").addEventListener("click", () => select((current + 1) % sentences.length));
  $("#copy").addEventListener("click", (event) => copy(event.target, output.textContent.trim()));
  $("#link").addEventListener("click", (event) => copy(event.target, location.href));
  $("#theme").addEventListener("click", switchTheme);
  addEventListener("hashchange", () => location.reload());
}

/** Where the clipboard is closed, as it is without https, the text is selected instead. */
async function copy(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = text === location.href ? "It is in the address bar" : "Select it by hand";
  }
  announce(button.textContent);
  setTimeout(() => { button.textContent = before; }, 2000);
}

const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function switchTheme() {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  } catch { /* then for this visit alone */ }
  $("#theme").setAttribute("aria-pressed", String(dark()));
}

const begin = attempts($("#status"), async (signal) => {
  const [known, drawn] = await Promise.all([ask("v1/models", null, signal), ask("phrases.json", null, signal)]);
  const twins = findTwins(known.models);
  phrases = drawn;
  models = known.models.filter((one) => one !== twins?.scones && one !== twins?.softmax);
  if (twins) {
    views.twins = twinsView(twins, change("tea"), () => draw(phrases.tea, 1)[0]);
    $("#tab-twins").hidden = false;
  } else if (state.view === "twins") state.view = "all";
  showDirections();
  showLanguages();
  offer();
  box.value = state.text;
  typed();
  showView();
});

readAddress();
views.all = allView(change("least"));
views.mine = mineView(change("mine"));
$("#theme").setAttribute("aria-pressed", String(dark()));
listen();
begin();
