"""The SCONES loss for JAX: the formula of `scones.scones_loss`, for models written there.

Every token's term is softplus(u) - λu, where u is the logit of a token that is not gold and the
negative logit of the gold one. The gradient of that is σ(u) - λ, exact however large the logit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scones.errors import SconesError, optional_import
from scones.outputs import Reduction, check_numbers, reduced
from scones.text import PAD

if TYPE_CHECKING:
    from jax import Array


def scones_loss(
    logits: Array,
    targets: Array,
    alpha: float = 0.5,
    label_smoothing: float = 0.0,
    ignore_index: int = PAD,
    reduction: Reduction = "mean",
) -> Array:
    """Compute the SCONES loss of `logits` (…, V) against token ids `targets` (…).

    It means what `scones.scones_loss` means: `alpha` weighs the tokens that are not the gold
    token, `label_smoothing` is the paper's λ, and positions whose target is `ignore_index`
    contribute nothing, whatever they hold. The arithmetic is float32, or float64 where the logits
    are. A target outside the vocabulary, which compiled code cannot refuse, makes the loss NaN.

    `reduction`: "mean" over all tokens; "sentence_mean": over the tokens of each sentence (the
    last dimension of `targets`), then over sentences; "sum"; "none", one loss per position.

    A training step with Optax:

        def loss_of(params, batch):
            return scones_loss(model.apply(params, batch["source"]), batch["target"])

        @jax.jit
        def step(params, state, batch):
            loss, gradients = jax.value_and_grad(loss_of)(params, batch)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state, loss
    """
    jax = optional_import("jax", "JAX is not installed; pip install 'scones[jax]' brings it.")
    softplus, jnp = jax.nn.softplus, jax.numpy
    logits, targets = jnp.asarray(logits), jnp.asarray(targets)
    if logits.shape[:-1] != targets.shape:
        shapes = f"logits {logits.shape} and targets {targets.shape}"
        raise SconesError(f"{shapes} must have shapes (…, V) and (…).")
    if not jnp.issubdtype(targets.dtype, jnp.integer):
        raise SconesError(f"targets must be token ids, whole numbers, not {targets.dtype}.")
    check_numbers(label_smoothing, alpha)
    vocabulary = logits.shape[-1]
    keep = targets != ignore_index
    # Ignored rows become zeros before any arithmetic, so that not even a NaN passes.
    logits = jnp.where(keep[..., None], logits, 0)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    gold = jnp.arange(vocabulary) == targets[..., None]
    signed = jnp.where(gold, -logits, logits)
    # A logit of -inf, a token that is ruled out, costs nothing: 0 times infinity would be NaN.
    smoothing = jnp.where(label_smoothing == 0, 0, label_smoothing * signed)
    losses = (jnp.where(gold, 1, alpha) * (softplus(signed) - smoothing)).sum(axis=-1)
    losses = jnp.where((targets >= 0) & (targets < vocabulary), losses, jnp.nan)
    return reduced(jnp.where(keep, losses, 0), keep, reduction)


def initial_bias(vocabulary: int, alpha: float = 0.5, label_smoothing: float = 0.0) -> float:
    """The output bias to start from: the constant logit at which the loss is least.

    Starting at 0 instead, the loss would begin near α·V·ln 2: thousands.
    """
    from scones.outputs.scones import Scones

    return Scones(alpha, label_smoothing).initial_bias(vocabulary)
