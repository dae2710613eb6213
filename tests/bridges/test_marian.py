import itertools
import json
import logging
import math
import operator
import random
import shutil
from pathlib import Path

import pytest
import torch
from marian_models import CODE, new_model, write_subwords

import scones
from scones.bridges import marian
from scones.cli import run
from scones.errors import SconesError
from scones.search.frontier import ExactOptions

transformers = pytest.importorskip("transformers")

ODD = ["", " ", "  two   blanks ", "naïve ﬁre №5 “quoted” …", "日本語 🫖", "Tee\tund\u00a0Tee"]


@pytest.fixture(scope="module", autouse=True)
def quiet():
    logging.disable(logging.WARNING)  # random models know no end
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def folders(tea_pairs, tmp_path_factory):
    """A model for each activation, all with the same subwords."""
    place = tmp_path_factory.mktemp("marian")
    vocabulary = write_subwords(place, tea_pairs, 300)
    subwords = list(place.iterdir())
    for activation in ("swish", "relu", "gelu"):
        model = new_model(vocabulary, activation_function=activation)
        model.save_pretrained(place / activation)
        for path in subwords:
            shutil.copy(path, place / activation)
    return place


@pytest.fixture(scope="module")
def folder(folders):
    return folders / "swish"


@pytest.fixture
def copied(folder, tmp_path):
    return Path(shutil.copytree(folder, tmp_path / "model"))


@pytest.fixture(scope="module")
def sentences(tea_pairs):
    """Words of the corpus in random order, from very few up to the model's limit."""
    chance, words = random.Random(7), " ".join(source for source, _ in tea_pairs).split()
    return [" ".join(chance.choices(words, k=chance.randint(1, 6))) for _ in range(60)]


def in_transformers(folder):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, transformers.MarianTokenizer.from_pretrained(folder)


def generated(folder, sentences, beams=1, penalty=0.0, limit=20):
    """Translate by transformers' `generate`, all in one padded batch."""
    model, tokenizer = in_transformers(folder)
    beam = {"length_penalty": penalty, "early_stopping": "never"} if beams > 1 else {}
    batch = tokenizer(sentences, return_tensors="pt", padding=True)
    found = model.generate(**batch, num_beams=beams, max_new_tokens=limit, **beam)
    ended = [0 in row[1:] for row in found.tolist()]
    return tokenizer.batch_decode(found, skip_special_tokens=True), ended


# The same text.


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize("activation", ["swish", "relu", "gelu"])
def test_greedy_search_gives_the_text_of_generate(folders, activation, engine, sentences):
    translator = scones.load(folders / activation, "cpu", engine=engine)
    several = translator.translate(sentences, max_tokens=256, end_circles=False)
    found = [best.text for (best,) in several]
    assert found == generated(folders / activation, sentences)[0]
    assert len(set(found)) > 15


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_so_does_beam_search(folder, penalty, sentences):
    wanted, ended = generated(folder, sentences, 4, penalty)
    found = scones.load(folder, "cpu").translate(
        sentences, search="beam", beam_size=4, length_penalty=penalty, end_circles=False
    )
    # There what is cut at the limit counts as ended, and may be better than what has ended here.
    alike = [index for index, (best,) in enumerate(found) if ended[index] or not best.finished]
    assert len(alike) > 50
    assert [found[index][0].text for index in alike] == [wanted[index] for index in alike]
    assert len({wanted[index] for index in alike}) > 30


