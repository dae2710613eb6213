"""The token store: a prepared corpus as memory-mapped files, open at once whatever its size.

A store is a folder:

    store.json                        languages, counts, digests
    report.json                       what was dropped and why (written by `scones prepare`)
    subwords.model                    the SentencePiece model of both languages
    train.source.tokens, .offsets     every sentence's ids one after another, and where each begins
    train.target.tokens, .offsets
    dev.source.*, dev.target.*        the same for the development set, where there is one,
    dev.source.txt, dev.target.txt    and its text as it was given, for BLEU
    train.groups                      which pairs have the same source, where that was asked for

Tokens are little-endian uint16 (uint32 above 65,536 pieces) without an end of sentence; offsets
are little-endian uint64, one more than there are sentences. Groups are a little-endian uint32 a
pair: pairs with the same number have the same source.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from scones.cache import once_a_state
from scones.errors import SconesError
from scones.files import (
    FolderKind,
    damaged,
    file_digest,
    new_folder,
    read_json,
    read_lines,
    regular,
    write_json,
)
from scones.text.subwords import Subwords

FORMAT = 1
KIND = FolderKind(
    "a store",
    "store.json",
    ("report.json", "subwords.model", "*.*.tokens", "*.*.offsets", "dev.*.txt", "*.groups"),
)
SIDES = ("source", "target")
OFFSET_TYPE = np.dtype("<u8")
GROUP_TYPE = np.dtype("<u4")

_REMEDY = "prepare the store again"
_damaged = partial(damaged, remedy=_REMEDY)

Ints = NDArray[np.int64]
FlatSentences = tuple[NDArray[Any], Ints]
"""The tokens of several sentences, one after another, and the length of each."""


def token_type(vocabulary: int) -> np.dtype[Any]:
    """The smallest type that holds every id of a vocabulary."""
    return np.dtype("<u2") if vocabulary <= 65_536 else np.dtype("<u4")


def flat_sentences(sentences: Sequence[Sequence[int] | NDArray[Any]]) -> FlatSentences:
    """Put lists of ids one after another, with their lengths."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    tokens = np.fromiter((i for ids in sentences for i in ids), np.int64, int(lengths.sum()))
    return tokens, lengths


