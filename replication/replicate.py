"""Softmax against SCONES over several seeds, with α chosen on the development set.

One recipe, one budget. α is swept with a seed of its own; then both output layers are trained with
the same seeds and compared on a test set that nothing was chosen on.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from replication.directions import training_facts
from replication.options import Replicate
from replication.plan import Training
from replication.results import Json, page
from replication.runner import Job, Say, output_of, run_all, training_job
from scones.analysis.compare import compare
from scones.errors import SconesError
from scones.evaluation.significance import mark
from scones.model.folder import read_facts
from scones.text.reading import read_aligned
from scones.text.store import TokenStore


@dataclass(frozen=True)
class Replication:
    """What is to be run, as the command line says it."""

    options: Replicate
    say: Say

    def run(self) -> Json:
        """Train everything, choose α, test; gives all figures."""
        options, store = self.options, TokenStore.open(self.options.store)
        if options.tuning_seed in options.seed:
            raise SconesError(
                f"The tuning seed {options.tuning_seed} is also a test seed; choose another."
            )
        if store.dev_texts is None:
            raise SconesError(f"{store.path} has no development set to choose α on.")
        sources, *references = read_aligned([options.source, *options.references])
        sweep = {alpha: self._training(alpha, options.tuning_seed) for alpha in options.alpha}
        softmax = {seed: self._training(None, seed) for seed in options.seed}
        run_all([[job] for job in (*sweep.values(), *softmax.values())], options.jobs, self.say)
        bleu = {alpha: _dev_bleu(job) for alpha, job in sweep.items()}
        best = min(bleu, key=lambda alpha: (-bleu[alpha], alpha))
        scones = {seed: self._training(best, seed) for seed in options.seed}
        run_all([[job] for job in scones.values()], options.jobs, self.say)
        rows = []
        for seed in softmax:
            models = {"softmax": softmax[seed].made, "scones": scones[seed].made}
            compared = compare(models, sources, references, device=options.device).to_json()
            minutes = {name: training_facts(model)["minutes"] for name, model in models.items()}
            rows.append({"seed": seed, **compared, "minutes": minutes})
            self.say(f"seed {seed}: tested")
        return {
            "recipe": str(options.recipe),
            "data_digest": store.digest,
            "tuning_seed": options.tuning_seed,
            "dev_bleu_by_alpha": {f"{alpha:g}": found for alpha, found in bleu.items()},
            "alpha": best,
            "seeds": rows,
        }

    @cached_property
    def _common(self) -> Training:
        return Training.load(self.options.recipe, self.options.device)

    def _training(self, alpha: float | None, seed: int) -> Job:
        name = f"{'softmax' if alpha is None else f'scones-{alpha:g}'}-seed{seed}"
        model, output = self.options.folder / name, output_of(alpha)
        return training_job(name, self._common, self.options.store, model, output, seed)


def _dev_bleu(training: Job) -> float:
    return float((read_facts(training.made).scores or {})["bleu"])


def _mean(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"**{statistics.fmean(values):.2f}** ± {spread:.2f}"


def markdown(result: Json) -> str:
    """Show every seed, the means, and the bootstrap's verdicts."""
    seeds, first = result["seeds"], result["seeds"][0]
    rows = []
    for search in first["systems"]["softmax"]["bleu"]:
        bleu: dict[str, list[float]] = {"softmax": [], "scones": []}
        for row in seeds:
            cells = []
            for name, known in bleu.items():
                found = row["systems"][name]
                known.append(found["bleu"][search])
                cells.append(f"{known[-1]:.2f}{mark(found['p'][search] or 1.0)}")
            minutes = " / ".join(f"{value:.1f}" for value in row["minutes"].values())
            rows.append([f"{search}, seed {row['seed']}", *cells, minutes])
        rows.append([f"**{search}, mean**", *map(_mean, bleu.values()), ""])
    sweep = ", ".join(f"α = {a}: {one:.2f}" for a, one in result["dev_bleu_by_alpha"].items())
    said = (
        f"α = {result['alpha']:g}, chosen by greedy BLEU on the development set with seed "
        f"{result['tuning_seed']} ({sweep}). BLEU: `{first['systems']['softmax']['signature']}`."
    )
    title = f"{Path(result['recipe']).stem}: softmax and SCONES, {len(seeds)} seeds"
    return page(title, said, ["BLEU", "softmax", "SCONES", "minutes of training"], rows, first)