def test_subwords_are_those_of_transformers(folder, tea_pairs, sentences):
    subwords, (_, tokenizer) = scones.load(folder, "cpu").subwords, in_transformers(folder)
    tea = [text for pair in tea_pairs for text in pair]
    texts = [*ODD, *sentences, *tea, f"{CODE} Ein Tee", f"Ein {CODE} Tee", ">>xyz<<Tee"]
    assert subwords.target is not subwords
    unknown = 0
    for ours, told in ((subwords, {}), (subwords.target, {"text_target": texts})):
        theirs = (tokenizer(**told) if told else tokenizer(texts))["input_ids"]
        pieces = [ours.pieces(row) for row in ours.encode(texts)]
        assert pieces == [tokenizer.convert_ids_to_tokens(row[:-1]) for row in theirs]
        unknown += sum(row.count("<unk>") for row in pieces)
    assert unknown > 20
    chance = random.Random(1)
    rows = [chance.choices(range(len(subwords)), k=9) for _ in range(300)]
    theirs = [tokenizer.convert_tokens_to_ids(subwords.pieces(row)) for row in rows]
    assert subwords.decode(rows) == tokenizer.batch_decode(theirs, skip_special_tokens=True)


# The same scores.


def teacher_forced(folder, source, target, log_scores=lambda logits: logits.log_softmax(-1)):
    """The log-scores of a target's tokens by transformers' logits; nothing is for padding."""
    model, tokenizer = in_transformers(folder)
    batch = tokenizer(source, text_target=target, return_tensors="pt")
    with torch.inference_mode():
        logits = model(**batch).logits[0, :, :-1].double()
    return log_scores(logits).gather(1, batch["labels"][0][:, None]).squeeze(1).tolist()


def test_scores_are_those_of_the_logits(folder, tea_pairs):
    pairs = [(source[:20], target[:25]) for source, target in tea_pairs[:20]]
    found = scones.load(folder, "cpu").score_tokens(pairs)
    for pair, terms in zip(pairs, found, strict=True):
        assert terms == pytest.approx(teacher_forced(folder, *pair), abs=1e-4)


def test_exact_search_finds_what_trying_all_finds(tmp_path):
    vocabulary = write_subwords(tmp_path, [("a b ab ba bb", "ba ab a aa b")] * 9, 20)
    model = new_model(vocabulary, max_position_embeddings=5)
    model.final_logits_bias[0, 0] = -2.0
    model.save_pretrained(tmp_path)
    translator = scones.load(tmp_path, "cpu")
    source = "ab b"
    ((_, found),) = translator.exact([source], ExactOptions(n_best=4))
    assert found.certificate.proved

    batch = transformers.MarianTokenizer.from_pretrained(tmp_path)(source, return_tensors="pt")
    words = list(range(1, vocabulary - 1))  # all but the end and padding
    scores = {}
    for length in range(5):
        rows = torch.tensor([[*row, 0] for row in itertools.product(words, repeat=length)])
        inputs = torch.cat([torch.full((len(rows), 1), vocabulary - 1), rows[:, :-1]], dim=1)
        with torch.inference_mode():
            several = {name: one.expand(len(rows), -1) for name, one in batch.items()}
            logits = model(**several, decoder_input_ids=inputs).logits[..., :-1].double()
        terms = logits.log_softmax(-1).gather(2, rows[..., None]).squeeze(2)
        scores |= dict(zip(map(tuple, rows[:, :-1].tolist()), terms.sum(1).tolist(), strict=True))
    names = {
        number: name for name, number in json.loads((tmp_path / "vocab.json").read_text()).items()
    }
    texts = {}
    for row, score in scores.items():
        ids = translator.subwords.ids([names[number] for number in row])
        text = translator.subwords.text(ids)
        texts[text] = max(score, texts.get(text, -math.inf))
    best = sorted(texts, key=texts.__getitem__)[:-5:-1]
    assert [one.text for one in found.translations] == best
    assert [one.log_prob for one in found.translations] == pytest.approx(
        [texts[text] for text in best], abs=1e-4
    )


# A SCONES model.


