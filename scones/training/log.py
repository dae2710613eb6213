"""What a run says while it runs: a progress bar or plain lines, JSON lines, TensorBoard."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from torch import nn

from scones.errors import optional_import
from scones.files import regular, write_file
from scones.model.transformer import Transformer
from scones.text.store import ParallelTokens
from scones.training.checkpoints import RunState


class Throughput:
    """Losses and tokens since the last log line; `peak` is the hardware's, in FLOP/s."""

    def __init__(
        self, tokens: ParallelTokens, model: Transformer, peak: float, tokens_before: int
    ) -> None:
        sources, targets = (
            int(lengths.sum()) + len(lengths)
            for lengths in (tokens.sources.lengths, tokens.targets.lengths)
        )
        self._epoch = targets  # tokens; an epoch is counted by what it teaches
        self._seconds_per_token = training_flops(model, sources / targets) / peak
        self._losses: list[float] = []
        self._tokens = tokens_before
        self._begin = time.perf_counter()

    def count(self, loss: float) -> None:
        self._losses.append(loss)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of validations and checkpoints."""
        begin = time.perf_counter()
        yield
        self._begin += time.perf_counter() - begin

    def read(self, state: RunState) -> dict[str, Any]:
        """The means since the last reading; begins anew."""
        now = time.perf_counter()
        # All ranks' tokens: each of them counts whole batches, not its shard.
        rate = (state.tokens - self._tokens) / (now - self._begin)
        values = {
            # NaN where every step since the last line was skipped.
            "loss": sum(self._losses) / len(self._losses) if self._losses else math.nan,
            "epoch": state.tokens / self._epoch,
            "tokens_per_second": rate,
            "hardware_share": rate * self._seconds_per_token,
            "seconds": state.seconds,
        }
        self._losses, self._tokens, self._begin = [], state.tokens, now
        return values


def training_flops(model: Transformer, source_tokens: float) -> float:
    """The operations of training on one target token with so many source tokens to it.

    Products with weights only, forward and twice backward: attention itself and the look-up of
    embeddings are left out, and padding teaches nothing.
    """
    # The keys and values of a source token are made once per decoder layer.
    crossing = sum(_matrices(layer.cross.inputs) for layer in model.decoder_layers())
    of_source = _matrices(model.encoder) + crossing
    of_target = _matrices(model.decoder) - crossing + model.output_weight.numel()
    return 6 * (of_source * source_tokens + of_target)


def _matrices(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.ndim >= 2)


class Logger:
    """Writes each event to log.jsonl, to the terminal and, where asked, to TensorBoard.

    A process that is not the first of its run has no folder, and its logger is silent.
    """

    def __init__(self, folder: Path | None, tensorboard: bool, quiet: bool = False) -> None:
        quiet = quiet or folder is None
        # On stderr: what `scones train --json` prints on stdout is for programs.
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._folder = folder
        self._file: TextIO | None = None
        self._wants_tensorboard = tensorboard
        self._writer: Any = None
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=12),  # with the text behind it 80 columns
            TextColumn("{task.description}"),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=1.0)

    def close(self) -> None:
        self._bar.stop()
        if self._file is not None:
            self._file.close()
        if self._writer is not None:
            self._writer.close()

    def begin(self, step: int, validations: int) -> None:
        """Open the log behind a step; what was logged after it will happen again, so it goes.

        So do validations of that step beyond a number of them: those of an end that was not made.
        """
        self._bar.start()
        if self._folder is None:
            return
        log = self._folder / "log.jsonl"
        kept = []
        for event in read_log(log):
            validations -= event["event"] == "validate" and event["step"] == step
            if event["step"] < step or (event["step"] == step and validations >= 0):
                kept.append(json.dumps(event) + "\n")
        write_file(log, "".join(kept))
        self._file = log.open("a", encoding="utf-8")
        if self._wants_tensorboard:
            tensorboard = optional_import(
                "torch.utils.tensorboard",
                "TensorBoard is not installed; install scones[tensorboard] or leave --tensorboard "
                "away.",
            )
            folder = str(self._folder / "tensorboard")
            self._writer = tensorboard.SummaryWriter(folder, purge_step=step + 1)

    def info(self, text: str) -> None:
        self._console.print(text, markup=False)

    def event(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Append one event to the JSON-lines log and to TensorBoard."""
        if self._file is None:
            return
        self._file.write(json.dumps({"event": kind, "step": step, **values}) + "\n")
        self._file.flush()  # a killed run has logged every step up to its last
        if self._writer is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._writer.add_scalar(f"{kind}/{name}", value, step)

    def progress(self, step: int, values: dict[str, Any], spent: float, left: float | None) -> None:
        """Record a training step and show it: on a terminal as a bar, elsewhere as a line."""
        self.event("train", step, values)
        remaining = "" if left is None else f"  {_duration(left)} left"
        line = (
            f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s  "
            f"{values['hardware_share']:.0%} of peak{remaining}"
        )
        if self._console.is_terminal:
            self._bar.update(self._task, description=f"step {step}  {line}", completed=spent)
        else:
            self.info(f"step {step:>6}  epoch {values['epoch']:.2f}  {line}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a log; a line that is none, as a power cut may leave it, is passed over."""
    content = regular(path).read_bytes() if path.exists() else b""
    for line in content.splitlines():
        with suppress(ValueError, RecursionError, KeyError, TypeError):
            event = json.loads(line)
            if isinstance(event["event"], str) and isinstance(event["step"], int):
                yield event
