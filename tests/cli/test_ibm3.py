"""`scones ibm3`: fit and import, sample and measure."""

import json
import re

import numpy as np
import pytest
from running import contents
from synthetic_toys import save_ibm3

from scones.ibm3.parameters import Distortions, Parameters, Translations
from scones.text.store import StoreWriter, TokenStore
from scones.text.subwords import Subwords
from tests.ibm3.ibm3_toys import GIZA

pytest.importorskip("numba")
pytest.importorskip("thot.alignment")

FEW = ("--ibm1", 2, "--hmm", 2, "--ibm3", 2)


def test_a_store_is_fitted_to(tiny_store, tmp_path, scones):
    folder = tmp_path / "new" / "tea.ibm3"
    done = scones("ibm3", "fit", folder, "--store", tiny_store, *FEW, "--show", 3)
    assert done.code == 0
    assert done.err.splitlines()[0] == "IBM 1 iterations: 0 of 2 done"
    assert done.err.splitlines()[-1] == "IBM 3 iterations: 2 of 2 done"
    for said in ("log-probability a word", "peak memory", "pruned of t", "source word"):
        assert said in done.out
    parameters = Parameters.load(folder)
    assert len(parameters.source_words) == len(parameters.target_words) == 500
    assert parameters.subwords is not None
    assert parameters.facts["options"]["ibm3"] == 2


def test_json_and_files_split_at_spaces(tmp_path, scones):
    (tmp_path / "a").write_text("das Haus\ndas Buch\nein Buch\nein Haus\n" * 5)
    (tmp_path / "b").write_text("the house\nthe book\na book\na house\n" * 5)
    files = ("--source", tmp_path / "a", "--target", tmp_path / "b")
    done = scones("ibm3", "fit", tmp_path / "model", *files, "--pairs", 12, "--json")
    assert done.code == 0
    facts = json.loads(done.out)
    assert facts["pairs"] == 12
    best = {word: translations[0][0] for word, translations in facts["words"].items()}
    assert best == {"das": "the", "Haus": "house", "Buch": "book", "ein": "a"}
    assert Parameters.load(tmp_path / "model").source_words == ["das", "Haus", "Buch", "ein"]
    again = scones("ibm3", "fit", tmp_path / "model", *files, *FEW, "--overwrite", "--json")
    assert json.loads(again.out)["pairs"] == 20


def test_tables_of_giza_are_imported(tmp_path, scones, refused):
    for name, content in GIZA.items():
        (tmp_path / name).write_text(content)
    command = [
        *("ibm3", "import", tmp_path / "run", tmp_path / "model"),
        *("--source-vocabulary", tmp_path / "de.vcb", "--target-vocabulary", tmp_path / "en.vcb"),
    ]
    refused(*command, "--subwords", tmp_path / "de.vcb", said="SentencePiece")
    done = scones(*command)
    assert (done.code, done.err) == (0, "")
    assert "house 0.750" in done.out
    parameters = Parameters.load(tmp_path / "model")
    assert parameters.p1 == 0.125
    assert parameters.source_words == ["UNK", "das", "Haus", "nie"]


@pytest.fixture(scope="module")
def model(tiny_subwords, tmp_path_factory):
    """A model of the pieces of the tiny store."""
    return save_ibm3(tmp_path_factory.mktemp("ibm3") / "model", Subwords(tiny_subwords))


@pytest.fixture(scope="module")
def whole_words(tmp_path_factory):
    """A model of whole words, in which nothing is left to chance."""
    folder = tmp_path_factory.mktemp("ibm3") / "words"
    begins, numbers = np.array([0, 1, 2, 2]), np.array([1, 0], np.int32)
    d = Distortions(np.full((1, 1), -1), np.zeros((1, 1), np.int32), np.zeros(0, np.float32), 0.1)
    Parameters(
        ["guten", "morgen"],
        ["morning", "good", "Anna"],
        Translations(begins, numbers, np.ones(2, np.float32)),
        np.array([[0, 1]] * 2, np.float32),
        d,
        p1=0.1,
    ).save(folder)
    return folder


def test_text_goes_in_and_translations_come_out(whole_words, scones, tmp_path):
    text = "guten morgen\n\nmorgen Anna  xyz\nguten guten guten\n"
    report = tmp_path / "new" / "report.json"
    flags = ("--max-length", "3", "--temperature", "0.0001", "--report", report)
    done = scones(
        "ibm3", "sample", whole_words, *flags, stdin=text.replace("guten guten", "guten " * 4)
    )
    assert (done.code, done.out) == (0, "good morning\n\nmorning Anna\n\n")
    assert done.err == (
        "text: 2 of 4 sentences translated (1 too long, 1 without a word to translate); of 10 "
        "words 2 were never seen, 1 of them copied, 1 dropped.\n"
    )
    found = json.loads(report.read_text())
    assert found["splits"]["text"]["source_too_long"] == 1
    assert (found["temperature"], found["seed"]) == (0.0001, 0)


