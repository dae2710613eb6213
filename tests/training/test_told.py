"""What a batch is told beside its targets."""

import numpy as np
import pytest
import torch

from scones.files import new_folder
from scones.model.transformer import Transformer
from scones.outputs.scones import Scones
from scones.text import END
from scones.text.store import StoreWriter, TokenStore, reverse_store
from scones.text.subwords import Subwords
from scones.training.data import LossModule, Position, make_batch, training_batches
from scones.training.labels import LabelledTokens, labelled
from scones.training.loop import train
from scones.training.options import TrainOptions
from tests.training.tiny_run import OPTIONS, make_experiment, small_model, weights

SOURCES = ["ein Haus", "ein Haus", "ein Haus", "zwei Hunde", "zwei Hunde", "im Jahr 1987"]
TARGETS = ["a house .", "a home", "the house .", "two dogs", "two dogs"]
TARGETS += ["the year 1987 was not the best ."]


@pytest.fixture(scope="module")
def subwords():
    return Subwords.train([*SOURCES, *TARGETS] * 20 + ["1999 2007 12 Anna Berlin Bernd"] * 20, 310)


@pytest.fixture
def store(tmp_path, subwords):
    return make_store(tmp_path / "store", subwords)


def make_store(path, subwords, grouped=True, pairs=(SOURCES, TARGETS)):
    with new_folder(path) as folder, StoreWriter(folder, subwords, "de", "en", grouped) as writer:
        writer.append("train", *map(subwords.encode, pairs))
        writer.finish()
    return TokenStore.open(path)


def options(**changes):
    return TrainOptions(**{**OPTIONS, **changes})


def told(store, pairs, **changes):
    """For each pair, what is told of which token where: its weight, or 0 where it is right."""
    tokens = labelled(store, options(**changes))
    batch = make_batch(tokens, np.array(pairs), by_sentence=False)
    labels = batch.labels
    lengths = [len(store.split("train").targets[pair]) + 1 for pair in pairs]
    starts = np.cumsum([0, *lengths])
    found = [set() for _ in pairs]
    facts = (labels.rows_K, labels.tokens_K, labels.right_K, labels.wrong_K)
    for row, token, right, wrong in zip(*(each.tolist() for each in facts), strict=True):
        assert (right, wrong) in {(1.0, 0.0), (0.0, changes.get("negatives", 0.0))}
        sentence = int(np.searchsorted(starts, row, "right")) - 1
        assert token != batch.targets_N[row]
        fact = (row - int(starts[sentence]), token, wrong)
        assert fact not in found[sentence]
        found[sentence].add(fact)
    return found


def trie(store):
    """All next tokens of every prefix of every source, by walking through all references."""
    pairs = store.split("train")
    found = {}
    for number in range(len(pairs)):
        target = (*pairs.targets[number].tolist(), END)
        nexts = found.setdefault(tuple(pairs.sources[number].tolist()), {})
        for place, token in enumerate(target):
            nexts.setdefault(target[:place], set()).add(token)
    return found


def test_right_tokens_are_those_of_the_trie(store):
    pairs, nexts = store.split("train"), trie(store)
    order = [3, 0, 5, 2, 1]
    for pair, found in zip(order, told(store, order, references="all"), strict=True):
        target = (*pairs.targets[pair].tolist(), END)
        of_source = nexts[tuple(pairs.sources[pair].tolist())]
        wanted = {
            (place, token, 0.0)
            for place in range(len(target))
            for token in of_source[target[:place]] - {target[place]}
        }
        assert found == wanted
        assert bool(wanted) == (pair in (0, 1, 2))


def test_wrong_tokens_stand_where_spoilt_translations_part(store, subwords):
    (found,) = told(store, [5], negatives=7.0)
    text = TARGETS[5].split()
    (whole,) = subwords.encode([TARGETS[5]])
    spoilt = [text[:drop] + text[drop + 1 :] for drop in range(len(text) - 1)]
    spoilt += [text[: copy + 1] + text[copy:] for copy in range(len(text) - 1)]
    spoilt += [text[:end] for end in range(1, len(text) - 1)]
    for words in spoilt:
        (ids,) = subwords.encode([" ".join(words)])
        parting = next(
            i for i, (a, b) in enumerate(zip([*ids, END], whole, strict=False)) if a != b
        )
        assert (parting, [*ids, END][parting], 7.0) in found, words
    year = whole.index(next(i for i in whole if any(map(str.isdigit, subwords.pieces([i])[0]))))
    others = {token for place, token, _ in found if place == year}
    assert any(any(map(str.isdigit, piece)) for piece in subwords.pieces([*others]))


def test_what_is_right_is_never_wrong(store):
    order = list(range(len(SOURCES)))
    right = told(store, order, references="all")
    both = told(store, order, references="all", negatives=3.0)
    for alone, together in zip(right, both, strict=True):
        assert alone == {fact for fact in together if fact[2] == 0}
        places = [fact[:2] for fact in together]
        assert len({*places}) == len(places)


