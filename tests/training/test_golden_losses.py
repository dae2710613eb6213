"""Golden loss curves on the built-in corpus: a change that means nothing must change nothing.

Where a change is meant to (another start, another order of batches), put the new numbers here and
say why in the commit. `pytest tests/training/test_golden_losses.py` shows them.
"""

import pytest
from tiny_run import events, small_model

from scones.outputs import output_layer

GOLDEN = {
    "scones": [
        7.5496, 7.5577, 6.9757, 7.1977, 6.8476, 6.6666, 6.5546, 6.7266, 6.3707, 6.2336, 6.2270,
        6.1866, 6.2051, 5.9811, 5.8565,
    ],
    "softmax": [
        7.0154, 7.0497, 6.4617, 6.7112, 6.3914, 6.2423, 6.1506, 6.4028, 6.0122, 5.8618, 5.8751,
        5.8279, 5.9020, 5.6492, 5.4917,
    ],
}  # fmt: skip


@pytest.mark.parametrize("layer", GOLDEN)
def test_the_loss_falls_as_it_always_did(layer, run_training, tmp_path):
    run_training(
        tmp_path, {"max_steps": 15}, small_model(dropout=0.0), output_layer({"layer": layer})
    )
    losses = [event["loss"] for event in events(tmp_path)]
    # Another processor adds in another order; it may not do more than that.
    assert losses == pytest.approx(GOLDEN[layer], rel=2e-3)
