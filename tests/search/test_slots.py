"""Search in slots gives what the plain searches give, whoever waits for whom."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_device import DEVICE, make_usable

from scones.model.config import ModelConfig
from scones.model.gpu import Inference
from scones.model.transformer import Transformer
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search import engine as corpus
from scones.search import gpu as slots_module
from scones.search.beam import beam_search
from scones.search.engine import padded
from scones.search.gpu import BeamSlots, GreedySlots, Room, SlotSearcher, loads, room_for
from scones.search.greedy import greedy_search
from scones.search.searcher import SearchOptions, length_limit
from scones.text import END, PAD

SOURCES = [[5, 6, 7], [8, 9, 10, 11, 12], [4], [], [13, 3, 3, 7], [22, 20], [17, 18, 19]]
LIMITS = [6, 3, 7, 1, 5, 7, 6]
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in divide")
"""An idle slot has no source to attend to; what comes of that is thrown away."""
each_layer = pytest.mark.parametrize("output", [Scones(), Softmax()], ids=lambda one: one.name)


@pytest.fixture(scope="module")
def model():
    """One that ends some translations soon, some late and some never."""
    config = ModelConfig(30, 1, 1, 16, 1, 16, 0.0, 0.0, tied_embeddings=False, max_length=32)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Transformer(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.5 * torch.randn_like(parameter))
            model.output_bias[PAD] = -30
            model.output_bias[END] += 6
    return model.to(DEVICE)


def check_same(found, wanted):
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.finished == other.finished
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)


def plainly_greedy(model, output, sources, limits):
    limits_B = torch.tensor(limits, device=DEVICE)
    return [[one] for one in greedy_search(model, output, padded(sources, DEVICE), limits_B)]


@each_layer
def test_greedy_search(model, output):
    room = Room(slots=3, beams=1, sentences=8, source_tokens=64, steps=8)
    slots = GreedySlots(Inference(model, torch.float32), output, room)
    wanted = plainly_greedy(model, output, SOURCES, LIMITS)
    lengths = {len(one.tokens) for (one,) in wanted}
    assert len(lengths) > 3
    assert {one.finished for (one,) in wanted} == {True, False}
    check_same(slots.search(SOURCES, LIMITS), wanted)
    # The room serves again: less, and nothing is left over from before.
    check_same(slots.search(SOURCES[4:6], LIMITS[4:6]), wanted[4:6])


def test_greedy_search_without_scores(model):
    room = Room(slots=8, beams=1, sentences=8, source_tokens=64, steps=8)  # more than sentences
    slots = GreedySlots(Inference(model, torch.float32), Scones(), room, scores=False)
    found = slots.search(SOURCES[:3], LIMITS[:3])
    wanted = plainly_greedy(model, Scones(), SOURCES[:3], LIMITS[:3])
    for (ours,), (theirs,) in zip(found, wanted, strict=True):
        assert (ours.tokens, ours.finished) == (theirs.tokens, theirs.finished)
        assert ours.log_prob is None
        assert ours.token_log_probs is None


@pytest.mark.parametrize(
    ("output", "beams", "n_best", "penalty"),
    [(Scones(), 3, 2, 0.0), (Softmax(), 2, 2, 1.0), (Scones(), 1, 1, 0.0)],
    ids=["two best of three", "length penalty", "a beam of one"],
)
def test_beam_search(model, output, beams, n_best, penalty):
    sources, limits = SOURCES[:5], LIMITS[:5]
    room = Room(slots=2, beams=beams, sentences=8, source_tokens=64, steps=8)
    slots = BeamSlots(Inference(model, torch.float32), output, room, n_best, penalty)
    limits_B = torch.tensor(limits, device=DEVICE)
    batch = padded(sources, DEVICE)
    wanted = beam_search(model, output, batch, limits_B, beams, n_best, penalty)
    check_same(slots.search(sources, limits), wanted)
    assert len({len(one.tokens) for found in wanted for one in found}) > 2
    assert {one.finished for found in wanted for one in found} == {True, False}
    if beams == 2:  # Again, with nothing left over from before.
        some = [2, 0]
        found = slots.search([sources[one] for one in some], [limits[one] for one in some])
        check_same(found, [wanted[one] for one in some])


# Any number of sentences.


@pytest.mark.parametrize("options", [SearchOptions(), SearchOptions("beam", 2, n_best=2)])
def test_a_searcher_divides_loads_and_answers_in_order(model, options, monkeypatch):
    monkeypatch.setattr(slots_module, "_MOST_SOURCE_TOKENS", 7)
    monkeypatch.setattr(slots_module, "ENCODED_TOGETHER", 5)
    monkeypatch.setattr(slots_module, "length_limit", lambda length, longest: 3 + length % 3)
    sources = [SOURCES[index] for index in (2, 0, 5, 3)]
    searcher = SlotSearcher(Inference(model, torch.float32), Scones())
    found = searcher.search(sources, options)
    limits = torch.tensor([3 + (len(source) + 1) % 3 for source in sources], device=DEVICE)
    if options.search == "beam":
        wanted = beam_search(model, Scones(), padded(sources, DEVICE), limits, 2, 2)
    else:
        wanted = plainly_greedy(model, Scones(), sources, limits.tolist())
    check_same(found, wanted)
    assert len(searcher._rooms) == 1, "loads of like sizes share a room"


def test_little_memory_makes_small_loads_and_is_given_back(model, monkeypatch):
    rooms = []
    choose = slots_module.room_for

    def chosen(*sizes):
        rooms.append(choose(*sizes))
        return rooms[-1]

    monkeypatch.setattr(slots_module, "room_for", chosen)
    searcher = SlotSearcher(Inference(model, torch.float32), Scones())
    sources = [SOURCES[index] for index in (2, 0, 5, 3)]
    plainly = searcher.search(sources, SearchOptions())
    assert [len(rooms), len(searcher._rooms)] == [1, 1]
    token = 2 * model.config.size * model.config.decoder_layers * 4
    sparing = searcher.search(sources, SearchOptions(max_memory=3 * 8 * token))
    check_same(sparing, plainly)
    assert len(rooms) > 2
    assert all(room.slots == 1 for room in rooms[1:])
    assert not searcher._rooms


def test_a_corpus_is_searched_in_slots_where_there_are_kernels(model, monkeypatch):
    make_usable(monkeypatch)
    monkeypatch.delattr(corpus, "greedy_stream")
    sources = [SOURCES[index] for index in (1, 4, 5)]
    found = corpus.search_corpus(model, Scones(), sources, SearchOptions(max_tokens=12))
    monkeypatch.undo()
    limits = [length_limit(len(source) + 1, model.config.max_length) for source in sources]
    check_same(found, plainly_greedy(model, Scones(), sources, limits))


def test_no_sentences_are_no_work(model):
    assert SlotSearcher(Inference(model, torch.float32), Scones()).search([], SearchOptions()) == []


def test_rooms_are_kept_and_the_oldest_goes(model):
    searcher = SlotSearcher(Inference(model, torch.float32), Scones())
    rooms = [Room(slots, 1, 16, 64, 8) for slots in range(1, 7)]
    first = searcher._slots(rooms[0], SearchOptions())
    assert searcher._slots(rooms[0], SearchOptions()) is first
    assert searcher._slots(rooms[0], SearchOptions(scores=False)) is not first
    for room in rooms[1:]:
        searcher._slots(rooms[0], SearchOptions())  # in use all the time
        searcher._slots(room, SearchOptions())
    assert searcher._slots(rooms[0], SearchOptions()) is first
    assert len(searcher._rooms) <= searcher._MOST_ROOMS


lengths_of_sentences = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(lengths_of_sentences, st.integers(1, 5), st.integers(1, 150), st.integers(1, 900))
def test_every_sentence_is_in_one_load_within_the_limits(lengths, beams, most_tokens, most_history):
    limits = [length_limit(length, 100) for length in lengths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots_module, "_MOST_HISTORY", most_history)
        found = list(loads(lengths, limits, beams, most_tokens))
    assert sorted(index for load in found for index in load) == list(range(len(lengths)))
    in_order = [lengths[index] for load in found for index in load]
    assert in_order == sorted(lengths, reverse=True)
    for load in found:
        assert load
        if len(load) > 1:
            assert sum(lengths[index] for index in load) <= most_tokens
            longest = max(limits[index] for index in load)
            assert len(load) * beams * longest <= most_history


def small_inference():
    """What `room_for` looks at."""
    config = ModelConfig(30, 1, 2, 64, 2, 64, 0.0, 0.0, max_length=1024)
    return SimpleNamespace(config=config, precision=torch.bfloat16)


@given(lengths_of_sentences, st.integers(1, 9), st.integers(1, 50), st.integers(0, 10**7))
def test_a_load_fits_into_its_room(lengths, beams, most, memory):
    limits = [length_limit(length, 1024) for length in lengths]
    model = small_inference()
    room = room_for(model, lengths, limits, beams, most, memory)
    assert room.beams == beams
    assert room.sentences >= len(lengths)
    assert room.source_tokens >= sum(lengths)
    assert room.steps >= max(limits)
    assert 1 <= room.slots <= most
    assert room.slots * beams <= max(slots_module._MOST_ROWS, beams)
    cache = room.slots * beams * room.steps * 2 * model.config.size * 2 * 2  # layers, bytes
    assert room.slots == 1 or cache <= memory
    for size in (room.sentences, room.source_tokens, room.steps):
        assert size & (size - 1) == 0, "rooms come in few sizes, so that they are used again"
