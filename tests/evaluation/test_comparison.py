"""The paper's comparison: validity and acceptance where all translations are known."""

import json

import pytest

from scones.analysis.compare import Judged, compare, read_judged
from scones.errors import SconesError
from scones.translator import load


@pytest.fixture(scope="module")
def texts(tea_pairs):
    return [source for source, _ in tea_pairs[:8]], [target for _, target in tea_pairs[:8]]


@pytest.fixture(scope="module")
def greedy(tiny_models, texts):
    """What each model says, greedily."""
    return {
        name: [best.text for (best,) in load(tiny_models / name, "cpu").translate(texts[0])]
        for name in ("scones", "softmax")
    }


def test_valid_outputs_are_counted(tiny_models, texts, greedy):
    sources, references = texts
    # For the first two sentences what the SCONES model says is right, for the next two nothing.
    judged = [
        Judged(source, ("right", *([greedy["scones"][index]] if index < 2 else [])), ("wrong",))
        for index, source in enumerate(sources[:4])
    ]
    models = {"softmax": tiny_models / "softmax", "scones": tiny_models / "scones"}
    said = []
    result = compare(models, sources, [references], judged, device="cpu", say=said.append)
    assert result.systems["scones"].valid["greedy"] == 0.5
    assert result.systems["scones"].hypotheses["greedy"] == greedy["scones"]
    assert result.systems["softmax"].valid["greedy"] == 0.0
    assert result.systems["scones"].acceptance is None  # no development set, no threshold
    assert said == ["softmax: greedy", "softmax: beam 4", "scones: greedy", "scones: beam 4"]


def test_the_threshold_comes_from_the_development_set(tiny_model, texts):
    sources, references = texts
    score = load(tiny_model, "cpu").score
    # Each set has a valid and an invalid text for each source; which is which is made up.
    candidates = [(source, "tea", "Scones with jam") for source in sources]
    dev = [Judged(source, (good,), (bad,)) for source, good, bad in candidates[4:]]
    test = [Judged(source, (good,), (bad,)) for source, good, bad in candidates]
    result = compare({"m": tiny_model}, sources, [references], test, dev, device="cpu")
    found = result.systems["m"].acceptance
    valid = score([(source, good) for source, good, _ in candidates])
    invalid = score([(source, bad) for source, _, bad in candidates])
    assert any(found.threshold == pytest.approx(value) for value in valid[4:])
    slack = 1e-5
    assert found.found == sum(value >= found.threshold - slack for value in valid) / 8
    assert found.believed == sum(value >= found.threshold - slack for value in invalid) / 8
    wins = sum(good > bad for good in valid for bad in invalid)
    assert found.area == pytest.approx(wins / 64)


def test_a_sentence_without_references_is_no_crash(tiny_model, texts):
    sources, references = texts
    judged = [Judged(sources[0], (), ("no",)), Judged(sources[1], ("yes",), ())]
    result = compare({"m": tiny_model}, sources, [references], judged, judged, device="cpu")
    assert result.systems["m"].acceptance is not None


def test_a_judged_set_is_read(tmp_path):
    entries = [{"source": "Tee", "references": ["tea", "a tea"], "near_misses": ["coffee"]}]
    (tmp_path / "judged.json").write_text(json.dumps(entries))
    assert read_judged(tmp_path / "judged.json") == [Judged("Tee", ("tea", "a tea"), ("coffee",))]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"source": "Tee"}', r"is not a judged set: .*near_misses"),
        ('[{"source": "Tee", "references": ["tea"]}]', r"is not a judged set: .*near_misses"),
        ("[null]", r"is not a judged set: .*near_misses"),
        ("[{", "is damaged"),
        (None, "does not exist"),
    ],
)
def test_another_file_is_no_judged_set(tmp_path, content, said):
    if content is not None:
        (tmp_path / "judged.json").write_text(content)
    with pytest.raises(SconesError, match=rf"judged\.json {said}"):
        read_judged(tmp_path / "judged.json")
