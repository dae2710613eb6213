"""An output layer whose loss is not finite in some steps; as a program, in one process of two.

Arguments of the program, which torchrun starts: store, run folder. Prints a JSON object a process.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from tiny_run import make_experiment
from torch import Tensor

from scones.outputs import register
from scones.outputs.scones import Scones
from scones.training.loop import train


class Sick(Scones):
    """Healthy but in the training steps named in `bad` (the first is 1)."""

    name = "sick"
    calls = 0
    bad: tuple[int, ...] = ()
    value = float("nan")
    weight: Tensor

    def loss(self, *arguments, **options):
        healthy = super().loss(*arguments, **options)
        if not torch.is_grad_enabled():
            return healthy
        Sick.weight = arguments[1]
        Sick.calls += 1
        return healthy * self.value if Sick.calls in Sick.bad else healthy


def main(store, folder):
    """Train with a loss that is not finite in one step of each process."""
    register(Sick)
    rank = int(os.environ["RANK"])
    Sick.bad = ((4,), (2,))[rank]
    result = train(make_experiment({"max_steps": 5}, output=Sick()), store, folder, quiet=True)
    digest = hashlib.sha256(Sick.weight.detach().numpy().tobytes()).hexdigest()
    facts = {"rank": rank, "weights": digest, "steps": result.steps, "skipped": result.skipped}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
