"""Large inputs in shards: every kind of file, every row in its place, nothing done twice."""

import gzip
import json
import lzma

import pytest
import torch
from running import assert_refusal, contents, no_file_larger_than

from scones.text.reading import zstd

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = ["--rows", 7, "--workers", 1, "--device", "cpu"]


@pytest.fixture(autouse=True)
def as_many_threads_as_before(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", str(before))
    yield
    torch.set_num_threads(before)


@pytest.fixture
def german(tea_pairs):
    return [source for source, _ in tea_pairs[:25]]


@pytest.fixture
def english(german, tiny_model, scones):
    done = scones("translate", tiny_model, stdin="\n".join(german))
    return done.out.splitlines()


def parts(folder):
    return sorted(folder.glob("[0-9]*"))


def objects(folder):
    return [json.loads(line) for part in parts(folder) for line in part.read_text().splitlines()]


def table(folder):
    return arrow.concat_tables(map(parquet.read_table, parts(folder)))


def as_json(sentences):
    rows = ({"id": number, "source": text} for number, text in enumerate(sentences))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write(path, sentences):
    """Write sentences as the name of the file says."""
    if path.suffix == ".parquet":
        columns = {"id": list(range(len(sentences))), "source": sentences}
        parquet.write_table(arrow.table(columns), path, row_group_size=9)
        return
    text = "".join(f"{sentence}\n" for sentence in sentences).encode()
    content = as_json(sentences) if ".jsonl" in path.name else text
    packed = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": getattr(zstd, "compress", None)}
    path.write_bytes(packed[path.suffix](content) if path.suffix in packed else content)


@pytest.mark.parametrize(
    "name", ["a.txt", "a.txt.gz", "a.xz", "a.zst", "a.jsonl", "a.jsonl.gz", "a.parquet"]
)
def test_every_kind_of_file_is_translated_row_by_row(
    name, german, english, tiny_model, scones, tmp_path
):
    if name.endswith(".zst") and zstd is None:
        pytest.skip("no zstd")
    first, second = tmp_path / name, tmp_path / f"b{name[1:]}"
    write(first, german[:17])
    write(second, german[17:])
    done = scones("bulk", tiny_model, first, second, tmp_path / "out", *ROWS, "--json")
    assert done.code == 0, done.err
    found = table(tmp_path / "out").to_pylist() if "parq" in name else objects(tmp_path / "out")
    assert [row["translation"] for row in found] == english
    assert [row["source"] for row in found] == german
    if name.startswith(("a.jsonl", "a.parquet")):
        assert [row["id"] for row in found] == [*range(17), *range(8)]
    # A shard ends with its file and, in Parquet, with its row group.
    shards = {"a.parquet": 6}.get(name, 5)
    facts = json.loads(done.out)
    assert facts == {"shards": shards, "made": shards, "rows": 25, "searched": 25, "failed": {}}


def test_text_alone_is_what_translate_writes(german, english, tiny_model, scones, tmp_path):
    write(tmp_path / "a.txt", german)
    for part in (2, 3, 1):
        words = ["bulk", tiny_model, tmp_path / "a.txt", tmp_path / "out", "--text", *ROWS]
        assert scones(*words, "--shard", f"{part}/3").code == 0
    assert len(parts(tmp_path / "out")) == 4
    lines = "".join(part.read_text() for part in parts(tmp_path / "out")).splitlines()
    assert lines == english


def test_what_is_whole_is_never_made_again(german, tiny_model, scones, tmp_path):
    write(tmp_path / "a.txt", german)
    out = tmp_path / "out"
    words = ["bulk", tiny_model, tmp_path / "a.txt", out, *ROWS, "--json"]
    assert scones(*words).code == 0
    before = contents(out)
    times = {part: part.stat().st_mtime_ns for part in parts(out)}
    gone, cut, changed, _ = parts(out)
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-5])
    changed.write_bytes(changed.read_bytes().replace(b"e", b"a"))
    assert json.loads(scones(*words).out)["made"] == 2
    assert contents(out) != before
    assert json.loads(scones(*words, "--verify").out)["made"] == 1
    assert contents(out) == before
    assert [part for part in parts(out) if part.stat().st_mtime_ns == times[part]] == parts(out)[3:]


