"""The `[train]` section of a recipe: everything about training but the model and its output."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scones.errors import SconesError
from scones.files import new_folder, read_json, write_json
from scones.model.config import ModelOptions
from scones.options import Checked, option

# The command line makes its flags of these options before it needs PyTorch.
if TYPE_CHECKING:
    from scones.outputs import OutputLayer
    from scones.text.store import ParallelTokens, TokenStore


_count = partial(option, least=1)
_part = partial(option, least=0, below=1)
_positive = partial(option, above=0, most=10**6)


@dataclass(frozen=True)
class TrainOptions(Checked):
    """How to train; every field is a recipe key and a command-line flag of the same name."""

    max_steps: int | None = _count(None, "stop after this many steps", group="Budget")
    max_minutes: float | None = option(None, "stop after this much training time", above=0)
    patience: int = option(
        10, "stop after this many validations without a better dev BLEU; 0: never", least=0
    )

    max_tokens: int = _count(4096, "padded tokens of a batch, on either side", group="Batches")
    accumulate: int = _count(1, "batches whose gradients make one step", most=10**6)
    loss_average: Literal["tokens", "sentences"] = option(
        "tokens", "average the loss over tokens, or over each sentence first (the paper's equation)"
    )

    references: Literal["all"] | None = option(
        None, "all: the other references of a source are right too", group="Labels"
    )
    negatives: float | None = _positive(
        None, "weight of known wrong tokens, of words dropped, doubled, swapped, …; α if unset"
    )
    omissions: float | None = _positive(
        None, "weight of a wrong end behind references that lack a word; none are made if unset"
    )
    mistakes: Path | None = option(None, "a model's mistakes, from scones mine, to tell of too")

    optimizer: Literal["lamb", "adamw"] = option(
        "lamb", "the optimiser; LAMB is the paper's", group="Optimiser"
    )
    learning_rate: float = _positive(0.006, "highest learning rate (AdamW wants about a tenth)")
    warmup_steps: int = option(1000, "steps until the highest learning rate", least=0)
    cooldown: float = _part(
        0.0, "share of the budget at its end over which the learning rate falls to 0"
    )
    beta1: float = _part(0.9, "decay of the gradient's running mean")
    beta2: float = _part(0.98, "decay of the squared gradient's running mean")
    weight_decay: float = option(0.01, "weight decay of matrices", least=0, most=10**6)
    clip_norm: float = option(
        1.0, "largest norm of the gradient; 0: no clipping", least=0, most=10**12
    )

    validate_every: int = _count(1000, "steps between validations", group="Bookkeeping")
    dev_sentences: int | None = _count(None, "sentences of the dev set that are used; all if unset")
    average_last: int = option(0, "average this many last checkpoints at the end", least=0)
    checkpoint_every: int = _count(1000, "steps between checkpoints")
    log_every: int = _count(50, "most steps between log lines, a line every 30 s besides")
    tensorboard: bool = option(
        False, "write TensorBoard files too", flags=("--tensorboard/--no-tensorboard",)
    )

    start_from: Path | None = option(
        None,
        "model whose weights to start from; sizes and output layer are its own unless given",
        group="Start and machine",
        metavar="MODEL",
    )
    seed: int = option(1, "seed of weights, batch order and dropout", least=0)
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    precision: Literal["auto", "float32", "bf16"] = option(
        "auto", "arithmetic of the matrix products; auto: bf16 where the hardware has it"
    )
    threads: int | None = _count(None, "CPU threads; all cores if unset")
    graphs: Literal["auto", "yes", "no"] = option(
        "auto", "let a GPU repeat steps by itself, as CUDA graphs; auto: small ones"
    )

    def problems(self) -> list[str]:
        problems = super().problems()
        if not self.has_budget and self.patience == 0:
            problems.append("one of max_steps, max_minutes and patience must say when to stop")
        if self.cooldown and not self.has_budget:
            problems.append("cooldown needs max_steps or max_minutes")
        if self.mistakes and self.negatives is None:
            problems.append("mistakes needs negatives, their weight")
        if self.labels and self.graphs == "yes":
            problems.append("graphs cannot be had with references, negatives or omissions")
        return problems

    @property
    def has_budget(self) -> bool:
        """Whether steps or time are limited, so that training ends whatever the dev set says."""
        return self.max_steps is not None or self.max_minutes is not None

    @property
    def labels(self) -> bool:
        """Whether anything is told beside the targets."""
        told = (self.references, self.negatives, self.omissions)
        return any(option is not None for option in told)

    def fingerprint(self) -> dict[str, Any]:
        """The options that a resumed run must share with its beginning."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(self).items()
            if name not in _MAY_CHANGE
        }


