"""What does it cost that damage is noticed, when a model is opened?

    python benchmarks/opening.py

Opening is timed without a look at the content (as where it was compared before), the first time,
and where the comparison is asked for; each with the files in memory and on the disk alone.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
from common import flags, take_turns

from scones.model.config import PRESETS, ModelConfig
from scones.model.folder import POCKET, ModelFacts, ModelFolder
from scones.model.transformer import Transformer


def large_model(folder: Path, toy: bool) -> Path:
    """A model of the paper's sizes, 61M parameters, with random weights."""
    sizes = dict(PRESETS["tiny" if toy else "paper"])
    layers = sizes.pop("layers")
    config = ModelConfig(
        8000 if toy else 32000, layers, layers, dropout=0, attention_dropout=0, **sizes
    )
    facts = ModelFacts({"layer": "scones"}, "de", "en")
    subwords = (POCKET / "pocket-de-en" / "subwords.model").read_bytes()
    ModelFolder(Transformer(config), subwords, facts).save(folder)
    return folder


def opening(folder: Path, cached: bool, stamped: bool, verify: bool) -> float:
    """Time one opening."""
    if not stamped:
        os.environ["SCONES_CACHE"] = os.devnull  # nothing can be remembered there
    for path in folder.iterdir() if not cached else ():
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
    begin = time.perf_counter()
    ModelFolder.load(folder, verify=verify)
    os.environ["SCONES_CACHE"] = os.environ["OPENING_CACHE"]
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    options = flags(__doc__).parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["SCONES_CACHE"] = os.environ["OPENING_CACHE"] = f"{temporary}/cache"
        folders = [POCKET / "pocket-de-en", large_model(Path(temporary, "61M"), options.toy)]
        time.sleep(2.1)  # so that what is compared now is remembered
        print(
            f"{'seconds to open':24} {'compared before':>16} {'first time':>11} {'asked for':>10}"
        )
        for folder in folders:
            for cached in (True, False):
                ModelFolder.load(folder)
                ways: dict[str, Callable[[], float]] = {
                    "before": partial(opening, folder, cached, stamped=True, verify=False),
                    "first": partial(opening, folder, cached, stamped=False, verify=False),
                    "asked": partial(opening, folder, cached, stamped=True, verify=True),
                }
                times = [median(found) for found in take_turns(ways, options.repeats).values()]
                name = f"{folder.name}, {'in memory' if cached else 'on disk'}"
                print(f"{name:24} {times[0]:16.3f} {times[1]:11.3f} {times[2]:10.3f}")


if __name__ == "__main__":
    main()
