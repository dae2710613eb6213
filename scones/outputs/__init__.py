"""The seam: the one object in which softmax and SCONES models differ.

Training and every search take an `OutputLayer` and never ask which one it is; neither do the model
card, the exports and the command line, which ask the layer what they have to say of it. A new
output layer is one frozen dataclass that is registered, in this package or outside it:

    @scones.outputs.register
    @dataclass(frozen=True)
    class SoftmaxWithZLoss(OutputLayer):
        name: ClassVar[str] = "softmax-z"
        z: float = option(1e-4, "weight of the squared log-sum-exp")
        def initial_bias(self, vocabulary): ...
        def token_losses(self, logits_NV, targets_N): ...
        def log_scores(self, logits_NV): ...

Recipes and config.json call it by its `name` from then on, in every program that has imported it
(tests/outputs/test_third_layer.py is a whole one).

Shape letters here and in the whole package: N rows (tokens or hypotheses), D model size,
V vocabulary, k best.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

from scones.errors import SconesError
from scones.options import Checked, bounds_broken, from_section, option

# PyTorch is imported only where it is used, so that the command line can name the layers in its
# help without loading it.
if TYPE_CHECKING:
    import numpy as np
    from _typeshed import DataclassInstance
    from numpy.typing import NDArray
    from torch import Tensor

    from scones.outputs.fused import Rule

Layer = TypeVar("Layer", bound="type[OutputLayer]")
Reduction = Literal["mean", "sentence_mean", "sum", "none"]

Rows: TypeAlias = "Sequence[NDArray[np.float32]]"
"""Logits (V), or what is made of them, of each of several tokens."""

DEFAULT = "scones"

ALPHA = option(0.5, "weight of the tokens that are not the gold token", above=0, most=10**12)
SMOOTHING = option(0.0, "λ of the paper's appendix: how far labels are from 0, 1", least=0, below=1)
"""The options of SCONES, and with them the bounds that all losses keep."""

# The layers of this package, by the module that registers each when it is imported.
_OURS = {"scones": "scones.outputs.scones", "softmax": "scones.outputs.softmax"}
_REGISTERED: dict[str, type[OutputLayer]] = {}

_FASTER = {
    "rule": "token_losses",
    "told": "token_losses",
    "best": "log_scores",
    "scores_of": "log_scores",
    "above": "log_scores",
    "scores_of_rows": "log_scores",
    "candidates_of_rows": "log_scores",
}
"""What a layer may do faster, and what it has to agree with."""


def register(layer: Layer) -> Layer:
    """Make an output layer known by its `name`; use it as a decorator."""
    known = _REGISTERED.get(layer.name)
    home = _OURS.get(layer.name, layer.__module__)
    # The same class may come again, as in a notebook cell that is run twice.
    same = known is None or known.__qualname__ == layer.__qualname__
    if home != layer.__module__ or not same:
        raise SconesError(f"There is an output layer '{layer.name}' already; choose another name.")
    # A faster way that is inherited would go on computing what the new layer has changed.
    for faster, rule in _FASTER.items():
        inherited = _definer(layer, faster)
        if inherited is not OutputLayer and not issubclass(inherited, _definer(layer, rule)):
            raise SconesError(
                f"The output layer '{layer.name}' changes {rule} and inherits {faster} from "
                f"{inherited.__name__}, which knows nothing of it; define {faster} too, or inherit "
                "from OutputLayer."
            )
    _REGISTERED[layer.name] = layer
    return layer


def _definer(layer: type, name: str) -> type:
    return next(cls for cls in layer.__mro__ if name in vars(cls))


def layer_names() -> list[str]:
    return sorted({*_OURS, *_REGISTERED})


def output_layer(settings: Mapping[str, Any], origin: str = "output") -> OutputLayer:
    """Make the output layer that `settings` describe: {"layer": its name, its own options}.

    `origin` says in error messages where the settings stand.
    """
    name = settings.get("layer", DEFAULT)
    if not isinstance(name, str) or name not in layer_names():
        known = ", ".join(layer_names())
        raise SconesError(
            f"{origin}: the output layer '{name}' is not known; there are {known}, and one of your "
            "own has to be imported, and registered by `scones.outputs.register`, first."
        )
    if name not in _REGISTERED:
        importlib.import_module(_OURS[name])
    options = {key: value for key, value in settings.items() if key != "layer"}
    return from_section(_REGISTERED[name], options, f"{origin} of the layer {name}")


@dataclass(frozen=True)
class Labels:
    """What is known of further tokens at some positions, K facts in all (docs/several.md).

    A token that is right too has a weight in `right_K`, one that is known to be wrong in
    `wrong_K`; no token stands twice at a position, and the target itself never does.
    """

    rows_K: Tensor
    """The positions, as indices into the targets."""
    tokens_K: Tensor
    right_K: Tensor
    wrong_K: Tensor
    counted_K: Tensor | None = None
    """0 where a position has no loss of its own, in which the token would have counted; else 1."""

    def logits(self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor) -> Tensor:
        """The logits of these tokens alone, in (at least) float32."""
        import torch
        from torch.nn import functional

        # Not by indexing: gradients of embeddings are added up in a fixed order on every device.
        exact = torch.promote_types(torch.float32, hidden_ND.dtype)
        hidden_KD, weight_KD = (
            functional.embedding(places_K, table).to(exact)
            for places_K, table in ((self.rows_K, hidden_ND), (self.tokens_K, weight_VD))
        )
        return (hidden_KD * weight_KD).sum(-1) + bias_V[self.tokens_K].to(exact)


class OutputLayer(Checked, ABC):
    """What turns a hidden state into scores and into a loss. Subclasses are frozen dataclasses."""

    name: ClassVar[str]
    tuned: ClassVar[str | None] = None
    """The option that `scones tune` varies, if there is one worth it."""

    # What a new output layer must say.

    @abstractmethod
    def initial_bias(self, vocabulary: int) -> float:
        """The constant output bias to start training from."""

    @abstractmethod
    def token_losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        """The loss of each row in float32; exactly 0 where the target is padding."""

    @abstractmethod
    def log_scores(self, logits_NV: Tensor) -> Tensor:
        """The log-probability of every token, in float32."""

    # What it may know more than this.

    def check_labels(self) -> None:
        """Refuse labels, for layers that nobody can tell of more than one token."""
        if _definer(type(self), "told") is OutputLayer:
            raise SconesError(
                f"The output layer '{self.name}' cannot be told that several tokens are right or "
                "that one is wrong; train scones, or leave out references, negatives and mistakes."
            )

    def told(self, logits_K: Tensor, labels: Labels) -> Tensor:
        """What each label adds to the loss of its position."""
        raise NotImplementedError

    def label_loss(
        self,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        labels: Labels,
        weights_N: Tensor | None = None,
    ) -> Tensor:
        """Sum what labels add to the (weighted) losses."""
        added_K = self.told(labels.logits(hidden_ND, weight_VD, bias_V), labels)
        return (added_K if weights_N is None else added_K * weights_N[labels.rows_K]).sum()

    # What it may do faster than this.

    def rule(self) -> Rule | None:
        """How logits become losses and their gradient, where `token_losses` need not be asked.

        With it no logits are kept in training: their gradient is made on the way. Whoever changes
        the losses of a layer that has a rule has to change the rule too.
        """
        return None

    def loss(
        self,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        weights_N: Tensor | None = None,
    ) -> Tensor:
        """Sum the (weighted) losses of hidden states against targets, none of them padding."""
        from torch.nn import functional

        from scones.outputs.fused import loss_sum

        if rule := self.rule():
            return loss_sum(hidden_ND, weight_VD, bias_V, targets_N, weights_N, rule)
        logits_NV = functional.linear(hidden_ND, weight_VD, bias_V)
        losses_N = self.token_losses(logits_NV, targets_N)
        return (losses_N if weights_N is None else losses_N * weights_N).sum()

    def best_token(self, logits_NV: Tensor) -> Tensor:
        """The most probable next token; no activation is needed for that."""
        return logits_NV.argmax(dim=-1)

    def best(self, logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The log-scores and ids of the k most probable tokens, best first."""
        scores_Nk, tokens_Nk = self.log_scores(logits_NV).topk(k, dim=-1)
        return scores_Nk, tokens_Nk

    def scores_of(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        """The log-score of one chosen token per row."""
        return self.log_scores(logits_NV).gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1)

    def above(self, logits_NV: Tensor, least_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows, tokens and log-scores of all that score above their row's `least`."""
        scores_NV = self.log_scores(logits_NV)
        rows, tokens = (scores_NV > least_N.unsqueeze(1)).nonzero(as_tuple=True)
        return rows, tokens, scores_NV[rows, tokens]

    def scores_of_rows(self, rows: Rows, tokens: Sequence[int]) -> list[float]:
        """The same of logits that are NumPy arrays, one a token.

        CTranslate2 gives such. A layer that knows its scores in NumPy too is used without PyTorch.
        """
        import torch

        logits_NV = torch.stack([torch.from_numpy(row) for row in rows])
        return self.scores_of(logits_NV, torch.tensor(tokens)).tolist()

    def candidates_of_rows(self, rows: Rows, share: float) -> Rows:
        """The probabilities, row by row, that are at least this share of the row's best one."""
        import torch

        chances_NV = self.log_scores(torch.stack([torch.from_numpy(row) for row in rows])).exp()
        return [row[row >= share * row.max()] for row in chances_NV.numpy()]

    # What it says of itself to the rest of the world.

    def to_config(self: OutputLayer) -> dict[str, Any]:
        """Describe this layer as it stands in a model's config.json and in a recipe."""
        instance: DataclassInstance = self  # type: ignore[assignment]
        return {"layer": self.name, **asdict(instance)}

    @property
    def is_softmax(self) -> bool:
        """Whether its probabilities are a softmax of the logits, as other engines assume.

        Found out by trying, so that no layer can claim it wrongly.
        """
        import numpy as np

        logits_V = np.array([0.0, 1.0, 3.0], np.float32)
        scores_V = self.scores_of_rows([logits_V] * 3, range(3))
        return np.allclose(scores_V, logits_V - np.log(np.exp(logits_V).sum()), atol=1e-5)

    @property
    def logits_note(self) -> str:
        """What a model card tells people who have nothing but the logits."""
        if self.is_softmax:
            return "The logits go through a softmax, as usual."
        return (
            f"The logits are those of scones' output layer '{self.name}': a beam search that\n"
            "normalises by softmax is not what the model was trained for."
        )


# What losses refuse.


def check_numbers(label_smoothing: Any, alpha: Any = 0.5) -> None:
    """Refuse numbers out of bounds; tensors and traced numbers, not known yet, pass."""
    options = ((ALPHA, alpha, "alpha"), (SMOOTHING, label_smoothing, "label_smoothing"))
    for field, value, name in options:
        if isinstance(value, Real) and (problems := bounds_broken(field, value, name)):
            raise SconesError(f"{problems[0]}.")


def check_tensors(fit: bool, wanted: str, targets: Tensor, **others: Tensor) -> None:
    """Refuse what would be broadcast, cut or rounded; `fit` says if the shapes are as `wanted`.

    Nothing looks at a number in a tensor, so that nobody waits for a GPU.
    """
    import torch

    if not fit:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in others.items())
        raise SconesError(f"{shapes} and targets {tuple(targets.shape)} must have shapes {wanted}.")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise SconesError(f"targets must be token ids, whole numbers, not {targets.dtype}.")
    for name, tensor in others.items():
        if not tensor.is_floating_point():
            raise SconesError(f"{name} must be floating-point numbers, not {tensor.dtype}.")
        if tensor.device != targets.device:
            raise SconesError(f"{name} is on {tensor.device}, but targets on {targets.device}.")