def test_a_row_that_cannot_be_translated_says_why(german, tiny_model, scones, tmp_path):
    lines = [german[0].encode(), b"\xff", b"a\0b", b"viel " * 200, b"", b"x" * (1 << 21)]
    (tmp_path / "a.txt").write_bytes(b"\n".join(lines))
    done = scones("bulk", tiny_model, tmp_path / "a.txt", tmp_path / "out", *ROWS, "--json")
    rows = objects(tmp_path / "out")
    reasons = [row["error"] for row in rows]
    assert reasons[0] is reasons[4] is None
    assert rows[4]["translation"] == ""
    assert reasons[1] == "is not UTF-8 text (byte 1 is 0xFF)"
    assert reasons[3] == "is longer than the model takes"
    assert reasons[5] == "is longer than 1,048,576 bytes"
    assert rows[1]["line"] == "\\xff"
    assert sum(json.loads(done.out)["failed"].values()) == 4
    rows = ['{"source": "Tee"}', "[1]", '{"source": 3}', '{"id": 1}', '{"source": null}', "{"]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    scones("bulk", tiny_model, tmp_path / "a.jsonl", tmp_path / "json", *ROWS)
    assert [row["error"] for row in objects(tmp_path / "json")] == [
        None,
        "is no JSON object",
        "has something that is not text",
        "has no text",
        "has no text",
        "is no JSON object",
    ]


def test_parquet_keeps_its_columns_and_nulls(german, tiny_model, scones, tmp_path):
    columns = {"id": arrow.array([7, None, 9], "int16"), "text": [german[0], None, german[1]]}
    columns["when"] = arrow.array([1, 2, None], arrow.timestamp("us", "UTC"))
    given = arrow.table(columns).replace_schema_metadata({"who": "me"})
    parquet.write_table(given, tmp_path / "a.parquet")
    words = ["--column", "text", "--search", "beam", "--n-best", 2, "--scores", "--prefix", "en_"]
    words += ["--rows", 1, "--workers", 1]
    assert scones("bulk", tiny_model, tmp_path / "a.parquet", tmp_path / "out", *words).code == 0
    found = table(tmp_path / "out")
    assert found.select(given.column_names).cast(given.schema).equals(given)
    assert found.schema.metadata == {b"who": b"me"}
    assert found["en_translation"].null_count == found["en_log_prob"].null_count == 1
    assert found["en_error"].to_pylist() == [None, "has no text", None]
    best, none, _ = found["en_alternatives"].to_pylist()
    assert none is None
    assert len(best) == 2
    assert best[0]["text"] == found["en_translation"][0].as_py()
    assert len({str(parquet.read_schema(part)) for part in parts(tmp_path / "out")}) == 1


def test_pairs_are_scored(tea_pairs, tiny_model, scones, tmp_path):
    pairs = [*tea_pairs[:9], ("viel " * 200, "much"), ("viel", "much " * 200)]
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (tmp_path / "a.tsv").write_text(lines + "Tee\n")
    words = ["bulk", tiny_model, tmp_path / "a.tsv", tmp_path / "out", "--pairs"]
    done = scones(*words, "--json", "--workers", 1)
    assert done.code == 0, done.err
    for column, name in enumerate(("de", "en")):
        (tmp_path / name).write_text("".join(f"{pair[column]}\n" for pair in pairs[:9]))
    expected = scones("score", tiny_model, tmp_path / "de", tmp_path / "en").out
    found = objects(tmp_path / "out")
    assert "".join(f"{row['log_prob']:.6f}\n" for row in found[:9]) == expected
    assert [row["error"] for row in found[9:11]] == ["is longer than the model takes"] * 2
    assert found[11]["error"] == "has 0 TAB characters instead of one"
    assert json.loads(done.out)["searched"] == 11


def test_equal_sentences_are_given_to_the_model_once(german, tiny_model, scones, tmp_path):
    write(tmp_path / "a.txt", german[:5] * 4)
    for name, more, searched in (("all", [], 20), ("once", ["--dedupe"], 5)):
        words = ["bulk", tiny_model, tmp_path / "a.txt", tmp_path / name, "--workers", 1, *more]
        assert json.loads(scones(*words, "--json").out)["searched"] == searched
    assert objects(tmp_path / "all") == objects(tmp_path / "once")


def test_other_file_systems(german, english, tiny_model, scones):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/in/a.txt", "\n".join(german[:10]).encode())
    memory.pipe_file("/in/b.txt.gz", gzip.compress("\n".join(german[10:]).encode()))
    words = ["bulk", tiny_model, "memory://in/*", "memory://out", "--text", *ROWS, "--json"]
    assert json.loads(scones(*words).out)["made"] == 5
    found = b"".join(memory.cat_file(path) for path in sorted(memory.glob("/out/0*")))
    assert found.decode().splitlines() == english
    assert json.loads(scones(*words).out)["made"] == 0
    assert not [path for path in memory.find("/out") if path.endswith("writing")]


