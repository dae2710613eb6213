"""A Hugging Face tokenizer made from a SentencePiece model: the same ids, the same text.

`AutoTokenizer` reads two files. They are written as plain JSON, so that training needs neither
tokenizers nor transformers, and the SentencePiece model is read by a few lines of our own, since
protobuf would be one more dependency for the sake of eight fields of a frozen format.

Where tokenizers cannot follow SentencePiece, it comes as close as it can; the tests pin the rest:

- An accent after a ligature, or a stack of accents that Unicode orders otherwise, may be composed
  with its letter differently, and a script newer than tokenizers' tables is not composed at all.
- A run of byte pieces that is not valid UTF-8 becomes replacement characters from end to end.
- `<unk>`, which only a model without byte pieces can say, becomes nothing instead of " ⁇ "; and
  such a model may read one more of it where the name of a special piece stands in a text.
"""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import dataclass
from typing import Any

from scones.errors import SconesError
from scones.text import END, PAD, UNKNOWN

Json = dict[str, Any]


class NoTokenizerError(SconesError):
    """A SentencePiece model that has no like in tokenizers; the text says why."""

    def __init__(self, obstacle: str) -> None:
        super().__init__(
            f"There is no Hugging Face tokenizer, because the SentencePiece model {obstacle}."
        )


def tokenizer_files(subwords: bytes, max_length: int) -> dict[str, Json]:
    """The contents of tokenizer.json and tokenizer_config.json, by file name.

    `subwords` is a serialised SentencePiece model, unigram or BPE, with our special ids.
    """
    model = _read(subwords)
    return {
        "tokenizer.json": _tokenizer(model),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": model.pieces[PAD].text,
            "eos_token": model.pieces[END].text,
            "unk_token": model.pieces[UNKNOWN].text,
            "model_max_length": max_length,
            "model_input_names": ["input_ids", "attention_mask"],
            "padding_side": "right",
            "clean_up_tokenization_spaces": False,
            # "</s>" written in a text is text, as it is for SentencePiece.
            "split_special_tokens": True,
        },
    }


# Numbers that SentencePiece's format gives to kinds of pieces and of models.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_UNIGRAM, _BPE = 1, 2

_NORMALIZATIONS = ("identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")


@dataclass(frozen=True)
class _Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class _SentencePiece:
    """What a tokenizer needs of a SentencePiece model."""

    pieces: list[_Piece]
    kind: int
    charsmap: bytes
    """The table of its Unicode normalization; empty where there is none."""
    dummy_prefix: bool
    remove_extra_spaces: bool

    def texts(self, *kinds: int) -> list[str]:
        return [piece.text for piece in self.pieces if piece.kind in kinds]


def _read(subwords: bytes) -> _SentencePiece:
    try:
        fields = _message(subwords)
        pieces = [_piece(_message(raw)) for raw in fields[1]]
        pieces[UNKNOWN]  # the last of the three that every model has
        trainer, normalizer = _message(fields[2][0]), _message(fields[3][0])
        back = _message(fields.get(5, [b""])[0])
        name = normalizer.get(1, [b"identity"])[0].decode()
    except (ValueError, LookupError, TypeError, AttributeError, struct.error):
        raise NoTokenizerError("is damaged") from None
    kind, space_behind = trainer.get(3, [_UNIGRAM])[0], trainer.get(24, [0])[0]
    dummy_prefix, remove_extra_spaces, mark_spaces = (
        bool(normalizer.get(number, [1])[0]) for number in (3, 4, 5)
    )
    model = _SentencePiece(
        pieces, kind, normalizer.get(2, [b""])[0], dummy_prefix, remove_extra_spaces
    )
    obstacles = {
        "is neither unigram nor BPE": kind not in (_UNIGRAM, _BPE),
        f"normalizes text in a way of its own ('{name}')": name not in _NORMALIZATIONS,
        "normalizes the text that it joins": 2 in back,
        "marks spaces behind words or not at all": bool(space_behind) or not mark_spaces,
        "has user-defined or unused pieces": bool(model.texts(_USER_DEFINED, _UNUSED)),
    }
    for obstacle, is_there in obstacles.items():
        if is_there:
            raise NoTokenizerError(obstacle)
    return model


def _piece(fields: dict[int, list[Any]]) -> _Piece:
    (score,) = struct.unpack("<f", fields.get(2, [bytes(4)])[0])
    return _Piece(fields[1][0].decode(), score, fields.get(3, [_NORMAL])[0])


def _message(raw: bytes) -> dict[int, list[Any]]:
    """Read a protocol buffer: the values of every field, as bytes unless they are whole numbers."""
    fields: dict[int, list[Any]] = {}
    position = 0
    while position < len(raw):
        key, position = _whole_number(raw, position)
        number, form = key >> 3, key & 7
        value: int | bytes
        if form == 0:
            value, position = _whole_number(raw, position)
        else:
            if form == 2:  # bytes, with their number before them
                size, position = _whole_number(raw, position)
            else:
                size = {1: 8, 5: 4}[form]
            value, position = raw[position : position + size], position + size
        fields.setdefault(number, []).append(value)
    if position > len(raw):
        raise ValueError("the last field is cut off")
    return fields


def _whole_number(raw: bytes, position: int) -> tuple[int, int]:
    """Read seven bits per byte, the lowest first, until a byte below 128; and where it ends."""
    value = shift = 0
    while raw[position] >= 128:
        value |= (raw[position] & 127) << shift
        shift, position = shift + 7, position + 1
    return value | raw[position] << shift, position + 1


