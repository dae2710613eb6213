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
        7.4112, 7.0479, 7.0803, 7.0655, 6.7049, 6.5326, 6.4473, 6.2747, 6.3691, 6.0665, 5.9820,
        5.8728, 6.0816, 5.7585, 5.7139,
    ],
    "softmax": [
        6.8735, 6.5092, 6.5651, 6.5644, 6.2489, 6.1018, 6.0410, 5.8792, 5.9950, 5.7052, 5.6135,
        5.5232, 5.7318, 5.3924, 5.3608,
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
