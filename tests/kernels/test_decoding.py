"""The kernels of a decoding step, each against the same thing said plainly."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_device import DEVICE
from torch.nn import functional

from scones.kernels.decoding import (
    add_and_norm,
    advance,
    attend_back,
    attend_source,
    best_logits,
)
from scones.text import END, PAD

NAN = float("nan")


def draw(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def ids(*numbers):
    return torch.tensor(numbers, device=DEVICE)


@pytest.mark.parametrize("size", [16, 48, 512])
@pytest.mark.parametrize("adds", [True, False])
def test_add_and_norm(size, adds):
    x, scale, shift = 5 * draw(3, size, seed=1) + 2, draw(size, seed=2), draw(size, seed=3)
    addend = draw(size, seed=4) if adds else None
    before, place = x.clone(), torch.full((3, size + 8), NAN, device=DEVICE)
    found = add_and_norm(x, addend, scale, shift, 1e-5, place)
    assert found is place
    assert torch.isnan(place[:, size:]).all(), "nothing is written behind the rows"
    total = before if addend is None else before + addend
    assert torch.equal(x, total)
    exact = functional.layer_norm(total.double(), (size,), scale.double(), shift.double(), 1e-5)
    torch.testing.assert_close(found[:, :size].double(), exact, rtol=1e-5, atol=1e-5)


def test_the_norm_of_a_stream_far_from_zero_keeps_its_digits():
    x = 1000 + draw(2, 64, seed=5)
    one, zero = torch.ones(64, device=DEVICE), torch.zeros(64, device=DEVICE)
    exact = functional.layer_norm(x.double(), (64,), eps=1e-5)
    found = add_and_norm(x, None, one, zero, 1e-5, torch.empty_like(x))
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-3)


def attended(queries_HK, keys_LHK, values_LHK):
    """One position's attention, in float64."""
    scores_HL = torch.einsum("hk,lhk->hl", queries_HK.double(), keys_LHK.double())
    weights_HL = (scores_HL * queries_HK.size(1) ** -0.5).softmax(dim=-1)
    return torch.einsum("hl,lhk->hk", weights_HL, values_LHK.double()).flatten()


