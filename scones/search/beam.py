"""Vanilla beam search of any size, for every output layer.

At each step the `beam_size` best continuations of a sentence's hypotheses go on. An end of
sentence that is among the best `beam_size` candidates finishes its hypothesis; the beam is then
filled up again with hypotheses that go on. A sentence is done when no unfinished hypothesis can
still pass its n-th best finished one: scores only fall, so that is when the best unfinished score
is not above it. With a beam of 1 this is greedy search; with a beam that never drops anything it
is exact.

Shape letters: A sentences still active, k beam size, w candidates a row, c candidates a sentence,
n translations wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from scones.outputs import OutputLayer
from scones.search.greedy import S, Stepper, should_leave
from scones.search.prefix import Followers, Prefixes
from scones.search.searcher import Hypothesis, SearchOptions
from scones.text import END, PAD

_NEVER = float("-inf")
NOTHING: Mapping[int, Sequence[int]] = MappingProxyType({})


@torch.inference_mode()
def beam_search(
    model: Stepper[S],
    output: OutputLayer,
    source_BS: Tensor,
    limits_B: Tensor,
    beam_size: int,
    n_best: int = 1,
    length_penalty: float = 0.0,
    end: int = END,
    prefixes: Prefixes = (),
) -> list[list[Hypothesis]]:
    """Translate a batch; each sentence gets up to `n_best` translations, the best first.

    `length_penalty` p ranks finished translations by log-probability / length**p; 0, the default,
    ranks by log-probability alone. A sentence with no finished translation within its limit gets
    its best unfinished one. `end` is the model's id of the end of sentence. Where there are
    `prefixes`, translations begin with them.
    """
    SearchOptions("beam", beam_size, n_best, length_penalty)  # refuses what has no meaning
    sentences, longest = source_BS.size(0), int(limits_B.max())
    device = source_BS.device
    # Results are written on the device and read out once at the end: a GPU never waits for them.
    state = model.start(source_BS, beam_size)
    history = History.empty(sentences, beam_size, longest, device)
    finished = Finished.empty(sentences, n_best, device)
    active_A = torch.arange(sentences, device=device)
    scores_Ak = torch.full((sentences, beam_size), _NEVER, dtype=torch.float64, device=device)
    scores_Ak[:, 0] = 0.0  # at first all rows of a sentence are the same: one of them counts
    tokens_N = torch.full((sentences * beam_size,), PAD, device=device)
    done_A = torch.zeros(sentences, dtype=torch.bool, device=device)
    followers = Followers(prefixes, beam_size)
    for position in range(longest):
        allowed = followers.allowed(position)
        logits_NV = model.step(state, tokens_N)
        candidates = Candidates.of(output, logits_NV, scores_Ak, end, allowed)
        positions_A = torch.full_like(active_A, position)
        finished.offer(active_A, positions_A, candidates, beam_size, length_penalty)
        chosen = candidates.going_on(beam_size)
        history.write(active_A, positions_A, chosen)
        if allowed:
            followers.go_on(position, chosen.parents.tolist(), chosen.tokens.tolist())
        scores_Ak, tokens_N = chosen.totals, chosen.tokens.flatten()
        if beam_size > 1:
            state.reorder(chosen.rows())

        limits_A = limits_B[active_A]
        done_A |= finished.decided(active_A, scores_Ak, limits_A, length_penalty)
        done_A |= limits_A <= position + 1
        # A sentence that is done may stay for a while; nothing it does there counts any more.
        scores_Ak = scores_Ak.masked_fill(done_A[:, None], _NEVER)
        if should_leave(int(done_A.sum()), done_A.numel()):
            staying = (~done_A).nonzero().squeeze(1)
            if staying.numel() == 0:
                break
            state.keep(staying)
            if prefixes:
                followers.keep(staying.tolist())
            active_A, scores_Ak, done_A = active_A[staying], scores_Ak[staying], done_A[staying]
            tokens_N = tokens_N.view(-1, beam_size)[staying].flatten()
    return read_out(history, finished, limits_B)


@dataclass
class Candidates:
    """Continuations of a sentence's hypotheses, the best first."""

    totals: Tensor
    """(A, c) log-probability of hypothesis and token together, float64."""
    terms: Tensor
    """(A, c) log-probability of the token alone."""
    tokens: Tensor
    """(A, c) the token."""
    parents: Tensor
    """(A, c) which of the sentence's hypotheses it continues."""
    end: int
    """The token that ends a sentence."""

    @classmethod
    def of(
        cls,
        output: OutputLayer,
        logits_NV: Tensor,
        scores_Ak: Tensor,
        end: int,
        allowed: Mapping[int, Sequence[int]] = NOTHING,
    ) -> Candidates:
        """The best continuations of hypotheses with these scores.

        Of some rows only the `allowed` tokens may be taken.
        """
        sentences, beam_size = scores_Ak.shape
        # k + 1 a row: should one of them be the end of sentence, k are left to go on.
        width = min(beam_size + 1, logits_NV.size(-1))
        terms_Nw, tokens_Nw = output.best(logits_NV, width)
        for row, tokens in allowed.items():
            tokens_a = torch.tensor(tokens, device=logits_NV.device)
            terms_a = output.log_scores(logits_NV[row : row + 1])[0, tokens_a]
            best_b, order_b = terms_a.topk(min(width, len(tokens)))
            terms_Nw[row] = _NEVER
            terms_Nw[row, : len(best_b)] = best_b.to(terms_Nw.dtype)
            tokens_Nw[row, : len(best_b)] = tokens_a[order_b]
        # Added up in float64: over a long sentence float32 would lose what tells two beams apart.
        totals_Nw = scores_Ak.reshape(-1, 1) + terms_Nw.double()
        # Up to k of them may be ends of sentence, which leaves k that go on.
        count = min(2 * beam_size, beam_size * width)
        totals_Ac, order_Ac = totals_Nw.view(sentences, -1).topk(count, dim=-1)
        return cls(
            totals_Ac,
            terms_Nw.view(sentences, -1).gather(1, order_Ac),
            tokens_Nw.view(sentences, -1).gather(1, order_Ac),
            order_Ac // width,
            end,
        )

    def going_on(self, beam_size: int) -> Candidates:
        """The best candidates that do not end the sentence."""
        going_on_Ac = self.totals.masked_fill(self.tokens == self.end, _NEVER)
        totals_Ak, order_Ak = going_on_Ac.topk(beam_size, dim=-1)
        return Candidates(
            totals_Ak,
            self.terms.gather(1, order_Ak),
            self.tokens.gather(1, order_Ak),
            self.parents.gather(1, order_Ak),
            self.end,
        )

    def rows(self) -> Tensor:
        """The row that each candidate continues."""
        sentences, beam_size = self.parents.shape
        first_A1 = torch.arange(sentences, device=self.parents.device)[:, None] * beam_size
        return (first_A1 + self.parents).flatten()


