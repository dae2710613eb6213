"""A model that is a table: the logits of the next token after every prefix, and brute force."""

import math

import torch

from scones.text import END


class ToyState:
    def __init__(self, prefixes, sentences, beams):
        self.prefixes = prefixes
        self.sentences = sentences
        self.beams = beams

    def join(self, other):
        self.prefixes += other.prefixes
        self.sentences += other.sentences

    def reorder(self, rows_N):
        rows = rows_N.tolist()
        assert [row // self.beams for row in rows] == [i // self.beams for i in range(len(rows))]
        self.prefixes = [self.prefixes[row] for row in rows]

    def keep(self, sentences_B):
        rows = [s * self.beams + b for s in sentences_B.tolist() for b in range(self.beams)]
        self.prefixes = [self.prefixes[row] for row in rows]
        self.sentences = [self.sentences[s] for s in sentences_B.tolist()]


class ToyModel:
    """Random logits, drawn anew for every source number and prefix, the same every time."""

    def __init__(self, vocabulary, seed, spread=2.0):
        self.vocabulary = vocabulary
        self.seed = seed
        self.spread = spread

    def logits(self, source, prefix):
        number = hash((self.seed, source, *prefix)) % 2**31
        generator = torch.Generator().manual_seed(number)
        return torch.randn(self.vocabulary, generator=generator) * self.spread

    def start(self, source_BS, beams=1):
        sources = source_BS[:, 0].tolist()
        return ToyState([()] * (len(sources) * beams), sources, beams)

    def step(self, state, tokens_N):
        state.prefixes = [(*p, t) for p, t in zip(state.prefixes, tokens_N.tolist(), strict=True)]
        return torch.stack(
            [
                self.logits(state.sentences[row // state.beams], prefix[1:])
                for row, prefix in enumerate(state.prefixes)
            ]
        )


def brute_force(model, output, source, limit, penalty=0.0):
    """All translations of at most `limit` tokens (end included), the best first."""
    found = []
    level = [((), 0.0)]
    for _ in range(limit):
        longer = []
        for prefix, total in level:
            logits = model.logits(source, prefix).unsqueeze(0)
            scores = output.log_scores(logits)[0].tolist()
            found.append((prefix, total + scores[END]))
            longer += [
                ((*prefix, token), total + scores[token])
                for token in range(model.vocabulary)
                if token != END
            ]
        level = longer
    return sorted(found, key=lambda item: -item[1] / (len(item[0]) + 1) ** penalty)


def same_ranking(found, ranking, count):
    """Compare an n-best list with the first `count` of a full ranking; ties may trade places."""
    if len(found) != min(count, len(ranking)):
        return False
    for have, (_, score) in zip(found, ranking, strict=False):
        tied = {tokens for tokens, other in ranking if math.isclose(other, score, abs_tol=1e-5)}
        if have.tokens not in tied or not math.isclose(have.log_prob, score, abs_tol=1e-5):
            return False
    return len({have.tokens for have in found}) == len(found)
