"""The optimisers: LAMB (the paper's) and PyTorch's AdamW, and the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from scones.training.options import TrainOptions


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al., 2020): Adam's direction, each matrix moved in proportion to its norm.

    Vectors (biases, layer norms) are moved by Adam's step itself and are not decayed: their norm
    says nothing about how far they should go. All tensors are updated together (foreach).
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        largest_ratio: float = 10.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "largest_ratio": largest_ratio,
        }
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move all parameters that have a gradient."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            matrices = [p for p in parameters if p.ndim >= 2]
            vectors = [p for p in parameters if p.ndim < 2]
            if matrices:
                self._update(matrices, group, by_norm=True)
            if vectors:
                self._update(vectors, group, by_norm=False)

    def _update(self, parameters: list[Tensor], group: dict[str, Any], by_norm: bool) -> None:
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": torch.zeros(()),
                    "mean": torch.zeros_like(parameter),
                    "square": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in parameters]
        for state in states:
            state["step"] += 1
        count = states[0]["step"].item()
        beta1, beta2 = group["betas"]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means = [state["mean"] for state in states]
        squares = [state["square"] for state in states]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)

        scales = torch._foreach_div(squares, 1 - beta2**count)
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, group["eps"])
        updates = torch._foreach_div(means, 1 - beta1**count)
        torch._foreach_div_(updates, scales)
        if by_norm:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
            norms = torch.stack(torch._foreach_norm(parameters))
            lengths = torch.stack(torch._foreach_norm(updates))
            known = (norms > 0) & (lengths > 0)
            ratios = torch.where(known, norms / lengths, 1.0).clamp(max=group["largest_ratio"])
            torch._foreach_mul_(updates, list(ratios.unbind()))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


def make_optimizer(model: nn.Module, options: TrainOptions) -> torch.optim.Optimizer:
    """Make the optimiser that the options name."""
    betas = (options.beta1, options.beta2)
    if options.optimizer == "lamb":
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return Lamb(parameters, options.learning_rate, betas, weight_decay=options.weight_decay)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": options.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=betas, foreach=True)


def learning_rate(options: TrainOptions, step: int, spent: float) -> float:
    """Give the learning rate of a step (the first is 1): warm-up, then 1/√step, then cool-down.

    `spent` is the share of the budget that is used up.
    """
    warmup = max(1, options.warmup_steps)
    rate = options.learning_rate * min(step / warmup, math.sqrt(warmup / step))
    if options.cooldown and spent > 1 - options.cooldown:
        rate *= max(0.0, 1 - spent) / options.cooldown
    return rate
