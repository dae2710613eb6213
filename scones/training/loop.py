"""The training loop: a store in, a model folder out.

    runs/de-en/                 the best model so far: a model folder
    runs/de-en/last/            the last weights as a model folder, when training has ended
    runs/de-en/training/        run.json (what is being trained), log.jsonl, checkpoints/

The same command goes on where it was stopped: by Ctrl-C, by a power cut or by its budget. Started
by torchrun, several processes share every batch; the first of them owns the folder.

Read `train`, then `_Run.go`, which is the loop itself.
"""

# Before you change anything here: every rank of a torchrun job runs this file, and
# `processes.broadcast`, `all_gather` and `all_reduce` are collectives, which all ranks have to call
# in the same order. An early return, or an `if` around one of them that is true on some ranks only,
# hangs the job. What differs between ranks (the clock, Ctrl-C, what is on disk) is therefore read
# on one of them and sent to all before anything is decided by it.

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
from collections.abc import Iterator
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
from scones.files import commit, sole_use
from scones.hardware import choose_device, choose_precision, matrix_rate
from scones.model.folder import ModelFacts, ModelFolder, read_facts
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer, output_layer
from scones.processes import Processes, connected
from scones.search.engine import search_corpus
from scones.search.searcher import SearchOptions, batches_by_length
from scones.text.store import ParallelTokens, TokenStore
from scones.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    RunState,
    TrainResult,
    random_states,
)
from scones.training.data import (
    Batch,
    Batches,
    LossModule,
    Position,
    Shard,
    make_batch,
    model_for,
    training_batches,
)
from scones.training.labels import labelled
from scones.training.log import Logger, Throughput
from scones.training.optimizers import finite_step, learning_rate, make_optimizer
from scones.training.options import Experiment, TrainOptions, check_data, check_run_config
from scones.version import __version__

_GO_ON = "The same command goes on from the last checkpoint, also with another number of processes."
_LOG_SECONDS = 30  # the longest time between log lines, but for a single step that takes longer
_PERSISTENT = 10  # steps in a row that are not finite, after which a run will not recover


def train(
    experiment: Experiment, store_path: Path, folder: Path, quiet: bool = False
) -> TrainResult:
    """Train, or go on training, the model in `folder` on the store at `store_path`."""
    with connected(_GO_ON) as processes, ExitStack() as held:
        store = TokenStore.open(store_path)
        folder = Path(folder)
        training = folder / "training"
        # What cannot be trained is refused before anything is on disk.
        check_data(experiment, store)
        tokens = labelled(store, experiment.train)
        output_layer(experiment.output.to_config())  # registered, or nobody could open the model
        if len({*processes.all_gather((store.digest, str(experiment.fingerprint())))}) > 1:
            raise SconesError(
                "The processes were given different data or options; give all the same."
            )
        model = new_model(experiment, store)

        def begin() -> None:
            # Weights to start from count for a run that has no checkpoint yet; later they may be
            # gone. They have to fit before the folder is made.
            path = experiment.train.start_from
            if path is not None and not Checkpoints(training / "checkpoints", 0, str).steps():
                start_from(path, model, store)
            check_run_config(folder, experiment, store)
            held.enter_context(sole_use(training))

        processes.broadcast(begin)
        logger = Logger(
            training if processes.is_first else None, experiment.train.tensorboard, quiet
        )
        held.enter_context(closing(logger))
        return _Run(experiment, store, tokens, folder, logger, model, processes).go()


def new_model(experiment: Experiment, store: TokenStore) -> Transformer:
    """Make the model with random weights, as a run without `start_from` begins."""
    device = choose_device(experiment.train.device)
    # The weights are drawn on the CPU and then moved: a seed means the same model on every device.
    torch.manual_seed(experiment.train.seed)
    model = Transformer(experiment.model.build(len(store.subwords)))
    with torch.no_grad():
        # One sigmoid per token has to start near the share of tokens that are right, one in the
        # vocabulary; the output layer knows.
        model.output_bias.fill_(experiment.output.initial_bias(model.config.vocabulary))
    return model.to(device)


def start_from(path: Path, model: Transformer, store: TokenStore) -> None:
    """Give the model the weights of a model folder, which has to fit."""
    start = model_for(store, path)
    if differences := start.model.config.other_shape(model.config):
        sizes = ", ".join(differences)
        raise SconesError(f"{path} has other sizes: {sizes}; give the sizes of that model.")
    model.load_state_dict(start.model.state_dict())


