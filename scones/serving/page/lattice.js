// Draw translations as a lattice: where they say the same they share a line.

import { svg } from "./dom.js";
import { cut } from "./words.js";

const ROW = 38;
const GAP = 34;
const EDGE = 14;
const SPACE = 8;

/**
 * The smallest automaton over words. The server's lattice is one over pieces; people read words.
 * `translations` are texts with probabilities, the best first. States are sorted: arcs lead on.
 */
export function automaton(translations) {
  const root = node();
  for (const { text, probability } of translations) {
    let at = root;
    for (const word of cut(text)) {
      const arc = at.ways.get(word) ?? { word: word.trim(), to: node(), probability: 0 };
      arc.probability = Math.max(arc.probability, probability);
      at.ways.set(word, arc);
      at = arc.to;
    }
    at.final = true;
  }
  return join(root, new Map());
}

const node = () => ({ ways: new Map(), final: false });

/** Nodes from which the same can follow become one. */
function join(at, kinds) {
  for (const arc of at.ways.values()) arc.to = join(arc.to, kinds);
  const key = JSON.stringify([at.final, [...at.ways].map(([word, { to }]) => [word, to.id]).sort()]);
  const known = kinds.get(key);
  if (!known) {
    at.id = kinds.size;
    kinds.set(key, at);
    return at;
  }
  for (const [word, arc] of at.ways) {
    const same = known.ways.get(word);
    same.probability = Math.max(same.probability, arc.probability);
  }
  return known;
}

/** Words between which nothing parts or meets stand together on one arc. */
function simplify(root) {
  const arriving = new Map();
  const states = order(root);
  for (const state of states) for (const { to } of state.ways.values()) arriving.set(to, (arriving.get(to) ?? 0) + 1);
  for (const state of states) {
    for (const arc of state.ways.values()) {
      while (arc.to.ways.size === 1 && !arc.to.final && arriving.get(arc.to) === 1) {
        const [[word, next]] = arc.to.ways;
        arc.word += word;
        arc.to = next.to;
      }
    }
  }
  return order(root);
}

/** Every state before those to which it leads. */
function order(root) {
  const sorted = [];
  const seen = new Set();
  (function visit(state) {
    if (seen.has(state)) return;
    seen.add(state);
    for (const { to } of state.ways.values()) visit(to);
    sorted.unshift(state);
  })(root);
  return sorted;
}

/** Give states an x, arcs a row: the best translation is the straight line in the middle. */
function layOut(states, width) {
  for (const state of states) state.x ??= EDGE;
  for (const state of states) {
    for (const arc of state.ways.values()) {
      arc.width = width(arc.word);
      arc.to.x = Math.max(arc.to.x, state.x + arc.width + GAP);
    }
  }
  states[0].row = 0;
  const taken = new Map();
  const free = (row, from, to) => !(taken.get(row) ?? []).some(([start, end]) => from < end && start < to);
  for (;;) {
    const run = bestRun(states);
    if (!run) break;
    const [from, to] = [run[0].from.x, run.at(-1).arc.to.x];
    const aim = run[0].from.row;
    let row = aim;
    for (let away = 0; !free(row, from, to); away += 1) row = aim + (away % 2 ? -1 : 1) * (1 + (away >> 1));
    if (!taken.has(row)) taken.set(row, []);
    taken.get(row).push([from, to]);
    for (const { arc } of run) {
      arc.row = row;
      arc.to.row ??= row;
    }
  }
}

/** The most probable way along arcs that have no row yet, from a state that has one to another. */
function bestRun(states) {
  const open = (state) => [...state.ways.values()].filter((arc) => arc.row === undefined);
  let first;
  for (const from of states) {
    if (from.row === undefined) continue;
    for (const arc of open(from)) if (!(first?.arc.probability >= arc.probability)) first = { from, arc };
  }
  if (!first) return undefined;
  const run = [first];
  for (;;) {
    const at = run.at(-1).arc.to;
    if (at.row !== undefined || !at.ways.size) return run;
    const arc = open(at).reduce((best, one) => (one.probability > best.probability ? one : best));
    run.push({ from: at, arc });
  }
}

/** The drawing, as an SVG element in which `font` is used. */
export function drawLattice(translations, font) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = font;
  const states = simplify(automaton(translations));
  layOut(states, (word) => pen.measureText(word).width + 2 * SPACE);
  const rows = states.flatMap((state) => [...state.ways.values()].map((arc) => arc.row));
  const [least, most] = [Math.min(0, ...rows), Math.max(0, ...rows)];
  const y = (row) => (row - least + 0.5) * ROW + 4;
  const width = Math.max(...states.map((state) => state.x)) + EDGE;
  const height = (most - least + 1) * ROW + 8;
  const label = `${translations.length} translations; each way from left to right is one. The list below has them all.`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const arcs = states.flatMap((state) => [...state.ways.values()].map((arc) => drawArc(state, arc, y)));
  drawing.append(...arcs.map(([line]) => line), ...arcs.map(([, word]) => word)); // no line over a word
  for (const state of states) drawing.append(svg("circle", { cx: state.x, cy: y(state.row), r: 3 }));
  return drawing;
}

function drawArc(from, arc, y) {
  const [start, end, level] = [from.x, arc.to.x, y(arc.row)];
  const [begin, finish] = [start + GAP / 2, end - GAP / 2];
  const middle = (begin + finish) / 2;
  const curve = (x1, y1, x2, y2) => `C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
  const [left, right] = [middle - arc.width / 2 + SPACE / 2, middle + arc.width / 2 - SPACE / 2];
  const path = `M${start} ${y(from.row)}${curve(start, y(from.row), begin, level)}H${left}`
    + `M${right} ${level}H${finish}${curve(finish, level, end, y(arc.to.row))}`;
  return [
    svg("path", { d: path, "stroke-width": (1 + 3 * arc.probability).toFixed(2), class: arc.row === 0 ? "best" : "" }),
    svg("text", { x: middle, y: level, "text-anchor": "middle", "dominant-baseline": "central" }, arc.word),
  ];
}
