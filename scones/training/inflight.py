"""Steps that the device was given and the host has not looked at.

On a GPU the host runs a little ahead: by the time it looks at a step's loss, the step has ended and
the number lies in its own memory. So nothing waits, a step that went wrong is known two steps
later, and time and Ctrl-C still count. On a CPU a step has ended when it is given.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

STEPS_AHEAD = {"cpu": 0, "cuda": 2}
"""How far the host may run ahead of each kind of device."""


@dataclass(frozen=True)
class Outcome:
    """What came of a step."""

    step: int
    loss: float
    norm: float
    """The gradient's norm, before clipping."""

    @property
    def finite(self) -> bool:
        """Whether the step was made."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


@dataclass(frozen=True)
class _Given:
    step: int
    values: Tensor
    ended: torch.cuda.Event | None

    def outcome(self) -> Outcome:
        if self.ended is not None:
            self.ended.synchronize()
        loss, norm = self.values.tolist()
        return Outcome(self.step, loss, norm)


class InFlight:
    """The steps in flight on a device, in their order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._most = STEPS_AHEAD[device.type]
        self._given: deque[_Given] = deque()

    def add(self, step: int, loss: Tensor, norm: Tensor) -> list[Outcome]:
        """Take note of a step that was just given; gives the steps that it is time to look at."""
        values = torch.stack([loss, norm]).to("cpu", non_blocking=True)
        ended = None
        if self._device.type == "cuda":
            ended = torch.cuda.Event(blocking=True)
            torch.cuda.current_stream(self._device).record_event(ended)
        self._given.append(_Given(step, values, ended))
        return self._landed(self._most)

    def land(self) -> list[Outcome]:
        """Wait for all steps; gives those that were not looked at."""
        return self._landed(0)

    def _landed(self, left: int) -> list[Outcome]:
        count = len(self._given) - left
        return [self._given.popleft().outcome() for _ in range(count)]
