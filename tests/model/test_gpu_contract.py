"""What a GPU relies on, checked on a CPU: operations, graph capture, fresh weights, imports.

Kernels run under Triton's interpreter. The operations that a GPU would be told to do are compared
with stored lists; where a change of them is meant, write them anew and read the difference:

    SCONES_WRITE_OPERATIONS=1 pytest tests/model/test_gpu_contract.py
"""

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
import torch
from kernel_device import DEVICE, make_usable
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from triton.runtime.interpreter import InterpretedFunction

from scones.hardware import gpu_path
from scones.kernels import PackedTokens, Spans
from scones.model.config import ModelConfig
from scones.model.folder import ModelFolder
from scones.model.gpu import Inference, Rows, Sources
from scones.model.transformer import Transformer
from scones.outputs.fused import fused_cross_entropy, fused_scones_loss
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.gpu import BeamSlots, GreedySlots, Room, Slots
from scones.text import END, PAD
from scones.text.store import TokenStore
from scones.text.subwords import Subwords
from scones.training.data import LossModule as Objective
from scones.training.gpu import PackedBatch, Replays
from scones.training.loop import validate

pytestmark = [
    pytest.mark.skipif(
        DEVICE.type != "cpu", reason="needs the interpreter: set CUDA_VISIBLE_DEVICES to nothing"
    ),
    # An idle slot has no source to attend to; what comes of that is thrown away.
    pytest.mark.filterwarnings("ignore:invalid value encountered in divide"),
]
STORED = Path(__file__).parent / "operations"
SENTENCES = [[5, 6, 7], [8, 9, 10, 11, 12], [4], [13, 3, 3, 7]]
VOCABULARY, SIZE, LAYERS = 50, 32, 2


@pytest.fixture(autouse=True)
def _usable(monkeypatch):
    make_usable(monkeypatch)


class Recording(TorchDispatchMode):
    """The operations and kernel launches of a block of code, in order.

    Views are left out: a GPU is not told about them. Like a CUDA graph, a recording can be
    replayed on the same memory, whatever that holds by then.
    """

    def __init__(self):
        super().__init__()
        self.lines = []
        self.host_reads = []
        """Operations whose result, or its shape, the host has to be told."""
        self._again = []
        self._before = {}
        """All memory that was touched, with what was in it at first."""

    def __enter__(self):
        run = InterpretedFunction.run

        def launch(kernel, *args, grid, **how):
            with _disable_current_modes():  # what the interpreter itself does is no operation
                self._launch(lambda: run(kernel, *args, grid=grid, **how), kernel, args, grid, how)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(InterpretedFunction, "run", launch)
        super().__enter__()
        return self

    def __exit__(self, *error):
        super().__exit__(*error)
        self._patch.undo()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self._remember(given)
        result = operation(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        memory = {tensor.untyped_storage().data_ptr() for tensor in given}
        if operation.is_view and all(one.untyped_storage().data_ptr() in memory for one in made):
            return result
        words = [str(operation), *map(described, given), "->", *map(described, made)]
        self.lines.append(" ".join(words))
        if reads_on_host(operation, args):
            self.host_reads.append(self.lines[-1])

        def again():
            leaves = tree_leaves(operation(*args, **kwargs))
            numbers = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            for place, number in zip(made, numbers, strict=True):
                if place.data_ptr() != number.data_ptr():
                    place.copy_(number)

        self._again.append(again)
        return result

    def _launch(self, launch, kernel, args, grid, how):
        named = {**dict(zip(kernel.arg_names, args, strict=False)), **how}
        self._remember([value for value in named.values() if isinstance(value, Tensor)])
        words = [f"{name}={described(value)}" for name, value in named.items()]
        self.lines.append(" ".join(["kernel", kernel.__name__, described(grid), *words]))
        launch()
        self._again.append(launch)

    def _remember(self, tensors):
        for storage in (tensor.untyped_storage() for tensor in tensors):
            self._before.setdefault(storage.data_ptr(), (storage, storage.clone()))

    def take_back(self):
        """Undo what was done while recording: a capture computes nothing."""
        for storage, before in self._before.values():
            storage.copy_(before)
        self._before.clear()

    @torch.no_grad()
    def replay(self):
        for again in self._again:
            again()


def described(value):
    """A tensor's type and shape, with a star where it does not lie in one piece."""
    if isinstance(value, Tensor):
        shape = ",".join(map(str, value.shape))
        star = "" if value.is_contiguous() else "*"
        return f"{str(value.dtype).removeprefix('torch.')}[{shape}]{star}"
    return f"{value:.6g}" if isinstance(value, float) else str(value).replace(" ", "")


def reads_on_host(operation, args):
    if operation.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put_):
        return any(index is not None and index.dtype == torch.bool for index in args[1])
    shape_of_data = torch.Tag.dynamic_output_shape in operation.tags
    return shape_of_data or torch.Tag.data_dependent_output in operation.tags


