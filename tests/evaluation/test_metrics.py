import sys
from types import ModuleType, SimpleNamespace

import pytest
import sacrebleu

from scones.errors import SconesError
from scones.evaluation import metrics
from scones.evaluation.metrics import score
from scones.evaluation.significance import paired_bootstrap

PEERS = {"bleu": sacrebleu.BLEU, "chrf": sacrebleu.CHRF, "ter": sacrebleu.TER}


@pytest.mark.parametrize("metric", PEERS)
@pytest.mark.parametrize("sets", [1, 2, 3])
def test_value_name_and_signature_are_sacrebleus(metric, sets, references, spoil):
    outputs = spoil(0.3, 1)
    fewer = [text if number % 2 else None for number, text in enumerate(spoil(0.2, 5))]
    reference_sets = [references, spoil(0.1, 2), fewer][:sets]
    peer = PEERS[metric]()
    expected = peer.corpus_score(outputs, reference_sets)

    scored = metrics.score(metric, outputs, reference_sets)

    assert scored.value == expected.score
    assert scored.name == expected.name == metrics.METRIC_NAMES[metric]
    assert scored.signature == str(peer.get_signature())


def test_length_ratio_takes_the_closest_reference():
    short, long = ["one two three ."], ["one two three four five six seven ."]
    assert metrics.bleu(["one two three four ."], [short]).length_ratio == 5 / 4
    assert metrics.bleu(["one two three four ."], [short, long]).length_ratio == 5 / 4
    assert metrics.bleu(["one two three four five six ."], [short, long]).length_ratio == 7 / 8
    assert metrics.bleu(["one two"], [short]).length_ratio == 2 / 4
    assert metrics.score("chrf", ["one two"], [short]).length_ratio is None


def test_tokenizer_counts_and_empty_hypotheses():
    scored = metrics.bleu(["ab"], [["abcd"]], tokenize="char")
    assert scored.length_ratio == 2 / 4
    assert "tok:char" in scored.signature
    assert metrics.bleu(["", "a b c d"], [["a b", "a b c d"]]).length_ratio == 4 / 6
    assert metrics.score("ter", ["", ""], [["a b", "c"]]).value == 100


@pytest.mark.parametrize(
    ("hypotheses", "references", "sentence"),
    [
        ([], [[]], "no hypotheses were given"),
        (["a"], [], "at least one reference set"),
        (["a", "b"], [["a", "b"], ["a"]], "Reference set 2 has 1 texts for 2 hypotheses"),
        (["a"], ["a"], "list of reference sets"),
        (["a", "b"], [["a", None], ["a", None]], "Sentence 2 has no reference"),
    ],
)
@pytest.mark.parametrize("metric", PEERS)
def test_texts_that_do_not_fit_are_refused(metric, hypotheses, references, sentence):
    with pytest.raises(SconesError, match=sentence):
        metrics.score(metric, hypotheses, references)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(SconesError, match=r"'blue'.*bleu, chrf, ter"):
        metrics.score("blue", ["a"], [["a"]])
    with pytest.raises(SconesError, match=r"'flores200'.*13a, intl, zh, char or none"):
        metrics.bleu(["a"], [["a"]], tokenize="flores200")


# BLEURT and COMET, with small stand-ins for their packages.


@pytest.fixture
def bleurt(monkeypatch, tmp_path):
    """A BLEURT that gives the share of the reference's words that the candidate has."""

    class BleurtScorer:
        def __init__(self, checkpoint=None):
            assert isinstance(checkpoint, str)

        def score(self, *, references, candidates, batch_size=None):
            pairs = zip(references, candidates, strict=True)
            return [len({*r.split()} & {*c.split()}) / len({*r.split()}) for r, c in pairs]

    module = ModuleType("bleurt.score")
    module.BleurtScorer = BleurtScorer
    monkeypatch.setitem(sys.modules, "bleurt", ModuleType("bleurt"))
    monkeypatch.setitem(sys.modules, "bleurt.score", module)
    folder = tmp_path / "BLEURT-toy"
    folder.mkdir()
    (folder / "bleurt_config.json").write_text("{}")
    return folder


