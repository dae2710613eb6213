"""Golden loss curves on the built-in corpus: a change that means nothing must change nothing.

Where a change is meant to (another start, another order of batches), put the new numbers here and
say why in the commit. `pytest tests/training/test_golden_losses.py` shows them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_run import events, small_model

from scones.outputs import output_layer

GOLDEN = {
    "scones": [
        7.5234, 7.1758, 7.2415, 7.1418, 6.9325, 6.8435, 6.6345, 6.6113, 6.3952, 6.3901, 6.1989,
        6.0324, 6.0673, 6.1125, 5.9786,
    ],
    "softmax": [
        6.9901, 6.6479, 6.7197, 6.6706, 6.4859, 6.4350, 6.2393, 6.2347, 6.0420, 6.0366, 5.8464,
        5.6643, 5.7257, 5.7741, 5.6519,
    ],
}  # fmt: skip


@pytest.mark.parametrize("layer", GOLDEN)
def test_the_loss_falls_as_it_always_did(layer: str, run_training, tmp_path: Path) -> None:
    run_training(
        tmp_path, {"max_steps": 15}, small_model(dropout=0.0), output_layer({"layer": layer})
    )
    losses = [event["loss"] for event in events(tmp_path)]
    # Another processor adds in another order; it may not do more than that.
    assert losses == pytest.approx(GOLDEN[layer], rel=2e-3)
