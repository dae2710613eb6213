"""An existing softmax model becomes a SCONES model: the whole experiment on real text.

    scones prepare data/multi30k --recipe recipes/multi30k.toml
    python recipes/marian.py data/multi30k runs/marian \\
        --test-source test_2016_flickr.de.xz --test-reference test_2016_flickr.en.xz

Trains a small model of the class MarianMTModel with softmax (nothing has to be downloaded), shifts
its output bias, fine-tunes it with the SCONES loss, and compares: BLEU of greedy and beam search
before the shift, right after it, and after fine-tuning, for both kinds of shift; and the softmax
model fine-tuned just as long. All training is Hugging Face's Trainer, all search goes through
`generate`. α and the learning rates are chosen by greedy BLEU on the development set; the test set
is used once, at the end. It takes about seven minutes on an H200.
"""

from __future__ import annotations

import copy
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
import typer
from torch import Tensor
from transformers import (
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    Trainer,
    TrainingArguments,
    set_seed,
)

from scones.bridges.huggingface import Shift, convert, scones_search, trainer_loss
from scones.evaluation.metrics import bleu
from scones.evaluation.significance import mark, paired_bootstrap
from scones.files import commit, write_file, write_json
from scones.hardware import choose_device
from scones.search.engine import padded
from scones.search.searcher import batches_by_length, length_limit
from scones.text import END, PAD
from scones.text.batches import pad_batch, plan_batches
from scones.text.reading import read_aligned
from scones.text.store import TokenStore

SEARCHES = {"greedy": 1, "beam 4": 4}
SHIFTS: dict[str, Shift] = {"mean log-sum-exp": "normaliser", "least loss": "least_loss"}
SAMPLE = 20
"""Batches that the shift is measured on."""


