"""`scones bulk`: large inputs in shards, on this machine or on Ray."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scones.cli.flags import answer, progress, table
from scones.cli.translate import OpeningFlags
from scones.errors import SconesError
from scones.options import argument, option

if TYPE_CHECKING:
    from scones.bulk.job import Job


@dataclass(frozen=True, kw_only=True)
class Bulk(OpeningFlags):
    """What `scones bulk` takes."""

    model: Path = argument("A model folder, an export, or a pocket model's name.", "MODEL")
    inputs: list[str] = argument(
        "Text (.gz, .xz, .zst too), .jsonl or .parquet, here or at a URL of fsspec.", "INPUT"
    )
    output: str = argument("The folder to make, or to go on with.", "OUTPUT")
    column: str = option("source", "The column that holds the sentences.")
    target_column: str = option("target", "The column that holds their translations (--pairs).")
    pairs: bool = option(
        False,
        "Score pairs that are given, instead of translating; a line of text is a sentence, a TAB "
        "and its translation.",
    )
    scores: bool = option(False, "Add log-probabilities to translations.")
    dedupe: bool = option(False, "Give the model equal sentences of a shard once.")
    text: bool = option(False, "Write translations, or scores, and nothing else, a line each.")
    prefix: str = option("", "What the names of the new columns begin with.")
    rows: int = option(20_000, "Rows of a shard; they are in memory together.", least=1)
    workers: int | None = option(
        None, "Processes or actors; by default one for each GPU, or else core.", least=1
    )
    threads: int = option(1, "Threads of each; another number may change the last digits.", least=1)
    shard: str = option("1/1", "Make this part of the shards alone: 3/50, say.")
    launcher: Literal["local", "ray"] = option("local", "Who hands the shards out.")
    ray_address: str | None = option(
        None, "The cluster's, or auto; without it Ray starts on this machine."
    )


def bulk(options: Bulk) -> None:
    """Translate or score large files in shards; what is done is never done again.

    In: files of rows. Out: OUTPUT with a file for each shard, in order, every row in its place:
    Parquet for Parquet, else JSON lines, each row with new columns. A row that cannot be translated
    has the reason in the column error. The same command goes on where it was stopped.

        scones bulk pocket-de-en crawl-*.txt.zst out
        scones bulk runs/de-en de.parquet out --column text --scores --search beam
        scones bulk runs/de-en pairs.tsv.gz scored --pairs
        scones bulk runs/de-en s3://crawl/*.parquet s3://en --ray-address auto
        scones bulk runs/de-en crawl.txt out --shard 3/50
    """
    from scones.bulk.job import Output, Worker, plan, share_of
    from scones.bulk.launch import by_processes, by_ray, connected_to_ray
    from scones.bulk.rows import expanded, format_of

    if options.exactly and options.length_penalty:
        raise SconesError("Exact search ranks by probability; leave out --length-penalty.")
    part, parts = share_of(options.shard)
    job, inputs = _job(options), expanded(options.inputs)
    formats = {format_of(url) for url in inputs}
    if len(formats) > 1:
        raise SconesError(f"The inputs are {' and '.join(sorted(formats))}; give one kind alone.")
    kind = "parquet" if formats == {"parquet"} else "jsonl"
    output = Output(options.output, "txt" if options.text else kind)
    on_ray = options.launcher == "ray" or options.ray_address is not None
    with connected_to_ray(options.ray_address) if on_ray else nullcontext():
        planned = plan(job, inputs, output)
        # Neighbours lie together in their files.
        shards = planned[(part - 1) * len(planned) // parts : part * len(planned) // parts]
        reports = output.finished([shard.number for shard in shards], options.verify)
        before, done = len(reports), {report.number for report in reports}
        left = [shard for shard in shards if shard.number not in done]
        launch = by_ray if on_ray else by_processes
        rows, total = (sum(one.rows for one in several) for several in (reports, shards))
        with progress("rows") as show:
            for report in launch(Worker(job, output), left, options.workers) if left else ():
                reports.append(report)
                rows += report.rows
                show("bulk", rows, total)
    reasons = Counter(reason.partition(" (")[0] for one in reports for _, reason in one.failed)
    facts = {
        "shards": len(shards),
        "made": len(shards) - before,
        "rows": rows,
        "searched": sum(report.searched for report in reports),
        "failed": dict(reasons.most_common()),
    }
    shown = [[f"a row {reason}", f"{number:,}"] for reason, number in reasons.most_common()]
    text = f"{options.output}: {rows:,} rows in {len(shards):,} shards, {facts['made']:,} made now."
    answer(options.as_json, facts, text, *([table(["not done", "rows"], shown)] if shown else []))


def _job(options: Bulk) -> Job:
    from scones.bulk.job import Job

    opening: dict[str, Any] = {
        name: getattr(options, name) for name in ("device", "precision", "engine", "verify")
    }
    opening["shortlist"] = options.shortlist and str(options.shortlist)
    names = ("search", "beam_size", "n_best", "length_penalty", "scores", "max_tokens", "too_long")
    limits = options.exact_options(
        options.n_best, options.threshold if options.search == "all" else None
    )
    return Job(
        str(options.model),
        opening,
        {name: getattr(options, name) for name in names},
        vars(limits),
        (options.column, options.target_column) if options.pairs else (options.column,),
        options.prefix,
        options.text,
        options.dedupe,
        options.rows,
        options.threads,
    )
