"""`scones paper run`: a direction at toy size, going on in a later session, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import chain
from pathlib import Path

import pytest
from running import Done, contents, ended_well
from synthetic_toys import RECIPE

from scones.cli import run
from scones.evaluation.metrics import bleu
from scones.paper import running as running_module
from scones.paper.jobs import Job, run_all
from scones.paper.results import Results, RunResult

Scones = Callable[..., Done]
Refused = Callable[..., None]

SENTENCES = 6
SEARCHED = 3

PAPER = (
    RECIPE
    + """
[prepare]
source_language = "de"
target_language = "en"

[systems]
softmax = { layer = "softmax" }
"scones-0.5" = { layer = "scones", alpha = 0.5 }

[tests.little]
role = "dev"
source = "${SCONES_DATA}/little.de"
reference = "${SCONES_DATA}/little.en"

[tests.news]
source = "${SCONES_DATA}/news/test.de"
reference = "${SCONES_DATA}/news/test.en"
sentences = 6

[left_out]
scones-ls = "no λ was right"

[search]
set = "news"
sentences = 3
beams = [1, 2]
max_states = 20

[speed]
set = "news"
sentences = 3
batch = 2
more_batches = [3]
beams = [1, 2]
repeats = 3
"""
)


@pytest.fixture(scope="module", autouse=True)
def few_processes() -> Iterator[None]:
    """Let all jobs but translations be run in this process, since starting one takes seconds."""

    def run_here(chains: Sequence[Iterable[Job]], at_once: int, say: Callable[[str], None]) -> None:
        for job in chain.from_iterable(chains):
            if job.name.endswith(": translation"):
                run_all([[job]], at_once, say)
            elif not job.is_done:
                say(f"{job.name}: begins")
                with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as err:
                    assert run(list(job.command)) == 0, err.getvalue()
                job.end(0)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(running_module, "run_all", run_here)
        yield


@pytest.fixture(scope="module")
def place(tea_pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a recipe."""
    folder = tmp_path_factory.mktemp("paper")
    (folder / "data" / "news").mkdir(parents=True)
    for stem, pairs in (("little", tea_pairs[:2]), ("news/test", tea_pairs[2 : 4 + SENTENCES])):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / "data" / f"{stem}.{language}").write_text(text)
    (folder / "toy.toml").write_text(PAPER)
    return folder


@pytest.fixture(scope="module")
def words(place: Path, tiny_store: Path) -> list[str]:
    """A whole command; RESULTS is its fourth word."""
    command = ["paper", "run", place / "toy.toml", place / "results", "--store", tiny_store]
    command += ["--runs", place / "runs", "--data", place / "data"]
    command += ["--device", "cpu", "--jobs", "2"]
    return [str(word) for word in command]


@pytest.fixture(scope="module")
def done(words: list[str]) -> Done:
    """How the command ended that did everything."""
    return ended_well(words)


@pytest.fixture
def results(words: list[str], done: Done, tmp_path: Path) -> Path:
    """A copy of the results, without the models."""
    return Path(shutil.copytree(words[3], tmp_path / "results"))


def elsewhere(words: list[str], results: Path, *more: str) -> list[str]:
    """The command on another machine, which has results but no models."""
    words = [*words[:3], str(results), *words[4:], *more]
    words[words.index("--runs") + 1] = str(results.parent / "runs")
    return words


def softmax(results: Path) -> RunResult:
    found = Results(results).direction("de-en").run("softmax")
    assert found is not None
    return found


@pytest.mark.slow
def test_everything_is_trained_translated_and_scored(
    done: Done, place: Path, results: Path
) -> None:
    direction = Results(results).direction("de-en")
    assert [found.name for found in direction.runs()] == ["softmax", "scones-0.5"]
    references = (place / "data" / "news" / "test.en").read_text().splitlines()[:SENTENCES]
    for found in direction.runs():
        assert (found.seed, found.dev, found.direction) == (1, "little", "de-en")
        assert found.training["steps"] == 3
        assert [*found.training["dev_bleu"]] == ["3"]
        assert found.command.startswith("scones train ")
        assert [*found.tests] == ["little", "news"]
        for search in ("greedy", "beam4"):
            result = found.tests["news"].searches[search]
            texts = direction.hypotheses(result.file)
            assert len(texts) == SENTENCES == found.tests["news"].sentences
            assert result.scores["bleu"] == bleu(texts, [references]).value
    assert softmax(results).output == {"layer": "softmax", "label_smoothing": 0.0}
    assert (direction.read_json("chosen") or {})["system"] == "scones-0.5"
    for about in (direction.analysis, direction.speed):
        assert about is not None
        assert (about["test"], about["sentences"]) == ("news", SEARCHED)
        for name, system in about["systems"].items():
            assert [*system["beams"]] == ["1", "2"]
            for row in system["beams"].values():
                assert len(direction.hypotheses(row["file"])) == SEARCHED, name
    table = done.out.splitlines()
    assert " ".join(table[0].split()) == "little greedy little beam4 news greedy news beam4"
    assert [line.split()[0] for line in table[1:]] == ["softmax", "scones-0.5"]


