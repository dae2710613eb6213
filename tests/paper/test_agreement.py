"""What runs of a direction must have in common."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from report_toys import document

from scones.paper.agreement import disagreements
from scones.paper.results import Results


def test_the_report_says_who_was_trained_otherwise(copy: Path) -> None:
    direction = Results(copy).direction("de-en")
    assert disagreements(direction.runs()) == []
    paragraphs = " ".join(document(copy).sections[1].paragraphs)
    assert "But not all do" not in paragraphs
    run = direction.run("scones-0.5")
    assert run is not None
    direction.write_run(
        dataclasses.replace(run, data_digest="other", command=f"{run.command} --max-steps 9")
    )
    said = "scones-0.5 differs from softmax in training data, [train]"
    assert disagreements(direction.runs()) == [said]
    paragraphs = " ".join(document(copy).sections[1].paragraphs)
    assert f"But not all do: de-en: {said}." in paragraphs
