"""BLEURT and COMET, where the user has installed the package and names the weights by path.

Nothing is ever downloaded: what is missing is named, and the metric refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from statistics import fmean
from types import ModuleType

from scones.errors import SconesError
from scones.evaluation.metrics import LEARNED_METRICS, ReferenceSets, Score

_SentenceScorer = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[float]]


@dataclass(frozen=True)
class LearnedMetric:
    """A neural metric in memory: it gives one number a sentence, and their mean for a text."""

    name: str
    signature: str
    _scorer: _SentenceScorer
    """From hypotheses, references and sources to one score a sentence."""
    _wants_sources: bool

    def sentence_scores(
        self,
        hypotheses: Sequence[str],
        references: ReferenceSets,
        sources: Sequence[str] | None = None,
    ) -> list[float]:
        """Score every sentence; there must be exactly one reference set."""
        if len(references) != 1:
            raise SconesError(
                f"{self.name} compares with one reference, but {len(references)} reference sets "
                "were given; name a single one."
            )
        reference = [text for text in references[0] if text is not None]
        if len(reference) != len(hypotheses):
            raise SconesError(
                f"{self.name} needs a reference for each of the {len(hypotheses)} hypotheses, "
                f"but there are {len(reference)}."
            )
        if not self._wants_sources:
            return self._scorer(hypotheses, reference, [])
        if sources is None:
            raise SconesError(f"{self.name} reads the source text as well; give it with --source.")
        if len(sources) != len(hypotheses):
            raise SconesError(
                f"There are {len(sources)} source sentences for {len(hypotheses)} hypotheses; "
                "the numbers must be equal."
            )
        return self._scorer(hypotheses, reference, sources)

    def score(
        self,
        hypotheses: Sequence[str],
        references: ReferenceSets,
        sources: Sequence[str] | None = None,
    ) -> Score:
        """Score a whole text: the mean over its sentences."""
        value = fmean(self.sentence_scores(hypotheses, references, sources))
        return Score(self.name, value, f"nrefs:1|{self.signature}")


def load_learned(metric: str, checkpoint: Path | None) -> LearnedMetric:
    """Load "bleurt" from a checkpoint folder, or "comet" from a checkpoint file."""
    if checkpoint is None:
        raise SconesError(
            f"{LEARNED_METRICS[metric]} needs its weights, which are never downloaded; "
            f"name them with --{metric}-checkpoint."
        )
    return (_load_bleurt if metric == "bleurt" else _load_comet)(Path(checkpoint))


def _load_bleurt(folder: Path) -> LearnedMetric:
    package = _import("bleurt.score", "git+https://github.com/google-research/bleurt.git")
    _require(folder / "bleurt_config.json", f"{folder} is no BLEURT checkpoint folder")
    scorer = package.BleurtScorer(str(folder))

    def sentence_scores(
        hypotheses: Sequence[str], references: Sequence[str], _: Sequence[str]
    ) -> list[float]:
        return [float(x) for x in scorer.score(references=references, candidates=hypotheses)]

    return LearnedMetric("BLEURT", _signature(folder.name, "BLEURT"), sentence_scores, False)


def _load_comet(file: Path) -> LearnedMetric:
    package = _import("comet", "'unbabel-comet>=2.2.4'")
    # Not resolve(): a link must keep its place beside hparams.yaml, as in Hugging Face's cache.
    file = file.absolute()
    _require(file, f"{file} is no COMET checkpoint file")
    settings = file.parent.parent / "hparams.yaml"
    _require(settings, f"The COMET checkpoint {file} is not complete")
    try:
        model = package.load_from_checkpoint(str(file), local_files_only=True)
    except OSError as problem:  # its encoder's tokenizer is not on this machine
        raise SconesError(f"COMET could not be loaded from {file}: {problem}") from None

    def sentence_scores(
        hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]
    ) -> list[float]:
        import torch

        triples = zip(sources, hypotheses, references, strict=True)
        samples = [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in triples]
        gpus = 1 if torch.cuda.is_available() else 0
        output = model.predict(samples, batch_size=8, gpus=gpus, progress_bar=False)
        return [float(score) for score in output.scores]

    # The file is always model.ckpt in a folder "checkpoints"; the name is one folder up.
    name = settings.parent.name
    return LearnedMetric("COMET", _signature(name, "unbabel-comet"), sentence_scores, True)


def _import(module: str, requirement: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        raise SconesError(
            f"The package {problem.name!r} is not installed; run: pip install {requirement}"
        ) from None


def _require(file: Path, complaint: str) -> None:
    if not file.is_file():
        raise SconesError(f"{complaint}: {file} does not exist.")


def _signature(checkpoint: str, package: str) -> str:
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        version = "unknown"
    return f"checkpoint:{checkpoint}|version:{version}"
