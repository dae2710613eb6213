"""The Hugging Face tokenizer splits and joins as SentencePiece does, with and without scones."""

import ast
import io
import json
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer

from scones.errors import SconesError
from scones.model.tokenizer import NoTokenizerError, tokenizer_files

HARD = [
    "",
    "  Anna   isst  ",
    "\tAnna\r\nisst\n",
    "… und ½ am Anfang",
    "weiches\u00adTrenn\u00adzeichen",
    "null\u200bbreit\u200c\u200d\ufeff\u2060x",
    "\u202eumgekehrt\u202c\u200f",
    "👩\u200d👩\u200d👧 👍🏽 🇩🇪 1\ufe0f\u20e3",
    "o\u0308 a\u030a C\u0327 n\u0303",
    "e\u0323\u0302 o\u031b\u0323 u\u0308\u0304",
    "ẹ\u0302 â\u0323 ê\u0301 ơ\u0323",
    "\u0301 am Anfang",
    "か\u3099は\u309a ｶﾞﾊﾟ",
    "\u1112\u1161\u11ab\u1100\u1173\u11af 하\u11ab",
    "ﷺ ﾀ\u3099 \u0344",
    "بَّتً شَّ",
    "שָׁלוֹם שּׁ",
    "မ့် မ်\u1037",
    "क़ क\u093c ொ \u0bc6\u0bbe",
    "▁Anna ▁ isst▁gern▁",
    "<s> </s> <pad> <unk>",
    "Anna</s>isst<pad>gern",
    "<0x41> <0xFF><0x0A>",
    "<<0x41>> <0x4G> <0x",
    "x" * 3000,
    "Anna isst gern Scones. " * 300,
    ". . .......!!!!!!!??----------" * 5,
    "\u0085\x01\x7fa\x00b",
]


def both(model):
    files = tokenizer_files(model, 64)
    theirs = Tokenizer.from_str(json.dumps(files["tokenizer.json"]))
    theirs.encode_special_tokens = files["tokenizer_config.json"]["split_special_tokens"]
    return SentencePieceProcessor(model_proto=model), theirs


def check(ours, theirs, text):
    ids = ours.encode(text)
    assert theirs.encode(text).ids == [*ids, 1], ascii(text[:100])
    assert theirs.decode([*ids, 1, 0]) == ours.decode(ids), ascii(text[:100])


def trained(tea_pairs, **options):
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([text for pair in tea_pairs for text in pair]),
        model_writer=model,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        **{"vocab_size": 450, "byte_fallback": True, **options},
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def pair(tiny_subwords):
    return both(tiny_subwords)


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_hard_texts_get_the_same_ids_and_come_back_the_same(pair, text):
    check(*pair, text)


def test_every_character_gets_the_same_ids(pair):
    guard = 0xFDD0  # a noncharacter that the tokenizer keeps for itself
    codes = [c for c in range(0x20000) if not 0xD800 <= c < 0xE000 and c != guard]
    for start in range(0, len(codes), 64):
        check(*pair, " ".join(map(chr, codes[start : start + 64])))


NOT_MARKS = st.characters(exclude_categories=["Cs", "M"], exclude_characters="\ufdd0")


@settings(max_examples=300)
@given(st.text(NOT_MARKS) | st.text("ab.<>/spad0x41unk▁ \t\n"))
def test_any_text_gets_the_same_ids(pair, text):
    check(*pair, text)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("aeouyAEOcsnäâêôơưăæкиαか가"), NOT_MARKS), max_size=8))
def test_composed_and_decomposed_letters_get_the_same_ids(pair, letters):
    text = "".join(letter + other for letter, other in letters)
    for form in ("NFC", "NFD", "NFKD"):
        check(*pair, unicodedata.normalize(form, text))


@settings(max_examples=200)
@given(st.text("".join(map(chr, [*range(0x5D0, 0x5EB), *range(0x591, 0x5BE)]))))
def test_marks_keep_the_order_in_which_they_are_written(pair, text):
    check(*pair, text)