def test_a_store_becomes_a_store(model, tiny_store, tmp_path, scones, monkeypatch):
    flags = ("--store", tiny_store, "--seed", "7", "--max-length", "12", "-T", "0.5")
    assert scones("ibm3", "sample", model, *flags, "--output", tmp_path / "first").code == 0
    monkeypatch.setattr("scones.ibm3.sampling.CHUNK", 50)
    done = scones("ibm3", "sample", model, *flags, "--output", tmp_path / "second")
    assert re.search(r"^train: \d+ of 380 sentences translated \(\d+ too", done.err, re.MULTILINE)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")

    old, new = TokenStore.open(tiny_store), TokenStore.open(tmp_path / "first")
    new.verify()
    assert (new.source_language, new.target_language) == ("de", "en")
    for split, pairs in (("train", 380), ("dev", 20)):
        counts = new.report["splits"][split]
        assert counts["sentences"] == pairs
        assert counts["translated"] == len(new.split(split)) < pairs
    fitting = [ids.tolist() for ids in old.split("train").sources if len(ids) <= 12]
    assert [ids.tolist() for ids in new.split("train").sources] == fitting
    assert new.dev_texts[1] == new.subwords.decode(list(new.split("dev").targets))
    assert (new.report["store_digest"], new.report["digest"]) == (old.digest, new.digest)


def test_sentences_of_training_and_development_have_numbers_of_their_own(
    model, tiny_subwords, tmp_path, scones
):
    subwords = Subwords(tiny_subwords)
    texts = ["eine Kanne Tee und ein Stück Kuchen und noch ein Stück Kuchen"]
    (tmp_path / "same").mkdir()
    with StoreWriter(tmp_path / "same", subwords, "de", "en") as writer:
        writer.append("train", subwords.encode(texts * 2), subwords.encode(texts * 2))
        writer.append_dev(texts, texts)
        writer.finish()
    flags = ("--store", tmp_path / "same", "--output", tmp_path / "new")
    assert scones("ibm3", "sample", model, *flags).code == 0
    new = TokenStore.open(tmp_path / "new")
    found = [*new.split("train").targets, *new.split("dev").targets]
    assert len({tuple(ids) for ids in found}) == 3
    assert scones("ibm3", "sample", model, *flags, "--pairs", "1", "--overwrite").code == 0
    less = TokenStore.open(tmp_path / "new")
    assert [ids.tolist() for ids in less.split("train").targets] == [found[0].tolist()]


def test_measuring(model, tiny_store, tmp_path, scones):
    flags = ("-T", "1", "-T", "0.2", "--samples", "2", "--output", tmp_path / "out")
    done = scones("ibm3", "measure", model, "--store", tiny_store, *flags)
    assert (done.code, done.err) == (0, "γ = 0.2\nγ = 1\n")
    assert done.out.strip() == (tmp_path / "out" / "ambiguity.md").read_text().strip()
    result = json.loads((tmp_path / "out" / "ambiguity.json").read_text())
    low, high = result["rows"]
    assert (low["temperature"], high["temperature"], result["sentences"]) == (0.2, 1.0, 20)
    assert low["entropy"]["total"] < high["entropy"]["total"]
    assert (tmp_path / "out" / "ambiguity.svg").exists()

    text = tmp_path / "dev.de"
    sources = TokenStore.open(tiny_store).dev_texts
    text.write_text("".join(f"{line}\n" for line in sources[0]))
    again = scones("ibm3", "measure", model, "--source", text, *flags, "--json")
    assert json.loads(again.out)["rows"] == result["rows"]


SAMPLE, FIT = "ibm3 sample {model} --store {store} --output {here}/new ", "ibm3 fit {here}/new "
MEASURE = "ibm3 measure {model} -o {here}/new "


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (FIT, "Give either --store, or --source and"),
        (FIT + "--source {here}/one", "Give either --store, or --source and"),
        (FIT + "--store {here}/no", "is not a folder"),
        (FIT + "--store {store} --ibm3 0", "ibm3 must be at least 1, not 0"),
        (FIT + "--source {here}/empty --target {here}/one", "There is no pair of sentences"),
        ("ibm3 fit {here}/one --store {store}", "exists already"),
        (SAMPLE + "-T 0", "must be above 0 and finite, not 0.0"),
        (SAMPLE + "--pairs 0", "--pairs must be at least 1"),
        (SAMPLE + "--max-length 1", "No training sentence of"),
        (SAMPLE.replace("{model}", "{words}"), "no pieces of a subword model"),
        (SAMPLE.replace("/new", "") + "--overwrite", "is not a store, and --overwrite"),
        ("ibm3 sample {model} --report {here}/one", "is not a result of this command"),
        ("ibm3 sample {model} --store {store}", "--store and --output belong together"),
        ("ibm3 sample {model} --overwrite", "are for a store"),
        ("ibm3 sample {here}", "holds no IBM Model 3, it has no ibm3.json"),
        (MEASURE, "by --source or by --store"),
        (MEASURE + "--store {store} --sentences 0", "--sentences must be at least 1"),
    ],
)
def test_mistakes(model, whole_words, tiny_store, tmp_path, refused, words, said):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "one").write_text("ja\n")
    places = {"model": model, "words": whole_words, "store": tiny_store, "here": tmp_path}
    refused(*words.format(**places).split(), said=said)