class Batches(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Our batches by token count, as many as there are steps."""

    def __init__(self, store: TokenStore, max_tokens: int, seed: int, count: int) -> None:
        self.tokens = store.split("train")
        lengths = self.tokens.sources.lengths, self.tokens.targets.lengths
        epochs = (
            plan_batches(*lengths, max_tokens, seed=seed, epoch=epoch)
            for epoch in itertools.count()
        )
        self.batches = list(itertools.islice(itertools.chain.from_iterable(epochs), count))

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        source, target = map(torch.from_numpy, pad_batch(self.tokens, self.batches[index]))
        return {
            "input_ids": source,
            "attention_mask": (source != PAD).long(),
            "decoder_input_ids": torch.nn.functional.pad(target, (1, -1), value=PAD),
            "labels": target.masked_fill(target == PAD, -100),
        }


def only_item(items: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Collate one item, which is a batch already."""
    (item,) = items
    return item


@dataclass(frozen=True)
class Experiment:
    """What is the same for all models."""

    store: TokenStore
    folder: Path
    device: torch.device
    max_tokens: int
    seed: int
    dev: tuple[list[str], list[str]]

    def new_model(self, layers: int, size: int, dropout: float) -> MarianMTModel:
        """Make a Marian model with the store's pieces and our ids."""
        set_seed(self.seed)
        config = MarianConfig(
            vocab_size=len(self.store.subwords),
            decoder_vocab_size=len(self.store.subwords),
            encoder_layers=layers,
            decoder_layers=layers,
            d_model=size,
            encoder_attention_heads=size // 64,
            decoder_attention_heads=size // 64,
            encoder_ffn_dim=2 * size,
            decoder_ffn_dim=2 * size,
            dropout=dropout,
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=PAD,
            forced_eos_token_id=None,
        )
        model = MarianMTModel(config)
        model.generation_config.bad_words_ids = [[PAD]]  # as in Marian's own models
        return model.to(self.device)

    def save(self, model: MarianMTModel, name: str) -> None:
        """Write a model, with the store's pieces as the tokenizer of its class wants them."""
        place, store = self.folder / name, self.store
        model.save_pretrained(place)
        ids = {piece: number for number, piece in enumerate(store.subwords.pieces())}
        write_json(place / "vocab.json", ids)
        for spm in ("source.spm", "target.spm"):
            (place / spm).write_bytes(store.subwords.model)
        files = (str(place / file) for file in ("source.spm", "target.spm", "vocab.json"))
        languages = {"source_lang": store.source_language, "target_lang": store.target_language}
        MarianTokenizer(*files, **languages).save_pretrained(place)

    def train(
        self, model: MarianMTModel, steps: int, rate: float, warmup: int, alpha: float | None
    ) -> None:
        """Train with SCONES, or with softmax where `alpha` is None."""
        arguments = TrainingArguments(
            output_dir=str(self.folder / "trainer"),
            max_steps=steps,
            per_device_train_batch_size=1,  # a batch of ours is one item of Trainer's
            learning_rate=rate,
            warmup_steps=warmup,
            lr_scheduler_type="linear",
            adam_beta2=0.98,
            bf16=self.device.type == "cuda",
            use_cpu=self.device.type == "cpu",
            seed=self.seed,
            logging_steps=max(1, steps // 4),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        Trainer(
            model=model,
            args=arguments,
            train_dataset=Batches(self.store, self.max_tokens, self.seed, steps),
            data_collator=only_item,
            compute_loss_func=None if alpha is None else trainer_loss(alpha),
        ).train()

    def translate(self, model: MarianMTModel, texts: Sequence[str], beams: int) -> list[str]:
        """Translate by `generate` with our search, batched by length."""
        model.eval()
        sources = self.store.subwords.encode(texts)
        lengths = [len(source) + 1 for source in sources]
        found: list[list[int]] = [[] for _ in texts]
        for batch in batches_by_length(lengths, 4 * self.max_tokens // beams):
            source = padded([sources[index] for index in batch], self.device)
            rows = model.generate(
                input_ids=source,
                attention_mask=(source != PAD).long(),
                num_beams=beams,
                max_new_tokens=length_limit(source.size(1), model.config.max_position_embeddings),
                custom_generate=scones_search,
            )
            for index, row in zip(batch, rows.tolist(), strict=True):
                found[index] = row
        return self.store.subwords.decode(found)

    def fine_tune(
        self,
        model: MarianMTModel,
        steps: int,
        rates: Sequence[float],
        alphas: Sequence[float | None],
        shift: str = "",
    ) -> tuple[MarianMTModel, dict[str, float]]:
        """Fine-tune with every setting; give the best model by dev BLEU, and all dev BLEUs."""
        scores: dict[str, float] = {}
        best = model
        for alpha, rate in itertools.product(alphas, rates):
            tuned = copy.deepcopy(model)
            if alpha is not None:
                convert(tuned, self.sample(), alpha, shift=SHIFTS[shift])
            self.train(tuned, steps, rate, steps // 20, alpha)
            layer = "softmax" if alpha is None else f"{shift}, α = {alpha:g}"
            name = f"{layer}, rate {rate:g}"
            found = self.translate(tuned, self.dev[0], beams=1)
            scores[name] = bleu(found, [self.dev[1]]).value
            typer.echo(f"fine-tuned with {name}: dev BLEU {scores[name]:.2f}")
            if scores[name] == max(scores.values()):
                best = tuned
        return best, scores

    def sample(self) -> list[dict[str, Tensor]]:
        """Give the batches that the shift is measured on."""
        batches = Batches(self.store, self.max_tokens, self.seed, SAMPLE)
        return [batches[index] for index in range(SAMPLE)]

    def compare(
        self, systems: Mapping[str, MarianMTModel], sources: list[str], references: list[str]
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """Score every system with every search, and test it against the first."""
        table = {}
        for search, beams in SEARCHES.items():
            found = {name: self.translate(model, sources, beams) for name, model in systems.items()}
            results = paired_bootstrap("bleu", found, [references])
            table[search] = {result.system: asdict(result) for result in results}
        return table


def markdown(result: dict[str, Any]) -> str:
    """Show the systems in a table, and what they were chosen by."""
    columns = list(itertools.product(("dev", "test"), SEARCHES))
    rows = []
    for system in result["dev"]["greedy"]:
        scores = [result[part][search][system] for part, search in columns]
        cells = [f"{score['score']:.2f}{mark(score['p'] or 1.0)}" for score in scores]
        rows.append(f"| {system} | {' | '.join(cells)} |")
    shifts = [
        f"- {name}: {done['shift']:+.2f}; mean probability of the gold token "
        f"{done['scones_gold']:.3f}, under softmax {done['softmax_gold']:.3f} "
        f"(log-sum-exp {done['normaliser']:.2f} ± {done['deviation']:.2f})"
        for name, done in result["conversions"].items()
    ]
    tuned = ", ".join(f"{name}: {score:.2f}" for name, score in result["fine_tuning"].items())
    return "\n".join(
        [
            "# From softmax to SCONES: a Marian model converted and fine-tuned",
            "",
            f"| BLEU | {' | '.join(', '.join(column) for column in columns)} |",
            "|" + "---|" * (len(columns) + 1),
            *rows,
            "",
            "† p < .05, ‡ p < .01 against softmax (paired bootstrap).",
            "",
            *shifts,
            f"- greedy BLEU on dev, by which settings were chosen: {tuned}",
            f"- {result['device']}, PyTorch {result['torch']}, transformers "
            f"{result['transformers']}, {result['minutes']:.1f} minutes; data digest "
            f"`{result['data_digest'][:16]}`, commit `{result['commit']}`",
            f"- BLEU: `{result['test']['greedy']['softmax']['signature']}`",
            f"- command: `{result['command']}`",
            "",
        ]
    )


def main(
    store_path: Annotated[Path, typer.Argument(metavar="STORE", help="What scones prepare made.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where results and models go.")],
    test_source: Annotated[Path, typer.Option(help="The test set's source text.")],
    test_reference: Annotated[Path, typer.Option(help="The test set's reference.")],
    steps: Annotated[int, typer.Option(help="Steps of softmax training.")] = 3500,
    rate: Annotated[float, typer.Option(help="Learning rate of softmax training.")] = 7e-4,
    tuning_steps: Annotated[int, typer.Option(help="Steps of each fine-tuning.")] = 600,
    tuning_rate: Annotated[
        list[float] | None,
        typer.Option(help="A learning rate for fine-tuning; may be repeated [1e-4 3e-4]"),
    ] = None,
    alpha: Annotated[
        list[float] | None, typer.Option(help="An α to try; may be repeated [0.5 1.0]")
    ] = None,
    layers: Annotated[int, typer.Option(help="Layers of encoder and decoder.")] = 4,
    size: Annotated[int, typer.Option(help="Model size, a multiple of 64.")] = 512,
    dropout: Annotated[float, typer.Option(help="Dropout.")] = 0.3,
    max_tokens: Annotated[int, typer.Option(help="Padded tokens of a batch.")] = 4096,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 1,
    dev_sentences: Annotated[int | None, typer.Option(help="Use so many dev sentences.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Train a Marian model with softmax, convert it, fine-tune it with SCONES, and compare."""
    begin = time.monotonic()
    store = TokenStore.open(store_path)
    store.split("dev")
    sources, references = (texts[:dev_sentences] for texts in store.dev_texts or ([], []))
    test_sources, test_references = read_aligned([test_source, test_reference])
    place = choose_device(device)
    experiment = Experiment(store, folder, place, max_tokens, seed, (sources, references))

    softmax = experiment.new_model(layers, size, dropout)
    experiment.train(softmax, steps, rate, min(500, steps // 5), None)
    experiment.save(softmax, "softmax")
    tuning = tuning_steps, tuning_rate or [1e-4, 3e-4]
    tuned, scores = experiment.fine_tune(softmax, *tuning, [None])
    systems = {"softmax": softmax, "softmax, fine-tuned": tuned}
    conversions = {}
    for name, shift in SHIFTS.items():
        tuned, more = experiment.fine_tune(softmax, *tuning, alpha or [0.5, 1.0], name)
        experiment.save(tuned, f"scones-{shift}")
        shifted = copy.deepcopy(softmax)
        chosen = tuned.config.scones["output"]["alpha"]
        conversions[f"{name}, α = {chosen:g}"] = convert(
            shifted, experiment.sample(), chosen, shift=shift
        )
        systems |= {f"SCONES, {name}": shifted, f"SCONES, {name}, fine-tuned": tuned}
        scores |= more

    result = {
        "dev": experiment.compare(systems, sources, references),
        "test": experiment.compare(systems, test_sources, test_references),
        "conversions": {name: asdict(done) for name, done in conversions.items()},
        "fine_tuning": scores,
        "minutes": (time.monotonic() - begin) / 60,
        "command": " ".join(["python", *sys.argv]),
        "data_digest": store.digest,
        "commit": commit(),
        "seed": seed,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if place.type == "cuda" else "cpu",
    }
    write_json(folder / "marian.json", result)
    write_file(folder / "marian.md", markdown(result))
    typer.echo(markdown(result))


if __name__ == "__main__":
    typer.run(main)
