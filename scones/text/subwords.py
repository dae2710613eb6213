"""Subwords: one SentencePiece model for both languages.

The vocabulary starts with the three ids that every station relies on: pad 0, end of sentence 1,
unknown 2. A character that the model has no piece for is spelled in bytes, so that no text is
ever unknown.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.files import regular, write_file
from scones.text import END, PAD, UNKNOWN

# SentencePiece adds its threads' sums in a fixed order, so the pieces depend on the number of
# threads though not on their timing: a fixed number gives the same model on every machine.
TRAINING_THREADS = 4

# Two characters in ten thousand are spelled in bytes: the stray letters of foreign names.
CHARACTER_COVERAGE = 0.9998

# For fewer texts than that SentencePiece's threads take longer to start than to work.
_FEW = 16


class Subwords:
    """A SentencePiece model: text to ids and back."""

    def __init__(self, model: bytes, origin: str = "the subword model") -> None:
        """`model` is a serialised SentencePiece model; `origin` names it in an error message."""
        from sentencepiece import SentencePieceProcessor

        self.model = model
        # SentencePiece accepts an empty model, and complains only when it is used.
        if not model:
            raise SconesError(f"{origin} is empty; it should hold a SentencePiece model.")
        try:
            self._processor: Any = SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise SconesError(
                f"{origin} is damaged or is not a SentencePiece model; make it again."
            ) from None
        found = (self._processor.pad_id(), self._processor.eos_id(), self._processor.unk_id())
        if found != (PAD, END, UNKNOWN):
            flags = f"--pad_id={PAD} --eos_id={END} --unk_id={UNKNOWN} --bos_id=-1"
            raise SconesError(
                f"{origin} has pad {found[0]}, end of sentence {found[1]} and unknown {found[2]}, "
                f"where {PAD}, {END} and {UNKNOWN} are needed; train it with `scones prepare` "
                f"or with SentencePiece's {flags}."
            )

    @classmethod
    def train(cls, lines: Iterable[str], pieces: int = 32_000) -> Subwords:
        """Learn a unigram model with `pieces` pieces from lines of text.

        Text that is too small for so many gives as many as it has. The same lines give the same
        model, byte for byte.
        All lines are held in memory: hand over a sample of a large corpus.
        """
        from sentencepiece import SentencePieceTrainer

        output, lines = io.BytesIO(), list(lines)
        try:
            SentencePieceTrainer.train(
                # A list, since SentencePiece turns whatever an iterator raises, even Ctrl-C,
                # into an error of its own.
                sentence_iterator=iter(lines),
                model_writer=output,
                model_type="unigram",
                vocab_size=pieces,
                pad_id=PAD,
                eos_id=END,
                unk_id=UNKNOWN,
                bos_id=-1,
                byte_fallback=True,  # 256 pieces of the vocabulary are the bytes
                character_coverage=CHARACTER_COVERAGE,
                normalization_rule_name="nmt_nfkc",
                num_threads=TRAINING_THREADS,
                minloglevel=2,
            )
        except RuntimeError as problem:
            if most := re.search(r"value <= (\d+)", str(problem)):
                return cls.train(lines, int(most[1]))
            raise _training_error(pieces, str(problem)) from None
        return cls(output.getvalue())

    @classmethod
    def load(cls, path: Path) -> Subwords:
        """Read a SentencePiece model."""
        return cls(regular(Path(path)).read_bytes(), origin=str(path))

    def save(self, path: Path) -> None:
        write_file(path, self.model)

    @property
    def digest(self) -> str:
        """SHA-256 of the model: two vocabularies are the same when their digests are."""
        return hashlib.sha256(self.model).hexdigest()

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Split texts into ids, without an end of sentence, on all cores."""
        try:
            if len(texts) <= _FEW and all(isinstance(text, str) for text in texts):
                return [self._processor.encode(text) for text in texts]
            return self._processor.encode(list(texts))
        except (TypeError, RuntimeError):
            raise _unencodable(texts) from None

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Join ids to texts; pad and end of sentence leave no trace."""
        # A row may be an array of a store, whose uint16 SentencePiece does not take.
        rows = [[int(i) for i in row] for row in ids]
        if len(rows) <= _FEW:
            return [self._processor.decode(row) for row in rows]
        return self._processor.decode(rows)

    def text(self, ids: Sequence[int]) -> str:
        """Join the ids of one text, without the threads that `decode` starts for many."""
        return str(self._processor.decode(list(ids)))

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """The ids of pieces."""
        return [int(self._processor.piece_to_id(piece)) for piece in pieces]

    def pieces(self, ids: Iterable[int] | None = None) -> list[str]:
        """The pieces behind ids, or all of them, as SentencePiece writes them (▁ begins a word)."""
        ids = range(len(self)) if ids is None else ids
        return [str(self._processor.id_to_piece(int(i))) for i in ids]


def _training_error(pieces: int, problem: str) -> SconesError:
    """Say in our words what SentencePiece says about a number of pieces that does not fit."""
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", problem):
        return SconesError(
            f"{pieces} pieces cannot hold the bytes and characters of the text; "
            f"ask for at least {smallest[1]} (--pieces)."
        )
    if "sentences_.empty()" in problem:
        return SconesError("There is no text to learn subwords from; give at least one line.")
    return SconesError(f"SentencePiece could not learn {pieces} pieces: {problem.strip()}")


def _unencodable(texts: Sequence[str]) -> SconesError:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            return SconesError(f"Text {number} is {text!r}, which is not a string.")
        try:
            text.encode()
        except UnicodeEncodeError:
            return SconesError(
                f"Text {number} holds half a character (a lone surrogate): {text[:40]!r}; "
                "read it as UTF-8."
            )
    return SconesError("SentencePiece could not split the texts.")