def make_model(dropout=0.0, layers=LAYERS):
    """One that ends some translations soon and others late."""
    config = ModelConfig(
        VOCABULARY, 1, layers, SIZE, 2, 64, dropout, dropout, tied_embeddings=False, max_length=32
    )
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Transformer(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
            model.output_bias[END] += 3
    return model


def packed(sentences):
    lengths = [len(sentence) for sentence in sentences]
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    ids = torch.tensor([token for sentence in sentences for token in sentence])
    places = torch.cat([torch.arange(length) for length in lengths])
    return PackedTokens(ids, places, Spans(starts, max(lengths)))


def make_batch(sources):
    """A batch of sentences that are to be translated into themselves, backwards."""
    targets = [[*source[::-1], END] for source in sources]
    inputs = packed([[PAD, *target[:-1]] for target in targets])
    count = inputs.ids_N.numel()
    return PackedBatch(
        targets_N=packed(targets).ids_N,
        weights_N=torch.linspace(0.5, 1.5, count),
        tokens=count,
        total=float(count),
        source=packed([[*source, END] for source in sources]),
        inputs=inputs,
    )


# Operations.


def record_encode():
    inference = Inference(make_model(), torch.float32)
    source = packed([[*sentence, END] for sentence in SENTENCES])
    pool = [torch.zeros(len(source.ids_N), 2 * SIZE) for _ in range(LAYERS)]
    with torch.inference_mode(), Recording() as recording:
        inference.encode(source, pool)
    return recording


def record_step(beams=1):
    inference, rows = Inference(make_model(), torch.float32), 2 * beams
    sources = Sources(
        [torch.zeros(9, 2 * SIZE) for _ in range(LAYERS)],
        torch.tensor([0, 4], dtype=torch.int32),
        torch.tensor([4, 5], dtype=torch.int32),
    )
    caches = [torch.zeros(rows, 16, 2 * SIZE) for _ in range(LAYERS)]
    owners = torch.zeros(rows, 16, dtype=torch.int32) if beams > 1 else None
    state = Rows(torch.full((rows,), 3), torch.arange(2), caches, owners)
    with torch.inference_mode(), Recording() as recording:
        inference.step(torch.full((rows,), 7), state, sources)
    return recording


def record_training():
    objective = Objective(make_model(0.1), Scones(0.5, 0.1), torch.float32)
    batch = make_batch(SENTENCES).settled(16)
    with Recording() as recording:
        objective(batch).backward()
    return recording


def record_loss(loss):
    hidden = torch.zeros(3, 4, SIZE, requires_grad=True)
    weight = torch.zeros(VOCABULARY, SIZE, requires_grad=True)
    bias = torch.zeros(VOCABULARY, requires_grad=True)
    targets = torch.tensor([[5, 6, 7, 8], [9, 10, PAD, PAD], [11, 12, 13, PAD]])
    with Recording() as recording:
        loss(hidden, weight, bias, targets, label_smoothing=0.1).backward()
    return recording


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("encode", record_encode),
        ("step", record_step),
        ("step_of_beams", lambda: record_step(beams=3)),
        ("training", record_training),
        ("fused_scones_loss", lambda: record_loss(fused_scones_loss)),
        ("fused_cross_entropy", lambda: record_loss(fused_cross_entropy)),
    ],
)
def test_a_gpu_is_told_to_do_what_it_was_always_told(name, record):
    place = STORED / f"{name}.txt"
    recording = record()
    assert recording.host_reads == []
    made_with = f"# torch {torch.__version__.partition('+')[0]}"
    if os.environ.get("SCONES_WRITE_OPERATIONS"):
        place.write_text("\n".join([made_with, *recording.lines]) + "\n", encoding="utf-8")
    stored = place.read_text(encoding="utf-8").splitlines()
    if stored[0] != made_with:
        pytest.skip(f"the operations were stored with {stored[0]}")
    assert recording.lines == stored[1:]


