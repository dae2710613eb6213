"""CTranslate2: the same greedy translations, as an engine and as an export."""

import dataclasses
import hashlib
import json
import shutil

import ctranslate2
import pytest
import torch

import scones
from scones import SconesError, Translation
from scones.bridges.ctranslate2 import CTranslate2Searcher, convert
from scones.bridges.ctranslate2_export import Check, export, logit_difference, random_sources
from scones.model.folder import FolderConfig, ModelFolder, OpenedFolder
from scones.model.transformer import Transformer
from scones.outputs import output_layer
from scones.search.engine import BatchSearcher, search_corpus
from scones.search.searcher import SearchOptions, length_limit
from scones.text import END, PAD, UNKNOWN
from tests.damage import flip_a_bit, truncate

LAYERS = ("scones", "softmax")
GREEDY = SearchOptions(scores=False)


@pytest.fixture(scope="module", params=[f"{layer}, {tied}" for layer in LAYERS for tied in "tu"])
def folder(request, tiny_models):
    """A model of either output layer, its embeddings tied or untied."""
    layer, tied = request.param.split(", ")
    folder = ModelFolder.load(tiny_models / layer)
    return folder if tied == "u" else tie(folder)


def tie(folder):
    """Give a model of the same sizes one embedding, and a bias that keeps it talking."""
    config = dataclasses.replace(folder.model.config, tied_embeddings=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Transformer(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return dataclasses.replace(folder, model=model)


def written(folder, place):
    """Save a model and open it again."""
    folder.save(place / "written")
    return OpenedFolder.of(FolderConfig.read(place / "written"))


@pytest.fixture
def sentences(tea_pairs):
    return [source for source, _ in tea_pairs[:40]]


@pytest.fixture(scope="module")
def exports(tiny_models, tmp_path_factory):
    """A folder with a float32 export of each tiny model: read-only, as those are."""
    place = tmp_path_factory.mktemp("exports")
    for layer in LAYERS:
        export(tiny_models / layer, place / layer)
    return place


# the engine


def test_greedy_search_finds_what_pytorch_finds(folder, tmp_path):
    sources, output = random_sources(folder.model.config), output_layer(folder.facts.output)
    ours = search_corpus(folder.model, output, sources, GREEDY)
    searcher = CTranslate2Searcher.of(written(folder, tmp_path))
    assert len({found.tokens for (found,) in ours}) > 10
    for max_tokens in (1, 100, 8192):
        options = dataclasses.replace(GREEDY, max_tokens=max_tokens)
        assert searcher.search(sources, options) == ours
    assert searcher.search([], GREEDY) == []
    scored = search_corpus(folder.model, output, sources, SearchOptions())
    for (mine,), (other,) in zip(scored, searcher.search(sources, SearchOptions()), strict=True):
        assert mine.tokens == other.tokens
        assert other.token_log_probs == pytest.approx(mine.token_log_probs, abs=2e-4)
        assert other.log_prob == pytest.approx(sum(other.token_log_probs or ()))


def test_its_logits_are_ours(folder, tmp_path):
    """They are raw, whatever CTranslate2 says of `return_logits_vocab`; our scores live on it."""
    searcher = CTranslate2Searcher.of(written(folder, tmp_path))
    sources = random_sources(folder.model.config)[:8]
    for source in sources:
        _, logits_TV = searcher.logits(source)
        assert logits_TV.shape[1] == folder.model.config.vocabulary
        assert 0 < logit_difference(folder.model, searcher, source) < 1e-5 * abs(logits_TV).max()


@pytest.mark.parametrize("said", [PAD, UNKNOWN, 300, END])
def test_a_token_that_is_said_for_ever_is_cut_at_each_sentences_own_limit(
    tiny_model, tmp_path, said
):
    folder = ModelFolder.load(tiny_model)
    with torch.no_grad():
        folder.model.output_bias[said] = 500.0
    longest = folder.model.config.max_length
    sources = [[10] * count for count in (1, 2, 7, 30, longest - 1)]
    found = CTranslate2Searcher.of(written(folder, tmp_path)).search(sources, GREEDY)
    for source, (one,) in zip(sources, found, strict=True):
        limit = 0 if said == END else length_limit(len(source) + 1, longest)
        assert (one.tokens, one.finished) == ((said,) * limit, said == END)


@pytest.mark.parametrize("layer", LAYERS)
def test_auto_and_both_engines_agree(tiny_models, sentences, layer):
    texts = ["", *sentences, " ", "Tee " * 200, "Tee " * 31, "≈ ✓ Ω", "x" * 60]
    for too_long in ("cut", "skip"):
        torch_found, auto, theirs = (
            scones.load(tiny_models / layer, "cpu", engine=engine).translate(
                texts, scores=False, too_long=too_long
            )
            for engine in ("torch", "auto", "ctranslate2")
        )
        assert torch_found == auto == theirs
        assert auto[0] == auto[41] == [Translation("", (), None, None)]
        assert len({one.text for (one,) in auto}) > 10
    with pytest.raises(SconesError, match=r"Sentence 43 has .* pieces and the model takes 63"):
        scones.load(tiny_models / layer, "cpu", engine="ctranslate2").translate(texts)


def test_auto_takes_each_engine_for_what_it_can(tiny_model, sentences, monkeypatch):
    asked = []

    for cls in (BatchSearcher, CTranslate2Searcher):

        def watched(self, *arguments, search=cls.search):
            asked.append(type(self).__name__)
            return search(self, *arguments)

        monkeypatch.setattr(cls, "search", watched)
    translator = scones.load(tiny_model, "cpu")
    assert translator.translate(sentences[:2])[0][0].log_prob is not None
    assert translator.translate(sentences[:2], search="beam")[0][0].log_prob is not None
    translator.translate(sentences[:2], scores=False)
    scones.load(tiny_model, "cpu", "bf16").translate(sentences[:2], scores=False)
    torch, ctranslate2 = "BatchSearcher", "CTranslate2Searcher"
    assert asked == [torch, torch, ctranslate2, torch]


def test_a_full_disk_does_not_stop_auto(tiny_model, sentences, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scones.bridges.ctranslate2.convert", full)
    assert len(scones.load(tiny_model, "cpu").translate(["Tee"], scores=False)) == 1


def test_converting_leaves_no_file_behind_and_pytorch_its_threads(
    tiny_model, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened, threads = OpenedFolder.of(FolderConfig.read(tiny_model)), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        CTranslate2Searcher.of(opened)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert not [*tmp_path.glob("scones-*")]  # PyTorch may leave something of its own


# beams


def test_a_softmax_model_has_beams_like_ours(tiny_models, exports, sentences):
    options = {"search": "beam", "beam_size": 4, "n_best": 2, "length_penalty": 0}
    ours = scones.load(tiny_models / "softmax", "cpu").translate(sentences, **options)
    theirs = scones.load(exports / "softmax").translate(sentences, **options)
    same = [
        (mine, other)
        for (mine, *_), (other, *_) in zip(ours, theirs, strict=True)
        if mine.tokens == other.tokens and mine.finished
    ]
    assert len(same) >= 0.8 * len(sentences)
    for mine, other in same:
        assert other.log_prob == pytest.approx(mine.log_prob, abs=1e-3)
        assert other.token_log_probs is None
    assert all(found[0].log_prob >= found[-1].log_prob for found in theirs if found[-1].finished)


# the export


@pytest.mark.parametrize("layer", LAYERS)
def test_an_export_translates_as_the_model_does_and_without_scones_too(
    tiny_models, exports, sentences, layer
):
    model = scones.load(tiny_models / layer, "cpu")
    exported = scones.load(exports / layer)
    expected = model.translate(["", *sentences], scores=False)
    assert exported.translate(["", *sentences], scores=False) == expected
    scored = exported.translate(sentences[:3])
    for (one,), (other,) in zip(scored, model.translate(sentences[:3]), strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=2e-4)
    assert exported.output == model.output
    assert (exported.source_language, exported.target_language) == ("de", "en")
    assert exported.model.config == model.model.config

    facts = json.loads((exports / layer / "config.json").read_text())["scones"]
    weights = (tiny_models / layer / "model.safetensors").read_bytes()
    assert facts["weights_digest"] == hashlib.sha256(weights).hexdigest()
    assert (facts["engine"], facts["quantization"], facts["steps"]) == ("ctranslate2", "float32", 7)
    assert facts["engine_version"] == ctranslate2.__version__
    assert facts["check"]["equal"] == facts["check"]["sentences"] == 64
    assert 0 < facts["check"]["largest_logit_difference"] < 1e-3

    card = (exports / layer / "README.md").read_text()
    program = card.split("```python\n")[2].split("```")[0]
    assert "scones" not in program
    program = program.replace("path/to/this/folder", str(exports / layer))
    said = []
    exec(program.replace("…", sentences[0]), {"print": said.append})
    assert said == [expected[1][0].text]
    assert ("Keep `beam_size=1`" in card) == (layer == "scones")


@pytest.mark.parametrize("quantization", ["int8", "float16", "bfloat16"])
def test_a_quantised_export_is_smaller_and_runs_so(
    tiny_model, exports, tmp_path, sentences, quantization
):
    done = export(tiny_model, tmp_path / "small", quantization, sentences)
    sizes = [(place / "model.bin").stat().st_size for place in (done.folder, exports / "scones")]
    assert sizes[0] < 0.6 * sizes[1]
    assert done.check.sentences == len(sentences)
    assert 1e-4 < done.check.largest_logit_difference < 2.0
    found = scones.load(done.folder).translate(sentences, scores=False)
    exact = scones.load(exports / "scones").translate(sentences, scores=False)
    equal = sum(one == other for one, other in zip(found, exact, strict=True))
    assert equal == done.check.equal
    assert equal > len(sentences) // 4


def test_what_cannot_be_done_is_refused(tiny_model, exports, tmp_path):
    place = exports / "scones"
    exported, model = scones.load(place), scones.load(tiny_model, "cpu", engine="ctranslate2")
    for translator in (exported, model):
        with pytest.raises(SconesError, match="beam search applies a softmax, for which this"):
            translator.translate(["Tee"], search="beam")
    with pytest.raises(SconesError, match="gives no scores; use the model folder"):
        exported.score([("Tee", "tea")])
    for options in ({"engine": "torch"}, {"device": "cuda"}, {"precision": "bf16"}):
        with pytest.raises(SconesError, match="is an export for CTranslate2, which runs it on a"):
            scones.load(place, **options)
    with pytest.raises(SconesError, match="engine 'steam' is not known"):
        scones.load(tiny_model, engine="steam")
    with pytest.raises(SconesError, match="runs on a CPU in float32 or int8 here"):
        scones.load(tiny_model, "cpu", "bf16", engine="ctranslate2")
    for source, options, said in (
        (place, {}, "is an export itself"),
        (tiny_model, {"sentences": ["", "Tee " * 200]}, "no sentence to check with"),
    ):
        with pytest.raises(SconesError, match=said):
            export(source, tmp_path / "export", **options)
    assert not [*tmp_path.iterdir()]


# damage


def weights(damage):
    return lambda place: damage(place / "model.bin")


def without(name):
    return lambda place: (place / name).unlink()


def facts(**changes):
    def damage(place):
        config = json.loads((place / "config.json").read_text())
        config["scones"] |= changes
        (place / "config.json").write_text(json.dumps(config))

    return damage


def unreadable(place):
    """Cut what CTranslate2 reads, and say that this is as it was written."""
    truncate(place / "model.bin")
    digests = json.loads((place / "config.json").read_text())["scones"]["digests"]
    digests["model.bin"] = hashlib.sha256((place / "model.bin").read_bytes()).hexdigest()
    facts(digests=digests)(place)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (weights(truncate), r"model\.bin is damaged: .*; export the model again\.$"),
        (weights(flip_a_bit), r"model\.bin is damaged: it is not what was written there; export"),
        (unreadable, r"CTranslate2 cannot open .*incomplete"),
        (without("model.bin"), r"model\.bin does not exist"),
        (without("subwords.model"), r"subwords\.model does not exist"),
        (facts(digests={}), r"config\.json is damaged; export the model again"),
        (facts(model={"size": 32}), r"config\.json is damaged: 'vocabulary' is missing"),
        (facts(model=[1]), r"config\.json is damaged; export the model again"),
        (facts(engine="steam"), r"config\.json names the engine 'steam', which is not known"),
    ],
)
def test_a_damaged_export_is_refused(exports, tmp_path, damage, said):
    shutil.copytree(exports / "scones", tmp_path / "export")
    damage(tmp_path / "export")
    with pytest.raises(SconesError, match=said):
        scones.load(tmp_path / "export")


# the check


def test_an_export_that_says_something_else_is_not_written(
    tiny_model, tmp_path, tmp_path_factory, monkeypatch
):
    other = ModelFolder.load(tiny_model)
    with torch.no_grad():
        other.model.output_bias[END] -= 2.0
    changed = written(other, tmp_path_factory.mktemp("other"))
    monkeypatch.setattr(
        "scones.bridges.ctranslate2_export.convert",
        lambda folder, place, quantization: convert(changed, place, quantization),
    )
    with pytest.raises(SconesError, match=r"does not give the output of .* of 64 sentences differ"):
        export(tiny_model, tmp_path / "export")
    assert not [*tmp_path.iterdir()]


def test_only_near_ties_pass():
    assert Check(10, 9, 1, 5e-4, 1e-5).passed
    assert not Check(10, 9, 0, 0.01, 1e-5).passed
