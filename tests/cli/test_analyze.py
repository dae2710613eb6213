"""`scones analyze`: figures, files, going on after a stop, refusals; `scones compare`."""

import json
import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from running import contents, ended_well

from scones.files import sole_use
from scones.translator import Translator, load

SENTENCES = 6


PLOTS = {"bleu", "length-ratio", "search-errors", "exact", "log-probs"}


STATES = 30


@pytest.fixture(scope="module")
def texts(tea_pairs, tmp_path_factory):
    """The flags that name a small test set, whose fourth source is empty."""
    folder = tmp_path_factory.mktemp("texts")
    sources, targets = (list(side) for side in zip(*tea_pairs[:SENTENCES], strict=True))
    sources[3] = ""
    for name, lines in (("test.de", sources), ("test.en", targets)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return ["--source", folder / "test.de", "-r", folder / "test.en", "--device", "cpu"]


def command(model, texts, folder):
    """A whole command, with one model and two beams."""
    small = ["--beam-size", 4, "--beam-size", 1, "--max-states", STATES]
    return ["analyze", model, *texts, *small, "-o", folder / "out"]


@pytest.fixture
def words(tiny_model, texts, tmp_path):
    return command(tiny_model, texts, tmp_path)


@pytest.fixture(scope="module")
def finished(tiny_model, texts, tmp_path_factory):
    """What the command leaves behind."""
    folder = tmp_path_factory.mktemp("analysis")
    ended_well(*command(tiny_model, texts, folder))
    return folder / "out"


@pytest.fixture
def searched(finished, tmp_path):
    """The output folder after the command."""
    return Path(shutil.copytree(finished, tmp_path / "out"))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_exact_search_is_never_worse_than_a_beam(tiny_model, texts, tmp_path, scones):
    """Searched no further than one prefix, it has what the widest beam found."""
    beams = ["--beam-size", 1, "--beam-size", 40, "--max-states", 1]
    assert scones("analyze", f"m={tiny_model}", *texts, *beams, "-o", tmp_path / "out").code == 0
    wide = json.loads((tmp_path / "out" / "m.beam40.json").read_text())["outputs"]
    lines = (tmp_path / "out" / "m.exact.jsonl").read_text().splitlines()
    exact = {one["sentence"]: one for one in map(json.loads, lines[1:])}
    scores = [(exact[at]["log_prob"], one["log_prob"]) for at, one in enumerate(wide)]
    known = [(ours, beam) for ours, beam in scores if beam is not None]
    assert all(ours >= beam - 1e-4 for ours, beam in known)
    figures = json.loads((tmp_path / "out" / "analysis.json").read_text())["systems"]["m"]["exact"]
    assert len(figures["states_by_sentence"]) == len(figures["proofs"]) == SENTENCES
    assert figures["states_by_sentence"][3] is None


def test_two_models_side_by_side(tiny_models, texts, tmp_path, scones):
    models = [f"base={tiny_models / 'softmax'}", tiny_models / "scones"]
    limits = ["--max-states", STATES, "--max-memory", 0.5, "--beam-size", 1, "--beam-size", 3]
    done = scones("analyze", *models, *texts, *limits, "-o", tmp_path / "new" / "out")
    assert done.code == 0, done.err
    folder = tmp_path / "new" / "out"
    assert done.out.rstrip("\n") == (folder / "analysis.md").read_text().rstrip("\n")
    assert "Limits of exact search: 30 states a sentence, 0.5 GB of memory" in done.out
    assert {"base: beam 3: 6 of 6 sentences", "scones: exact search: 6 of 6 sentences"} <= {
        *done.err.splitlines()
    }
    figures = json.loads((folder / "analysis.json").read_text())
    assert [*figures["systems"]] == ["base", "scones"]
    assert figures["limits"]["max_states"] == STATES
    assert {"command", "commit", "device", "torch", "source_digest"} <= figures.keys()
    for system in figures["systems"].values():
        assert [*system["beams"]] == ["1", "3"]
        exact = system["exact"]
        assert exact["proved"] + sum(exact["stopped_by"].values()) == SENTENCES - 1
        assert exact["states"]["largest"] <= STATES
    for plot in PLOTS:
        root = ElementTree.parse(folder / f"{plot}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_figures_are_those_of_the_translator(tiny_model, texts, finished):
    figures = json.loads((finished / "analysis.json").read_text())
    sources = texts[1].read_text().splitlines()
    translator = load(tiny_model, "cpu")
    best = [
        found[0] for found in translator.translate(sources, "beam", beam_size=4, length_penalty=0)
    ]
    kept = json.loads((finished / "scones.beam4.json").read_text())["outputs"]
    assert [output["text"] for output in kept] == [one.text for one in best]
    scores = [found.log_prob for found in best if found.log_prob is not None and found.finished]
    mean = figures["systems"]["scones"]["beams"]["4"]["outputs"]["log_probs"]["mean"]
    assert mean == pytest.approx(sum(scores) / len(scores))
    for line in read_lines(finished / "scones.exact.jsonl")[1:]:
        if line["sentence"] == 3:
            assert (line["certificate"], line["text"]) == (None, "")
        else:
            assert line["log_prob"] <= line["certificate"]["upper_bound"]


def test_without_exact_search_and_only_the_first_sentences(words, tmp_path, scones):
    done = scones(*words, "--no-exact", "--sentences", 2)
    assert done.code == 0, done.err
    assert "xact search" not in done.out.partition("- BLEU")[0].partition("\n")[2]
    left = {path.name for path in (tmp_path / "out").iterdir()}
    beams = {"scones.beam1.json", "scones.beam4.json"}
    assert left == beams | {"analysis.json", "analysis.md", "bleu.svg", "length-ratio.svg"}
    assert json.loads((tmp_path / "out" / "analysis.json").read_text())["sentences"] == 2


def test_nothing_is_searched_twice_and_another_beam_is_added(
    words, searched, tmp_path, scones, monkeypatch
):
    before = contents(tmp_path)
    monkeypatch.setattr(Translator, "exact", None)
    with monkeypatch.context() as patched:
        patched.setattr(Translator, "translate", None)
        again = scones(*words)
    assert again.code == 0, again.err
    assert again.out.rstrip("\n") == (searched / "analysis.md").read_text().rstrip("\n")
    assert contents(tmp_path) == before  # plots too: the same numbers, the same file
    done = scones(*words, "--beam-size", 2, "--json")
    assert [*json.loads(done.out)["systems"]["scones"]["beams"]] == ["1", "2", "4"]


def interrupted_after(count):
    """Give an exact search that is interrupted when it has given so many sentences."""
    whole = Translator.exact

    def exact(*arguments, **more):
        for number, result in enumerate(whole(*arguments, **more)):
            if number == count:
                raise KeyboardInterrupt
            yield result

    return exact


def comparable(path):
    """Give the sentences in their order, with what was proved about them."""
    found = []
    lines = [line for line in read_lines(path) if "sentence" in line]
    for line in sorted(lines, key=lambda line: line["sentence"]):
        proved = line["certificate"] is not None and line["certificate"]["proved"]
        score = round(line["log_prob"], 3) if proved else None
        found.append((line["sentence"], line["text"] if proved else None, score))
    return found


@pytest.mark.parametrize("torn", [b'{"sentence": 5, "text": "half a li', b'{"sentence": 5}'])
def test_an_interrupted_search_goes_on(words, finished, tmp_path, scones, monkeypatch, torn):
    monkeypatch.setattr("scones.analysis.analyze.commit", lambda: "first")
    with monkeypatch.context() as patched:
        patched.setattr(Translator, "exact", interrupted_after(3))
        assert scones(*words).code == 130
    file = tmp_path / "out" / "scones.exact.jsonl"
    kept = file.read_bytes()
    assert kept.count(b"\n") == 1 + 3
    assert not (tmp_path / "out" / "analysis.json").exists()
    file.write_bytes(kept + torn)
    monkeypatch.setattr("scones.analysis.analyze.commit", lambda: "second")
    done = scones(*words)
    assert done.code == 0, done.err
    assert "scones: exact search: 3 of 6 sentences" in done.err
    assert file.read_bytes().startswith(kept)
    assert comparable(file) == comparable(finished / "scones.exact.jsonl")
    figures = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert figures["systems"]["scones"]["commits"] == ["first", "second"]


def test_time_that_was_spent_counts(words, tmp_path, scones, monkeypatch):
    limits = []
    whole = Translator.exact

    def listening(self, sentences, options, *rest, **more):
        limits.append(options.max_seconds)
        return whole(self, sentences, options, *rest, **more)

    words = [*words, "--max-seconds", 100]
    with monkeypatch.context() as patched:
        patched.setattr(Translator, "exact", interrupted_after(4))
        scones(*words)
    file = tmp_path / "out" / "scones.exact.jsonl"
    changed = re.sub(r'"seconds": [\d.e-]+', '"seconds": 30.0', file.read_text())
    file.write_text(changed)
    monkeypatch.setattr(Translator, "exact", listening)
    assert scones(*words).code == 0
    assert limits == [pytest.approx(100 - 30 * changed.count('"seconds": 30.0'))]


def test_searches_of_another_kind_are_not_mixed_nor_damaged_ones_read(
    words, searched, tiny_models, refused
):
    for change, said in (
        (["--max-states", "31"], r"exact\.jsonl was made with --max-states 30, not 31; give"),
        (["--sentence-seconds", "9"], "made with --sentence-seconds unlimited, not 9.0"),
        (["--sentences", "5"], r"beam4\.json was made with source text \w+, not \w+;"),
        (["--precision", "bf16"], "made with precision float32, not bf16"),
    ):
        refused(*words, *change, said=said)
    other = [words[0], f"scones={tiny_models / 'softmax'}", *words[2:]]
    refused(*other, said=r"scones\.beam4\.json was made with model \w+, not \w+;")
    with sole_use(searched):
        refused(*words, said="Another process is writing to")
    modes, beams = (
        (searched / f"scones.{name}").read_text() for name in ("exact.jsonl", "beam4.json")
    )
    for file, content, said in (
        ("scones.exact.jsonl", "{}\n", r"exact\.jsonl is damaged: 'made_with'"),
        (
            "scones.exact.jsonl",
            re.sub(r'"proved": \w+', '"proved": 5', modes),
            "'proved' must be t",
        ),
        ("scones.beam4.json", "{}", r"beam4\.json is damaged: 'outputs'"),
        ("scones.beam4.json", re.sub('"text": "[^"]*"', '"text": 5', beams), "'text' must be a te"),
    ):
        (searched / file).write_text(content)
        refused(*words, said=said)


def test_a_search_goes_on_where_it_began_alone(words, searched, scones, refused):
    file = searched / "scones.exact.jsonl"
    elsewhere = file.read_text().replace('"device": "cpu"', '"device": "a GPU"')
    file.write_text(elsewhere)
    done = scones(*words, "--json")  # it is complete, so that nobody mixes seconds
    assert json.loads(done.out)["systems"]["scones"]["devices"] == ["a GPU", "cpu"]
    file.write_text("".join(elsewhere.splitlines(keepends=True)[:-1]))
    refused(*words, said="made with device a GPU, not cpu")


def test_without_matplotlib_all_but_plots_is_there(words, tmp_path, scones, monkeypatch):
    hidden = {name for name in sys.modules if name.partition(".")[0] == "matplotlib"}
    for name in hidden | {"matplotlib"}:
        monkeypatch.setitem(sys.modules, name, None)
    done = scones(*words)
    assert done.code == 0, done.err
    assert done.err.endswith("No plots: install scones[plots], then give this command again.\n")
    assert {"analysis.json", "analysis.md"} <= {p.name for p in (tmp_path / "out").iterdir()}
    assert not list((tmp_path / "out").glob("*.svg"))


def test_compare_shows_tables_and_writes_all_figures(tiny_models, tea, scones):
    words = [
        *("compare", f"base={tiny_models / 'softmax'}", tiny_models / "scones"),
        *("--source", tea / "test.de", "-r", tea / "test.en", "--device", "cpu"),
        *("--judged", tea / "test.json", "--judged-dev", tea / "dev.json"),
        *("--output", tea / "figures.json", "--show", 2),
    ]
    done = scones(*words)
    assert done.code == 0, done.err
    assert "ROC area" in done.out
    assert done.out.count("(not valid)") == 4
    figures = json.loads(scones(*words, "--json").out)
    assert figures == json.loads((tea / "figures.json").read_text())
    assert [*figures["systems"]] == ["base", "scones"]
    assert figures["systems"]["base"]["p"] == {"greedy": None, "beam 4": None}
    for system in figures["systems"].values():
        assert 0 <= system["acceptance"]["area"] <= 1
        assert system["valid"] == {"greedy": 0.0, "beam 4": 0.0}
        assert system["signature"] in done.out