def _tokenizer(model: _SentencePiece) -> Json:
    end = model.pieces[END].text
    sentence, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    ending = {"SpecialToken": {"id": end, "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": piece.text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, piece in enumerate(model.pieces)
            if piece.kind in (_CONTROL, _UNKNOWN)
        ],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(model)},
        "pre_tokenizer": _pre_tokenizer(model),
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [sentence, ending],
            "pair": [sentence, ending, other, ending],
            "special_tokens": {end: {"id": end, "ids": [END], "tokens": [end]}},
        },
        "decoder": {"type": "Sequence", "decoders": _decoders(model)},
        "model": _unigram(model) if model.kind == _UNIGRAM else _bpe(model),
    }


def _normalizers(model: _SentencePiece) -> list[Json]:
    steps = _unicode_normalizers(model.charsmap) if model.charsmap else []
    if model.remove_extra_spaces:
        steps += [_replace(r"\A +|[ ▁]+\z", ""), _replace(" {2,}", " ")]
    if model.dummy_prefix:
        steps.append({"type": "Prepend", "prepend": "▁"})
    return [*steps, _replace(" ", "▁")]


# A noncharacter, which no text may hold.
_GUARD = "\ufdd0"

# What attaches to the character before it: marks, joiners, skin tones, Korean vowels and finals,
# halfwidth voicing, and the line feed after a carriage return.
_ATTACHING = "\\p{M}\\p{Cf}\U0001f3fb-\U0001f3ff\u1160-\u11ff\u3131-\u318e\uff9e-\uffdc\n"

# What Unicode composes with the character before it: marks below, which come first in a stack of
# marks, and the rest, which are marks above, vowel signs and jamo.
_BELOW = "\u031b\u0323-\u0331\u0338\u0655\u093c"
_ABOVE = (
    "\u0300-\u0314\u0342-\u0345\u0653\u0654\u09be\u09d7\u0b3e\u0b56\u0b57\u0bbe\u0bd7\u0c56\u0cc2"
    "\u0cd5\u0cd6\u0d3e\u0d57\u0dca\u0dcf\u0ddf\u102e\u1161-\u1175\u11a8-\u11c2\u1b35\u3099\u309a"
    "\U000110ba\U00011127\U0001133e\U00011357\U000114b0\U000114ba\U000114bd\U000115af\U00011930"
)
# Composed characters that Unicode composes further, and the table does not.
_COMPOSED = "ÂÄÅÇÊÏÔÕÖÜâäåçêïôõöüĂăĒēŌōŚśŠšŨũŪūƠơƯưǪǫȦȧȨȩȮȯάήϊϋώೊොḶḷṚṛṢṣẠạẸẹỌọἀ-ῶ가-힣"


def _unicode_normalizers(charsmap: bytes) -> list[Json]:
    """Apply SentencePiece's own table, which also composes, in steps that tokenizers has.

    Precompiled looks clusters up, not characters, and drops what stands behind the first
    character that it finds: "ậ" of three code points would lose its circumflex. Guards break the
    clusters up, and NFC composes afterwards. NFC would also sort marks and compose what is half
    composed, which the table does not, so guards stay where it would do so. The first guard is
    there because tokenizers miscounts when a step changes the beginning of a text.
    """
    table = base64.b64encode(charsmap).decode()
    composing = [
        f"(?<![{_COMPOSED}]){_GUARD}(?=[{_ABOVE}])",
        f"(?<![{_COMPOSED}\\p{{M}}]){_GUARD}(?=[{_BELOW}])",
        f"(?<=\u031b){_GUARD}(?=\u0323)",  # ợ, the one stack of two marks below
    ]
    return [
        {"type": "Prepend", "prepend": _GUARD},
        _replace(f"(?=[{_ATTACHING}])", _GUARD),
        {"type": "Precompiled", "precompiled_charsmap": table},
        _replace("|".join(composing), ""),
        {"type": "NFC"},
        _replace(_GUARD, ""),
    ]


def _pre_tokenizer(model: _SentencePiece) -> Json | None:
    """Split "<pad>" or "<0x41>" in a text after its first character.

    SentencePiece never finds these pieces in a text; Unigram would.
    """
    if model.kind != _UNIGRAM:
        return None
    hidden = model.texts(_CONTROL, _UNKNOWN, _BYTE)
    patterns = (f"{re.escape(text[:1])}(?={re.escape(text[1:])})" for text in hidden)
    return {
        "type": "Split",
        "pattern": {"Regex": "|".join(patterns)},
        "behavior": "Isolated",
        "invert": False,
    }


def _decoders(model: _SentencePiece) -> list[Json]:
    steps: list[Json] = [_replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if model.remove_extra_spaces:
        steps.append(_replace(r"\A +", ""))
    elif model.dummy_prefix:
        steps.append(_replace(r"\A ", ""))
    return steps


def _unigram(model: _SentencePiece) -> Json:
    return {
        "type": "Unigram",
        "unk_id": UNKNOWN,
        "vocab": [[piece.text, piece.score] for piece in model.pieces],
        "byte_fallback": bool(model.texts(_BYTE)),
    }


def _bpe(model: _SentencePiece) -> Json:
    """Rank merges as SentencePiece does: by the score of the piece that comes out."""
    normal = [piece for piece in model.pieces if piece.kind == _NORMAL]
    known = {piece.text for piece in normal}
    halves = (
        (piece.text[:cut], piece.text[cut:])
        for piece in sorted(normal, key=lambda piece: -piece.score)
        for cut in range(1, len(piece.text))
    )
    return {
        "type": "BPE",
        "unk_token": model.pieces[UNKNOWN].text,
        "fuse_unk": True,
        "byte_fallback": bool(model.texts(_BYTE)),
        "vocab": {piece.text: number for number, piece in enumerate(model.pieces)},
        "merges": [pair for pair in halves if known.issuperset(pair)],
    }


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
