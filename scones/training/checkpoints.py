"""Checkpoints: everything that a run needs to go on as if it had never stopped.

A checkpoint is a folder `step-00001000` with model.safetensors, optimizer.safetensors (random
states included), state.json, and the digests of all three. It is written beside and renamed, and
believed only while its digests are right. The newest ones are kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from scones.errors import SconesError
from scones.files import file_digest, new_folder, read_json, write_json, write_tensors
from scones.options import from_section
from scones.training.data import Position

# Where a run stands, and how it ended.


@dataclass
class RunState:
    """Where a run stands; kept in every checkpoint."""

    step: int = 0
    position: Position = field(default_factory=Position)
    seconds: float = 0.0
    tokens: int = 0
    best_bleu: float | None = None
    best_step: int = 0
    validations_without_gain: int = 0
    skipped: int = 0
    """Steps whose loss or gradient was not finite."""
    skipped_in_a_row: int = 0

    @classmethod
    def from_json(cls, values: Any, step: int, path: Path) -> RunState:
        """Take what was written at a step; what another version, or nobody, wrote is refused."""
        state = from_section(cls, values if isinstance(values, dict) else {}, str(path))
        numbers = (state.seconds, state.tokens, state.position.epoch, state.position.batch)
        possible = state.step == step and all(0 <= number < math.inf for number in numbers)
        if not possible or dataclasses.asdict(state) != values:
            raise SconesError(f"{path} is not what this version of scones writes at step {step}.")
        return state


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    reason: str
    steps: int
    seconds: float
    best_bleu: float | None
    best_step: int
    skipped: int = 0
    interrupted: bool = False


_FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
_DIGESTS = "digests.json"


@dataclass(frozen=True)
class Checkpoint:
    """A run at the end of a step."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    """The optimiser's tensors, named "what/parameter", and random states, "random/device/rank"."""
    state: RunState

    @classmethod
    def of(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        random: list[dict[str, Tensor]],
        state: RunState,
    ) -> Checkpoint:
        """Take a run's state; `random` holds each rank's random states."""
        # By name: parameter numbers, which PyTorch would store, change with the model's code.
        moments = {
            f"{key}/{name}": tensor
            for name, parameter in model.named_parameters()
            for key, tensor in optimizer.state.get(parameter, {}).items()
        }
        by_rank = {
            f"random/{device}/{rank}": tensor
            for rank, states in enumerate(random)
            for device, tensor in states.items()
        }
        return cls(_on_cpu(model.state_dict()), _on_cpu(moments | by_rank), state)

    def put_back(self, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
        """Restore the model, the optimiser and this rank's random states."""
        try:
            model.load_state_dict(self.weights)
        except RuntimeError:
            at = f"The checkpoint of step {self.state.step}"
            raise SconesError(f"{at} is of a model of other sizes; move it elsewhere.") from None
        parameters = dict(model.named_parameters())
        for name, tensor in self.optimizer.items():
            key, _, parameter_name = name.partition("/")
            if key != "random":
                parameter = parameters[parameter_name]
                optimizer.state[parameter][key] = tensor.to(parameter.device)
        # A rank that was not there when the checkpoint was written keeps the seed it has.
        if (cpu := self.optimizer.get(f"random/cpu/{rank}")) is not None:
            torch.set_rng_state(cpu)
        cuda = self.optimizer.get(f"random/cuda/{rank}")
        if cuda is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(cuda)


class _DamagedError(SconesError):
    """A checkpoint is not as it was written."""


class Checkpoints:
    """The checkpoints of one run; `say` is told about damaged ones."""

    def __init__(self, folder: Path, keep: int, say: Callable[[str], object]) -> None:
        self._folder = folder
        self._keep = keep
        self._say = say

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, in order; what is called otherwise is none."""
        names = (path.name.removeprefix("step-") for path in self._folder.glob("step-*"))
        return sorted(int(name) for name in names if name.isdecimal() and f"{int(name):08}" == name)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and remove those that are too old."""
        if checkpoint.state.step not in self.steps():
            self._write(checkpoint)
        # Old ones go only now, when a newer one is safe.
        no_longer_needed = self._folder.glob(".step-*")  # damaged, or left by a killed writer
        for old in (*map(self._path, self.steps()[: -self._keep]), *no_longer_needed):
            _remove(old)

    def _write(self, checkpoint: Checkpoint) -> None:
        # Written under another name and renamed: a checkpoint is there as a whole or not at all.
        with new_folder(self._path(checkpoint.state.step)) as hidden:
            write_tensors(hidden / "model.safetensors", checkpoint.weights)
            write_tensors(hidden / "optimizer.safetensors", checkpoint.optimizer)
            write_json(hidden / "state.json", dataclasses.asdict(checkpoint.state))
            digests = {name: file_digest(hidden / name) for name in _FILES}
            write_json(hidden / _DIGESTS, digests)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; damaged newer ones are put out of the way."""
        damaged: dict[int, str] = {}
        for step in reversed(self.steps()):
            try:
                found = self._read(step)
            except _DamagedError as problem:
                damaged[step] = str(problem)
                continue
            # Out of the way, or the run would not write that step's checkpoint again.
            for bad, sentence in damaged.items():
                self._say(f"{sentence} An older checkpoint is used.")
                self._path(bad).rename(self._folder / f".{self._path(bad).name}.damaged")
            return found
        if damaged:
            raise SconesError(
                f"No checkpoint in {self._folder} is whole: {' '.join(damaged.values())} "
                "Remove the run's folder to train it from the beginning."
            )
        return None

    def average(self, count: int) -> tuple[list[int], dict[str, Tensor]]:
        """Average the weights of the last `count` checkpoints, in float64; gives their steps."""
        # One checkpoint at a time: all of them might not fit into memory.
        total: dict[str, Tensor] = {}
        steps = []
        for step in self.steps()[-count:]:
            try:
                weights = self._read(step).weights
            except _DamagedError as problem:
                self._say(f"{problem} It is left out of the average.")
                continue
            steps.append(step)
            for name, tensor in weights.items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        return steps, {name: (tensor / len(steps)).float() for name, tensor in total.items()}

    def _read(self, step: int) -> Checkpoint:
        """Read a checkpoint, refusing it unless every byte is as it was written."""
        folder = self._path(step)
        try:
            # A power cut can leave files of the right size with the wrong bytes, even renamed ones.
            digests = read_json(folder / _DIGESTS)
            for name in _FILES:
                if digests[name] != file_digest(folder / name):
                    raise ValueError(f"the digest of {name} is not right")
            weights = load_file(folder / "model.safetensors")
            moments = load_file(folder / "optimizer.safetensors")
            state = read_json(folder / "state.json")
        except (SconesError, OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
            raise _DamagedError(f"{folder} is damaged ({problem}).") from None
        # What is whole and not understood, as from another version, is no damage: nothing is moved.
        return Checkpoint(weights, moments, RunState.from_json(state, step, folder / "state.json"))

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08}"


def _remove(folder: Path) -> None:
    """Remove a checkpoint, whole or not; what else may lie there is somebody's, and stays."""
    with suppress(OSError):  # it is a file, or not empty
        for path in folder.iterdir():
            if path.name.removeprefix(".").partition(".writing-")[0] in (*_FILES, _DIGESTS):
                path.unlink()
        folder.rmdir()


def random_states() -> dict[str, Tensor]:
    """This rank's random states, one per device."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
