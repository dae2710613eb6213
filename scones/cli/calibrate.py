"""`scones calibrate`: a confidence that means something, fitted and kept in the model folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scones.cli.flags import DeviceFlag, JsonFlag, answer, progress, table
from scones.errors import SconesError
from scones.options import REQUIRED, argument, option

if TYPE_CHECKING:
    from rich.table import Table

    from scones.evaluation.calibration import Calibration
    from scones.translator import Translator


@dataclass(frozen=True, kw_only=True)
class Calibrate(DeviceFlag, JsonFlag):
    """What `scones calibrate` takes."""

    model: Path = argument("A model folder, or a pocket model's name.", "MODEL")
    source: list[Path] = option(
        REQUIRED, "Sentences to translate; may be repeated, to pool sets.", metavar="FILE"
    )
    references: list[Path] = option(
        [],
        "Their references, once for every --source, in that order; all again for second ones.",
        flags=("--reference", "-r"),
        metavar="FILE",
    )
    translations: list[Path] = option(
        [],
        "With --ratings: what was rated, once for every --source.",
        flags=("--translation",),
        metavar="FILE",
    )
    ratings: list[Path] = option(
        [], "What people said of it instead of references: a number a line.", metavar="FILE"
    )
    acceptable: float = option(
        60.0,
        "What is acceptable: so much sentence chrF at least, against the best reference; or so "
        "high a rating.",
    )
    threshold: float = option(
        0.3,
        "Least probability of what --search all lists by default; references cannot tell it.",
        above=0,
        most=1,
    )
    check: bool = option(False, "Compare what the model says already; change nothing.")

    def __post_init__(self) -> None:
        """Refuse files that do not belong together."""
        count, rated = len(self.source), len(self.ratings)
        if rated:
            fits = not self.references and len(self.translations) == rated == count
            wanted = "--translation and --ratings once for every --source, and no --reference"
        else:
            fits = len(self.references) >= count and len(self.references) % count == 0
            fits, wanted = fits and not self.translations, "--reference once for every --source"
        if not fits:
            raise SconesError(f"Give {wanted}; there are {count} sources.")

    def files(self, index: int) -> list[Path]:
        """A set: its source, and its references or its translations and ratings."""
        if self.ratings:
            return [self.source[index], self.translations[index], self.ratings[index]]
        return [self.source[index], *self.references[index :: len(self.source)]]

    @property
    def meaning(self) -> str:
        """What is acceptable, with the signature of the metric."""
        if self.ratings:
            return f"rating of at least {self.acceptable:g}"
        from scones.evaluation.metrics import sacrebleu_metric

        chrf = sacrebleu_metric("chrf", [[""]] * (len(self.references) // len(self.source)))
        return f"chrF2 of at least {self.acceptable:g}|{chrf.get_signature()}"


def calibrate(options: Calibrate) -> None:
    """Fit the confidence of a model, and say how far it holds.

    In: a development set with references, which the model translates greedily, or translations
    with ratings. Out: how confidence and what was acceptable agree, for each set and all together.
    The fit goes into the model's config.json; scones translate --json tells it from then on. With
    --check: the same of a test set, by what is there already.

        scones calibrate runs/de-en --source dev.de -r dev.en
        scones calibrate runs/de-en --source test.de -r test.en --check
        scones calibrate runs/en-de --source s.en --translation t.de \\
            --ratings r --acceptable 70
    """
    from scones.evaluation import calibration as fitting
    from scones.model.folder import FolderConfig, keep_confidence
    from scones.translator import load

    config = FolderConfig.read(options.model)
    if config.facts.is_export:
        raise SconesError(f"{options.model} is an export; calibrate the model it was made from.")
    translator = load(options.model, options.device)
    if options.check and translator.calibration is None:
        raise SconesError(f"{options.model} is not calibrated; leave out --check.")
    with progress("sets") as show:
        sets = {}
        for index, source in enumerate(options.source):
            show(str(source), index, len(options.source))
            sets[str(source)] = judged(translator, options, index)
            if not sets[str(source)]:
                raise SconesError(f"{source}: every translation is empty or was cut; none counts.")
    fitted = translator.calibration
    if not options.check:
        together = [one for several in sets.values() for one in several]
        known, yes = zip(*together, strict=True)
        fitted = fitting.fit(known, yes, options.meaning, options.threshold)
        keep_confidence(config, fitted.to_json())
    assert fitted is not None
    facts = {"calibration": fitted.to_json(), "sets": compared(fitted, sets)}
    answer(options.as_json, facts, *_shown(facts))


Judged = list[tuple[list[float], bool]]
"""Of each translation its features, and whether it is acceptable."""


def judged(translator: Translator, options: Calibrate, index: int) -> Judged:
    """The translations of a set: what the model says of them, and what they are."""
    from scones.evaluation.calibration import features
    from scones.evaluation.metrics import sentence_chrf
    from scones.text.reading import read_aligned

    files = options.files(index)
    sources, *others = read_aligned(files)
    if options.ratings:
        found = translator.judge(list(zip(sources, others[0], strict=True)))
        scores = [_number(rating, files[-1], line) for line, rating in enumerate(others[1], 1)]
    else:
        translated = translator.translate(sources, too_long="cut", confidence=True)
        found = [best for best, *_ in translated]
        scores = sentence_chrf([one.text for one in found], others)
    lengths = map(len, translator.subwords.encode(sources))
    return [
        (
            features(one.text, length, one.token_log_probs, one.ambiguity, one.doubt),
            score >= options.acceptable,
        )
        for one, length, score in zip(found, lengths, scores, strict=True)
        # What was cut or is empty has no confidence.
        if one.token_log_probs and one.ambiguity is not None and one.doubt is not None
    ]


def _number(rating: str, path: Path, line: int) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(rating)):
            return number
    raise SconesError(f"{path}, line {line}: {rating!r} is not a number.")


def compared(fitted: Calibration, sets: Mapping[str, Judged]) -> dict[str, Any]:
    """How confidence and truth agree, for each set and, if there are more, for all together."""
    from scones.evaluation.calibration import reliability

    if len(sets) > 1:
        sets = {**sets, "all": [one for several in sets.values() for one in several]}
    agreed = {}
    for name, several in sets.items():
        known, yes = zip(*several, strict=True)
        agreed[name] = asdict(reliability(fitted.confidence(known), yes))
    return agreed


def _shown(facts: dict[str, Any]) -> Iterator[str | Table]:
    rows = [
        [
            name,
            f"{one['sentences']:,}",
            *(f"{one[number]:.3f}" for number in ("base_rate", "error", "area")),
            *(f"{1 - one['risks'][tenth][1]:.0%}" for tenth in (1, 4)),
        ]
        for name, one in facts["sets"].items()
    ]
    columns = ["set", "sentences", "acceptable", "calibration error", "ROC area"]
    yield table([*columns, "of the surest fifth", "of the surest half"], rows)
    last = facts["sets"][list(facts["sets"])[-1]]
    said = [[f"{one:.2f}" for one in column] for column in zip(*last["bins"], strict=True)]
    columns = ["", *map(str, range(1, len(said[0]) + 1))]
    yield table(columns, [["confidence", *said[0]], ["acceptable", *said[1]]])
    calibration = facts["calibration"]
    yield f"acceptable: {calibration['acceptable']}"
    yield f"default threshold of --search all: {calibration['threshold']}"
