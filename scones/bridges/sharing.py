"""One corpus searched by several processes: the first has the sentences, all of them search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scones.bridges.engines import Searcher
from scones.processes import Processes
from scones.search.corpus import SearchOptions
from scones.search.stepping import Hypothesis

Job = tuple[Sequence[Sequence[int]], SearchOptions]


class SharedSearcher:
    """Spreads sentences over processes; their answers come back in the order of the sentences.

    The first process calls `search` as often as it likes and `finish` at the end; meanwhile the
    others are in `help`.
    """

    def __init__(self, searcher: Searcher, processes: Processes) -> None:
        self._searcher = searcher
        self._processes = processes
        self.tells_scores = searcher.tells_scores

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Let all processes search; the first calls this."""
        self._processes.from_first(lambda: (sources, options))
        return self._work((sources, options))

    def finish(self) -> None:
        """Send the others home."""
        self._processes.from_first(lambda: None)

    def help(self) -> None:
        """Search for the first process until it is done."""
        nothing: Any = None
        while (job := self._processes.from_first(lambda: nothing)) is not None:
            self._work(job)

    def _work(self, job: Job) -> list[list[Hypothesis]]:
        sources, options = job
        # Sorted by length, every n-th sentence is an n-th of the work.
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        rank, count = self._processes.rank, self._processes.count
        mine = [sources[index] for index in order[rank::count]]
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for other, found in enumerate(
            self._processes.everyones(self._searcher.search(mine, options))
        ):
            for index, hypotheses in zip(order[other::count], found, strict=True):
                results[index] = hypotheses
        return results
