import json
import multiprocessing
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scones.errors import SconesError
from scones.text import prepare as module
from scones.text.cleaning import CleaningConfig
from scones.text.prepare import DuplicateFinder, PrepareConfig, prepare
from scones.text.store import TokenStore

ANY_LANGUAGE = CleaningConfig(identify_language=False)
WORDS = {
    "der": "the", "Tee": "tea", "ist": "is", "heiß": "hot", "kalt": "cold", "und": "and",
    "süß": "sweet", "Rahm": "cream", "gut": "good", "heute": "today", "sehr": "very",
}  # fmt: skip


def _sentences(count, seed):
    choose = random.Random(seed)
    found = {}
    while len(found) < count:
        words = choose.choices(list(WORDS), k=choose.randint(4, 9))
        found[" ".join(words)] = " ".join(WORDS[word] for word in words)
    return list(found.items())


def _write(folder, name, pairs):
    paths = folder / f"{name}.de", folder / f"{name}.en"
    for path, texts in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{text}\n" for text in texts))
    return paths


@pytest.fixture
def config(tmp_path):
    source, target = _write(tmp_path, "train", _sentences(300, seed=1))
    return PrepareConfig(
        "de",
        "en",
        source=[source],
        target=[target],
        pieces=300,
        workers=1,
        cleaning=ANY_LANGUAGE,
    )


def _texts(store):
    train = store.split("train")
    sources = store.subwords.decode([train.sources[i] for i in range(len(train))])
    targets = store.subwords.decode([train.targets[i] for i in range(len(train))])
    return list(zip(sources, targets, strict=True))


def _nothing_left(folder):
    return not [path for path in folder.iterdir() if "store" in path.name]


