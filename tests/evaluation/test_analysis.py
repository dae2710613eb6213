"""Beams against exact search: every figure against one counted by hand."""

import json
import math
from dataclasses import asdict, replace

import pytest

from scones.errors import SconesError
from scones.evaluation.metrics import bleu
from scones.evaluation.search_errors import (
    BeamRun,
    ExactOutput,
    Output,
    Summary,
    analyze,
    search_errors,
)
from scones.options import from_section
from scones.search.frontier import Certificate

REFERENCES = [["the cat sits on the mat", "a dog barks at night", "we like warm tea", ""]]


def certificate(**changes):
    usual = Certificate(
        proved=True,
        stopped_by=None,
        states=10,
        seconds=0.5,
        upper_bound=-1.0,
        number_format="float32",
        beam_log_prob=-1.0,
        search_error=False,
        tolerance=1e-4,
        empty_log_prob=-4.0,
    )
    return replace(usual, **changes)


def beam(text, log_prob):
    return Output(text, log_prob, not text, finished=log_prob is not None)


def mode(text, log_prob, **changes):
    return ExactOutput(text, log_prob, not text, True, certificate(**changes))


NOT_SEARCHED = Output("", None, True, True)
NO_MODE = ExactOutput("", None, True, True, None)

EXACT = [
    mode("the cat sits on the mat", -1.0, states=100, seconds=3.0, empty_log_prob=-2.0),
    mode("", -2.0, states=20, seconds=1.0, empty_log_prob=-2.0),
    mode("we like tea", -3.0, proved=False, stopped_by="states", states=300, seconds=2.0),
    NO_MODE,
]
GREEDY = [
    beam("the cat sits", -1.5),
    beam("a dog barks at", None),  # it was cut
    beam("we like", -9.0),
    NOT_SEARCHED,
]
WIDE = [beam("the cat sits on the mat", -1.00005), beam("", -2.0), beam("", -4.0), NOT_SEARCHED]


def test_a_search_error_scores_less_than_a_proved_mode():
    # The third mode is not proved, the fourth sentence is empty: two can show errors.
    greedy = search_errors(GREEDY, EXACT)
    assert (greedy.compared, greedy.share, greedy.above) == (2, 1.0, 0)
    wide = search_errors(WIDE, EXACT)
    assert (wide.compared, wide.share, wide.above) == (2, 0.0, 0)


@pytest.mark.parametrize(
    ("score", "changes", "share", "above"),
    [
        (-1.04, {"tolerance": 0.05}, 0.0, 0),
        (-1.06, {"tolerance": 0.05}, 1.0, 0),
        (-0.5, {}, 0.0, 1),  # above the mode: told, and no error
        (-1.0, {"proved": False, "stopped_by": "time"}, None, 0),
    ],
)
def test_one_output_against_one_mode(score, changes, share, above):
    found = search_errors([beam("b", score)], [mode("a", -1.0, **changes)])
    assert (found.share, found.above) == (share, above)


def test_figures_of_beams():
    found = analyze({16: BeamRun(WIDE, 8.0), 1: BeamRun(GREEDY, 2.0)}, EXACT, REFERENCES)
    assert [*found.beams] == ["1", "16"]
    greedy, wide = found.beams["1"], found.beams["16"]
    assert (greedy.seconds, wide.seconds) == (2.0, 8.0)
    score = bleu([output.text for output in GREEDY], REFERENCES)
    assert greedy.outputs.bleu == score.value
    assert greedy.outputs.signature == score.signature
    # 3 + 4 + 2 words of 6 + 5 + 4.
    assert greedy.outputs.length_ratio == pytest.approx(9 / 15)
    assert (greedy.outputs.searched, greedy.outputs.empty, greedy.outputs.cut) == (3, 0.0, 1)
    assert wide.outputs.empty == pytest.approx(2 / 3)
    # What was cut is no translation, and has no probability.
    assert greedy.outputs.log_probs.mean == pytest.approx((-1.5 - 9) / 2)
    assert greedy.outputs.log_probs.count == 2


def test_figures_of_exact_search():
    found = analyze({}, EXACT, REFERENCES).exact
    assert (found.outputs.searched, found.proved, found.stopped_by) == (3, 2, {"states": 1})
    assert found.unproved == pytest.approx(1 / 3)
    assert found.outputs.empty == pytest.approx(1 / 3)
    assert found.empty_modes == pytest.approx(1 / 2)
    assert found.states == Summary(3, 140.0, pytest.approx(144.222), 100.0, 300.0)
    assert found.seconds == Summary(3, 2.0, 1.0, 2.0, 3.0)
    assert found.outputs.log_probs == Summary(3, -2.0, 1.0, -2.0, -1.0)
    assert found.empty_log_probs.mean == pytest.approx((-2 - 2 - 4) / 3)


def test_nothing_searched_gives_no_shares():
    alone = analyze({1: BeamRun(GREEDY, 1.0)}, None, REFERENCES)
    assert (alone.exact, alone.beams["1"].errors) == (None, None)
    found = analyze({1: BeamRun([NOT_SEARCHED], 0.1)}, [NO_MODE], [["tea"]])
    assert found.beams["1"].outputs.empty is None
    assert found.beams["1"].outputs.log_probs is None
    assert (found.exact.unproved, found.exact.empty_modes, found.exact.states) == (None, None, None)


def test_all_figures_go_into_json():
    figures = asdict(analyze({4: BeamRun(WIDE, 1.0)}, EXACT, REFERENCES))
    assert json.loads(json.dumps(figures)) == figures
    assert [*figures["beams"]] == ["4"]
    assert figures["beams"]["4"]["errors"] == {"compared": 2, "share": 0.0, "above": 0}
    for output in EXACT:
        assert from_section(ExactOutput, json.loads(json.dumps(asdict(output))), "") == output


def test_unequal_numbers_are_refused():
    with pytest.raises(SconesError, match="3 outputs for 4 references"):
        analyze({1: BeamRun(GREEDY[:3], 1.0)}, EXACT, REFERENCES)
    with pytest.raises(SconesError, match="2 outputs for 4 references"):
        analyze({}, EXACT[:2], REFERENCES)


def test_summaries_leave_out_what_is_not_known():
    assert Summary.of([]) is None
    assert Summary.of([None, None]) is None
    assert Summary.of([7, None]) == Summary(1, 7.0, 0.0, 7.0, 7.0)
    several = Summary.of([1, 2, 6])
    assert several.deviation == pytest.approx(math.sqrt(7))