# How a device is given its work: `CpuSteps` here, `GpuSteps` in training.gpu.


@dataclass(frozen=True)
class StepResult:
    """What came of a step."""

    step: int
    loss: float
    norm: float
    """The gradient's norm, before clipping."""

    @property
    def finite(self) -> bool:
        """Whether the step was made."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class CpuSteps:
    """Steps on a CPU: a batch is made when it is needed, a step has ended when it was given.

    A GPU's steps are a subclass, with the same methods: it is given more than it has done.
    """

    def __init__(
        self, loss_module: LossModule, processes: Processes, options: TrainOptions
    ) -> None:
        self.loss_module = loss_module
        self.device = loss_module.model.device
        self.processes = processes
        self.options = options
        self._parallel = processes.data_parallel(loss_module)

    def batches(self, tokens: ParallelTokens, start: Position) -> Batches:
        """The batches of this rank from `start` on, each with the position behind it."""
        return training_batches(
            tokens,
            self.options.max_tokens,
            self.options.seed,
            self.options.loss_average == "sentences",
            start,
            Shard(self.processes.rank, self.processes.count),
            self.make_batch,
        )

    def make_batch(
        self, tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, shard: Shard
    ) -> Batch:
        return make_batch(tokens, indices, by_sentence, shard)

    def gradient(self, batches: list[Batch]) -> Tensor:
        """Leave the gradient of the mean loss in the weights; returns that loss, over all ranks."""
        total = sum(batch.total for batch in batches)
        losses = []
        for batch in batches:
            # Only the last pass of a step sends gradients to the other ranks: they add up anyway.
            last = batch is batches[-1]
            with nullcontext() if last else self.processes.no_sync(self._parallel):
                # The ranks' gradients are averaged, and should be added.
                losses.append(self.backward(batch, total / self.processes.count))
        return self.processes.all_reduce(torch.stack(losses).sum() / total)

    def backward(self, batch: Batch, divisor: float) -> Tensor:
        """Add the gradient of the loss over `divisor` to the weights'; returns the summed loss."""
        loss: Tensor = self._parallel(batch.to(self.device))
        (loss / divisor).backward()
        return loss.detach()

    def note(self, step: int, loss: Tensor, norm: Tensor) -> list[StepResult]:
        """Take note of a step that was just given; returns those that can be read by now."""
        return [StepResult(step, loss.item(), norm.item())]

    def finish(self) -> list[StepResult]:
        """Wait for all steps; returns those that were not read yet."""
        return []

    @property
    def stats(self) -> dict[str, Any]:
        """What a log line says besides."""
        return {}


def _make_steps(loss_module: LossModule, processes: Processes, options: TrainOptions) -> CpuSteps:
    """The only question for a GPU in training; imported here, so that a CPU run does without."""
    if loss_module.packed or loss_module.model.device.type == "cuda":
        from scones.training.gpu import GpuSteps

        if options.labels:  # their number changes from batch to batch, and no graph's may
            options = dataclasses.replace(options, graphs="no")
        return GpuSteps(loss_module, processes, options)
    return CpuSteps(loss_module, processes, options)