def test_the_store_holds_the_text(config, tmp_path):
    calls = []
    report = prepare(config, tmp_path / "store", lambda *call: calls.append(call))
    assert {("clean", 300), ("encode", 300)} <= {*calls}
    store = TokenStore.open(tmp_path / "store")
    store.verify()
    assert _texts(store) == _sentences(300, seed=1)
    assert len(store.subwords) == 300
    assert store.split("train").groups is None  # nobody asked for them
    assert (report.pairs_read, report.pairs_kept) == (300, 300)
    assert report.digest == store.digest
    assert report.source_tokens == store.split("train").sources.lengths.sum()
    assert store.report == json.loads(json.dumps(report.to_json()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "train.de", "train.en"]
    assert not (tmp_path / "store" / "scratch").exists()


def test_every_reason_is_counted_with_an_example(config, tmp_path):
    good = _sentences(40, seed=2)
    bad = [("", "the tea"), ("Tee", "Tee"), ("Tee " * 300, "tea " * 300), good[0], good[0]]
    source, target = _write(tmp_path, "mixed", good + bad)
    report = prepare(replace(config, source=[source], target=[target]), tmp_path / "store")
    expected = {"empty": 1, "copy": 1, "long": 1, "duplicate": 2}
    assert dict(report.dropped) == expected
    assert (report.pairs_read, report.pairs_kept) == (45, 40)
    assert _texts(TokenStore.open(tmp_path / "store")) == good
    (corpus,) = report.to_json()["corpora"]
    assert [example["line"] for example in corpus["examples"]["duplicate"]] == [44, 45]
    assert corpus["examples"]["copy"][0]["source"] == "Tee"
    assert report.to_json()["dropped"]["duplicate"] == {"pairs": 2, "share": 2 / 45}
    keep = replace(ANY_LANGUAGE, drop_duplicates=False)
    config = replace(config, source=[source], target=[target], cleaning=keep)
    assert prepare(config, tmp_path / "other").pairs_kept == 42


def test_a_trusted_corpus_may_have_equal_texts(config, tmp_path):
    names = [("Berlin", "Berlin"), ("Wien", "Vienna"), ("Aachen", "Aachen")]
    source, target = _write(tmp_path, "places", names)
    config = replace(config, source=[*config.source, source], target=[*config.target, target])
    assert prepare(config, tmp_path / "without").dropped["copy"] == 2
    report = prepare(replace(config, trusted=[source]), tmp_path / "with")
    assert not report.dropped
    assert _texts(TokenStore.open(tmp_path / "with"))[-3:] == names


def test_corpora_are_pooled_and_a_small_one_can_count_more_than_once(config, tmp_path):
    again, new = _sentences(300, seed=1)[7], ("Rahm und Tee", "cream and tea")
    (tmp_path / "more.tsv").write_text("".join("\t".join(pair) + "\n" for pair in (again, new)))
    config = replace(config, tsv=[tmp_path / "more.tsv"], times=[1, 3])
    report = prepare(config, tmp_path / "store")
    store = TokenStore.open(tmp_path / "store")
    assert _texts(store) == [*_sentences(300, seed=1), new, new, new]
    assert report.source_tokens == store.split("train").sources.lengths.sum()
    first, second = report.to_json()["corpora"]
    assert (first["times"], first["pairs_kept"]) == (1, 300)
    assert (second["times"], second["pairs_kept"]) == (3, 1)
    assert second["examples"]["duplicate"][0]["line"] == 1  # duplicates are found across corpora


def test_several_workers_make_the_same_store(config, tmp_path, monkeypatch):
    before = set(multiprocessing.active_children())
    alone = prepare(config, tmp_path / "store-1")
    monkeypatch.setattr(module, "CHUNK_PAIRS", 13)
    together = prepare(replace(config, workers=2), tmp_path / "store-2")
    assert together.digest == alone.digest
    assert set(multiprocessing.active_children()) <= before


def test_development_sentences_are_kept_and_not_trained_on(config, tmp_path):
    train = _sentences(300, seed=1)
    dev = [(train[5][0], "something else"), ("etwas anderes", train[9][1]), ("", "")]
    dev_source, dev_target = _write(tmp_path, "dev", dev)
    (tmp_path / "test.en").write_text(f"  {train[20][1]}\n")
    config = replace(
        config, dev_source=dev_source, dev_target=dev_target, held_out=[tmp_path / "test.en"]
    )
    report = prepare(config, tmp_path / "store")
    store = TokenStore.open(tmp_path / "store")
    assert store.dev_texts == tuple(map(list, zip(*dev, strict=True)))
    assert len(store.split("dev")) == report.dev_pairs == 3
    held_out = {train[5][0], train[9][1], train[20][1]}
    kept = [pair for pair in train if not held_out & set(pair)]
    assert _texts(store) == kept
    assert report.dropped["held out"] == 300 - len(kept) >= 3


def test_language_identification_drops_the_wrong_language(tmp_path):
    german = "Wir trinken am Nachmittag gerne eine Tasse Tee mit unseren Freunden."
    english = "In the afternoon we like to drink a cup of tea with our friends."
    source, target = _write(tmp_path, "train", [(german, english), (english + "!", german)])
    config = PrepareConfig("de", "en", source=[source], target=[target], pieces=290, workers=1)
    report = prepare(config, tmp_path / "store")
    assert dict(report.dropped) == {"language (source)": 1}
    with pytest.raises(SconesError, match="'xx' is not a language"):
        prepare(replace(config, source_language="xx"), tmp_path / "other")
    replace(config, source_language="xx", cleaning=ANY_LANGUAGE).validate()


def test_pairs_of_too_many_pieces_are_dropped(config, tmp_path):
    report = prepare(replace(config, max_pieces=12), tmp_path / "store")
    train = TokenStore.open(tmp_path / "store").split("train")
    assert max(train.sources.lengths.max(), train.targets.lengths.max()) == 12
    assert report.dropped["long (pieces)"] == 300 - len(train) > 0
    with pytest.raises(SconesError, match="raise --max-pieces"):
        prepare(replace(config, max_pieces=1), tmp_path / "none")


def test_a_given_subword_model_is_taken(config, tmp_path):
    prepare(config, tmp_path / "store")
    first = TokenStore.open(tmp_path / "store")
    config = replace(config, subwords=tmp_path / "store" / "subwords.model", pieces=32_000)
    report = prepare(config, tmp_path / "again")
    assert report.digest == first.digest
    assert "learn subwords" not in [stage.name for stage in report.stages]


def test_a_sample_of_the_text_is_enough(config, tmp_path, tiny_subwords, monkeypatch):
    seen = []

    def learn(sample, pieces):
        seen.append(sample.read_text().splitlines())
        return tiny_subwords

    monkeypatch.setattr(module, "_learn_subwords", learn)
    sentences = _sentences(20_000, seed=4)
    source, target = _write(tmp_path, "large", sentences)
    config = replace(config, source=[source], target=[target], sample_megabytes=1)
    prepare(config, tmp_path / "store")
    size = sum(len(line.encode()) + 1 for line in seen[0])
    assert 0.95e6 < size < 1.05e6
    assert seen[0][-2] in dict(sentences[-100:])  # spread to the end of the corpus


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_leaves_nothing_behind(config, tmp_path, workers, monkeypatch):
    before = set(multiprocessing.active_children())

    def interrupt(stage, pairs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "CHUNK_PAIRS", 30)
    with pytest.raises(KeyboardInterrupt):
        prepare(replace(config, workers=workers), tmp_path / "store", interrupt)
    assert _nothing_left(tmp_path)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("name", ["tsv", "subwords", "dev_source", "held_out"])
def test_a_missing_file_is_found_before_any_work(config, tmp_path, name):
    missing = tmp_path / "missing"
    changed = replace(config, dev_source=config.source[0], dev_target=config.target[0])
    value = [missing] if name in ("tsv", "held_out") else missing
    changed = replace(changed, **{name: value})
    with pytest.raises(SconesError, match="missing does not exist"):
        prepare(changed, tmp_path / "store", lambda *_: pytest.fail("work was done"))
    assert _nothing_left(tmp_path)


def test_all_wrong_options_are_named_at_once(tmp_path):
    config = PrepareConfig(
        "de",
        "en",
        source=[tmp_path],
        times=[1, 0],
        trusted=[tmp_path / "elsewhere"],
        dev_source=tmp_path,
        pieces=0,
    )
    with pytest.raises(SconesError) as caught:
        prepare(config, tmp_path / "store")
    for part in (
        "pieces must be at least 1, not 0",
        "1 source and 0 target",
        "times has 2 numbers for 1 corpora",
        "times must be at least 1, not 0",
        "elsewhere, which is none of the source or TSV files",
        "dev_",
    ):
        assert part in str(caught.value)
    with pytest.raises(SconesError, match="there is no text"):
        PrepareConfig("de", "en").validate()
    cleaning = CleaningConfig(min_words=3, max_words=2)
    with pytest.raises(SconesError, match="max_words must be at least min_words, 3, not 2"):
        PrepareConfig("de", "en", tsv=[tmp_path], cleaning=cleaning).validate()


def _digest(low, high):
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


@settings(max_examples=30)
@given(
    # Few values, so that many repeat; some differ in one half of the digest only.
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=60),
    st.integers(1, 7),
    st.integers(1, 20),
)
def test_all_but_the_first_are_marked(values, chunk, buffered):
    digests = [_digest(low, high) for low, high in values]
    with TemporaryDirectory() as folder:
        finder = DuplicateFinder(Path(folder) / "duplicates", buffered)
        for start in range(0, len(digests), chunk):
            finder.add(b"".join(digests[start : start + chunk]))
        marks = finder.mark().tolist()
        assert not list(Path(folder).rglob("bucket.*"))
    assert marks == [digest in digests[:i] for i, digest in enumerate(digests)]