def test_labels_follow_from_the_seed_and_the_pair_alone(store):
    together = told(store, [0, 5, 3], negatives=1.0)
    torch.manual_seed(5)
    assert together == [told(store, [pair], negatives=1.0)[0] for pair in (0, 5, 3)]
    assert together != told(store, [0, 5, 3], negatives=1.0, seed=2)


def test_an_epoch_has_every_source_once_for_each_time_it_was_given(store):
    tokens = labelled(store, options(references="all"))
    drawn = [tokens.references.epoch(1, epoch).tolist() for epoch in range(30)]
    # The same pair stands there twice; the first three are three references of one source.
    assert all(pairs[1:] == [3, 4, 5] for pairs in drawn)
    assert {pairs[0] for pairs in drawn} == {0, 1, 2}
    assert drawn[3] == tokens.references.epoch(1, 3).tolist()
    batches = training_batches(tokens, 1024, 1, False, Position(3))
    found = 0
    for batch, position in batches:
        found += batch.tokens
        if position.epoch == 4:
            break
    assert found == sum(len(store.split("train").targets[pair]) + 1 for pair in drawn[3])


def lacking(store, rounds=40, **changes):
    """For each pair, the sentences behind a batch that lack one of its words."""
    tokens = labelled(store, options(omissions=3.0, **changes))
    pairs = np.arange(len(tokens))
    found = [set() for _ in pairs]
    for draw in range(rounds):
        read, rows, labels = tokens.told(pairs, draw)
        ends = np.cumsum(read.targets.lengths_of(rows) + 1) - 1
        own = labels.counted_K == 0
        assert labels.rows_K[own].tolist() == ends[len(pairs) :].tolist()
        assert set(labels.tokens_K[own].tolist()) <= {END}
        assert set(labels.wrong_K[own].tolist()) <= {3.0}
        sources = [tokens.sources[pair].tolist() for pair in pairs]
        for row in rows[len(pairs) :]:
            pair = sources.index(read.sources[row].tolist())
            found[pair].add(store.subwords.decode([read.targets[row].tolist()])[0])
    return found


def test_omissions_lack_a_word_and_no_other_reference_says_them(store, tmp_path, subwords):
    found = lacking(store)
    assert found[3] == {"two", "dogs"}
    assert "the year 1987 was the best ." in found[5]
    assert found[0] == {"a .", "house .", "a", "home", "the ."}  # of all three with this source
    known = make_store(
        tmp_path / "known", subwords, pairs=(["Hunde"] * 3, ["dogs", "two dogs", "two"])
    )
    assert lacking(known) == [set(), set(), set()]


@pytest.mark.parametrize("by_sentence", [False, True])
def test_omissions_add_the_loss_of_their_ends_alone(store, by_sentence):
    torch.manual_seed(0)
    model = Transformer(small_model(dropout=0.0).build(len(store.subwords)))
    module = LossModule(model, Scones(), torch.float32)
    pairs = np.tile(np.arange(6), 4)
    plain = make_batch(store.split("train"), pairs, by_sentence)
    batch = make_batch(labelled(store, options(omissions=3.0)), pairs, by_sentence)
    assert len(batch.labels.rows_K) > 1
    assert batch.tokens == plain.tokens
    assert batch.total == plain.total
    assert torch.equal(batch.targets_N, plain.targets_N)
    logits = model.logits(batch.hidden(model))
    ends = logits[batch.labels.rows_K, END]
    weights = 1.0 if batch.weights_N is None else batch.weights_N[batch.labels.rows_K]
    expected = module(plain) + (3.0 * torch.nn.functional.softplus(ends) * weights).sum()
    torch.testing.assert_close(module(batch), expected)


def test_nothing_asked_for_is_no_label(store):
    tokens = labelled(store, options())
    assert not isinstance(tokens, LabelledTokens)
    assert make_batch(tokens, np.array([0]), by_sentence=False).labels is None


def test_groups_are_those_of_the_source_in_both_directions(store, tmp_path):
    assert pattern(store) == [0, 0, 0, 1, 1, 2]
    reverse_store(store.path, tmp_path / "reversed")
    assert pattern(TokenStore.open(tmp_path / "reversed")) == [0, 1, 2, 3, 3, 4]


def pattern(store):
    groups = store.split("train").groups
    seen = {}
    return [seen.setdefault(group, len(seen)) for group in groups.tolist()]


def test_training_with_labels_goes_on_bit_for_bit(store, tmp_path):
    asked = {"references": "all", "negatives": 5.0, "omissions": 2.0, "checkpoint_every": 2}
    train(make_experiment(asked), store.path, tmp_path / "whole", quiet=True)
    for steps in (2, 4):
        part = make_experiment(asked | {"max_steps": steps})
        train(part, store.path, tmp_path / "parts", quiet=True)
    whole, parts = (weights(tmp_path / name / "last") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
