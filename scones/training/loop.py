"""The training loop: a store in, a model folder out.

    runs/de-en/                 the best model so far: a model folder
    runs/de-en/last/            the last weights as a model folder, when training has ended
    runs/de-en/training/        run.json (what is being trained), log.jsonl, checkpoints/

The same command goes on where it was stopped: by Ctrl-C, by a power cut or by its budget. Started
by torchrun, several processes share every batch; the first of them owns the folder.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scones.errors import SconesError
from scones.evaluation.metrics import bleu
from scones.files import sole_use
from scones.hardware import choose_precision, matrix_rate
from scones.model.folder import ModelFolder, read_model_config
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.processes import Processes, connected
from scones.search.engine import SearchOptions, batches_by_length, search_corpus
from scones.text.store import TokenStore
from scones.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    RunState,
    TrainResult,
    random_states,
)
from scones.training.data import (
    Batch,
    Objective,
    PackedBatch,
    Position,
    Share,
    make_batch,
    training_batches,
)
from scones.training.gpu import (
    InFlight,
    Outcome,
    Replays,
    ahead,
    grain,
    pinned,
    replayable,
    replays_pay,
)
from scones.training.log import Journal, Meter
from scones.training.optimizers import finite_step, learning_rate, make_optimizer
from scones.training.options import Experiment, check_data, claim_folder, new_model, start_from
from scones.version import __version__, commit

# Ctrl-C and a polite kill, taken note of between two steps.


@contextmanager
def interruptible() -> Iterator[threading.Event]:
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


# The development set: its loss, and the BLEU of greedy search on it.

_GREEDY = SearchOptions(search="greedy", scores=False)


@dataclass(frozen=True)
class Validation:
    """How a model does on the development set."""

    loss: float
    bleu: float
    length_ratio: float
    signature: str


@torch.inference_mode()
def validate(
    model: Transformer, output: OutputLayer, store: TokenStore, sentences: int | None
) -> Validation | None:
    """Evaluate on the first `sentences` of the store's development set; None where it has none."""
    texts = store.dev_texts
    if texts is None:
        return None
    references = texts[1][:sentences]
    tokens = store.split("dev")
    training = model.training
    model.eval()
    total = count = 0.0
    lengths = (tokens.target_lengths[: len(references)] + 1).tolist()
    for indices in batches_by_length(lengths, 4096):
        batch = make_batch(tokens, np.array(indices), by_sentence=False).to(model.device)
        hidden_ND = batch.hidden(model)
        total += float(
            output.loss(hidden_ND, model.output_weight, model.output_bias, batch.targets_N)
        )
        count += batch.total
    sources = [tokens.source(index).tolist() for index in range(len(references))]
    found = search_corpus(model, output, sources, _GREEDY)
    hypotheses = store.subwords.decode([best[0].tokens for best in found])
    score = bleu(hypotheses, [references])
    model.train(training)
    return Validation(
        total / max(count, 1), score.value, score.length_ratio or 0.0, score.signature
    )


_GO_ON = "The same command goes on from the last checkpoint, also with another number of processes."
_PERSISTENT = 10  # steps in a row that are not finite, after which a run will not recover


def train(
    experiment: Experiment, store_path: Path, folder: Path, quiet: bool = False
) -> TrainResult:
    """Train, or go on training, the model in `folder` on the store at `store_path`."""
    with connected(_GO_ON) as processes:
        store = TokenStore.open(store_path)
        folder = Path(folder)
        # What cannot be trained is refused before anything is on disk.
        check_data(experiment, store)
        if len({*processes.everyones((store.digest, str(experiment.decisive())))}) > 1:
            raise SconesError(
                "The processes were given different data or options; give all the same."
            )
        model = new_model(experiment, store)
        place = folder / "training"
        with ExitStack() as held:

            def begin() -> None:
                _begin(folder, experiment, store, model)
                held.enter_context(sole_use(place))

            processes.from_first(begin)
            kept = place if processes.is_first else None
            journal = held.enter_context(Journal(kept, experiment.train.tensorboard, quiet))
            return _Run(experiment, store, folder, journal, model, processes).go()


def _begin(folder: Path, experiment: Experiment, store: TokenStore, model: Transformer) -> None:
    """Claim the folder; a run without a checkpoint takes the weights to start from, if they fit."""
    path = experiment.train.start_from
    if path is not None and not any((folder / "training" / "checkpoints").glob("step-*")):
        start_from(path, model, store)
    claim_folder(folder, experiment, store)


