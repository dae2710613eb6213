import pytest
import sacrebleu

from scones.errors import SconesError
from scones.evaluation import metrics

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
