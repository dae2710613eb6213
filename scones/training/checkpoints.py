"""Checkpoints: everything that a run needs to go on as if it had never stopped.

A checkpoint is a folder `step-00001000` with model.safetensors, optimizer.safetensors and
state.json, written beside and renamed. The newest ones are kept.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from scones.files import new_folder, read_json, write_json, write_tensors


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def steps(self) -> list[int]:
        """Give the steps that there are checkpoints of, in order."""
        return sorted(int(path.name.split("-")[1]) for path in self._folder.glob("step-*"))

    def save(
        self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Write a checkpoint and remove those that are too old."""
        if step in self.steps():
            return
        with new_folder(self._path(step)) as place:
            write_tensors(place / "model.safetensors", _on_cpu(model.state_dict()))
            moments = _optimizer_tensors(model, optimizer)
            write_tensors(place / "optimizer.safetensors", moments | _random_states())
            write_json(place / "state.json", state)
        killed_writers_left = self._folder.glob(".step-*")
        for place in (*map(self._path, self.steps()[: -self._keep]), *killed_writers_left):
            shutil.rmtree(place)

    def restore(
        self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> dict[str, Any]:
        """Put model, optimiser and random states back; give the rest of the state."""
        folder = self._path(step)
        model.load_state_dict(load_file(folder / "model.safetensors"))
        tensors = load_file(folder / "optimizer.safetensors")
        torch.set_rng_state(tensors.pop("random/cpu"))
        if "random/cuda" in tensors:
            state = tensors.pop("random/cuda")
            if torch.cuda.is_available():
                torch.cuda.set_rng_state(state)
        parameters = dict(model.named_parameters())
        for name, tensor in tensors.items():
            key, _, parameter_name = name.partition("/")
            parameter = parameters[parameter_name]
            on_device = tensor if tensor.ndim == 0 else tensor.to(parameter.device)
            optimizer.state[parameter][key] = on_device
        state_json: dict[str, Any] = read_json(folder / "state.json")
        return state_json

    def average(self, steps: list[int]) -> dict[str, Tensor]:
        """Average the weights of several checkpoints, in float64."""
        total: dict[str, Tensor] = {}
        for step in steps:
            for name, tensor in load_file(self._path(step) / "model.safetensors").items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        return {name: (tensor / len(steps)).float() for name, tensor in total.items()}

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08}"


def _on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return _on_cpu(
        {
            f"{key}/{name}": tensor
            for name, parameter in model.named_parameters()
            for key, tensor in optimizer.state.get(parameter, {}).items()
        }
    )


def _random_states() -> dict[str, Tensor]:
    states = {"random/cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["random/cuda"] = torch.cuda.get_rng_state()
    return states