# What layers share.


def best_logits(
    logits_NV: Tensor, k: int, normed: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The k largest logits per row, their tokens, and the row's log-sum-exp where asked for."""
    from scones.hardware import usable

    if k <= 16 and usable(logits_NV.device) and not logits_NV.requires_grad:
        from scones.kernels import decoding

        return decoding.best_logits(logits_NV, k, normed)
    values_Nk, tokens_Nk = _topk(logits_NV, k)
    norm_N = logits_NV.float().logsumexp(dim=-1) if normed else None
    return values_Nk.float(), tokens_Nk, norm_N


_BLOCK = 64


def _topk(logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """PyTorch's topk, sooner on a CPU: the k best lie in the k blocks of the highest maxima."""
    import torch

    rows, width = logits_NV.shape
    blocks = width // _BLOCK
    if logits_NV.device.type != "cpu" or width % _BLOCK or blocks < 4 * k:
        return torch.topk(logits_NV, k, dim=-1)
    logits_MW = logits_NV.reshape(-1, _BLOCK)
    best_Nk = logits_MW.amax(dim=-1).view(rows, blocks).topk(k, dim=-1).indices
    blocks_M = (best_Nk + torch.arange(rows).unsqueeze(1) * blocks).flatten()
    candidates_NC = logits_MW.index_select(0, blocks_M).view(rows, -1)
    values_Nk, order_Nk = candidates_NC.topk(k, dim=-1)
    return values_Nk, best_Nk.gather(1, order_Nk // _BLOCK) * _BLOCK + order_Nk % _BLOCK


def reduced(losses: Any, keep: Any, reduction: Reduction) -> Any:
    """Average or sum the losses of positions, in ways that PyTorch and JAX arrays both know."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.sum() / keep.sum().clip(1)
    if reduction == "sentence_mean":
        tokens = keep.sum(-1)
        return (losses.sum(-1) / tokens.clip(1)).sum() / (tokens > 0).sum().clip(1)
    raise SconesError(
        f"reduction={reduction!r} is not known; use 'mean', 'sentence_mean', 'sum' or 'none'."
    )


def without_padding(logits_NV: Tensor, targets_N: Tensor, ignore_index: int) -> tuple[Tensor, ...]:
    """Replace ignored rows by zeros before any arithmetic, so that not even a NaN passes.

    Returns the logits in (at least) float32, targets that are safe to index with, and the mask
    of the rows that count.
    """
    fit = logits_NV.dim() > 0 and logits_NV.shape[:-1] == targets_N.shape
    check_tensors(fit, "(…, V) and (…)", targets_N, logits=logits_NV)
    keep_N = targets_N != ignore_index
    if logits_NV.dtype.itemsize < 4:
        logits_NV = logits_NV.float()
    logits_NV = logits_NV.masked_fill(~keep_N.unsqueeze(-1), 0.0)
    return logits_NV, targets_N.long().masked_fill(~keep_N, 0), keep_N