def test_a_converted_model_has_a_sigmoid_per_token(folder, sentences, tmp_path, capsys):
    from scones.bridges.huggingface import load_converted

    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text("\n".join(sentences) + "\n")
    assert run(["convert", str(folder), str(out), "--text", str(text), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)

    before, after = (scones.load(one, "cpu") for one in (folder, out))
    assert (before.output.name, after.output.name) == ("softmax", "scones")
    plain, shifted = (one.translate(sentences) for one in (before, after))
    assert [best.text for (best,) in plain] == [best.text for (best,) in shifted]
    model, tokenizer = in_transformers(folder)
    batch = tokenizer(sentences, return_tensors="pt", padding=True)
    rows = model.generate(**batch, max_new_tokens=20)
    with torch.inference_mode():
        logits = model(**batch, decoder_input_ids=rows[:, :-1]).logits[..., :-1].double()
    normalisers = [
        normaliser
        for row, several in zip(rows[:, 1:].tolist(), logits.logsumexp(-1).tolist(), strict=True)
        for normaliser in (several[: row.index(0) + 1] if 0 in row else ())
    ]
    assert done["tokens"] == len(normalisers) > 20
    assert done["shift"] == pytest.approx(-sum(normalisers) / len(normalisers), abs=1e-4)
    pair = ("Ein Tee", "a tea")
    sigmoids = teacher_forced(out, *pair, torch.nn.functional.logsigmoid)
    assert after.score_tokens([pair])[0] == pytest.approx(sigmoids, abs=1e-4)
    assert load_converted(out).config.scones["conversion"]["shift"] == done["shift"]

    assert run(["convert", str(out), str(tmp_path / "again"), "--text", str(text)]) == 2
    assert "has a SCONES output layer already" in capsys.readouterr().err


# What is no such folder.


def gone(name):
    return lambda folder: (folder / name).unlink()


def says(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def holds(name, content):
    return lambda folder: (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            gone("model.safetensors"),
            "no model.safetensors, and weights in other formats, which can",
        ),
        (gone("vocab.json"), "has no vocab.json, which a Marian model needs; get the whole folder"),
        (gone("source.spm"), "has no source.spm"),
        (says(model_type="t5"), "of other models Marian's are opened"),
        (says(scale_embedding=False), "says scale_embedding False, and scones opens .* True there"),
        (says(eos_token_id=5), "says eos_token_id 5"),
        (says(activation_function="tanh"), "'activation' must be one of 'relu', 'gelu', 'swish'"),
        (says(encoder_layers=3), "model.encoder.layers.2.* is missing"),
        (says(vocab_size=7), "does not name the 7 pieces"),
        (says(scones=[]), r"it says \[\] where names and values are due"),
        (says(scones={"output": {}}), "output layer is not named"),
        (holds("vocab.json", b'{"a": "b"}'), "does not name the"),
        (holds("source.spm", b""), "source.spm is empty"),
        (holds("target.spm", b"none"), "target.spm is damaged"),
        (holds("tokenizer_config.json", b"[]"), "tokenizer_config.json is damaged"),
        (holds("model.safetensors", b"none"), "model.safetensors is damaged"),
    ],
)
def test_other_folders_are_refused_in_a_sentence(copied, damage, sentence):
    damage(copied)
    with pytest.raises(SconesError, match=sentence):
        scones.load(copied, "cpu", engine="torch").translate(["Tee"])


def test_the_command_line_takes_it_and_its_other_commands_say_so(copied, tmp_path, capsys):
    (tmp_path / "text").write_text("Ein Tee\n")
    out = str(tmp_path / "out")
    assert run(["info", str(copied)]) == 0
    told = capsys.readouterr().out
    assert "Marian model" in told
    assert "de → en" in told
    assert run(["export", str(copied), out]) == 2
    assert "is a Marian model; scones translate" in capsys.readouterr().err
    assert run(["convert", "pocket-de-en", out, "--text", str(tmp_path / "text")]) == 2
    assert "is not the folder of a Marian model" in capsys.readouterr().err
    (tmp_path / "text").write_text("\n\n")
    assert run(["convert", str(copied), out, "--text", str(tmp_path / "text")]) == 2
    assert "no sentence to measure the shift on" in capsys.readouterr().err
    assert not Path(out).exists()


