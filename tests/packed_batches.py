"""Training batches in either layout, as `GpuSteps` makes them."""

from scones.training import data
from scones.training.data import WHOLE
from scones.training.gpu import make_packed_batch


def training_batches(tokens, max_tokens, seed, by_sentence, start, packed, grain=None):
    """Packed ones are settled to multiples of `grain` tokens, where it is given."""

    def make(tokens, pairs, by_sentence, shard):
        batch = make_packed_batch(tokens, pairs, by_sentence, shard)
        return batch if grain is None else batch.settled(grain)

    layout = make if packed else data.make_batch
    return data.training_batches(tokens, max_tokens, seed, by_sentence, start, WHOLE, layout)