def test_processes_make_what_one_makes(german, tiny_model, scones, tmp_path):
    write(tmp_path / "a.txt", german)
    for workers in (1, 2):
        words = ["bulk", tiny_model, tmp_path / "a.txt", tmp_path / str(workers), "--rows", 7]
        assert scones(*words, "--workers", workers, "--scores").code == 0
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        ("", "a.parquet out --column de", r"a\.parquet has no column 'de', but id, source;"),
        ("", "a.jsonl out --pairs", r"a\.jsonl has no column 'target', but id, source;"),
        ("", "a.parquet out --column id", "The column 'id' of .* is int64, not text"),
        ("a.parquet", "a.parquet out", r"a\.parquet is damaged or no Parquet file"),
        ("a.txt.gz", "a.txt.gz out", r"a\.txt\.gz is damaged or cut off"),
        ("", "b.txt out", r"b\.txt does not exist"),
        ("", ". out", r"\. is a folder|/\S* is a folder"),
        ("", "*.html out", "stands for no file"),
        ("", "xyz://a out", "xyz://a cannot be opened"),
        ("", "a.txt.gz a.jsonl out", "The inputs are jsonl and text; give one kind"),
        ("", "a.txt.gz mine", "mine holds something else"),
        ("", "a.txt.gz done --search beam", "done belongs to another job, with search greedy"),
        ("", "a.jsonl done", "done belongs to another job, with inputs"),
        ("grow", "a.txt.gz done", "done belongs to another job, with the state of"),
        ("", "named.jsonl out", "has a column 'error' already; .* --prefix"),
        ("", "a.txt.gz out --shard 4/3", "--shard 4/3 is no part"),
    ],
)
def test_what_is_wrong_is_said_at_the_door(
    change, words, said, german, tiny_model, scones, refused, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt.gz", "a.jsonl", "a.parquet"):
        write(tmp_path / name, german)
    (tmp_path / "named.jsonl").write_text('{"source": "Tee", "error": 1}\n')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    if "done" in words:
        assert scones("bulk", tiny_model, "a.txt.gz", "done", *ROWS).code == 0
    if change == "grow":
        write(tmp_path / "a.txt.gz", german * 2)
    elif change:
        path = tmp_path / change
        path.write_bytes(path.read_bytes()[:-30])
    refused("bulk", tiny_model, *words.split(), *ROWS, said=said)


def test_without_space_no_shard_is_there(german, tiny_model, scones, tmp_path):
    write(tmp_path / "a.txt", german)
    words = ["bulk", tiny_model, tmp_path / "a.txt", tmp_path / "out", "--workers", 1]
    with no_file_larger_than(1200):  # the manifest fits, no shard does
        done = scones(*words)
    assert_refusal(done, r"no space left to write \S+00000000\.jsonl")
    assert list(contents(tmp_path / "out")) == ["_manifest.json"]
    assert scones(*words).code == 0


@pytest.mark.parametrize("count", [20_000, pytest.param(3_000_000, marks=pytest.mark.slow)])
def test_millions_of_scores_are_read_back(count, tiny_model, scones, tmp_path, monkeypatch):
    """Scores are synthesised: what is tested is the way in and out."""
    duckdb = pytest.importorskip("duckdb")

    def by_model(self, given):
        return [{"log_prob": -float(source), "tokens": len(target)} for source, target in given]

    monkeypatch.setattr("scones.bulk.job.Worker._by_model", by_model)
    numbers = arrow.array(range(count))
    missing = arrow.array([None if number % 1000 == 7 else "ja" for number in range(1000)])
    columns = {"id": numbers, "source": numbers.cast("string")}
    columns["target"] = arrow.chunked_array([missing] * (count // 1000))
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet", row_group_size=count // 3)
    words = ["bulk", tiny_model, tmp_path / "a.parquet", tmp_path / "out", "--pairs"]
    done = scones(*words, "--workers", 1, "--rows", count // 8, "--json")
    assert json.loads(done.out)["failed"] == {"has no text": count // 1000}
    found = pytest.importorskip("pyarrow.dataset").dataset(tmp_path / "out").to_table()
    assert found["id"].to_pylist() == list(range(count))
    names = ["id", "source", "target", "log_prob", "tokens", "error"]
    kinds = ["int64", "string", "string", "double", "int32", "string"]
    assert found.schema.names == names
    assert [str(kind) for kind in found.schema.types] == kinds
    query = f"""
        SELECT count(*), count(log_prob), count(error), sum(log_prob), any_value(error),
               bool_and(log_prob = -id) FROM read_parquet('{tmp_path}/out/*.parquet')"""
    whole = count * (count - 1) // 2
    gone = sum(range(7, count, 1000))
    scored = count - count // 1000
    expected = (count, scored, count // 1000, gone - whole, "has no text", True)
    assert duckdb.sql(query).fetchall() == [expected]
    order = duckdb.sql(f"SELECT id FROM read_parquet('{tmp_path}/out/*.parquet')").fetchall()
    assert [number for (number,) in order] == list(range(count))
