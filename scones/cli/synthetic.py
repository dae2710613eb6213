"""`scones synthetic`: the paper's experiment with languages of a chosen ambiguity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scones.cli.flags import publish
from scones.cli.paper_flags import DeviceFlag, DosFlag, JsonFlag, SourceFlag, choice
from scones.errors import SconesError

_STAGES = ("sample", "train", "search")


def synthetic(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="What scones prepare made.")],
    model: Annotated[Path, typer.Argument(metavar="IBM3", help="What scones ibm3 fit made.")],
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Where everything goes.")],
    recipe: Annotated[Path, typer.Option(help="The recipe, the same for all models.")],
    source: SourceFlag,
    temperature: Annotated[
        list[float] | None,
        typer.Option(metavar="γ", help="May be repeated [0.1 0.2 0.3 0.5 0.7 1.0]"),
    ] = None,
    alpha: Annotated[
        list[float] | None,
        typer.Option(metavar="α", help="Of SCONES; may be repeated [0.2 0.5 1.0]"),
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Take only so many training pairs, the first of STORE.")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Steps of each training, whatever the recipe says.")
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(help="Take only so many sentences, the first of the test set.")
    ] = None,
    max_states: Annotated[
        int, typer.Option(help="Prefixes that exact search may look at per sentence.")
    ] = 1_000_000,
    max_memory: Annotated[
        float, typer.Option(help="Gigabytes of an exact search, of which --jobs go on at once.")
    ] = 4.0,
    seed: Annotated[
        int,
        typer.Option(help="Of the sampled languages (their test sets: one more) and trainings."),
    ] = 1,
    jobs: Annotated[int, typer.Option(help="Trainings and searches side by side.")] = 1,
    device: DeviceFlag = "auto",
    dos: DosFlag = False,
    last: Annotated[
        str, choice("--until", values=_STAGES, help="The stage to end with.")
    ] = "search",
    as_json: JsonFlag = False,
) -> None:
    """Train on languages from nearly deterministic to wild, and search.

    In: STORE, an IBM Model 3 of its pieces, and a test set's source text. For each temperature γ a
    language is sampled; softmax and SCONES are trained on it, and translate its test set with a
    beam of 4 and by exact search. Out: tables (also on standard output), JSON and the paper's
    figures 8 and 9 as OUT/synthetic.md, synthetic.json, beam.svg and exact.svg, beside languages,
    models and searches. The same command goes on where it was stopped; another γ or α can be added.
    STORE and IBM3 are not needed for a language that is sampled already.

        scones synthetic store de-en.ibm3 runs/synthetic --source test.de \\
            --recipe recipes/synthetic.toml --jobs 8
        scones synthetic store de-en.ibm3 runs/quick --source test.de \\
            --recipe recipes/synthetic.toml --temperature 0.1 --temperature 1 \\
            --alpha 0.2 --alpha 1 --pairs 5000 --max-steps 200 \\
            --sentences 20 --max-states 1000
    """
    from scones.paper.synthetic import Limits, Synthetic
    from scones.paper.synthetic_language import LanguageSettings
    from scones.paper.synthetic_plots import draw
    from scones.paper.synthetic_tables import markdown
    from scones.text.reading import read_texts

    if last not in _STAGES:
        raise SconesError(f"--until {last} is not a stage; there are {', '.join(_STAGES)}.")
    result = Synthetic(
        LanguageSettings(store, model, read_texts(source, dos=dos), seed, pairs),
        recipe,
        folder,
        list(dict.fromkeys(temperature or [0.1, 0.2, 0.3, 0.5, 0.7, 1.0])),
        list(dict.fromkeys(alpha or [0.2, 0.5, 1.0])),
        Limits(sentences, max_states, max_memory),
        max_steps,
        jobs,
        device,
        last,  # type: ignore[arg-type]
        say=lambda text: typer.echo(text, err=True),
    ).run()
    if result is None:
        return
    publish(folder / "synthetic", result, markdown(result), lambda: draw(result, folder), as_json)
