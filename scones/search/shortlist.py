"""A shortlist: the target pieces, a few hundred, that a source sentence can lead to.

The logits of the rest are not computed. Under SCONES a token's score is made of its own logit
alone, so that the scores of the tokens that are kept are those of the whole model. Under softmax
they are not: the kept tokens share the probability of all.

A sentence's list is its own, whatever stands beside it: a batch computes the tokens on any of its
lists, and those that are not on a sentence's own get the logit -inf in its rows, as does the rest.

Shape letters: B sentences, N rows (sentences × beams), D model size, V vocabulary, U tokens that
any sentence of the batch may use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor
from torch.nn import functional

from scones.errors import SconesError
from scones.files import regular, write_file
from scones.model.decoder import JoinedState
from scones.model.transformer import PrepackedLinear, Transformer
from scones.text import END
from scones.text.store import ParallelTokens, Sentences, TokenStore, token_type

# Which target pieces go with a source piece: IBM Model 1, learnt from a corpus in a few passes.
#
# Model 1 lets every target piece of a sentence pair be explained by one of the source pieces, each
# with its share, and adds the shares up over the corpus. Sources compete, so that "Haus" gets
# "house" and not "the", which the articles explain. At the same size its lists hold more of unseen
# translations than those by Dice's coefficient or mutual information (`benchmarks/shortlist.py`
# measures what they hold).
#
# Shape letters: P pairs of a source and a target piece that stand in one sentence pair somewhere,
# X such meetings in a chunk of the corpus.

_ITERATIONS = 3
_CHUNK = 10_000  # sentence pairs; bounds the memory of their meetings


@dataclass(frozen=True)
class Lexicon:
    """How often, for one occurrence of a source piece, a target piece is its translation."""

    vocabulary: int
    keys: NDArray[np.int64]
    """(P,) source * vocabulary + target, ascending."""
    rates: NDArray[np.float64]
    """(P,) occurrences of the target that the source explains, for each one of the source."""

    def best(self, source: int, count: int) -> NDArray[np.int64]:
        """The `count` target pieces that go best with a source piece, in no order."""
        begin, end = np.searchsorted(
            self.keys, [source * self.vocabulary, (source + 1) * self.vocabulary]
        )
        targets = self.keys[begin:end] - source * self.vocabulary
        if len(targets) <= count:
            return targets
        return targets[np.argpartition(-self.rates[begin:end], count)[:count]]


def learn_lexicon(
    pairs: ParallelTokens, vocabulary: int, ignored: NDArray[Any], max_pairs: int
) -> Lexicon:
    """Learn from at most `max_pairs` sentence pairs, taken evenly from the whole corpus.

    Target pieces among `ignored` are left out; leaving out the few hundred that stand everywhere
    saves most of the work. Memory grows with the number of pairs P, not with the corpus.
    """
    chosen = np.linspace(0, len(pairs) - 1, min(len(pairs), max_pairs)).astype(np.int64)
    chunks = [chosen[begin : begin + _CHUNK] for begin in range(0, len(chosen), _CHUNK)]
    wanted = np.ones(vocabulary, dtype=bool)
    wanted[ignored] = False

    def meetings() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return (_meetings(pairs, chunk, wanted) for chunk in chunks)

    keys = _distinct(np.concatenate([_distinct(keys_X) for keys_X, _ in meetings()]))
    occurrences = np.zeros(vocabulary)
    for chunk in chunks:
        occurrences += np.bincount(_types(pairs.sources, chunk, END)[1], minlength=vocabulary)

    rates = np.ones(len(keys))  # at first every source piece of a sentence has the same share
    for _ in range(_ITERATIONS):
        explained = np.zeros(len(keys))
        for keys_X, target_X in meetings():
            index_X = np.searchsorted(keys, keys_X)
            share_X = rates[index_X]
            share_X /= np.bincount(target_X, share_X)[target_X]
            np.add.at(explained, index_X, share_X)
        rates = explained / occurrences[keys // vocabulary]
    return Lexicon(vocabulary, keys, rates)


def _meetings(
    pairs: ParallelTokens, chunk: NDArray[np.int64], wanted: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The key of every source piece with every target piece of its sentence pair.

    And a number for that target piece, by which its shares are added up. Meetings of one source
    piece stand together: looking up their keys is then twice as fast.
    """
    sentences, sources = _types(pairs.sources, chunk, END)
    target_sentences, targets = _types(pairs.targets, chunk)
    kept = wanted[targets]
    target_sentences, targets = target_sentences[kept], targets[kept]
    order = np.argsort(sources, kind="stable")
    sentences, sources = sentences[order], sources[order]

    begins = np.searchsorted(target_sentences, np.arange(len(chunk) + 1))
    counts = np.diff(begins)[sentences]
    before = np.cumsum(counts) - counts
    target_X = np.repeat(begins[sentences] - before, counts) + np.arange(counts.sum())
    return np.repeat(sources, counts) * len(wanted) + targets[target_X], target_X