# What a CUDA graph of a search step relies on.


def make_slots(beams, output):
    inference = Inference(make_model().eval(), torch.float32)
    room = Room(slots=2, beams=beams, sentences=8, source_tokens=64, steps=16)
    if beams == 1:
        return GreedySlots(inference, output, room)
    return BeamSlots(inference, output, room, n_best=2, length_penalty=0.5)


def tensors_of(value, name=""):
    """All tensors of a search's state, by their names."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from tensors_of(item, f"{name}[{index}]")
    elif isinstance(value, Slots):
        for key, item in vars(value).items():
            yield from tensors_of(item, key)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name), f"{name}.{field.name}")


each_search = pytest.mark.parametrize(
    ("beams", "output"),
    [
        (1, Scones()),
        (1, Softmax()),
        (3, Scones()),
        pytest.param(3, Softmax(), marks=pytest.mark.slow),
    ],
    ids=["greedy-scones", "greedy-softmax", "beam-scones", "beam-softmax"],
)


@each_search
@torch.inference_mode()
def test_a_search_step_can_be_captured(beams, output):
    slots = make_slots(beams, output)
    slots._load(SENTENCES, [6, 3, 4, 5])
    addresses = {name: tensor.data_ptr() for name, tensor in tensors_of(slots)}
    assert len(addresses) > 10
    steps = []
    for _ in range(6):
        with Recording() as recording:
            slots._step()
        steps.append(recording)
    assert int(slots.counts[2]) > 0, "sentences have come and gone"
    assert all(step.host_reads == [] for step in steps)
    assert all(step.lines == steps[0].lines for step in steps)
    assert {name: tensor.data_ptr() for name, tensor in tensors_of(slots)} == addresses


@each_search
@torch.inference_mode()
def test_a_replayed_step_searches_like_a_computed_one(beams, output):
    limits = [4, 2, 3, 2]
    wanted = make_slots(beams, output).search(SENTENCES, limits)
    slots = make_slots(beams, output)
    slots._load([[END]], [1])
    with Recording() as recording:
        slots._step()
    recording.take_back()
    slots._graph = recording
    assert slots.search(SENTENCES, limits) == wanted


# A search copies the weights; training changes them between two validations.


@pytest.mark.parametrize("kernels", ["no", "yes"])
def test_a_validation_sees_the_weights_as_they_are(kernels, tiny_model, tiny_store, monkeypatch):
    monkeypatch.setenv("SCONES_KERNELS", kernels)
    found = []

    def decode(_, tokens):
        found.append(tokens)
        return ["a word"] * len(tokens)

    monkeypatch.setattr(Subwords, "decode", decode)
    store = TokenStore.open(tiny_store)
    model = ModelFolder.load(tiny_model).model
    assert gpu_path(model) == (kernels == "yes")
    validations = [validate(model, Scones(), store, 1)]
    with torch.no_grad():
        for parameter in model.parameters():
            # Not by a factor: the best token would stay the best one. `Inference` shares float32
            # weights with the model, but its output matrix is a copy.
            parameter.copy_(parameter.flip(0))
    validations.append(validate(model, Scones(), store, 1))
    fresh = Transformer(model.config)
    fresh.load_state_dict(model.state_dict())
    validations.append(validate(fresh, Scones(), store, 1))
    assert validations[0] != validations[1] == validations[2]
    assert found[0] != found[1] == found[2]


# Passes of training that are recorded and replayed.


@pytest.fixture
def _graphs(monkeypatch):
    """Let recordings stand in for CUDA graphs."""

    @contextmanager
    def graph(recording, **_):
        with recording:
            yield
        recording.take_back()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)


@pytest.mark.usefixtures("_graphs")
def test_replayed_passes_add_up_the_same_gradients():
    objective = Objective(make_model(layers=1), Scones(), torch.float32)
    parameters = list(objective.parameters())
    replays = Replays(objective)
    lent = set()
    some = (SENTENCES[:1], SENTENCES[2:3], SENTENCES[1:3])
    batches = [make_batch(few).settled(8) for few in some]
    for batch in batches:
        loss = objective(batch)
        wanted = torch.autograd.grad(2 * loss / batch.total, parameters)
        for _ in range(2):  # they are added up until they are used
            found = replays.gradient(batch, batch.total)
        torch.testing.assert_close(found, loss.detach())
        for parameter, gradient in zip(parameters, wanted, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
        lent.add(tuple(one.grad.data_ptr() for one in parameters if one.grad is not None))
        for parameter in parameters:
            parameter.grad = None
    assert batches[0].shape == batches[1].shape != batches[2].shape
    assert replays.count == 2
    assert len(lent) == 1, "graphs add to the memory that they were recorded with"


@pytest.mark.usefixtures("_graphs")
def test_every_replay_sees_the_weights_and_draws_new_numbers():
    objective = Objective(make_model(0.5, layers=1), Scones(), torch.float32)
    replays, batch = Replays(objective), make_batch(SENTENCES[:1]).settled(8)
    losses = [float(replays.gradient(batch, 1.0)) for _ in range(3)]
    assert len(set(losses)) == 3
    objective.eval()
    replays = Replays(objective)
    losses = [float(replays.gradient(batch, 1.0)) for _ in range(3)]
    assert len(set(losses)) == 1
    with torch.no_grad():
        objective.model.output_bias.add_(1.0)
    assert float(replays.gradient(batch, 1.0)) == float(objective(batch).detach()) != losses[0]


# Imports.

IMPORT_ALL = """
import importlib, importlib.machinery, pkgutil, sys

finder = importlib.machinery.PathFinder
find = finder.find_spec
if sys.argv[1] == "absent":
    hidden = lambda name, *where: None if name.split(".")[0] == "triton" else find(name, *where)
    finder.find_spec = hidden

import scones
for module in pkgutil.walk_packages(scones.__path__, "scones.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        print(module.name, error.name)
"""
NEED_TRITON = {"inference", "slots", "gpu"}
"""Modules that may import kernels at once, beside the kernels themselves."""
SERVE = {"fastapi", "prometheus_client", "uvicorn"}
"""What comes with an extra that these tests do without."""


@pytest.mark.parametrize(
    "triton", ["absent", "present", pytest.param("interpreted", marks=pytest.mark.slow)]
)
def test_every_module_imports(triton):
    environment = {**os.environ, "TRITON_INTERPRET": "1" if triton == "interpreted" else "0"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, triton], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    failed = dict(line.split() for line in done.stdout.splitlines())
    failed = {name: absent for name, absent in failed.items() if absent not in SERVE}
    if triton != "absent":
        assert failed == {}
        return
    assert set(failed.values()) == {"triton"}
    for name in failed:
        assert name.startswith("scones.kernels.") or name.split(".")[-1] in NEED_TRITON