class _Run:
    """One process's part of a run."""

    def __init__(
        self,
        experiment: Experiment,
        store: TokenStore,
        folder: Path,
        journal: Journal,
        model: Transformer,
        processes: Processes,
    ) -> None:
        self.options = options = experiment.train
        self.output = experiment.output
        self.store = store
        self.folder = folder
        self.journal = journal
        self.model = model
        self.processes = processes
        self.device = model.device
        self.precision = choose_precision(options.precision, self.device)
        if options.threads:
            torch.set_num_threads(options.threads)
        # Before the checkpoint is read: this draws random numbers, and a run that goes on must not.
        peak = matrix_rate(self.device, self.precision) * processes.count
        self.optimizer = make_optimizer(self.model, options)
        keep = max(2, options.average_last)
        self.checkpoints = Checkpoints(folder / "training" / "checkpoints", keep, journal.say)
        self.state = self._resume()
        self.objective = Objective(model, self.output, self.precision)
        # After resuming, for it gives the first process's weights to all.
        self.shared_objective = processes.share_gradients(self.objective)
        self.replays = self._replays()
        self.in_flight = InFlight(self.device)
        self.meter = Meter(store.split("train"), model, peak, self.state.tokens)

    def _replays(self) -> Replays | None:
        """Record passes where that is wanted and can be done."""
        wanted = {
            "auto": replays_pay(self.objective, self.options.max_tokens),
            "yes": replayable(self.objective),
            "no": False,
        }
        if not wanted[self.options.graphs] or self.processes.count > 1:
            return None
        return Replays(self.objective)

    def _resume(self) -> RunState:
        """Go back to the last checkpoint; where there is none, to the beginning."""
        if not self.processes.is_first:  # every process drops out other neurons
            torch.manual_seed(self.options.seed + self.processes.rank)
        checkpoint = self.processes.from_first(self.checkpoints.newest)
        state = RunState()
        if checkpoint is not None:
            checkpoint.put_back(self.model, self.optimizer, self.processes.rank)
            state = RunState.from_json(checkpoint.state)
            self.journal.say(f"Going on from step {state.step}.")
        self.journal.begin(state.step)
        return state

    def go(self) -> TrainResult:
        """Train until the budget is spent, nothing gets better, or the user stops it."""
        self.model.train()
        begin = time.monotonic() - self.state.seconds
        with closing(self._batches()) as batches, interruptible() as interrupted:
            while (reason := self._reason_to_stop()) is None:
                step = list(islice(batches, self.options.accumulate))
                loss = self._gradient([batch for batch, _ in step])
                # One clock for all, and what reaches one process reaches all.
                mine = self.processes.is_first
                self.state.seconds, asked_to_stop = self.processes.sum(
                    [(time.monotonic() - begin) * mine, interrupted.is_set()]
                )
                self._move(loss)
                self.state.position = step[-1][1]
                self.state.tokens += sum(batch.tokens for batch, _ in step)
                self._keep_books(stopping=bool(asked_to_stop))
                if asked_to_stop:
                    return self._result("interrupted; the same command goes on", True)
        self._end()
        return self._result(reason)

    def _batches(self) -> Generator[tuple[Batch, Position], None, None]:
        """Give the batches from where the run stands; a GPU's are made while it computes."""
        batches = training_batches(
            self.store.split("train"),
            self.options.max_tokens,
            self.options.seed,
            self.options.loss_average == "sentences",
            self.state.position,
            Share(self.processes.rank, self.processes.count),
            self.objective.packed,
            grain=None if self.replays is None else grain(self.options.max_tokens),
        )
        if self.device.type == "cuda":
            return ahead(pinned(batches, self.device))
        return ahead(batches, depth=0)  # a thread would only take a core from the arithmetic

    def _gradient(self, batches: list[Batch]) -> Tensor:
        """Leave the gradient of the mean loss in the weights; gives that loss."""
        total = sum(batch.total for batch in batches)
        losses = []
        for batch in batches:
            last = batch is batches[-1]
            with nullcontext() if last else self.processes.unshared(self.shared_objective):
                # The processes' gradients are averaged, and should be added.
                losses.append(self._pass(batch, total / self.processes.count))
        return self.processes.add_up(torch.stack(losses).sum() / total)

    def _pass(self, batch: Batch, divisor: float) -> Tensor:
        """Add the gradient of the loss over `divisor` to the weights'; gives that loss."""
        if self.replays is not None and isinstance(batch, PackedBatch):
            return self.replays.gradient(batch, divisor)
        loss: Tensor = self.shared_objective(batch.to(self.device))
        (loss / divisor).backward()
        return loss.detach()

    def _move(self, loss: Tensor) -> None:
        """Make the optimiser's step; take note of earlier ones that have ended meanwhile."""
        rate = learning_rate(self.options, self.state.step + 1, self._spent())
        norm = finite_step(self.optimizer, rate, loss, self.options.clip_norm)
        self.state.step += 1
        self._note(self.in_flight.add(self.state.step, loss, norm))

    def _note(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.finite:
                self.state.skipped_in_a_row = 0
                self.meter.count(outcome.loss)
            else:
                self._skip(outcome)

    def _skip(self, outcome: Outcome) -> None:
        """Take note of a step that taught nothing; too many of them end the run."""
        self.state.skipped += 1
        self.state.skipped_in_a_row += 1
        step, loss, norm = outcome.step, outcome.loss, outcome.norm
        facts = f"loss {loss:g}, gradient norm {norm:g}"
        self.journal.record("skip", step, {"loss": str(loss), "norm": str(norm)})
        self.journal.say(f"step {step:>6}  skipped: not finite ({facts})")
        if self.state.skipped_in_a_row == _PERSISTENT:
            raise SconesError(
                f"Loss or gradient was not finite in {_PERSISTENT} steps in a row, up to {step} "
                f"({facts}), and training would not recover; train anew with a smaller "
                f"learning_rate than {self.options.learning_rate:g}, more warmup_steps than "
                f"{self.options.warmup_steps}, or precision float32. What was good before is in "
                f"{self.folder}."
            )

    def _keep_books(self, stopping: bool) -> None:
        """Log, validate and write a checkpoint, where it is time for it."""
        step, options = self.state.step, self.options
        log = step % options.log_every == 0
        validation = step % options.validate_every == 0
        checkpoint = stopping or step % options.checkpoint_every == 0
        if not (log or validation or checkpoint):
            return
        self._note(self.in_flight.land())
        if log:
            self._log()
        with self.meter.paused():
            if validation:
                self._validate()
            if checkpoint:
                self._checkpoint()

    def _log(self) -> None:
        values = self.meter.read(self.state) | {
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "skipped": self.state.skipped,
        }
        if self.replays is not None:
            values |= {"graphs": self.replays.count, "graph_seconds": self.replays.seconds}
        spent = self._spent()
        left = self.state.seconds * (1 - spent) / spent if spent > 0 else None
        self.journal.progress(self.state.step, values, spent, left)

    def _spent(self) -> float:
        """Give the share of the budget that is used up."""
        shares = [0.0]
        if self.options.max_steps:
            shares.append(self.state.step / self.options.max_steps)
        if self.options.max_minutes:
            shares.append(self.state.seconds / (60 * self.options.max_minutes))
        return max(shares)

    def _reason_to_stop(self) -> str | None:
        if self._spent() >= 1:
            return "the budget is spent"
        patience = self.options.patience
        if patience and self.state.validations_without_gain >= patience:
            return f"no better dev BLEU in {patience} validations"
        return None

    def _validate(self) -> None:
        """Evaluate on the development set; the best weights so far become the model folder."""
        dev_sentences = self.options.dev_sentences
        result = self.processes.from_first(
            lambda: validate(self.model, self.output, self.store, dev_sentences)
        )
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
        random = self.processes.everyones(random_states())
        if self.processes.is_first:
            state = self.state.to_json()
            self.checkpoints.save(
                Checkpoint.of(self.state.step, self.model, self.optimizer, random, state)
            )

    def _end(self) -> None:
        """Validate; average the last few weights where asked for; keep the last ones."""
        self._note(self.in_flight.land())
        last = self.folder / "last"
        if self.processes.from_first(lambda: _steps_of(last)) == self.state.step:
            return  # written when all the rest was
        if self.state.step % self.options.validate_every:
            self._validate()
        self._checkpoint()
        if self.options.average_last > 1:
            self._validate_average()
        self._save(last, None)

    def _validate_average(self) -> None:
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        steps, average = self.processes.from_first(
            lambda: self.checkpoints.average(self.options.average_last)
        )
        self.journal.say(f"Averaging the checkpoints of steps {', '.join(map(str, steps))}.")
        self.model.load_state_dict(average)
        self._validate()
        self.model.load_state_dict(weights)

    def _save(self, folder: Path, result: Validation | None) -> None:
        if not self.processes.is_first:
            return
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
        best = self.processes.from_first(lambda: _facts_of(self.folder))
        return TrainResult(
            reason,
            self.state.step,
            self.state.seconds,
            best.get("scores", {}).get("bleu"),
            best.get("steps", 0),
            self.state.skipped,
            interrupted,
        )


def _facts_of(folder: Path) -> dict[str, Any]:
    """Give what a model folder says of its origin; nothing where there is none yet."""
    if not (folder / "config.json").exists():
        return {}
    facts: dict[str, Any] = read_model_config(folder)["scones"]
    return facts


def _steps_of(folder: Path) -> int | None:
    return _facts_of(folder).get("steps")
