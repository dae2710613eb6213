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
    says nothing about how far they should go. PyTorch's fused Adam does most of the work, for all
    tensors at once; like that, a step asks nothing of the host.
    """

    found_inf: Tensor | None = None
    """1.0 where this step should change nothing, 0.0 elsewhere; on the parameters' device."""
    grad_scale: Tensor | None = None
    """What to divide gradients by."""

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
        # A tensor, never a bool: to read it, the host would have to wait for the GPU.
        made: Any = 1.0 if self.found_inf is None else 1.0 - self.found_inf
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter] = {
                        "step": torch.zeros((), device=parameter.device),
                        "mean": torch.zeros_like(parameter),
                        "square": torch.zeros_like(parameter),
                    }
            steps = [self.state[p]["step"] for p in parameters]
            # A list, for the host would read one tensor for all.
            torch._foreach_add_(steps, [made] * len(steps))
            if matrices := [p for p in parameters if p.ndim >= 2]:
                self._move_by_norm(matrices, group, made)
            if vectors := [p for p in parameters if p.ndim < 2]:
                self._adam(vectors, vectors, group, group["lr"])

    def _move_by_norm(self, matrices: list[Tensor], group: dict[str, Any], made: Any) -> None:
        """Take Adam's step from the origin to learn its direction; go there by the norm's rule."""
        # Adam subtracts rate × direction from what it is given: from zeros, with a rate of 1, it
        # leaves minus its direction. Decay is part of LAMB's direction, so it is added before the
        # norms are taken.
        moves = [torch.empty_like(matrix) for matrix in matrices]
        torch._foreach_zero_(moves)
        self._adam(moves, matrices, group, 1.0)
        torch._foreach_add_(moves, matrices, alpha=-group["weight_decay"])
        norms = torch.stack(torch._foreach_norm(matrices))
        lengths = torch.stack(torch._foreach_norm(moves))
        # Weights of zeros have no norm to go by, and zero gradients no direction: ratio 1.
        known = (norms > 0) & (lengths > 0)
        ratios = torch.where(known, norms / lengths, 1.0).clamp(max=group["largest_ratio"])
        # A step that is not made goes 0 times a finite way, which changes no number.
        scales = ratios * group["lr"] * made
        torch._foreach_addcmul_(matrices, moves, list(scales.unbind()))

    def _adam(
        self, moved: list[Tensor], parameters: list[Tensor], group: dict[str, Any], rate: float
    ) -> None:
        """Make Adam's step with the parameters' gradients and moments, on the tensors `moved`."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        states = [self.state[parameter] for parameter in parameters]
        beta1, beta2 = group["betas"]
        torch._fused_adam_(
            moved,
            gradients,
            [state["mean"] for state in states],
            [state["square"] for state in states],
            [],
            [state["step"] for state in states],
            lr=rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
        )


class AdamW(torch.optim.AdamW):
    """PyTorch's fused AdamW; it looks at the same two attributes as `Lamb`."""

    found_inf: Tensor | None = None
    grad_scale: Tensor | None = None


def make_optimizer(model: nn.Module, options: TrainOptions) -> Lamb | AdamW:
    """Make the optimiser that the options name."""
    betas = (options.beta1, options.beta2)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if options.optimizer == "lamb":
        return Lamb(trained, options.learning_rate, betas, weight_decay=options.weight_decay)
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": options.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=options.learning_rate, betas=betas, fused=True)


def finite_step(optimizer: Lamb | AdamW, rate: float, loss: Tensor, clip_norm: float) -> Tensor:
    """Make a step unless loss or gradient is not finite; returns the gradient's norm.

    The device decides, with nothing read by the host: a step that is not made leaves weights,
    moments and their count as they were. The gradients are used up. `clip_norm` 0: no clipping.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    # Fused optimisers of PyTorch are told in this way by its mixed-precision training.
    optimizer.found_inf = 1.0 - (loss.isfinite() & norm.isfinite()).float()
    # They divide gradients by `grad_scale` on the way: clipping costs no pass of its own.
    optimizer.grad_scale = (norm / clip_norm).clamp(min=1.0).float() if clip_norm else None
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)  # the next pass writes gradients, instead of adding to 0
    return norm


def learning_rate(options: TrainOptions, step: int, spent: float) -> float:
    """The learning rate of a step (the first is 1): warm-up, then 1/√step, then cool-down.

    `spent` is the share of the budget that is used up.
    """
    # At step `warmup` both ways are at their end, 1: the rise meets the fall.
    warmup = max(1, options.warmup_steps)
    rate = options.learning_rate * min(step / warmup, math.sqrt(warmup / step))
    if options.cooldown and spent > 1 - options.cooldown:
        rate *= max(0.0, 1 - spent) / options.cooldown
    return rate