@dataclass
class Finished:
    """The n best finished translations of every sentence."""

    ranks: Tensor
    """(B, n) log-probability over the length penalty; -inf where there is none yet."""
    totals: Tensor
    """(B, n) log-probability."""
    terms: Tensor
    """(B, n) log-probability of the end of sentence alone."""
    parents: Tensor
    """(B, n) the hypothesis that it ends."""
    positions: Tensor
    """(B, n) the position of its end of sentence."""

    @classmethod
    def empty(cls, sentences: int, n_best: int, device: torch.device) -> Finished:
        nothing = torch.full((sentences, n_best), _NEVER, dtype=torch.float64, device=device)
        zeros = torch.zeros(sentences, n_best, dtype=torch.long, device=device)
        return cls(nothing, nothing.clone(), nothing.float(), zeros, zeros.clone())

    @property
    def columns(self) -> tuple[Tensor, ...]:
        return self.ranks, self.totals, self.terms, self.parents, self.positions

    def of(self, sentences: int) -> Finished:
        return Finished(*(column[:sentences] for column in self.columns))

    def decided(
        self, active_A: Tensor, scores_Ak: Tensor, limits_A: Tensor, penalty: float
    ) -> Tensor:
        """For which sentences no unfinished hypothesis can pass the n-th finished one."""
        # At best the score falls no further and is divided by the most: it is negative.
        reachable_A = scores_Ak[:, 0] / limits_A.double() ** penalty
        return self.ranks[active_A, -1] >= reachable_A

    def offer(
        self,
        active_A: Tensor,
        positions_A: Tensor,
        candidates: Candidates,
        best: int,
        penalty: float,
    ) -> None:
        """Take in those of the `best` first candidates that end their sentence."""
        ends_Ak = candidates.tokens[:, :best] == candidates.end
        totals_Ak = candidates.totals[:, :best]
        lengths_A1 = (positions_A.double() + 1).unsqueeze(1)
        ranks_Ak = (totals_Ak / lengths_A1**penalty).masked_fill(~ends_Ak, _NEVER)
        offered = (
            ranks_Ak,
            totals_Ak,
            candidates.terms[:, :best],
            candidates.parents[:, :best],
            positions_A.unsqueeze(1).expand(-1, best),
        )
        kept = self.columns
        both = [
            torch.cat([old[active_A], new], dim=1) for old, new in zip(kept, offered, strict=True)
        ]
        # Old and new compete; those that fall out of the n best are gone for good.
        _, order_An = both[0].topk(self.ranks.size(1), dim=-1)
        for old, new in zip(kept, both, strict=True):
            old[active_A] = new.gather(1, order_An)