def test_every_byte_of_a_digest_counts(tmp_path):
    base = bytes(16)
    different = [base[:i] + b"\1" + base[i + 1 :] for i in range(16)]
    finder = DuplicateFinder(tmp_path)
    finder.add(b"".join([base, *different, base, different[7]]))
    assert finder.mark().tolist() == [False] * 17 + [True, True]


def test_several_targets_of_a_source_are_pairs_of_one_group(config, tmp_path):
    lines = [[source, target, f"well {target}"] for source, target in _sentences(5, seed=2)]
    lines.append(["der Tee", "the tea"])
    text = "".join("\t".join(line) + "\n" for line in lines)
    several = tmp_path / "several.tsv"
    several.write_text(text)
    prepare(replace(config, several=[several], times=[1, 2]), tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", verify=True)
    groups = store.split("train").groups
    by_group = {}
    for group, pair in zip(groups.tolist(), _texts(store), strict=True):
        by_group.setdefault(group, []).append(pair)
    # A group is a source, and every source is one group.
    sources = [{source for source, _ in pairs} for pairs in by_group.values()]
    assert all(len(texts) == 1 for texts in sources)
    assert len(set.union(*sources)) == len(by_group)
    for source, *targets in lines:
        (pairs,) = (pairs for pairs in by_group.values() if pairs[0][0] == source)
        assert {target for _, target in pairs} >= {*targets}
