"""A toy IBM Model 3."""

import numpy as np

from scones.ibm3.parameters import Distortions, Parameters, Translations


def save_ibm3(folder, subwords):
    """A model in which a piece becomes itself or, less often, the one behind it or none."""
    size = len(subwords)
    words = [f"word{number}" for number in range(size)]
    itself = np.arange(size)
    pairs = np.stack([itself, np.minimum(itself + 1, size - 1)], axis=1)
    parameters = Parameters(
        words,
        words,
        Translations(
            np.array([*range(0, 2 * size + 1, 2), 2 * size + 1], np.int64),
            np.append(pairs.ravel(), size - 1).astype(np.int32),
            np.append(np.tile([0.7, 0.3], size), 1.0).astype(np.float32),
        ),
        np.tile(np.array([0.1, 0.9], np.float32), (size, 1)),
        Distortions(np.full((1, 1), -1), np.zeros((1, 1), np.int32), np.zeros(0, np.float32), 0.2),
        p1=0.02,
        subwords=subwords,
    )
    parameters.save(folder)
    return folder
