"""How good translations are: BLEU, chrF and TER as sacreBLEU defines them, BLEURT and COMET.

`score` takes a metric by name. A new one is a function from hypotheses and references to a `Score`:
name it in METRIC_NAMES and call it in `score`. So that systems can be compared by it, make its
`_Measure` in `paired_bootstrap` (significance.py): numbers per sentence, and a score of their sums.

References come as one list per reference *set*, each as long as the hypotheses, as sacreBLEU
wants them. `None` in a set means that this sentence has no reference there; an empty string is a
real reference that happens to be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from scones.errors import SconesError, optional_import

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

SACREBLEU_METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}
LEARNED_METRICS = {"bleurt": "BLEURT", "comet": "COMET"}
METRIC_NAMES = SACREBLEU_METRICS | LEARNED_METRICS
"""What a user types, and the name that is printed."""

TOKENIZERS = ("13a", "intl", "zh", "char", "none")
"""Those of sacreBLEU that need neither a download nor another package."""

Texts = Sequence[str]
ReferenceSets = Sequence[Sequence[str | None]]


@dataclass(frozen=True)
class Score:
    """A number with all that is needed to get the same number again."""

    name: str
    value: float
    signature: str
    length_ratio: float | None = None
    """Hypothesis tokens over reference tokens, as BLEU's brevity penalty sees them; of several
    references the one closest in length counts. Only BLEU counts tokens, others leave it out."""


def bleu(hypotheses: Texts, references: ReferenceSets, *, tokenize: str = "13a") -> Score:
    """Corpus BLEU from 0 to 100, higher is better."""
    return score("bleu", hypotheses, references, tokenize=tokenize)


def score(
    metric: str,
    hypotheses: Texts,
    references: ReferenceSets,
    *,
    tokenize: str = "13a",
    sources: Texts | None = None,
    checkpoint: Path | None = None,
) -> Score:
    """Score by the name of a metric: bleu, chrf, ter, bleurt or comet.

    TER counts edits per hundred reference words, so that less is better; of all others more is.
    `tokenize` matters to BLEU only, `checkpoint` to BLEURT and COMET, `sources` to COMET.
    """
    check_metric(metric)
    check_references(hypotheses, references)
    if metric in LEARNED_METRICS:
        learned = load_learned(metric, checkpoint)
        value = fmean(learned.sentence_scores(hypotheses, references, sources))
        return Score(learned.name, value, learned.signature)
    scorer = sacrebleu_metric(metric, references, tokenize=tokenize)
    result = scorer.corpus_score(hypotheses, None)
    return Score(
        name=result.name,
        value=float(result.score),
        signature=str(scorer.get_signature()),
        length_ratio=float(result.ratio) if metric == "bleu" else None,
    )


def sentence_chrf(hypotheses: Texts, references: ReferenceSets) -> list[float]:
    """ChrF of each sentence alone, from 0 to 100: the best that any of its references gives it."""
    from sacrebleu.metrics.chrf import CHRF

    check_references(hypotheses, references)
    chrf = CHRF()
    return [
        chrf.sentence_score(text, [one for one in known if one is not None]).score
        for text, known in zip(hypotheses, zip(*references, strict=True), strict=True)
    ]


def sacrebleu_metric(metric: str, references: ReferenceSets, *, tokenize: str = "13a") -> Metric:
    """sacreBLEU's own object for `metric`, with the references already counted in it."""
    # Late, so that a command line that only mentions metrics starts at once.
    from sacrebleu.metrics import METRICS

    if tokenize not in TOKENIZERS:
        raise SconesError(f"The tokenizer {tokenize!r} is unknown; use {_listed(TOKENIZERS)}.")
    # sacreBLEU documents None as a missing reference, but its types do not say so.
    kind: Any = METRICS[metric.upper()]
    settings = {"tokenize": tokenize} if metric == "bleu" else {}
    return kind(references=references, **settings)


def check_metric(metric: str) -> None:
    if metric not in METRIC_NAMES:
        raise SconesError(f"The metric {metric!r} is unknown; use {_listed(METRIC_NAMES)}.")


