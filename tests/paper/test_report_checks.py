"""What the report rests on: significance, references, and scores that can be computed again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from report_toys import texts, write_lines

from scones.errors import SconesError
from scones.paper.report.checking import bleu_cells, check
from scones.paper.report.references import References
from scones.paper.report.significance import find_marks
from scones.paper.report.study import NEWS, Study
from scones.paper.report.writing import write_report
from scones.paper.results import Results


@pytest.mark.usefixtures("no_network")
class TestSignificance:
    def test_tests_are_made_once_and_kept(self, copy: Path) -> None:
        study = Study(Results(copy))
        made = find_marks(study, References(copy.parent / "data"))
        assert made.mark("de-en", "scones-0.5", "newstest2019", "greedy") == "‡"
        assert made.known["de-en", "scones-0.5-seed2", "europarl", "beam4"]["baseline"] == (
            "softmax-seed2"
        )
        again = find_marks(Study(Results(copy)), References())
        assert again.known == made.known
        assert not again.problems

    def test_tests_of_other_translations_do_not_count(self, copy: Path) -> None:
        find_marks(Study(Results(copy)), References(copy.parent / "data"))
        direction = Results(copy).direction("de-en")
        write_lines(direction.folder / "softmax.newstest2019.greedy.txt.xz", ["another"] * 40)
        marks = find_marks(Study(Results(copy)), References())
        assert ("de-en", "scones-0.5", "newstest2019", "greedy") not in marks.known
        assert ("de-en", "scones-0.5-seed2", "newstest2019", "greedy") in marks.known


class TestReferences:
    def result(self, folder: Path, test: str = "newstest2019"):  # type: ignore[no-untyped-def]
        run = Results(folder).direction("de-en").run("softmax")
        assert run is not None
        return run.tests[test]

    def test_those_of_sacrebleu(
        self, toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "wmt19.de-en.ref"
        path.write_text("".join(f"{text}\n" for text in texts("de-en", "newstest2019")))
        asked = []

        def files(test_set: str, direction: str) -> list[str]:
            asked.append((test_set, direction))
            return [str(path)]

        monkeypatch.setattr("sacrebleu.utils.get_reference_files", files)
        found = References().of("de-en", "newstest2019", self.result(toys / "results"))
        assert found == texts("de-en", "newstest2019")
        assert asked == [("wmt19", "de-en")]

    @pytest.mark.usefixtures("no_network")
    def test_without_a_network(self, toys: Path) -> None:
        with pytest.raises(SconesError, match=r"neither in its cache nor .* --data"):
            References().of("de-en", "newstest2019", self.result(toys / "results"))
        with pytest.raises(SconesError, match=r"sacreBLEU does not know msdocs"):
            References().of("de-en", "msdocs", self.result(toys / "results", "msdocs"))

    def test_other_references_are_refused(self, toys: Path) -> None:
        other = dataclasses.replace(self.result(toys / "results"), reference_digest="0" * 16)
        with pytest.raises(SconesError, match="0" * 16):
            References(toys / "data").of("de-en", "newstest2019", other)
        longer = dataclasses.replace(other, sentences=41)
        with pytest.raises(SconesError, match=r"40 lines, but 41"):
            References(toys / "data").of("de-en", "newstest2019", longer)
        with pytest.raises(SconesError, match=r"has no references of unknown"):
            References(toys / "data").of("de-en", "unknown", other)


def test_every_bleu_cell_can_be_computed_again(toys: Path) -> None:
    study = Study(Results(toys / "results"))
    known = bleu_cells(study)
    titles = " ".join(cell.title for cell in known)
    assert all(word in titles for word in ("exact search", "beam 1000", "europarl"))
    checked = list(check(study, References(toys / "data"), len(known), seed=1))
    assert len(checked) == len(known)
    assert all(one.same for one in checked)


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [
        ("softmax.json", ("tests", NEWS, "searches", "greedy", "scores", "bleu"), "x"),
        ("softmax.json", ("output",), 3),
        ("analysis.json", ("systems", "softmax", "exact", "outputs", "log_probs"), -1),
        ("analysis.json", ("sentences",), {}),
    ],
)
def test_a_wrong_value_is_one_sentence(
    copy: Path, file: str, place: tuple[str, ...], value: object
) -> None:
    path = copy / "de-en" / file
    whole = json.loads(path.read_text())
    inner = whole
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    path.write_text(json.dumps(whole))
    with pytest.raises(SconesError, match=r"damaged|does not hold the results") as refusal:
        write_report(copy, copy.parent / "out", copy.parent / "data")
    assert "\n" not in str(refusal.value)
    assert not (copy.parent / "out").exists()
