// From a model's pieces to what people see: words.

import { ask } from "./api.js";

const END = "</s>";
const MOST = 6;
const WORDS = /\s*[\p{L}\p{N}\p{M}]+(?:['’.,:@/-][\p{L}\p{N}\p{M}]+)*|\s*[^\s\p{L}\p{N}\p{M}]+|\s+$/gu;

/** Cut a text into words and marks; each keeps the space before it. */
export const cut = (text) => text.match(WORDS) ?? [];

/**
 * Group the tokens of a sentence into words: `text`, `tokens`, `probability`, and the words that
 * could stand there instead, each with the pieces of the sentence that ends with it (`prefix`).
 */
export function words(tokens) {
  const pieces = tokens.filter((token) => token.piece !== END);
  const ends = [];
  let length = 0;
  for (const word of cut(pieces.map((token) => token.text).join(""))) ends.push((length += word.length));
  const found = [];
  let before = "";
  let word = -1;
  for (const [index, token] of pieces.entries()) {
    let next = Math.max(word, 0);
    while (next < ends.length - 1 && before.length >= ends[next]) next += 1;
    if (next !== word) found.push({ from: before, pieces: pieces.slice(0, index).map((one) => one.piece), tokens: [] });
    word = next;
    found.at(-1).tokens.push(token);
    before += token.text;
  }
  return found.map(describe);
}

function describe({ from, pieces, tokens }) {
  const text = tokens.map((token) => token.text).join("");
  const alternatives = new Map();
  const before = [...pieces];
  let [head, certain] = ["", 1];
  for (const token of tokens) {
    for (const { piece, text: said, probability } of token.alternatives ?? []) {
      const one = { from, start: head + said, prefix: [...before, piece], probability: certain * probability };
      const rival = alternatives.get(one.start);
      if (piece !== END && !(rival?.probability > one.probability)) alternatives.set(one.start, one);
    }
    head += token.text;
    before.push(token.piece);
    certain *= token.probability;
  }
  const sorted = [...alternatives.values()].sort((a, b) => b.probability - a.probability);
  return { text, from, pieces, tokens, probability: certain, alternatives: sorted.slice(0, MOST) };
}

/** The text of a word as it is known so far: its first piece may be half of it, a mark is a whole. */
export const shown = ({ start, whole }) => whole ?? (/[\p{L}\p{N}]|^\s*$/u.test(start) ? `${start.trim()}…` : start.trim());

/** Let the model go on behind an alternative: gives the whole sentence, and tells its whole word. */
export async function goOn(alternative, request, signal) {
  const { from, start, prefix } = alternative;
  const { sentence } = (alternative.reply ??= await ask("v1/continue", { ...request, prefix }, signal));
  const said = sentence.tokens.map((token) => token.text).join("");
  let [begin, end] = [0, 0];
  for (const word of cut(said)) {
    if (end >= (from + start).length) break;
    end += word.length;
    if (end <= from.length) begin = end; // what it may be glued to belongs to it: "What" and "'s"
  }
  alternative.whole = said.slice(begin, end).trim();
  return sentence;
}