@pytest.fixture
def comet(monkeypatch, tmp_path):
    """A COMET that gives 1 where hypothesis and reference agree, plus a tenth for a source."""

    def predict(samples, batch_size=16, gpus=1, progress_bar=True):
        scores = [(s["mt"] == s["ref"]) + 0.1 * bool(s["src"]) for s in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))

    def load_from_checkpoint(checkpoint_path, local_files_only=False):
        assert local_files_only, "COMET would download"
        assert checkpoint_path.startswith("/")
        return SimpleNamespace(predict=predict)

    module = ModuleType("comet")
    module.load_from_checkpoint = load_from_checkpoint
    monkeypatch.setitem(sys.modules, "comet", module)
    file = tmp_path / "comet-toy" / "checkpoints" / "model.ckpt"
    file.parent.mkdir(parents=True)
    file.touch()
    (tmp_path / "comet-toy" / "hparams.yaml").touch()
    return file


def test_comet_reads_source_hypothesis_and_reference(comet, monkeypatch):
    monkeypatch.chdir(comet.parent)  # a relative path will do
    scored = score("comet", ["a", "b"], [["a", "x"]], sources=["s", ""], checkpoint=comet.name)
    assert scored.name == "COMET"
    assert scored.value == pytest.approx((1.1 + 0) / 2)
    assert scored.signature == "nrefs:1|checkpoint:comet-toy|version:unknown"


def test_bleurt_is_the_mean_over_sentences_and_bootstrapped(bleurt, references, spoil):
    scored = score("bleurt", ["a b", "c"], [["a b", "c d"]], checkpoint=bleurt)
    assert (scored.name, scored.value) == ("BLEURT", 0.75)
    systems = {"good": spoil(0.1, 1), "bad": spoil(0.6, 2)}
    good, bad = paired_bootstrap("bleurt", systems, [references], checkpoint=bleurt)
    alone = score("bleurt", systems["good"], [references], checkpoint=bleurt)
    assert good.score == pytest.approx(alone.value)
    assert good.low < good.score < good.high
    assert bad.mark == "‡"
    assert bad.signature == "nrefs:1|bs:1000|seed:12345|checkpoint:BLEURT-toy|version:unknown"


@pytest.mark.parametrize(
    ("metric", "package"), [("bleurt", "google-research/bleurt"), ("comet", "unbabel-comet")]
)
def test_a_missing_package_is_named(metric, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, metric, None)
    with pytest.raises(SconesError, match=f"'{metric}.*' is not installed.*{package}"):
        score(metric, ["a"], [["a"]], sources=["s"], checkpoint=tmp_path)


@pytest.mark.parametrize("metric", ["bleurt", "comet"])
def test_missing_weights_are_named(metric, request, tmp_path):
    request.getfixturevalue(metric)
    with pytest.raises(SconesError, match=f"never downloaded.*--{metric}-checkpoint"):
        score(metric, ["a"], [["a"]], sources=["s"])
    with pytest.raises(SconesError, match=r"nowhere.*does not exist"):
        score(metric, ["a"], [["a"]], sources=["s"], checkpoint=tmp_path / "nowhere")


def test_an_incomplete_comet_is_refused(comet, monkeypatch):
    def load_from_checkpoint(checkpoint_path, local_files_only=False):
        raise OSError("no tokenizer for the encoder")

    monkeypatch.setattr(sys.modules["comet"], "load_from_checkpoint", load_from_checkpoint)
    with pytest.raises(SconesError, match="no tokenizer for the encoder"):
        score("comet", ["a"], [["a"]], sources=["s"], checkpoint=comet)
    (comet.parent.parent / "hparams.yaml").unlink()
    with pytest.raises(SconesError, match=r"not complete.*hparams\.yaml does not exist"):
        score("comet", ["a"], [["a"]], sources=["s"], checkpoint=comet)


@pytest.mark.parametrize(
    ("metric", "references", "sources", "sentence"),
    [
        ("comet", [["a", "b"], ["b", "a"]], ["s", "t"], "2 reference sets"),
        ("comet", [["a", "b"]], None, "--source"),
        ("comet", [["a", "b"]], ["s"], "1 source sentences for 2 hypotheses"),
        ("bleurt", [["a", None], [None, "b"]], None, "one reference, but 2"),
    ],
)
def test_texts_that_do_not_fit_a_model_are_refused(metric, references, sources, sentence, request):
    checkpoint = request.getfixturevalue(metric)
    with pytest.raises(SconesError, match=sentence):
        score(metric, ["a", "b"], references, sources=sources, checkpoint=checkpoint)