@dataclass
class _Run:
    """One rank's part of a run."""

    experiment: Experiment
    store: TokenStore
    tokens: ParallelTokens
    folder: Path
    logger: Logger
    model: Transformer
    processes: Processes

    def __post_init__(self) -> None:
        self.options = options = self.experiment.train
        self.output = self.experiment.output
        model, processes = self.model, self.processes
        self.precision = choose_precision(options.precision, model.device)
        if options.threads:
            torch.set_num_threads(options.threads)
        # Before the checkpoint is read: this draws random numbers, and a run that goes on must not.
        peak = matrix_rate(model.device, self.precision) * processes.count
        self.optimizer = make_optimizer(model, options)
        keep = max(2, options.average_last)
        self.checkpoints = Checkpoints(
            self.folder / "training" / "checkpoints", keep, self.logger.info
        )
        self.state = self._resume()
        if not options.has_budget:
            self.logger.info(
                f"Ends when dev BLEU has not risen for {options.patience} validations, one every "
                f"{options.validate_every:,} steps; --max-minutes sets a budget."
            )
        self.logged = self.state.seconds
        """When the last log line was written; the same on all ranks, as the clock is."""
        self.warned = False
        # After resuming: DistributedDataParallel sends rank 0's weights to all when it is made.
        self.steps = _make_steps(LossModule(model, self.output, self.precision), processes, options)
        self.throughput = Throughput(self.store.split("train"), model, peak, self.state.tokens)

    def _resume(self) -> RunState:
        """Go back to the last checkpoint; where there is none, to the beginning."""
        if not self.processes.is_first:  # every rank drops out other neurons
            torch.manual_seed(self.options.seed + self.processes.rank)
        checkpoint = self.processes.broadcast(self.checkpoints.newest)
        state = RunState()
        if checkpoint is not None:
            checkpoint.put_back(self.model, self.optimizer, self.processes.rank)
            state = checkpoint.state
            self.logger.info(f"Going on from step {state.step}.")
        # A run that has ended validated more; those that its end makes stay in the log then.
        at_the_end = 2 * self.processes.broadcast(lambda: self._ended_at(state.step))
        self.logger.begin(state.step, at_the_end + (state.step % self.options.validate_every == 0))
        return state

    def go(self) -> TrainResult:
        """Train until the budget is spent, nothing gets better, or the user stops it."""
        options, state, steps = self.options, self.state, self.steps
        self.model.train()
        if options.max_steps:
            self._check_warmup(options.max_steps)
        begin = time.monotonic() - state.seconds
        batches = steps.batches(self.tokens, state.position)
        with closing(batches), interruptible() as interrupted:
            while (reason := self._reason_to_stop()) is None:
                # Forward and back over the batches of one step; the gradient is in the weights.
                taken = list(islice(batches, options.accumulate))
                loss = steps.gradient([batch for batch, _ in taken])

                # One clock for all ranks, and Ctrl-C at any of them reaches all. Float64, for the
                # seconds of weeks; on the CPU, where nothing waits for a GPU.
                elapsed = (time.monotonic() - begin) * self.processes.is_first
                shared = torch.tensor([elapsed, interrupted.is_set()], dtype=torch.float64)
                state.seconds, stopping = self.processes.all_reduce(shared).tolist()

                # The optimiser's step. Whether it is made is decided on the device, by loss and
                # norm; a GPU's results are read here some steps later, so that nothing waits.
                rate = learning_rate(options, state.step + 1, self._spent())
                norm = finite_step(self.optimizer, rate, loss, options.clip_norm)
                state.step += 1
                self._note(steps.note(state.step, loss, norm))
                state.position = taken[-1][1]
                state.tokens += sum(batch.tokens for batch, _ in taken)

                # Bookkeeping. What is logged or kept has to know of all steps: they are waited for.
                waited = state.seconds - self.logged >= _LOG_SECONDS
                logging = waited or state.step % options.log_every == 0
                validating = state.step % options.validate_every == 0
                saving = bool(stopping) or state.step % options.checkpoint_every == 0
                if logging or validating or saving:
                    self._note(steps.finish())
                    if logging:
                        self._log()
                    with self.throughput.paused():
                        if validating:
                            self._validate()
                        if saving:
                            self._checkpoint()
                if stopping:
                    return self._result("interrupted; the same command goes on", True)
        self._end()
        return self._result(reason)

    def _note(self, results: list[StepResult]) -> None:
        for result in results:
            if result.finite:
                self.state.skipped_in_a_row = 0
                self.throughput.count(result.loss)
            else:
                self._skip(result)

    def _skip(self, result: StepResult) -> None:
        """Take note of a step that taught nothing; too many of them end the run."""
        self.state.skipped += 1
        self.state.skipped_in_a_row += 1
        step, loss, norm = result.step, result.loss, result.norm
        facts = f"loss {loss:g}, gradient norm {norm:g}"
        self.logger.event("skip", step, {"loss": str(loss), "norm": str(norm)})
        self.logger.info(f"step {step:>6}  skipped: not finite ({facts})")
        if self.state.skipped_in_a_row == _PERSISTENT:
            raise SconesError(
                f"Loss or gradient was not finite in {_PERSISTENT} steps in a row, up to {step} "
                f"({facts}), and training would not recover; train anew with a smaller "
                f"learning_rate than {self.options.learning_rate:g}, more warmup_steps than "
                f"{self.options.warmup_steps}, or precision float32. What was good before is in "
                f"{self.folder}."
            )

    def _log(self) -> None:
        self.logged = self.state.seconds
        values = self.throughput.read(self.state) | {
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "skipped": self.state.skipped,
            **self.steps.stats,
        }
        spent = self._spent()
        left = self.state.seconds * (1 - spent) / spent if spent > 0 else None
        self.logger.progress(self.state.step, values, spent, left)
        if spent > 0:
            self._check_warmup(self.state.step / spent)

    def _check_warmup(self, end: float) -> None:
        """Warn once if training will end, at its pace, before the learning rate is highest."""
        warmup = self.options.warmup_steps
        if end <= warmup and not self.warned:
            self.warned = True
            self.logger.info(
                f"Training ends near step {end:,.0f}, within the warm-up of {warmup:,} steps: the "
                "learning rate stays low; give a longer budget, or fewer --warmup-steps."
            )

    def _spent(self) -> float:
        """The share of the budget that is used up."""
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
        result = self.processes.broadcast(
            lambda: validate(self.model, self.output, self.store, dev_sentences)
        )
        if result is None:
            self._save(self.folder, None)
            return
        better = self.state.best_bleu is None or result.bleu > self.state.best_bleu
        self.logger.event("validate", self.state.step, dataclasses.asdict(result))
        self.logger.info(
            f"step {self.state.step:>6}  dev loss {result.loss:.3f}  "
            f"dev BLEU {result.bleu:.2f} (greedy){', the best so far' if better else ''}"
        )
        self.state.validations_without_gain += 1
        if better:
            self.state.validations_without_gain = 0
            self.state.best_bleu, self.state.best_step = result.bleu, self.state.step
            self._save(self.folder, result)

    def _checkpoint(self) -> None:
        random = self.processes.all_gather(random_states())
        if self.processes.is_first:
            self.checkpoints.save(Checkpoint.of(self.model, self.optimizer, random, self.state))

    def _end(self) -> None:
        """Validate; average the last few weights where asked for; keep the last ones."""
        self._note(self.steps.finish())
        if self.processes.broadcast(lambda: self._ended_at(self.state.step)):
            return
        self._check_warmup(self.state.step)
        if self.state.step % self.options.validate_every:  # or the loop has just done it
            self._validate()
        self._checkpoint()
        if self.options.average_last > 1:
            self._validate_average()
        self._save(self.folder / "last", None)

    def _ended_at(self, step: int) -> bool:
        """Whether the run has ended at a step before: `last` is written when all the rest was."""
        written = _facts_of(self.folder / "last")
        return written is not None and written.steps == step

    def _validate_average(self) -> None:
        """Try the mean of the last checkpoints, which is kept if its BLEU is the best so far."""
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        steps, average = self.processes.broadcast(
            lambda: self.checkpoints.average(self.options.average_last)
        )
        self.logger.info(f"Averaging the checkpoints of steps {', '.join(map(str, steps))}.")
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
            ModelFacts(
                self.output.to_config(),
                self.store.source_language,
                self.store.target_language,
                steps=self.state.step,
                seed=self.options.seed,
                data_digest=self.store.digest,
                vocabulary_digest=self.store.subwords.digest,
                commit=commit(),
                scones_version=__version__,
                scores=scores,
            ),
        ).write_into(folder)

    def _result(self, reason: str, interrupted: bool = False) -> TrainResult:
        # From the folder, not from the state: an average is validated after the last checkpoint.
        best = self.processes.broadcast(lambda: _facts_of(self.folder))
        score = (best.scores or {}).get("bleu") if best else None
        return TrainResult(
            reason,
            self.state.step,
            self.state.seconds,
            score if isinstance(score, int | float) else None,
            (best.steps or 0) if best else 0,
            self.state.skipped,
            interrupted,
        )


def _facts_of(folder: Path) -> ModelFacts | None:
    """What a model folder says of itself; None where there is none yet."""
    return read_facts(folder) if (folder / "config.json").exists() else None


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn Ctrl-C and a polite kill into an event, so that no step is torn in the middle."""
    event = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if event.is_set():  # asked twice: the user does not want to wait for the step
            raise KeyboardInterrupt
        event.set()

    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield event
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    lengths = (tokens.targets.lengths[: len(references)] + 1).tolist()
    for indices in batches_by_length(lengths, 4096):
        batch = make_batch(tokens, np.array(indices), by_sentence=False).to(model.device)
        hidden_ND = batch.hidden(model)
        total += float(
            output.loss(hidden_ND, model.output_weight, model.output_bias, batch.targets_N)
        )
        count += batch.total
    sources = [tokens.sources[index].tolist() for index in range(len(references))]
    found = search_corpus(model, output, sources, SearchOptions(search="greedy", scores=False))
    hypotheses = store.subwords.decode([best[0].tokens for best in found])
    score = bleu(hypotheses, [references])
    model.train(training)
    return Validation(
        total / max(count, 1), score.value, score.length_ratio or 0.0, score.signature
    )