def check_references(hypotheses: Texts, references: ReferenceSets) -> None:
    """Refuse hypotheses and references that do not belong together."""
    if not hypotheses:
        raise SconesError("There is nothing to evaluate: no hypotheses were given.")
    if not references:
        raise SconesError("There is nothing to evaluate against: give at least one reference set.")
    for number, reference_set in enumerate(references, start=1):
        if isinstance(reference_set, str):
            raise SconesError(
                "The references are a list of texts; give a list of reference sets, "
                "each with one text per hypothesis."
            )
        if len(reference_set) != len(hypotheses):
            raise SconesError(
                f"Reference set {number} has {len(reference_set)} texts for {len(hypotheses)} "
                "hypotheses; the numbers must be equal."
            )
    for number, texts in enumerate(zip(*references, strict=True), start=1):
        if all(text is None for text in texts):
            raise SconesError(f"Sentence {number} has no reference in any set; give it one.")


def _listed(names: Texts | dict[str, str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"


# BLEURT and COMET need their package installed and their weights named by path. Nothing is ever
# downloaded, since a score must not depend on what a server hands out today: what is missing is
# named, and the metric refused.

_SentenceScorer = Callable[[Texts, Texts, Texts], list[float]]


@dataclass(frozen=True)
class LearnedMetric:
    """A neural metric in memory: one number per sentence, and their mean for a text."""

    name: str
    signature: str
    _scorer: _SentenceScorer
    """From hypotheses, references and sources to one score per sentence."""
    _wants_sources: bool

    def sentence_scores(
        self, hypotheses: Texts, references: ReferenceSets, sources: Texts | None = None
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


def load_learned(metric: str, checkpoint: Path | None) -> LearnedMetric:
    """Load "bleurt" from a checkpoint folder, or "comet" from a checkpoint file."""
    if checkpoint is None:
        raise SconesError(
            f"{LEARNED_METRICS[metric]} needs its weights, which are never downloaded; "
            f"name them with --{metric}-checkpoint."
        )
    return (_load_bleurt if metric == "bleurt" else _load_comet)(Path(checkpoint))


def _load_bleurt(folder: Path) -> LearnedMetric:
    package = optional_import(
        "bleurt.score",
        "The package 'bleurt' is not installed; run: pip install "
        "git+https://github.com/google-research/bleurt.git",
    )
    _require(folder / "bleurt_config.json", f"{folder} is no BLEURT checkpoint folder")
    scorer = package.BleurtScorer(str(folder))

    def sentence_scores(hypotheses: Texts, references: Texts, _: Texts) -> list[float]:
        return [float(x) for x in scorer.score(references=references, candidates=hypotheses)]

    return LearnedMetric("BLEURT", _signature(folder.name, "BLEURT"), sentence_scores, False)


def _load_comet(file: Path) -> LearnedMetric:
    absent = "The package 'comet' is not installed; run: pip install 'unbabel-comet>=2.2.4'"
    package = optional_import("comet", absent)
    # Not resolve(): a link must keep its place beside hparams.yaml, as in Hugging Face's cache.
    file = file.absolute()
    _require(file, f"{file} is no COMET checkpoint file")
    settings = file.parent.parent / "hparams.yaml"
    _require(settings, f"The COMET checkpoint {file} is not complete")
    try:
        model = package.load_from_checkpoint(str(file), local_files_only=True)
    except OSError as problem:  # its encoder's tokenizer is not on this machine
        raise SconesError(f"COMET could not be loaded from {file}: {problem}") from None

    def sentence_scores(hypotheses: Texts, references: Texts, sources: Texts) -> list[float]:
        import torch

        triples = zip(sources, hypotheses, references, strict=True)
        samples = [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in triples]
        gpus = 1 if torch.cuda.is_available() else 0
        output = model.predict(samples, batch_size=8, gpus=gpus, progress_bar=False)
        return [float(score) for score in output.scores]

    # The file is always model.ckpt in a folder "checkpoints"; the name is one folder up.
    name = settings.parent.name
    return LearnedMetric("COMET", _signature(name, "unbabel-comet"), sentence_scores, True)


def _require(file: Path, complaint: str) -> None:
    if not file.is_file():
        raise SconesError(f"{complaint}: {file} does not exist.")


def _signature(checkpoint: str, package: str) -> str:
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        version = "unknown"
    return f"nrefs:1|checkpoint:{checkpoint}|version:{version}"