# A longer budget, another device or more logging do not make it another run.
_MAY_CHANGE = {"max_steps", "max_minutes", "patience", "log_every", "tensorboard", "device"}
_MAY_CHANGE |= {"threads", "checkpoint_every", "graphs"}


# The beginning of a run: what to train, whether it can be trained, and the folder it is in.


@dataclass(frozen=True)
class Experiment:
    """What to train: the sections of a recipe."""

    model: ModelOptions
    output: OutputLayer
    train: TrainOptions

    def fingerprint(self) -> dict[str, Any]:
        """What may not change under a run."""
        return {
            "model": dataclasses.asdict(self.model),
            "output": self.output.to_config(),
            "train": self.train.fingerprint(),
        }


def check_data(experiment: Experiment, store: TokenStore) -> None:
    """Refuse a store that the experiment cannot be trained on."""
    if experiment.train.labels:
        experiment.output.check_labels()
    training = store.split("train")
    if len(training) == 0:
        raise SconesError(f"{store.path} has no training pairs; prepare it with more text.")
    if store.dev_texts is None and not experiment.train.has_budget:
        raise SconesError(
            f"{store.path} has no development set for patience to watch, so training would never "
            "end; give max_steps or max_minutes."
        )
    # Validation makes batches of its own, so the dev set has to fit the model alone.
    limits = {"max_length": experiment.model.max_length}
    if store.dev_texts is not None:
        _check_lengths(store.split("dev"), limits, f"The development set of {store.path}")
    limits["max_tokens"] = experiment.train.max_tokens
    _check_lengths(training, limits, f"The training set of {store.path}")


def _check_lengths(tokens: ParallelTokens, limits: dict[str, int], split: str) -> None:
    """Refuse a split with a sentence longer than one of the named limits."""
    longest = 1 + max(
        int(lengths.max(initial=0)) for lengths in (tokens.sources.lengths, tokens.targets.lengths)
    )
    for name, limit in limits.items():
        if longest > limit:
            raise SconesError(
                f"{split} has a sentence of {longest} tokens (end of sentence included), but "
                f"{name} is {limit}; make it larger, or leave such sentences out."
            )


def check_run_config(folder: Path, experiment: Experiment, store: TokenStore) -> None:
    """Check that the run in `folder` is this very one; where there is none, begin it.

    `scones train` resumes by itself, so a folder that was named by mistake must never be trained on
    with other data or options.
    """
    wanted = {**experiment.fingerprint(), "data": store.digest}
    record = folder / "training" / "run.json"
    if not record.exists():
        if folder.exists() and not _is_empty(folder):
            raise SconesError(f"{folder} exists and is not a training run; choose another folder.")
        with new_folder(folder / "training") as hidden:
            (hidden / "checkpoints").mkdir()
            write_json(hidden / "run.json", wanted)
        return
    if differences := _differences(read_json(record), wanted):
        raise SconesError(
            f"{folder} holds another run ({'; '.join(differences)}); choose another folder, or "
            "give the options it was started with."
        )


def _is_empty(folder: Path) -> bool:
    """Whether nothing is there, or only what a killed process was writing."""
    return folder.is_dir() and all(path.name.startswith(".") for path in folder.iterdir())


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            difference
            for key in sorted({*old, *new})
            for difference in _differences(old.get(key), new.get(key), f"{name}.{key}".strip("."))
        ]
    return [] if old == new else [f"{name} was {old!r} and now is {new!r}"]