def test_any_pieces_join_to_the_same_text(pair):
    ours, theirs = pair
    choose = random.Random(5)
    words = [0, 1, *range(3 + 256, len(ours))]
    letters = [[ours.piece_to_id(f"<0x{byte:02X}>") for byte in c.encode()] for c in "aß日😀"]
    for _ in range(2000):
        ids = choose.choices(words, k=choose.randint(0, 6)) + choose.choice(letters)
        ids += choose.choices(words, k=choose.randint(0, 6))
        assert theirs.decode(ids) == ours.decode(ids)


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe"},
        {"model_type": "bpe", "byte_fallback": False, "vocab_size": 200},
        {"byte_fallback": False, "vocab_size": 200},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nfkc"},
        {"normalization_rule_name": "nmt_nfkc_cf"},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"control_symbols": ["<2de>", "[MASK]"], "pad_piece": "[PAD]"},
    ],
    ids=str,
)
def test_other_sentencepiece_models(tea_pairs, options):
    ours, theirs = both(trained(tea_pairs, **options))
    for text in [*HARD, "<2de> Anna [MASK][PAD]", *(text for pair in tea_pairs for text in pair)]:
        ids = ours.encode(text)
        if 2 not in ids:
            check(ours, theirs, text)
        else:
            assert one_unknown(theirs.encode(text).ids) == [*ids, 1], ascii(text[:100])


def one_unknown(ids):
    return [i for before, i in zip([0, *ids], ids, strict=False) if (before, i) != (2, 2)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model_type": "char", "vocab_size": 300}, "is neither unigram nor BPE"),
        ({"user_defined_symbols": ["<2de>"]}, "has user-defined or unused pieces"),
        ({"treat_whitespace_as_suffix": True}, "marks spaces behind words"),
        ({"normalization_rule_tsv": "rules.tsv"}, "normalizes text in a way of its own"),
    ],
    ids=str,
)
def test_models_without_a_like_are_left_out(tea_pairs, options, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rules.tsv").write_text("61 65\tE4\n")
    with pytest.raises(NoTokenizerError, match=f"There is no Hugging Face tokenizer.*{reason}"):
        tokenizer_files(trained(tea_pairs, **options), 64)


@settings(max_examples=100)
@given(keep=st.sampled_from([0, 1, 5, 100, 3000, -1]), raw=st.binary(max_size=60))
def test_anything_else_is_called_damaged(tiny_subwords, keep, raw):
    for model in (tiny_subwords[:keep], raw):
        with pytest.raises(SconesError, match="is damaged"):
            tokenizer_files(model, 64)


def test_a_folder_without_a_tokenizer_says_why(tiny_model, tea_pairs, tmp_path):
    from scones.model.folder import ModelFolder

    folder = ModelFolder.load(tiny_model)
    folder.subwords = trained(tea_pairs, user_defined_symbols=["<2de>"])
    folder.save(tmp_path / "model")
    assert not list((tmp_path / "model").glob("tokenizer*"))
    assert "has user-defined or unused pieces" in (tmp_path / "model/README.md").read_text()
    assert "AutoTokenizer.from_pretrained" not in (tmp_path / "model/README.md").read_text()
    assert "AutoTokenizer.from_pretrained" in (tiny_model / "README.md").read_text()


def test_writing_needs_no_other_library(tiny_subwords, monkeypatch):
    for name in ("sentencepiece", "google.protobuf", "tokenizers", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert [*tokenizer_files(tiny_subwords, 64)] == ["tokenizer.json", "tokenizer_config.json"]


@pytest.mark.slow
def test_the_cards_program_translates_as_we_do_without_scones(tiny_model, tea_pairs):
    import scones

    texts = [source for source, _ in tea_pairs[:20]]
    card = (tiny_model / "README.md").read_text()
    program = card.split("```python\n")[2].split("```")[0]
    program = program.replace("path/to/this/folder", str(tiny_model))
    program = program.replace('["…"]', json.dumps(texts)).replace("=True)[0])", "=True))")
    program = "import sys\nsys.modules['scones'] = None\n" + program
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    translator = scones.load(tiny_model, device="cpu")
    ours = [found[0] for found in translator.translate(texts, end_circles=False)]
    assert len({translation.text for translation in ours if translation.finished}) > 5
    for theirs, translation in zip(ast.literal_eval(done.stdout), ours, strict=True):
        assert theirs == translation.text or not translation.finished
