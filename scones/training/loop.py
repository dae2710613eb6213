"""The training loop: a store in, a model folder out.

    runs/de-en/                 the best model so far: a model folder
    runs/de-en/last/            the last weights as a model folder, when training has ended
    runs/de-en/training/        run.json (what is being trained), log.jsonl, checkpoints/

The same command goes on where it was stopped: by Ctrl-C, by a power cut or by its budget.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from scones.hardware import choose_precision, matrix_rate
from scones.model.folder import ModelFolder, read_model_config
from scones.model.transformer import Transformer
from scones.text.store import TokenStore
from scones.training.checkpoints import Checkpoints
from scones.training.data import Batch, Position, training_batches
from scones.training.experiment import Experiment, check_data, claim_folder, new_model
from scones.training.journal import Journal
from scones.training.optimizers import learning_rate, make_optimizer
from scones.training.validation import Validation, validate
from scones.version import __version__, commit


@dataclass
class RunState:
    """Where a run stands; kept in every checkpoint."""

    step: int = 0
    position: Position = field(default_factory=Position)
    seconds: float = 0.0
    tokens: int = 0
    best_bleu: float | None = None
    best_step: int = 0
    validations_without_gain: int = 0

    def to_json(self) -> dict[str, Any]:
        """Give it as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunState:
        """Read it back."""
        return cls(**{**values, "position": Position(**values["position"])})


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    reason: str
    steps: int
    seconds: float
    best_bleu: float | None
    best_step: int
    interrupted: bool = False


def train(
    experiment: Experiment, store_path: Path, folder: Path, quiet: bool = False
) -> TrainResult:
    """Train, or go on training, the model in `folder` on the store at `store_path`."""
    store = TokenStore.open(store_path)
    folder = Path(folder)
    # What cannot be trained is refused before anything is on disk.
    check_data(experiment, store)
    model = new_model(experiment, store)
    claim_folder(folder, experiment, store)
    with Journal(folder / "training", experiment.train.tensorboard, quiet) as journal:
        return _Run(experiment, store, folder, journal, model).go()