@pytest.mark.slow
def test_only_what_is_missing_is_done(words: list[str], results: Path, scones: Scones) -> None:
    """Nothing, where all has results; a search without, by the model that is there."""
    before = contents(results)
    again = scones(*elsewhere(words, results))
    assert (again.code, again.err) == (0, ""), again
    assert contents(results) == before
    assert not (results.parent / "runs").exists()

    path = results / "de-en" / "softmax.json"
    kept = json.loads(path.read_text())
    del kept["tests"]["news"]["searches"]["beam4"]
    path.write_text(json.dumps(kept))
    done = scones(*words[:3], results, *words[4:])
    said = "softmax: translation: begins\nsoftmax: translation: done\n"
    assert (done.code, done.err) == (0, said), done
    assert softmax(results).model_digest == kept["model_digest"]
    assert softmax(results).score("news", "beam4") is not None


@pytest.mark.slow
def test_again_trains_what_is_gone(words: list[str], results: Path, scones: Scones) -> None:
    flags = ["--again", "--system", "softmax", "--until", "translate", "--max-steps", "2"]
    old = softmax(results)
    done = scones(*elsewhere(words, results, *flags))
    assert done.code == 0, done
    new = softmax(results)
    assert new.training["steps"] == 2
    assert new.model_digest != old.model_digest
    assert new.command.endswith("--max-steps 2")
    assert scones(*elsewhere(words, results, *flags)).err == ""
    assert softmax(results).model_digest == new.model_digest


@pytest.mark.slow
def test_runs_of_another_making_are_not_put_beside_others(
    words: list[str], results: Path, place: Path, tmp_path: Path, scones: Scones, refused: Refused
) -> None:
    """Neither of another budget, nor by another recipe, nor on other text."""
    (results / "de-en" / "softmax.json").unlink()
    before = contents(results)
    refused(*elsewhere(words, results, "--max-steps", "2"), said="made with other .train.")
    recipe = tmp_path / "other.toml"
    for old, new, said in (
        ("layers = 1", "layers = 2", "other .model."),
        ("sentences = 6", "sentences = 5", "other the text of news"),
    ):
        recipe.write_text(PAPER.replace(old, new))
        command = elsewhere(words, results)
        command[2] = str(recipe)
        refused(*command, said=said)
    assert contents(results) == before
    recipe.write_text(PAPER.replace("[train]", "[train]\nlog_every = 5"))  # changes no result
    command = elsewhere(words, results, "--until", "translate")
    assert scones(*command[:2], recipe, *command[3:]).code == 0


@pytest.mark.slow
def test_scores_without_a_model(place: Path, results: Path, scones: Scones) -> None:
    assert softmax(results).score("news", "greedy", "ter") is None
    words = ["paper", "score", place / "toy.toml", results, "--data", place / "data", "--jobs", 1]
    done = scones(*words, "--json")
    assert done.code == 0, done
    found = json.loads(done.out)["softmax"]["news"]["greedy"]
    assert found == dict(softmax(results).tests["news"].searches["greedy"].scores)
    assert found.keys() == {"bleu", "chrf", "ter"}
    assert scones(*words).err == ""


def test_one_system_is_trained_and_translated(
    words: list[str], tmp_path: Path, scones: Scones
) -> None:
    """The fast sibling of the whole run: one system, two steps, no search."""
    flags = ["--system", "softmax", "--max-steps", "2", "--until", "translate"]
    done = scones(*elsewhere(words, tmp_path / "results")[:-2], "--jobs", "1", *flags)
    assert done.code == 0, done
    found = softmax(tmp_path / "results")
    assert found.training["steps"] == 2
    assert [*found.tests["news"].searches] == ["greedy", "beam4"]


@pytest.mark.parametrize(
    ("flags", "recipe", "said"),
    [
        (["--system", "sconse"], PAPER, "has no system 'sconse'; there are softmax, scones-0.5"),
        (["--until", "dinner"], PAPER, "--until dinner is not a stage"),
        (["--data", "/nowhere"], PAPER, "/nowhere/little.de"),
        (["--store", "/nowhere"], PAPER, "/nowhere is not a folder"),
        ([], PAPER.replace("scones-ls", "softmax"), "'softmax' is in .left_out. and is also to"),
        ([], PAPER.replace('= "de"', '= "lt"'), "goes from de to en, and .* from lt to en"),
    ],
)
def test_refusals(
    words: list[str], tmp_path: Path, refused: Refused, flags: list[str], recipe: str, said: str
) -> None:
    (tmp_path / "toy.toml").write_text(recipe)
    refused(*words[:2], tmp_path / "toy.toml", tmp_path / "out", *words[4:], *flags, said=said)
