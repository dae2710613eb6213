"""Softmax against SCONES over several seeds, with α chosen on the development set.

One recipe, one budget. α is swept with a seed of its own; then both output layers are trained
with the same seeds and compared on a test set that nothing was chosen on. Runs go side by side
as processes, since a small model leaves most of a GPU idle.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scones.analysis.compare import compare
from scones.errors import SconesError
from scones.evaluation.significance import mark
from scones.files import read_json, write_file, write_json
from scones.model.folder import read_facts
from scones.text.store import TokenStore


@dataclass(frozen=True)
class Replication:
    """What to run."""

    store: Path
    recipe: Path
    folder: Path
    """Where the runs go; those finished already are not trained again."""
    alphas: Sequence[float]
    tuning_seed: int
    seeds: Sequence[int]
    jobs: int
    device: str = "auto"
    say: Callable[[str], None] = lambda text: None
    """Told whenever a run begins or ends."""

    def run(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Train everything, choose α, test; gives all figures."""
        if self.tuning_seed in self.seeds:
            raise SconesError(
                f"The tuning seed {self.tuning_seed} is also a test seed; choose another."
            )
        if self.jobs < 1:
            raise SconesError(f"jobs must be at least 1, not {self.jobs}.")
        if TokenStore.open(self.store).dev_texts is None:
            raise SconesError(f"{self.store} has no development set to choose α on.")
        with ThreadPoolExecutor(self.jobs) as pool:
            sweep = {alpha: self._train(pool, self.tuning_seed, alpha) for alpha in self.alphas}
            softmax = [self._train(pool, seed, None) for seed in self.seeds]
            dev_bleu = {alpha: _dev_bleu(run.result()) for alpha, run in sweep.items()}
            best = min(dev_bleu, key=lambda alpha: (-dev_bleu[alpha], alpha))
            scones = [self._train(pool, seed, best) for seed in self.seeds]
            folders = [
                {"softmax": left.result(), "scones": right.result()}
                for left, right in zip(softmax, scones, strict=True)
            ]
        rows = []
        for seed, models in zip(self.seeds, folders, strict=True):
            comparison = compare(models, sources, references, device=self.device).to_json()
            self.say(f"seed {seed}: tested")
            rows.append({"seed": seed, **comparison, "minutes": _minutes(models)})
        return {
            "recipe": str(self.recipe),
            "data_digest": TokenStore.open(self.store).digest,
            "tuning_seed": self.tuning_seed,
            "dev_bleu_by_alpha": {f"{alpha:g}": bleu for alpha, bleu in dev_bleu.items()},
            "alpha": best,
            "seeds": rows,
        }

    def _train(self, pool: ThreadPoolExecutor, seed: int, alpha: float | None) -> Future[Path]:
        name = f"softmax-seed{seed}" if alpha is None else f"scones-{alpha:g}-seed{seed}"
        output = ["--output-layer", "softmax"]
        if alpha is not None:
            output = ["--output-layer", "scones", "--alpha", f"{alpha:g}"]
        command = [sys.executable, "-m", "scones", "train", str(self.store)]
        command += [str(self.folder / name), "--recipe", str(self.recipe), *output]
        command += ["--seed", str(seed), "--device", self.device]
        return pool.submit(self._run, command, self.folder / name)

    def _run(self, command: Sequence[str], folder: Path) -> Path:
        self.say(f"{folder}: training")
        _run(command, folder)
        self.say(f"{folder}: dev BLEU {_dev_bleu(folder):.2f}")
        return folder


def _run(command: Sequence[str], folder: Path) -> None:
    # Several processes share the cores; a GPU run needs one thread to feed the GPU.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last_line = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise SconesError(f"Training {folder} failed: {last_line}")


def _dev_bleu(folder: Path) -> float:
    return float((read_facts(folder).scores or {})["bleu"])


def _minutes(models: dict[str, Path]) -> dict[str, float]:
    """Give the training time of each model, which its last checkpoint knows."""
    minutes = {}
    for name, folder in models.items():
        last = max((folder / "training" / "checkpoints").glob("step-*/state.json"))
        minutes[name] = read_json(last)["seconds"] / 60
    return minutes


def write_report(result: dict[str, Any], stem: Path) -> str:
    """Write STEM.json and STEM.md; gives the Markdown."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    write_json(stem.with_suffix(".json"), result)
    text = markdown(result)
    write_file(stem.with_suffix(".md"), text)
    return text


def markdown(result: dict[str, Any]) -> str:
    """Show every seed, the means, and the bootstrap's verdicts."""
    searches = list(result["seeds"][0]["systems"]["softmax"]["bleu"])
    sweep = ", ".join(f"α = {a}: {bleu:.2f}" for a, bleu in result["dev_bleu_by_alpha"].items())
    heads = [f"{name}, {search}" for search in searches for name in ("softmax", "SCONES")]
    lines = [
        f"# {Path(result['recipe']).stem}: softmax and SCONES, {len(result['seeds'])} seeds",
        "",
        f"α = {result['alpha']:g}, chosen by greedy BLEU on the development set with seed "
        f"{result['tuning_seed']} ({sweep}).",
        "",
        f"| seed | {' | '.join(heads)} | minutes |",
        "|" + "---|" * (len(heads) + 2),
    ]
    columns: list[list[float]] = [[] for _ in heads]
    for row in result["seeds"]:
        cells = []
        for index, search in enumerate(searches):
            systems = row["systems"]
            left, right = (systems[name]["bleu"][search] for name in ("softmax", "scones"))
            columns[2 * index].append(left)
            columns[2 * index + 1].append(right)
            cells += [f"{left:.2f}", f"{right:.2f}{mark(systems['scones']['p'][search])}"]
        minutes = " / ".join(f"{value:.1f}" for value in row["minutes"].values())
        lines.append(f"| {row['seed']} | {' | '.join(cells)} | {minutes} |")
    means = " | ".join(f"**{statistics.mean(column):.2f}**" for column in columns)
    lines.append(f"| mean | {means} | |")
    spreads = (statistics.stdev(c) if len(c) > 1 else 0.0 for c in columns)
    lines.append(f"| deviation | {' | '.join(f'{spread:.2f}' for spread in spreads)} | |")
    first = result["seeds"][0]
    lines += [
        "",
        "† p < .05, ‡ p < .01 against softmax with the same seed (paired bootstrap).",
        "",
        f"- BLEU: `{first['systems']['softmax']['signature']}`",
        f"- data digest `{result['data_digest'][:16]}`, commit `{first['commit']}`, "
        f"{first['device']}, PyTorch {first['torch']}",
        f"- command: `{first['command']}`",
        "",
    ]
    return "\n".join(lines)