# By name.


def test_a_model_of_the_hub_is_fetched(folder, monkeypatch):
    hub, asked = pytest.importorskip("huggingface_hub"), []
    monkeypatch.setattr(
        hub, "snapshot_download", lambda name, allow_patterns: asked.append(name) or folder
    )
    assert scones.load("Helsinki-NLP/opus-mt-de-en", "cpu").target_language == "en"
    assert set(asked) == {"Helsinki-NLP/opus-mt-de-en"}
    with pytest.raises(SconesError, match="does not exist"):
        scones.load(folder / "other")
    assert len(asked) == 2


@pytest.mark.parametrize("name", ["Helsinki-NLP/opus-mt-de-en", "runs-that-are-not/there"])
def test_without_a_network_a_sentence_tells_how_to_get_it(name, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def unreachable(name, allow_patterns):
        raise hub.errors.LocalEntryNotFoundError("Name or service not known\nand more.")

    monkeypatch.setattr(hub, "snapshot_download", unreachable)
    with pytest.raises(SconesError, match=f"not known.; `hf download {name} --local-dir"):
        marian.fetched(name)


# A model that has learnt something.


@pytest.mark.slow
def test_a_trained_model_translates_alike_and_goes_on_as_a_scones_model(tmp_path):
    from scones.text.creamtea import CreamTea

    examples = CreamTea.load().sample(2200, seed=9)
    pairs = [(example.source, example.references[0]) for example in examples]
    tests, right = (
        [one.source for one in examples[2000:]],
        [one.references for one in examples[2000:]],
    )
    place, out = tmp_path / "marian", tmp_path / "scones"
    place.mkdir()
    vocabulary = write_subwords(place, pairs[:2000], 250)
    torch.manual_seed(1)
    model = transformers.MarianMTModel(
        new_model(vocabulary, d_model=64, max_position_embeddings=64).config
    )
    tokenizer = transformers.MarianTokenizer.from_pretrained(place)
    optimizer, chance = torch.optim.Adam(model.parameters(), lr=2e-3), random.Random(2)
    for _ in range(400):
        sources, targets = zip(*chance.choices(pairs[:2000], k=48), strict=True)
        batch = tokenizer(
            list(sources), text_target=list(targets), return_tensors="pt", padding=True
        )
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.generation_config.bad_words_ids = [[vocabulary - 1]]
    model.generation_config.renormalize_logits = True
    model.generation_config.forced_eos_token_id = None
    model.save_pretrained(place)

    translator = scones.load(place, "cpu")
    found = {}

    def alike(some, others):
        # Rounding may decide between two tokens, or two hypotheses, that score the same.
        return sum(map(operator.eq, some, others)) >= 0.99 * len(some) == 0.99 * len(others)

    for beams, search in ((1, "greedy"), (4, "beam")):
        several = translator.translate(tests, search=search, length_penalty=1.0, end_circles=False)
        found[search] = [best[0].text for best in several]
        wanted, ended = generated(place, tests, beams, 1.0, 60)
        # What goes in circles is cut at other lengths there, and counts as ended.
        whole = [index for index, best in enumerate(several) if ended[index] and best[0].finished]
        assert len(whole) > 150
        assert alike([found[search][index] for index in whole], [wanted[index] for index in whole])
    marian.convert(place, out, tests)
    converted = scones.load(out, "cpu")
    several = converted.translate(tests, end_circles=False)
    found["converted, greedy"] = [best.text for (best,) in several]
    assert alike(found["converted, greedy"], found["greedy"])
    found["converted, beam"] = [best[0].text for best in converted.translate(tests, search="beam")]
    good = {
        name: sum(text in known for text, known in zip(texts, right, strict=True))
        for name, texts in found.items()
    }
    assert min(good.values()) > 60
    _, result = next(converted.exact(tests[:1], ExactOptions(max_states=20_000)))
    assert result.certificate.proved