def _types(
    side: Sentences, chunk: NDArray[np.int64], also: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different pieces of every sentence, as (sentence number, piece), ascending.

    `also` is one more piece of every sentence: the end of the source explains what no word does.
    """
    tokens, lengths = side.gather(chunk)
    numbers = np.repeat(np.arange(len(chunk)), lengths)
    if also is not None:
        numbers = np.concatenate([numbers, np.arange(len(chunk))])
        tokens = np.concatenate([tokens, np.full(len(chunk), also, tokens.dtype)])
    width = int(tokens.max(initial=0)) + 1
    both = _distinct(numbers * width + tokens)
    return both // width, both % width


def _distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The different numbers, ascending; np.unique now hashes, which takes far longer here."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]


_FORMAT = "scones shortlist 1"
_NEVER = float("-inf")


@dataclass(frozen=True)
class Coverage:
    """What a shortlist holds of translations that it was not made from."""

    tokens: float
    """Share of the target tokens that are on the list of their sentence."""
    sentences: float
    """Share of the sentences whose every token is."""
    size: float
    """Mean number of tokens on a sentence's list."""


class Shortlist:
    """The target pieces that go with each source piece."""

    def __init__(
        self, offsets: NDArray[np.int64], tokens: NDArray[np.integer], digest: str
    ) -> None:
        """Take the list of source piece p, tokens[offsets[p] : offsets[p + 1]], for every p.

        The list of the end of sentence, which every source has, is for everybody. `digest` is
        that of the vocabulary.
        """
        self._arrays = {"offsets": offsets, "tokens": tokens}
        self._lists = Sentences(tokens, offsets)
        self.digest = digest

    @classmethod
    def make(
        cls, store: TokenStore, per_token: int = 100, frequent: int = 500, pairs: int = 500_000
    ) -> Shortlist:
        """Learn from at most `pairs` sentence pairs of a store.

        A source piece gets itself (names and numbers are copied) and the `per_token` target
        pieces that go best with it; all sentences get the `frequent` most frequent target pieces.
        """
        train, vocabulary = store.split("train"), len(store.subwords)
        if len(train) == 0:
            raise SconesError(f"{store.path} holds no sentence pairs to make a shortlist from.")
        everybodys = _most_frequent(train.targets, vocabulary, frequent)
        lexicon = learn_lexicon(train, vocabulary, everybodys, pairs)
        lists: list[NDArray[Any]]
        lists = [np.union1d(lexicon.best(piece, per_token), piece) for piece in range(vocabulary)]
        lists[END] = np.union1d(lists[END], everybodys)
        offsets = np.cumsum([0, *map(len, lists)])
        tokens = np.concatenate(lists).astype(token_type(vocabulary))
        return cls(offsets, tokens, store.subwords.digest)

    @classmethod
    def load(cls, path: Path, subwords: bytes) -> Shortlist:
        """Read a file that `save` wrote, for a model with this SentencePiece model."""
        path = Path(path)
        if not is_shortlist(regular(path)):
            raise _no_shortlist(path)
        try:
            with safe_open(path, framework="numpy") as file:
                facts = file.metadata()
                offsets, tokens = file.get_tensor("offsets"), file.get_tensor("tokens")
        except SafetensorError:
            raise _no_shortlist(path) from None
        # Lists begin and end inside the tokens, and tokens are inside the vocabulary.
        ordered = offsets[0] == 0 and (np.diff(offsets) >= 0).all() and offsets[-1] == len(tokens)
        if not ordered or tokens.max() >= len(offsets) - 1:
            raise _no_shortlist(path)
        if facts.get("vocabulary_digest") != hashlib.sha256(subwords).hexdigest():
            raise SconesError(
                f"{path} was made for another vocabulary than the model's; make one from the "
                "store that the model was trained on, with `scones shortlist`."
            )
        return cls(offsets, tokens, facts["vocabulary_digest"])

    def save(self, path: Path) -> None:
        """Write the file, in one step."""
        facts = {"format": _FORMAT, "vocabulary_digest": self.digest}
        write_file(path, save(self._arrays, metadata=facts))

    @property
    def vocabulary(self) -> int:
        """Number of pieces, source and target."""
        return len(self._lists)

    def allowed(self, sources: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
        """For each source (no end of sentence) which target pieces are on its list: (B, V)."""
        ended = [np.append(source, END).astype(np.int64) for source in sources]
        tokens, counts = self._lists.gather(np.concatenate(ended))
        sentences = np.repeat(np.arange(len(sources)), list(map(len, ended)))
        allowed_BV = np.zeros((len(sources), self.vocabulary), dtype=bool)
        allowed_BV[np.repeat(sentences, counts), tokens] = True
        return allowed_BV

    def coverage(self, pairs: Iterable[tuple[ArrayLike, ArrayLike]]) -> Coverage:
        """Compare the lists of source sentences with translations; both are ids, without an end."""
        covered, sizes = [], []
        for source, target in pairs:
            (allowed_V,) = self.allowed([np.asarray(source).tolist()])
            covered.append(allowed_V[np.asarray(target, np.int64)])
            sizes.append(allowed_V.sum())
        return Coverage(
            float(np.concatenate(covered).mean()),
            float(np.mean([tokens.all() for tokens in covered])),
            float(np.mean(sizes)),
        )


class Shortlisted:
    """A model that says only what is on the shortlist of a sentence; a `Stepper` as it is."""

    def __init__(self, model: Transformer, shortlist: Shortlist) -> None:
        self._model = model
        self._shortlist = shortlist

    def start(self, source_BS: Tensor, beams: int = 1) -> ShortlistedState:
        """Open the model's state, and look up what each sentence may say."""
        sources = [[token for token in row if token > END] for row in source_BS.tolist()]
        allowed_BV = torch.from_numpy(self._shortlist.allowed(sources)).to(source_BS.device)
        return ShortlistedState(self._model.start(source_BS, beams), allowed_BV)

    def step(self, state: ShortlistedState, tokens_N: Tensor) -> Tensor:
        """Feed one token per row and give the logits (N, V) of the next, -inf off the lists."""
        hidden_ND = self._model.hidden_step(state.decoder, tokens_N)
        if state.head is None:
            state.head = _Head(self._model, state.allowed_BV)
        return state.head.logits(hidden_ND)


class ShortlistedState:
    """The model's state of a batch, and what its sentences may say."""

    def __init__(self, decoder: JoinedState, allowed_BV: Tensor) -> None:
        self.decoder = decoder
        self.allowed_BV = allowed_BV
        self.head: _Head | None = None

    def join(self, other: ShortlistedState) -> None:
        """Take in another state's sentences, behind those that are here."""
        self.decoder.join(other.decoder)
        self.allowed_BV = torch.cat([self.allowed_BV, other.allowed_BV])
        self.head = None

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue what row rows[i], of the same sentence, has seen."""
        self.decoder.reorder(rows_N)

    def keep(self, sentences_B: Tensor) -> None:
        """Drop all sentences but these."""
        self.decoder.keep(sentences_B)
        self.allowed_BV = self.allowed_BV.index_select(0, sentences_B)
        if self.head is not None:
            self.head.keep(sentences_B)


class _Head:
    """The output matrix, of the tokens alone that some sentence of a batch may use."""

    def __init__(self, model: Transformer, allowed_BV: Tensor) -> None:
        self._vocabulary = allowed_BV.size(1)
        self._tokens_U = allowed_BV.any(dim=0).nonzero().squeeze(1)
        self._banned_BU = ~allowed_BV.index_select(1, self._tokens_U)
        weight_UD = model.output_weight.index_select(0, self._tokens_U)
        bias_U = model.output_bias.index_select(0, self._tokens_U)
        self._linear: Callable[[Tensor], Tensor]
        if model.head is not None:  # then its weights are prepacked, and so should these be
            self._linear = PrepackedLinear(weight_UD, bias_U)
        else:
            self._linear = partial(functional.linear, weight=weight_UD, bias=bias_U)

    def keep(self, sentences_B: Tensor) -> None:
        """Forget the lists of all sentences but these; the matrix stays, since it is there."""
        self._banned_BU = self._banned_BU.index_select(0, sentences_B)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """The logits (N, V) of hidden states."""
        logits_NU = self._linear(hidden_ND)
        sentences, tokens = self._banned_BU.shape
        logits_BkU = logits_NU.view(sentences, -1, tokens)
        logits_BkU.masked_fill_(self._banned_BU.unsqueeze(1), _NEVER)
        rows = hidden_ND.size(0)
        logits_NV = logits_NU.new_full((rows, self._vocabulary), _NEVER)
        return logits_NV.scatter_(1, self._tokens_U.expand(rows, -1), logits_NU)


def _most_frequent(sentences: Sentences, vocabulary: int, count: int) -> NDArray[np.int64]:
    occurrences = np.zeros(vocabulary, np.int64)
    for begin in range(0, len(sentences), 100_000):
        chunk = np.arange(begin, min(begin + 100_000, len(sentences)))
        occurrences += np.bincount(sentences.gather(chunk)[0], minlength=vocabulary)
    return np.argsort(-occurrences, kind="stable")[: min(count, np.count_nonzero(occurrences))]


def is_shortlist(path: Path) -> bool:
    """Whether a file says of itself that it is one."""
    try:
        with safe_open(path, framework="numpy") as file:
            return (file.metadata() or {}).get("format") == _FORMAT
    except SafetensorError:
        return False


def _no_shortlist(path: Path) -> SconesError:
    return SconesError(f"{path} is damaged or is no shortlist; make it with `scones shortlist`.")