class Sentences:
    """One side of a split: the ids of many sentences, read from disk where they are asked for."""

    def __init__(self, tokens: NDArray[Any], offsets: NDArray[Any]) -> None:
        self._tokens = tokens
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return np.asarray(self._tokens[int(self._offsets[index]) : int(self._offsets[index + 1])])

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The number of tokens of every sentence, without the end of sentence."""
        return np.diff(self._offsets).astype(np.int32)

    def drawn(self, numbers: NDArray[np.uint64]) -> Ints:
        """A token for each of some numbers that were drawn, each as likely as it is frequent."""
        return np.asarray(self._tokens[numbers % np.uint64(len(self._tokens))], dtype=np.int64)

    def lengths_of(self, indices: NDArray[Any]) -> Ints:
        ends = self._offsets[indices + 1].astype(np.int64)
        return ends - self._offsets[indices].astype(np.int64)

    def gather(self, indices: NDArray[Any]) -> FlatSentences:
        """The tokens of several sentences, one after another, and the length of each."""
        indices = np.asarray(indices, dtype=np.int64)
        starts = self._offsets[indices].astype(np.int64)
        lengths = self.lengths_of(indices)
        # Each token's position in the file: where its sentence begins there, plus how far into the
        # result it stands, less where its sentence begins in the result.
        before = np.cumsum(lengths) - lengths
        positions = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
        return np.asarray(self._tokens[positions]), lengths


def sentences(ids: Sequence[Sequence[int] | NDArray[Any]]) -> Sentences:
    """Sentences in memory."""
    tokens, lengths = flat_sentences(ids)
    return Sentences(tokens, np.insert(np.cumsum(lengths), 0, 0))


@dataclass(frozen=True)
class ParallelTokens:
    """A split of a store: as many target sentences as source sentences."""

    sources: Sentences
    targets: Sentences
    groups: NDArray[Any] | None = None
    """A number for every pair, the same for those with the same source, where these are known."""

    def __len__(self) -> int:
        return len(self.sources)


class TokenStore:
    """An opened store; see the module for its files.

    It can be sent to another process: what travels is the path, and the store is opened there.
    """

    def __init__(self, path: Path, verify: bool = False) -> None:
        """Open a store folder; one whose files are not what store.json says is refused.

        Every byte is compared with the digest once, and again only when a file has changed, or
        where `verify` asks for it.
        """
        self.path = Path(path)
        self._facts = _read_facts(self.path)
        try:
            self.source_language: str = self._facts["source_language"]
            self.target_language: str = self._facts["target_language"]
            self.digest: str = self._facts["digest"]
            vocabulary: dict[str, Any] = self._facts["vocabulary"]
            self.subwords = Subwords.load(self.path / "subwords.model")
            if self.subwords.digest != vocabulary["digest"]:
                raise _damaged(self.path / "subwords.model", "it is not the model of this store")
            self._splits = {
                name: _open_split(self.path, name, counts, token_type(vocabulary["size"]))
                for name, counts in self._facts["splits"].items()
            }
        except (KeyError, TypeError, AttributeError):
            raise _damaged(self.path / "store.json", "an entry is missing or wrong") from None
        files = [self.path / name for name in data_files(self._facts["splits"])]
        once_a_state(files, self.digest, self.verify, verify)

    @classmethod
    def open(cls, path: Path, verify: bool = False) -> TokenStore:
        return cls(path, verify)

    def __reduce__(self) -> tuple[Any, ...]:
        # Memory maps would be copied whole.
        return TokenStore, (self.path,)

    def split(self, name: str) -> ParallelTokens:
        """The split "train", or "dev" where the store has a development set."""
        if name not in self._splits:
            raise SconesError(
                f"{self.path} has no split {name!r}, only {', '.join(self._splits)}; "
                "prepare the store again with --dev-source and --dev-target."
            )
        return self._splits[name]

    @cached_property
    def dev_texts(self) -> tuple[list[str], list[str]] | None:
        """The development set as it was given (sources, targets), or None."""
        if "dev" not in self._splits:
            return None
        sources, targets = (read_lines(self.path / f"dev.{side}.txt", _REMEDY) for side in SIDES)
        return sources, targets

    @property
    def report(self) -> dict[str, Any]:
        return read_json(self.path / "report.json")

    def verify(self) -> None:
        """Read every byte and compare with the digest; raises SconesError where they differ."""
        if data_digest(self.path, data_files(self._facts["splits"])) != self.digest:
            raise _damaged(self.path, "its files do not have the digest that store.json names")


class StoreWriter:
    """Fills a folder with a store, in chunks, so that memory does not grow with the corpus.

    The folder should be one of `scones.files.new_folder`: it is a store only after `finish`.
    """

    def __init__(
        self,
        folder: Path,
        subwords: Subwords,
        source_language: str,
        target_language: str,
        grouped: bool = False,
    ) -> None:
        """`grouped` notes which training pairs have the same source."""
        self._grouped = grouped
        self._folder = Path(folder)
        self._subwords = subwords
        self._languages = (source_language, target_language)
        self._splits: dict[str, list[_SentenceWriter]] = {}

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *problem: object) -> None:
        self._close()

    def append(
        self, split: str, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> None:
        """Add sentence pairs (ids without an end of sentence) to a split, "train" or "dev"."""
        self.append_flat(split, flat_sentences(sources), flat_sentences(targets))

    def append_flat(self, split: str, sources: FlatSentences, targets: FlatSentences) -> None:
        """Add sentence pairs as `Sentences.gather` gives them: tokens joined, and the lengths."""
        if len(sources[1]) != len(targets[1]):
            raise ValueError(f"{len(sources[1])} source but {len(targets[1])} target sentences")
        if split not in self._splits:
            kind = token_type(len(self._subwords))
            self._splits[split] = [
                _SentenceWriter(self._folder / f"{split}.{side}", kind) for side in SIDES
            ]
        for writer, (tokens, lengths) in zip(self._splits[split], (sources, targets), strict=True):
            writer.append(tokens, lengths)

    def append_dev(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Add the development set: its text, and its tokens as the split "dev"."""
        self.write_dev_texts(sources, targets)
        self.append("dev", self._subwords.encode(sources), self._subwords.encode(targets))

    def write_dev_texts(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Write the text of the development set, whose tokens are appended by themselves."""
        for side, texts in zip(SIDES, (sources, targets), strict=True):
            content = "".join(f"{text}\n" for text in texts)
            (self._folder / f"dev.{side}.txt").write_bytes(content.encode())

    def finish(self) -> str:
        """Write store.json, which makes the folder a store; returns the digest of the data."""
        if "train" not in self._splits:
            self.append("train", [], [])
        self._close()
        splits: dict[str, dict[str, int]] = {
            name: {
                "pairs": source.sentences,
                "source_tokens": source.tokens,
                "target_tokens": target.tokens,
            }
            for name, (source, target) in self._splits.items()
        }
        if self._grouped:
            _write_groups(self._folder, splits["train"], token_type(len(self._subwords)))
        self._subwords.save(self._folder / "subwords.model")
        digest = data_digest(self._folder, data_files(splits))
        facts = {
            "format": FORMAT,
            "source_language": self._languages[0],
            "target_language": self._languages[1],
            "vocabulary": {"size": len(self._subwords), "digest": self._subwords.digest},
            "splits": splits,
            "digest": digest,
        }
        # Last, for a folder with a store.json counts as a complete store.
        write_json(self._folder / "store.json", facts)
        return digest

    def _close(self) -> None:
        for writers in self._splits.values():
            for writer in writers:
                writer.close()


class _SentenceWriter:
    """Appends sentences to a .tokens and an .offsets file."""

    def __init__(self, stem: Path, kind: np.dtype[Any]) -> None:
        self._kind = kind
        self.sentences = 0
        self.tokens = 0
        tokens, offsets = (Path(f"{stem}.{part}") for part in ("tokens", "offsets"))
        self._token_file: BinaryIO = tokens.open("wb")
        self._offset_file: BinaryIO = offsets.open("wb")
        self._offset_file.write(np.zeros(1, OFFSET_TYPE).tobytes())

    def append(self, tokens: NDArray[Any], lengths: NDArray[Any]) -> None:
        if len(tokens) != lengths.sum():
            raise ValueError(f"{len(tokens)} tokens in sentences of {lengths.sum()}")
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() <= np.iinfo(self._kind).max:
            raise ValueError(f"a token does not fit into {self._kind.name}")
        # The type of the ids is checked above, since NumPy would wrap them round in silence.
        self._token_file.write(tokens.astype(self._kind).tobytes())
        self._offset_file.write((self.tokens + np.cumsum(lengths)).astype(OFFSET_TYPE).tobytes())
        self.sentences += len(lengths)
        self.tokens += len(tokens)

    def close(self) -> None:
        self._token_file.close()
        self._offset_file.close()


def _read_facts(folder: Path) -> dict[str, Any]:
    if folder.is_file():
        raise SconesError(
            f"{folder} is a file; give a store, which `scones prepare` makes of text."
        )
    if not folder.is_dir():
        raise SconesError(f"{folder} is not a folder; make a store with `scones prepare {folder}`.")
    if not (folder / "store.json").exists():
        raise SconesError(
            f"{folder} is not a store, it has no store.json; make one with `scones prepare`."
        )
    facts = read_json(folder / "store.json")
    if not isinstance(facts, dict) or "format" not in facts:
        raise _damaged(folder / "store.json", "it names no format")
    if facts["format"] != FORMAT:
        raise SconesError(
            f"{folder} is a store of format {facts['format']}, and this version of scones reads "
            f"format {FORMAT}; prepare it again."
        )
    return facts


def _open_split(
    folder: Path, name: str, counts: dict[str, int], kind: np.dtype[Any]
) -> ParallelTokens:
    sides = []
    for side in SIDES:
        tokens = _map(folder / f"{name}.{side}.tokens", kind, counts[f"{side}_tokens"])
        offsets = _map(folder / f"{name}.{side}.offsets", OFFSET_TYPE, counts["pairs"] + 1)
        if offsets[0] != 0 or offsets[-1] != len(tokens):
            raise _damaged(folder / f"{name}.{side}.offsets", "it does not fit its tokens")
        sides.append(Sentences(tokens, offsets))
    sources, targets = sides
    if "groups" not in counts:
        return ParallelTokens(sources, targets)
    groups = _map(folder / f"{name}.groups", GROUP_TYPE, counts["pairs"])
    if len(groups) and groups.max() >= counts["groups"]:
        raise _damaged(folder / f"{name}.groups", "it has more groups than store.json says")
    return ParallelTokens(sources, targets, groups)


def _write_groups(folder: Path, counts: dict[str, int], kind: np.dtype[Any]) -> None:
    """Note which training pairs have the same source, and in `counts` how many do."""
    groups = same_number(_open_split(folder, "train", counts, kind).sources)
    (folder / "train.groups").write_bytes(groups.astype(GROUP_TYPE).tobytes())
    counts["groups"] = int(groups.max(initial=-1)) + 1


def same_number(sentences: Sentences) -> Ints:
    """Number sentences so that equal ones have the same number."""
    # By digests: 16 bytes each, whatever their length.
    digests = b"".join(
        hashlib.blake2b(sentences[number].tobytes(), digest_size=16).digest()
        for number in range(len(sentences))
    )
    return np.unique(np.frombuffer(digests, "V16"), return_inverse=True)[1].astype(np.int64)


def _map(path: Path, kind: np.dtype[Any], count: int) -> NDArray[Any]:
    size = regular(path).stat().st_size
    if not isinstance(count, int):
        raise TypeError
    if size != count * kind.itemsize:
        raise _damaged(path, f"it has {size:,} bytes where {count * kind.itemsize:,} are due")
    if count == 0:
        return np.zeros(0, kind)  # an empty file cannot be mapped
    # A plain array over the map: indexing a np.memmap costs several times as much.
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))


def data_files(splits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The names of the files that the digest covers, in its order."""
    names = ["subwords.model"]
    for split in sorted(splits):
        for side in SIDES:
            names += [f"{split}.{side}.tokens", f"{split}.{side}.offsets"]
            if split == "dev":
                names.append(f"{split}.{side}.txt")
        if "groups" in splits[split]:
            names.append(f"{split}.groups")
    return names


def data_digest(folder: Path, names: Sequence[str]) -> str:
    """SHA-256 over the names and the digests of the data files."""
    parts = [[name, file_digest(folder / name)] for name in names]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


_OTHER = {"source": "target", "target": "source"}


def reverse_store(store: Path, folder: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Make the store `folder` of the other direction; gives what stands in its store.json.

    Its files are those of `store` under exchanged names, linked where the disk allows that, so that
    they take no room; it does not depend on `store` afterwards.
    """
    store, folder = Path(store), Path(folder)
    digest = TokenStore.open(store).digest
    if folder.resolve() == store.resolve():
        raise SconesError(f"{folder} cannot be its own reverse; give another name to the new one.")
    KIND.check(folder, overwrite)
    facts: dict[str, Any] = _exchanged(read_json(store / "store.json"))
    with new_folder(folder, KIND, overwrite=overwrite) as hidden:
        training = facts["splits"]["train"]
        grouped = training.pop("groups", None) is not None
        for name in data_files(facts["splits"]):
            _link(store / _exchanged_name(name), hidden / name)
        if grouped:  # by what is the source now
            _write_groups(hidden, training, token_type(facts["vocabulary"]["size"]))
        names = data_files(facts["splits"])
        facts |= {"digest": data_digest(hidden, names), "reversed_from": digest}
        if (store / "report.json").exists():
            # Its times were spent on the store that was prepared.
            report = _exchanged(read_json(store / "report.json")) | {"stages": []}
            changed = {"digest": facts["digest"], "reversed_from": digest}
            write_json(hidden / "report.json", report | changed)
        write_json(hidden / "store.json", facts)
    return facts


def _exchanged(value: Any) -> Any:
    """Exchange the keys that speak of source and target, at every depth.

    Values change places and keys do not, so that the order of a file stays.
    """
    if isinstance(value, list):
        return [_exchanged(item) for item in value]
    if not isinstance(value, dict):
        return value
    # A key without a counterpart stays as it is.
    return {name: _exchanged(value.get(_exchanged_name(name), own)) for name, own in value.items()}


def _exchanged_name(name: str) -> str:
    """Name the other side."""
    return re.sub("|".join(SIDES), lambda side: _OTHER[side[0]], name)


def _link(path: Path, new: Path) -> None:
    # Hard links: they take no room, and outlive the store that they come from.
    try:
        os.link(path, new)
    except OSError:  # another disk, or one that knows no links
        shutil.copyfile(path, new)
