"""What a run says while it runs: a progress bar or plain lines, JSON lines, TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from scones.errors import SconesError


class Journal:
    """Writes each event to log.jsonl, to the terminal and, where asked, to TensorBoard."""

    def __init__(self, folder: Path, tensorboard: bool, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._file = (folder / "log.jsonl").open("a", encoding="utf-8")
        self._writer = _tensorboard(folder / "tensorboard") if tensorboard else None
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=12),  # with the text behind it 80 columns
            TextColumn("{task.description}"),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=1.0)

    def __enter__(self) -> Journal:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        self._file.close()
        if self._writer is not None:
            self._writer.close()

    def say(self, text: str) -> None:
        """Tell the user something."""
        self._console.print(text, markup=False)

    def record(self, event: str, step: int, values: dict[str, Any]) -> None:
        """Append one event to the JSON-lines log and to TensorBoard."""
        self._file.write(json.dumps({"event": event, "step": step, **values}) + "\n")
        self._file.flush()
        if self._writer is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._writer.add_scalar(f"{event}/{name}", value, step)

    def progress(self, step: int, values: dict[str, Any], spent: float, left: float | None) -> None:
        """Record a training step and show it: on a terminal as a bar, elsewhere as a line."""
        self.record("train", step, values)
        remaining = "" if left is None else f"  {_duration(left)} left"
        line = (
            f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s  "
            f"{values['hardware_share']:.0%} of peak{remaining}"
        )
        if self._console.is_terminal:
            self._bar.update(self._task, description=f"step {step}  {line}", completed=spent)
        else:
            self.say(f"step {step:>6}  epoch {values['epoch']:.2f}  {line}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SconesError(
            "TensorBoard is not installed; install scones[tensorboard] or leave --tensorboard away."
        ) from None
    return SummaryWriter(str(folder))
