"""How many prefixes a second does exact search expand, and how many one after another?

    python benchmarks/exact.py MODEL [MODEL ...] --source FILE [--sentences 20] [--json FILE]

The peer is a depth-first search that expands one prefix at a time, as those that are known do, but
as well as that can be done: keys and values are cached, going back overwrites them and copies
nothing, and children that cannot win are never pushed. Both get the same sentences, weights, number
format and first bounds, and take turns. A state is a prefix whose next tokens were scored. Scores
of sentences that both prove are compared. `--width` shows how speed and memory grow with the number
of prefixes that are expanded together.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common import facts, flags, free_memory, number, save, show, wait
from toys import toy_model, toy_pairs

from scones.hardware import choose_device
from scones.model.folder import ModelFolder
from scones.model.transformer import Transformer, prepacked
from scones.outputs import OutputLayer, output_layer
from scones.search.engine import padded, searcher
from scones.search.exact import exact_search, expander_for
from scones.search.frontier import ExactOptions, ExactResult
from scones.search.searcher import Hypothesis, SearchOptions, length_limit
from scones.text import END, PAD
from scones.text.reading import read_texts
from scones.text.subwords import Subwords

OURS, PEER = "expanded together", "one at a time"


@dataclass(frozen=True)
class Found:
    """What a search of one sentence came to."""

    log_prob: float
    states: int
    proved: bool


@torch.inference_mode()
def one_at_a_time(
    model: Transformer,
    output: OutputLayer,
    source: list[int],
    limit: int,
    bound: float,
    max_states: int,
) -> Found:
    """Search depth first, the best children first, one prefix at a time."""
    state = model.start(padded([source], model.device))
    best, states = bound, 0
    waiting = [(0.0, PAD, 0)]
    token_1 = torch.empty(1, dtype=torch.long, device=model.device)
    while waiting:
        score, token, depth = waiting.pop()
        if score <= best:
            continue
        if states == max_states:
            return Found(best, states, False)
        (part,) = state.parts
        part.length = part.used = depth
        terms_V = output.log_scores(model.step(state, token_1.fill_(token)))[0]
        states += 1
        best = max(best, score + float(terms_V[END]))
        if depth + 2 > limit:
            continue
        terms_V[END] = float("-inf")
        tokens = (terms_V > best - score).nonzero().squeeze(1)
        terms, order = terms_V[tokens].sort()
        for term, child in zip(terms.tolist(), tokens[order].tolist(), strict=True):
            waiting.append((score + term, child, depth + 1))
    return Found(best, states, True)


@dataclass
class Case:
    """A model with sentences and their first bounds."""

    name: str
    folder: ModelFolder
    output: OutputLayer
    sources: list[list[int]]
    limits: list[int]
    first: list[list[Hypothesis]]
    precision: torch.dtype

    @classmethod
    def read(
        cls, path: Path, texts: list[str], device: torch.device, precision: torch.dtype
    ) -> Case:
        """Open a model and search with a beam of 4."""
        folder = ModelFolder.load(path, device)
        output = output_layer(folder.facts.output)
        sources = Subwords(folder.subwords).encode(texts)
        longest = folder.model.config.max_length
        limits = [length_limit(len(source) + 1, longest) for source in sources]
        first = searcher(folder.model, output).search(sources, SearchOptions("beam"))
        return cls(path.name, folder, output, sources, limits, first, precision)

    def together(self, options: ExactOptions) -> tuple[float, list[ExactResult]]:
        """Search all sentences; gives the seconds too."""
        expander = expander_for(self.folder.model, self.precision)
        wait(expander.device)
        begin = time.perf_counter()
        found = dict(
            exact_search(expander, self.output, self.sources, self.limits, self.first, options)
        )
        wait(expander.device)
        return time.perf_counter() - begin, [found[index] for index in range(len(found))]

    def alone(self, max_states: int) -> tuple[float, list[Found]]:
        """Search sentence by sentence and prefix by prefix; gives the seconds too."""
        model = prepacked(self.folder.model)
        begin = time.perf_counter()
        found = [
            one_at_a_time(
                model,
                self.output,
                source,
                limit,
                (hypotheses[0].log_prob or 0.0) - 1e-4,
                max_states,
            )
            for source, limit, hypotheses in zip(self.sources, self.limits, self.first, strict=True)
        ]
        wait(model.device)
        return time.perf_counter() - begin, found


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("models", type=Path, nargs="*", help="model folders")
    parser.add_argument("--source", type=Path, help="text, one sentence a line")
    parser.add_argument("--sentences", type=int, default=20, help="the first so many")
    parser.add_argument("--max-states", type=int, default=20_000, help="a sentence, for ours")
    parser.add_argument("--peer-states", type=int, default=200, help="a sentence, for the peer")
    parser.add_argument("--width", type=int, nargs="*", default=[], help="widths to compare")
    options = parser.parse_args()
    device = choose_device(options.device)
    result = facts(device) | {"precision": "float32", "results": [], "growth": []}
    with tempfile.TemporaryDirectory() as scratch:
        if options.toy:
            options.models = [Path(scratch) / "toy"]
            toy_model(options.models[0], "scones")
            texts = toy_pairs()[0][:4]
        elif not options.models or options.source is None:
            parser.error("give models and --source, or --toy")
        else:
            texts = read_texts(options.source)[: options.sentences]
        for path in options.models:
            case = Case.read(path, texts, device, torch.float32)
            entry = race(case, options.repeats, options.max_states, options.peer_states)
            name = path.parent.name if path.name in ("best", "last") else path.name
            result["results"].append({"model": name, "output": case.folder.facts.output} | entry)
            for width in options.width:
                row = growth(case, width, options.max_states)
                result["growth"].append({"model": name} | row)
            save(result, options.json)
    report(result)


def race(case: Case, repeats: int, max_states: int, peer_states: int) -> dict[str, Any]:
    """Let both search in turns; gives states a second, and whether the modes agree."""
    ours: list[ExactResult] = []
    peers: list[Found] = []
    speeds: dict[str, list[float]] = {OURS: [], PEER: []}
    case.together(ExactOptions(max_states=10))  # warm up
    for _ in range(repeats):
        seconds, ours = case.together(ExactOptions(max_states=max_states))
        speeds[OURS].append(sum(one.certificate.states for one in ours) / seconds)
        seconds, peers = case.alone(peer_states)
        speeds[PEER].append(sum(one.states for one in peers) / seconds)
    both = [
        (one.hypotheses[0].log_prob or 0.0, other.log_prob)
        for one, other in zip(ours, peers, strict=True)
        if one.certificate.proved and other.proved
    ]
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    return {
        "states_per_second": medians,
        "all_states_per_second": speeds,
        "ratio": medians[OURS] / medians[PEER],
        "sentences": len(case.sources),
        "states": {
            OURS: sum(one.certificate.states for one in ours),
            PEER: sum(one.states for one in peers),
        },
        "proved": {
            OURS: sum(one.certificate.proved for one in ours),
            PEER: sum(one.proved for one in peers),
        },
        "proved_by_both": len(both),
        "largest_difference": max((abs(a - b) for a, b in both), default=None),
        "max_states": {OURS: max_states, PEER: peer_states},
    }


def growth(case: Case, width: int, max_states: int) -> dict[str, Any]:
    """Measure speed and memory with so many prefixes expanded together."""
    free_memory()
    on_gpu = case.folder.model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    # Narrow searches take long: a few states of each sentence are enough.
    options = ExactOptions(max_states=min(max_states, 50 * width), width=width)
    seconds, found = case.together(options)
    states = sum(one.certificate.states for one in found)
    row: dict[str, Any] = {"width": width, "states_per_second": states / seconds, "states": states}
    if on_gpu:
        row["megabytes"] = torch.cuda.max_memory_allocated() / 1e6
    return row


def report(result: dict[str, Any]) -> None:
    """Print the tables."""
    lines = []
    for entry in result["results"]:
        speeds, apart = entry["states_per_second"], entry["largest_difference"]
        lines.append(
            [
                entry["model"],
                number(speeds[OURS]),
                number(speeds[PEER]),
                number(entry["ratio"], 1),
                f"{entry['proved'][OURS]} / {entry['proved'][PEER]}",
                "–" if apart is None else f"{apart:.1e}",
            ]
        )
    head = ("states/s", PEER, "ratio", "proved", "scores differ by")
    show("", head, lines)
    if result["growth"]:
        rows = [
            [
                f"{row['model']}, {row['width']}",
                number(row["states_per_second"]),
                number(row.get("megabytes")),
            ]
            for row in result["growth"]
        ]
        show("", ("states/s", "MB"), rows)


if __name__ == "__main__":
    main()