@dataclass
class History:
    """Every hypothesis of every step, as a pointer to its parent and one token."""

    parents: Tensor
    """(T, B, k)"""
    tokens: Tensor
    """(T, B, k)"""
    terms: Tensor
    """(T, B, k)"""

    @classmethod
    def empty(cls, sentences: int, beam_size: int, longest: int, device: torch.device) -> History:
        shape = (longest, sentences, beam_size)
        pointers = torch.zeros(shape, dtype=torch.int32, device=device)
        terms = torch.zeros(shape, device=device)
        return cls(pointers, pointers.clone(), terms)

    def of(self, sentences: int, longest: int) -> History:
        columns = (self.parents, self.tokens, self.terms)
        return History(*(column[:longest, :sentences] for column in columns))

    def write(self, active_A: Tensor, positions_A: Tensor, chosen: Candidates) -> None:
        """Add what was chosen for some sentences, each at its own position."""
        self.parents[positions_A, active_A] = chosen.parents.int()
        self.tokens[positions_A, active_A] = chosen.tokens.int()
        self.terms[positions_A, active_A] = chosen.terms.float()


def read_out(history: History, finished: Finished, limits_B: Tensor) -> list[list[Hypothesis]]:
    """Follow the finished translations back to their beginnings."""
    parents_TBk = history.parents.cpu().numpy()
    tokens_TBk = history.tokens.cpu().numpy()
    terms_TBk = history.terms.cpu().numpy()

    def trace(sentence: int, position: int, slot: int) -> tuple[list[int], list[float]]:
        tokens, terms = [], []
        while position >= 0:
            tokens.append(int(tokens_TBk[position, sentence, slot]))
            terms.append(float(terms_TBk[position, sentence, slot]))
            slot = int(parents_TBk[position, sentence, slot])
            position -= 1
        return tokens[::-1], terms[::-1]

    results: list[list[Hypothesis]] = []
    rows = zip(*(column.tolist() for column in finished.columns), strict=True)
    for sentence, columns in enumerate(rows):
        found = []
        for rank, total, end, slot, position in zip(*columns, strict=True):
            if rank > _NEVER:
                tokens, terms = trace(sentence, position - 1, slot)
                found.append(Hypothesis(tuple(tokens), total, (*terms, end), finished=True))
        if not found:
            tokens, terms = trace(sentence, int(limits_B[sentence]) - 1, 0)
            found = [Hypothesis(tuple(tokens), sum(terms), tuple(terms), finished=False)]
        results.append(found)
    return results