class _Run:
    """One process's part of a run."""

    def __init__(
        self,
        experiment: Experiment,
        store: TokenStore,
        folder: Path,
        journal: Journal,
        model: Transformer,
    ) -> None:
        self.options = options = experiment.train
        self.output = experiment.output
        self.store = store
        self.folder = folder
        self.journal = journal
        self.model = model
        self.device = model.device
        self.precision = choose_precision(options.precision, self.device)
        if options.threads:
            torch.set_num_threads(options.threads)
        # Before the checkpoint is read: this draws random numbers, and a run that goes on must not.
        self.peak = matrix_rate(self.device, self.precision)
        self.optimizer = make_optimizer(self.model, options)
        keep = max(2, options.average_last)
        self.checkpoints = Checkpoints(folder / "training" / "checkpoints", keep)
        self.state = RunState()
        if steps := self.checkpoints.steps():
            saved = self.checkpoints.restore(steps[-1], self.model, self.optimizer)
            self.state = RunState.from_json(saved)
            journal.say(f"Going on from step {self.state.step}.")
        self.flops_per_token = 6 * sum(
            parameter.numel() for parameter in self.model.parameters() if parameter.ndim >= 2
        )

    def go(self) -> TrainResult:
        """Train until the budget is spent, nothing gets better, or the user stops it."""
        begin = time.monotonic() - self.state.seconds
        meter = _Meter(self)
        batches = training_batches(
            self.store.split("train"),
            self.options.max_tokens,
            self.options.seed,
            self.options.loss_average == "sentences",
            self.state.position,
        )
        with _interruptible() as interrupted:
            while (reason := self._reason_to_stop()) is None:
                micro_batches = list(islice(batches, self.options.accumulate))
                loss = self._step([batch for batch, _ in micro_batches])
                self.state.position = micro_batches[-1][1]
                self.state.step += 1
                self.state.seconds = time.monotonic() - begin
                meter.count([batch for batch, _ in micro_batches], loss)
                if self.state.step % self.options.validate_every == 0:
                    self._validate()
                if self.state.step % self.options.checkpoint_every == 0:
                    self._checkpoint()
                self.state.seconds = time.monotonic() - begin
                if interrupted.is_set():
                    self._checkpoint()
                    return self._result("interrupted; the same command goes on", True)
        self._end()
        return self._result(reason)

    def _step(self, batches: list[Batch]) -> torch.Tensor:
        """Make one optimiser step from the mean loss of the batches; gives that loss."""
        self.model.train()
        rate = learning_rate(self.options, self.state.step + 1, self._spent())
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        total = sum(batch.total for batch in batches)
        losses = []
        for batch in (batch.to(self.device) for batch in batches):
            with torch.autocast(
                self.device.type, self.precision, enabled=self.precision != torch.float32
            ):
                hidden_BTD = self.model(batch.source_BS, batch.inputs_BT)
                hidden_ND = hidden_BTD.flatten(0, 1).index_select(0, batch.real_N)
                loss = self.output.loss(
                    hidden_ND,
                    self.model.output_weight,
                    self.model.output_bias,
                    batch.targets_N,
                    batch.weights_N,
                )
            (loss / total).backward()
            losses.append(loss.detach())
        if self.options.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return torch.stack(losses).sum() / total

    def _spent(self) -> float:
        """Give the share of the budget that is used up."""
        shares = [0.0]
        if self.options.max_steps:
            shares.append(self.state.step / self.options.max_steps)
        if self.options.max_minutes:
            shares.append(self.state.seconds / (60 * self.options.max_minutes))
        return max(shares)

    def seconds_left(self) -> float | None:
        """Guess how long the rest of the budget takes."""
        spent = self._spent()
        return self.state.seconds * (1 - spent) / spent if spent > 0 else None

    def _reason_to_stop(self) -> str | None:
        if self._spent() >= 1:
            return "the budget is spent"
        patience = self.options.patience
        if patience and self.state.validations_without_gain >= patience:
            return f"no better dev BLEU in {patience} validations"
        return None

    def _validate(self) -> None:
        result = validate(self.model, self.output, self.store, self.options.dev_sentences)
        if result is None:
            self._save(self.folder, None)
            return
        better = self.state.best_bleu is None or result.bleu > self.state.best_bleu
        self.journal.record("validate", self.state.step, dataclasses.asdict(result))
        self.journal.say(
            f"step {self.state.step:>6}  dev loss {result.loss:.3f}  "
            f"dev BLEU {result.bleu:.2f} (greedy){', the best so far' if better else ''}"
        )
        self.state.validations_without_gain += 1
        if better:
            self.state.validations_without_gain = 0
            self.state.best_bleu, self.state.best_step = result.bleu, self.state.step
            self._save(self.folder, result)

    def _checkpoint(self) -> None:
        self.checkpoints.save(self.state.step, self.model, self.optimizer, self.state.to_json())

    def _end(self) -> None:
        """Validate; average the last few weights where asked for; keep the last ones."""
        last = self.folder / "last"
        done = (last / "config.json").exists()  # written when all the rest was
        if done and read_model_config(last)["scones"]["steps"] == self.state.step:
            return
        if self.state.step % self.options.validate_every:
            self._validate()
        self._checkpoint()
        steps = self.checkpoints.steps()[-self.options.average_last :]
        if self.options.average_last > 1 and len(steps) > 1:
            self.journal.say(f"Averaging the checkpoints of steps {', '.join(map(str, steps))}.")
            weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.model.load_state_dict(self.checkpoints.average(steps))
            self._validate()
            self.model.load_state_dict(weights)
        self._save(last, None)

    def _save(self, folder: Path, result: Validation | None) -> None:
        scores = {} if result is None else dataclasses.asdict(result)
        folder.mkdir(exist_ok=True)
        ModelFolder(
            self.model,
            self.store.subwords.model,
            self.output.to_config(),
            self.store.source_language,
            self.store.target_language,
            facts={
                "steps": self.state.step,
                "seed": self.options.seed,
                "data_digest": self.store.digest,
                "vocabulary_digest": self.store.subwords.digest,
                "commit": commit(),
                "scones_version": __version__,
                "scores": scores,
            },
        ).write_into(folder)

    def _result(self, reason: str, interrupted: bool = False) -> TrainResult:
        best: dict[str, Any] = {}
        if (self.folder / "config.json").exists():
            best = read_model_config(self.folder)["scones"]
        return TrainResult(
            reason,
            self.state.step,
            self.state.seconds,
            best.get("scores", {}).get("bleu"),
            best.get("steps", 0),
            interrupted,
        )


class _Meter:
    """Adds up what happened since the last log line."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self._reset()

    def _reset(self) -> None:
        self.losses: list[torch.Tensor] = []
        self.tokens = 0
        self.begin = time.perf_counter()

    def count(self, batches: list[Batch], loss: torch.Tensor) -> None:
        """Take a step in; at every `log_every`-th write a line."""
        run, state = self.run, self.run.state
        self.losses.append(loss)
        tokens = sum(batch.tokens for batch in batches)
        self.tokens += tokens
        state.tokens += tokens
        if state.step % run.options.log_every:
            return
        loss_value = float(torch.stack(self.losses).mean())
        rate = self.tokens / (time.perf_counter() - self.begin)
        values = {
            "loss": loss_value,
            "epoch": state.tokens / _target_tokens(run.store),
            "tokens_per_second": rate,
            "hardware_share": rate * run.flops_per_token / run.peak,
            "learning_rate": run.optimizer.param_groups[0]["lr"],
            "seconds": state.seconds,
        }
        run.journal.progress(state.step, values, run._spent(), run.seconds_left())
        self._reset()


def _target_tokens(store: TokenStore) -> int:
    lengths = store.split("train").target_lengths
    return int(lengths.sum()) + len(lengths)


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turn Ctrl-C and a polite kill into an event, so that no step is torn in the middle."""
    event = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
