"""`scones creamtea` and `scones prepare`: flags, recipes, and a store turned round."""

import json

from scones.text.store import TokenStore


def test_creamtea_writes_a_corpus_with_all_translations(tea, scones):
    parts = [f"{part}.{language}" for part in ("dev", "test", "train") for language in ("de", "en")]
    assert sorted(path.name for path in tea.iterdir()) == sorted([*parts, "dev.json", "test.json"])
    judged = json.loads((tea / "test.json").read_text())
    assert [entry["source"] for entry in judged] == (tea / "test.de").read_text().splitlines()
    for entry, reference in zip(judged, (tea / "test.en").read_text().splitlines(), strict=True):
        assert reference in entry["references"]
        assert not {*entry["references"]} & {*entry["near_misses"]}
    sizes = {"train": 6, "dev": 2, "test": 3, "seed": 5}
    flags = [word for name, number in sizes.items() for word in (f"--{name}", number)]
    done = scones("creamtea", tea.parent / "more", *flags, "--json")
    assert json.loads(done.out) == {"folder": str(tea.parent / "more"), **sizes}


RECIPE = """
[prepare]
source_language = "de"
target_language = "en"
source = "${CORPUS}/train.de"
target = ["${CORPUS}/train.en"]
pieces = 399
workers = 1

[prepare.cleaning]
identify_language = false
max_words = 3
"""


def test_flags_win_over_the_recipe(corpus, scones, monkeypatch):
    monkeypatch.setenv("CORPUS", str(corpus))
    (corpus / "recipe.toml").write_text(RECIPE)
    for language in ("de", "en"):
        path = corpus / f"train.{language}"
        first, *rest = path.read_text().splitlines(keepends=True)
        path.write_text("".join([first, *rest, first, "[red]\n"]))
    flags = ["--recipe", corpus / "recipe.toml", "--pieces", 400, "--max-words", 50]
    done = scones("prepare", corpus / "store", *flags)
    assert done.code == 0, done.err
    assert "clean: 152 pairs" in done.err
    assert "the same pair was there before" in done.out
    assert "[red] | [red] (152)" in done.out  # not taken for a colour
    store = TokenStore.open(corpus / "store")
    assert (len(store.subwords), len(store.split("train"))) == (400, 150)
    done = scones("prepare", corpus / "other", *flags, "--keep-duplicates", "--json")
    report = json.loads(done.out)
    assert (report["pairs_read"], report["pairs_kept"]) == (152, 151)
    assert report["options"]["cleaning"]["drop_duplicates"] is False


def test_a_store_can_be_like_a_models(corpus, tiny_model, tiny_subwords, scones):
    text = ["--source", corpus / "train.de", "--target", corpus / "train.en", "--any-language"]
    done = scones("prepare", corpus / "store", "--like", tiny_model, *text, "--workers", 1)
    assert done.code == 0, done.err
    store = TokenStore.open(corpus / "store")
    assert store.subwords.model == tiny_subwords
    assert (store.source_language, store.target_language) == ("de", "en")
    turned = ["-s", "en", "-t", "de", "--source", text[3], "--target", text[1], text[4]]
    assert scones("prepare", corpus / "other", "--like", tiny_model, *turned).code == 0
    assert TokenStore.open(corpus / "other").source_language == "en"


def test_a_small_corpus_gets_the_pieces_that_it_has(corpus, scones):
    text = ["-s", "de", "-t", "en", "--source", corpus / "train.de", "--target"]
    words = [corpus / "store", *text, corpus / "train.en", "--any-language", "--workers", 1]
    done = scones("prepare", *words)
    assert done.code == 0, done.err
    pieces = len(TokenStore.open(corpus / "store").subwords)
    assert f"The text is too small for 32,000 pieces; it has {pieces:,}." in done.out
    report = json.loads((corpus / "store" / "report.json").read_text())
    assert (report["vocabulary"], len(report["notes"])) == (pieces, 1)


def test_a_store_is_turned_round(tiny_store, tmp_path, scones, refused):
    done = scones("prepare", tmp_path / "en-de", "--reversed", tiny_store)
    assert "en → de, the 380 training pairs of" in done.out
    assert TokenStore.open(tmp_path / "en-de").source_language == "en"
    done = scones("prepare", tmp_path / "other", "--reversed", tiny_store, "--json")
    assert json.loads(done.out)["target_language"] == "de"
    for more, said in (
        (["-s", "de"], "leave out --source-language"),
        (["--keep-duplicates"], "leave out --drop-duplicates"),
        (["--recipe", "a.toml"], "leave out --recipe"),
    ):
        refused("prepare", tmp_path / "third", "--reversed", tiny_store, *more, said=said)