@pytest.mark.parametrize("owned", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
def test_attend_back(owned, heads):
    """Three sentences of two beams at their own positions; what they must not read is NaN."""
    beams, steps, size = 2, 48, 32
    positions = ids(0, 0, 5, 5, 40, 40)
    rows = len(positions)
    projected, cache = draw(rows, 3 * size, seed=6), draw(rows, steps, 2 * size, seed=7)
    for row, position in enumerate(positions.tolist()):
        cache[row, position:] = NAN
    owners = None
    if owned:
        choice = torch.randint(0, beams, (rows, steps), generator=torch.Generator().manual_seed(8))
        first = torch.arange(rows)[:, None] // beams * beams
        owners = (first + choice).int().to(DEVICE)
        owners[torch.arange(rows), positions] = torch.arange(rows, device=DEVICE).int()
    before = cache.clone()

    found = attend_back(projected, cache, positions, owners, heads)

    for row, position in enumerate(positions.tolist()):
        query, key, value = projected[row].view(3, heads, -1)
        owner = torch.full((position,), row, device=DEVICE)
        if owners is not None:
            owner = owners[row, :position].long()
        past = before[owner, torch.arange(position, device=DEVICE)]
        past = past.view(position, 2, heads, size // heads)
        keys, values = torch.cat([past, torch.stack([key, value])[None]]).unbind(1)
        exact = attended(query, keys, values)
        torch.testing.assert_close(found[row].double(), exact, rtol=1e-5, atol=1e-5)
        assert torch.equal(cache[row, position], projected[row, size:]), "what is new is kept"
        before[row, position] = cache[row, position]
    assert torch.equal(cache.nan_to_num(), before.nan_to_num()), "nothing else is written"


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # and left unused
@pytest.mark.parametrize("beams", [1, 3])
def test_attend_source(beams):
    heads, size = 2, 32
    lengths, sentences = [4, 0, 70, 1], [2, 0, 1, 3, 2]
    starts = [3, 0, 10, 81]
    memory = torch.full((90, 2 * size), NAN, device=DEVICE)
    for start, length in zip(starts, lengths, strict=True):
        memory[start : start + length] = draw(length, 2 * size, seed=length)
    queries = draw(len(sentences) * beams, size, seed=9)

    found = attend_source(
        queries, memory, ids(*starts).int(), ids(*lengths).int(), ids(*sentences), heads
    )

    for row, query in enumerate(queries):
        sentence = sentences[row // beams]
        if lengths[sentence] == 0:
            assert torch.all(found[row] == 0), "a sentence without a source gives zeros"
            continue
        part = memory[starts[sentence] : starts[sentence] + lengths[sentence]]
        keys, values = part.view(-1, 2, heads, size // heads).unbind(1)
        exact = attended(query.view(heads, -1), keys, values)
        torch.testing.assert_close(found[row].double(), exact, rtol=1e-5, atol=1e-5)


class Table:
    """Rows that write given sentences, as `advance` sees them."""

    def __init__(self, sentences, limits, rows):
        self.sentences_given = sentences
        self.capacity = len(sentences) + 2  # more room than sentences
        self.steps = max(limits)
        self.limits = torch.zeros(self.capacity + 1, dtype=torch.int32, device=DEVICE)
        self.limits[: len(limits)] = ids(*limits)
        shape = (self.capacity + 1, self.steps)
        self.written = torch.full(shape, -1, dtype=torch.long, device=DEVICE)
        self.scores = torch.full(shape, NAN, device=DEVICE)
        self.tokens, self.positions = ids(*[PAD] * rows), ids(*[0] * rows)
        entered = [row if row < len(sentences) else self.capacity for row in range(rows)]
        self.sentences = ids(*entered)
        self.counts = ids(min(rows, len(sentences)), len(sentences), 0)
        self.order = [sentence for sentence in entered if sentence < self.capacity]

    def step(self, scored):
        """Let every row choose the next token of its sentence; an idle one chooses anything."""
        before, places = self.sentences.tolist(), self.positions.tolist()
        chosen = [
            self.sentences_given[sentence][place] if sentence < self.capacity else 7
            for sentence, place in zip(before, places, strict=True)
        ]
        terms = [-0.25 * (place + 1) for place in places]
        advance(
            ids(*chosen),
            torch.tensor(terms, device=DEVICE) if scored else None,
            self.tokens,
            self.positions,
            self.sentences,
            self.limits,
            self.written,
            self.scores,
            self.counts,
            END,
            PAD,
        )
        after = (self.sentences.tolist(), self.tokens.tolist(), self.positions.tolist())
        rows = zip(before, chosen, *after, strict=True)
        for (left, token, entered, fed, place), was in zip(rows, places, strict=True):
            if entered == left and entered < self.capacity:
                assert (fed, place) == (token, was + 1)
            else:
                assert (fed, place) == (PAD, 0)
                if entered < self.capacity:
                    self.order.append(entered)


sentence_and_limit = st.tuples(
    st.lists(st.integers(2, 9), max_size=5).map(lambda tokens: [*tokens, END, *[5] * 6]),
    st.integers(1, 6),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(sentence_and_limit, min_size=1, max_size=9), st.integers(1, 5), st.booleans())
def test_sentences_enter_in_order_and_leave_when_done(given_, rows, scored):
    sentences, limits = ([item[part] for item in given_] for part in (0, 1))
    table = Table(sentences, limits, rows)
    for _ in range(sum(limits)):
        if int(table.counts[2]) == len(sentences):
            break
        table.step(scored)
    assert table.order == list(range(len(sentences)))
    assert table.counts[1:].tolist() == [len(sentences)] * 2
    assert table.sentences.tolist() == [table.capacity] * rows
    for index, (sentence, limit) in enumerate(zip(sentences, limits, strict=True)):
        length = min(sentence.index(END) + 1, limit)
        rest = table.steps - length
        assert table.written[index].tolist() == sentence[:length] + [-1] * rest
        terms = [-0.25 * (place + 1) for place in range(length if scored else 0)]
        assert table.scores[index, : len(terms)].tolist() == terms
        assert table.scores[index, len(terms) :].isnan().all()
    assert torch.all(table.written[len(sentences) :] == -1), "no row writes for nobody"


def test_when_none_is_left_a_row_stays_idle():
    table = Table([[END], [5, 5, END]], [4, 4], rows=2)
    table.step(scored=True)
    assert table.sentences.tolist() == [table.capacity, 1]
    table.step(scored=True)
    table.step(scored=True)
    assert table.counts.tolist() == [4, 2, 2]
    before = table.written.clone()
    for _ in range(3):  # the host looks only now and then: steps go on after the end
        table.step(scored=True)
    assert torch.equal(table.written, before)
    assert table.counts[2] == 2


def test_more_rows_than_a_power_of_two_all_advance():
    table = Table([[5, END]] * 70, [2] * 70, rows=67)
    table.step(scored=True)
    assert table.positions.tolist() == [1] * 67
    table.step(scored=False)
    assert table.sentences.tolist() == [67, 68, 69, *[table.capacity] * 64]
    assert table.counts.tolist() == [134, 70, 67]


@pytest.mark.parametrize("best", [1, 4, 5, 16])
@pytest.mark.parametrize("vocabulary", [16, 2048, 2050, 5000])
@pytest.mark.parametrize("normed", [True, False])
def test_best_logits(best, vocabulary, normed):
    logits = 4 * draw(3, vocabulary, seed=10)
    values, tokens, norms = best_logits(logits, best, normed)
    wanted = logits.topk(best, dim=-1)
    assert torch.equal(values, wanted.values)
    assert torch.equal(tokens, wanted.indices)
    if normed:
        torch.testing.assert_close(norms, torch.logsumexp(logits, dim=-1))
    else:
        assert norms is None


def test_the_best_logits_may_all_be_in_one_block_or_equal():
    logits = draw(2, 5000, seed=11)
    logits[0, 4990:] += 50
    logits[1] = 1.5
    values, tokens, _ = best_logits(logits, 5, False)
    assert torch.equal(values[0], logits[0].topk(5).values)
    assert set(tokens[0].tolist()) == set(logits[0].topk(5).indices.tolist())
    assert values[1].tolist() == [1.5] * 5
    assert len(set(tokens[1].tolist())) == 5, "a token is given once"


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_tokens_off_a_shortlist_take_no_part():
    """A shortlist leaves most of the vocabulary at -inf, whole blocks of it."""
    logits = torch.full((2, 6000), float("-inf"), device=DEVICE)
    logits[:, [1, 5, 900, 5999]] = draw(2, 4, seed=12)
    values, tokens, norms = best_logits(logits, 3, True)
    wanted = logits.topk(3, dim=-1)
    assert torch.equal(values, wanted.values)
    assert torch.equal(tokens, wanted.indices)
    torch.testing.assert_close(norms, torch.logsumexp(logits, dim=-1))
