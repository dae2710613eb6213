import gzip
import lzma
import os
import tracemalloc

import pytest

from scones.errors import SconesError
from scones.text import reading
from scones.text.reading import (
    MAX_LINE_BYTES,
    NOT_TWO_COLUMNS,
    chunks_of_lines,
    lines,
    pairs,
    read_texts,
)

zstd = reading.zstd or pytest.skip("no package reads .zst", allow_module_level=True)

PACKERS = {
    ".txt": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}
PACKED = [ending for ending in PACKERS if ending != ".txt"]


def written(folder, content, name="corpus.txt"):
    path = folder / name
    path.write_bytes(PACKERS[path.suffix](content))
    return path


def refusal(path):
    with pytest.raises(SconesError) as caught:
        list(lines(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ending", PACKERS)
def test_lines_end_at_a_newline_only(tmp_path, ending):
    content = "one\u2028still one\n\x0b\x0c\x1c\n\nlast\rline".encode()
    path = tmp_path / f"corpus{ending}"
    pack = PACKERS[ending]
    path.write_bytes(pack(content[:9]) + pack(content[9:]))  # two compressed pieces are one file
    assert list(lines(path)) == content.split(b"\n")


@pytest.mark.parametrize("ending", PACKED)
def test_a_cut_or_damaged_file_is_refused(tmp_path, ending):
    text = b"".join(b"line %d of a text %d\n" % (n, n**3 % 9973) for n in range(2000))
    whole = PACKERS[ending](text)
    path = tmp_path / f"corpus{ending}"
    for content in (whole[:5], whole[: len(whole) // 2], whole[:-1], b"not compressed\n" * 20):
        path.write_bytes(content)
        assert "damaged or cut off" in refusal(path)


@pytest.mark.parametrize("ending", PACKED)
def test_a_compressed_file_without_its_ending_is_refused(tmp_path, ending):
    path = tmp_path / "corpus"
    path.write_bytes(PACKERS[ending](b"one\n"))
    assert f"end in {ending}" in refusal(path)


def test_a_missing_package_for_zstd_says_what_to_install(tmp_path, monkeypatch):
    path = written(tmp_path, b"one\n", "corpus.zst")
    monkeypatch.setattr(reading, "zstd", None)
    assert "scones[zstd]" in refusal(path)


@pytest.mark.parametrize("ending", PACKERS)
def test_an_empty_file_is_refused(tmp_path, ending):
    assert "is empty" in refusal(written(tmp_path, b"", f"corpus{ending}"))
    path = tmp_path / f"nothing{ending}"
    path.write_bytes(b"")
    assert "is empty" in refusal(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none.txt")
    assert "is a folder" in refusal(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_with_the_remedy(tmp_path, encoding):
    path = written(tmp_path, "Tee\nKaffee\n".encode(encoding))
    assert "iconv -f utf-16" in refusal(path)


def test_what_windows_adds_is_no_text(tmp_path):
    marked = written(tmp_path, b"\xef\xbb\xbfone\r\ntwo\r\n", "marked.txt")
    mixed = written(tmp_path, b"one\ntwo\r\n", "mixed.txt")
    assert list(lines(marked)) == list(lines(mixed)) == [b"one", b"two"]
    columns = written(tmp_path, b"\xef\xbb\xbfeins\tone\r\n", "columns.txt")
    assert list(pairs(columns, None)) == [(b"eins", b"one")]


def test_a_very_long_line_is_cut_and_the_next_one_is_whole(tmp_path):
    longest = b"x" * MAX_LINE_BYTES
    path = written(tmp_path, longest + b"\n" + 3 * longest + b"\nnext\n" + longest + b"y")
    assert list(lines(path)) == [longest, longest + b"x", b"next", longest + b"y"]


def test_a_huge_packed_line_takes_little_memory(tmp_path):
    megabyte = b"x" * (1 << 20)
    path = tmp_path / "huge.zst"
    with zstd.open(path, "wb") as file:
        for _ in range(256):
            file.write(megabyte)
    tracemalloc.start()
    try:
        [line] = lines(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(line) == MAX_LINE_BYTES + 1
    assert peak < 150 * len(megabyte)


@pytest.mark.parametrize(("left", "right"), [(2, 5), (5, 2), (3, 2)])
def test_unequal_files_are_refused_with_both_numbers(tmp_path, left, right):
    source = written(tmp_path, b"s\n" * left, "a.txt")
    target = written(tmp_path, b"t\n" * right, "b.txt")
    with pytest.raises(SconesError) as caught:
        list(pairs(source, target))
    assert f"{source} has {left} lines but {target} has {right}" in str(caught.value)


def test_a_tsv_gives_pairs_and_marks_broken_lines(tmp_path):
    path = written(tmp_path, b"eins\tone\nalone\na\tb\tc\n\t\n")
    assert list(pairs(path, None)) == [
        (b"eins", b"one"),
        (b"alone", NOT_TWO_COLUMNS),
        (b"a\tb\tc", NOT_TWO_COLUMNS),
        (b"", b""),
    ]


@pytest.mark.parametrize(("first", "tabs"), [(b"no tab", 0), (b"a\tb\tc", 2)])
def test_a_tsv_whose_first_line_is_no_pair_is_refused(tmp_path, first, tabs):
    with pytest.raises(SconesError, match=f"line 1 has {tabs} TAB"):
        list(pairs(written(tmp_path, first + b"\n"), None))


def test_read_texts_keeps_every_line_as_it_is(tmp_path):
    path = written(tmp_path, "Kännchen\n\n  Tee\u2028\n".encode(), "dev.xz")
    assert read_texts(path) == ["Kännchen", "", "  Tee\u2028"]


@pytest.mark.parametrize(
    ("line", "fault"), [(b"K\xe4nnchen", "byte 2 is 0xE4"), (b"Tee\0", "byte 4 is 0x00")]
)
def test_read_texts_names_the_broken_byte(tmp_path, line, fault):
    path = written(tmp_path, b"fine\n" + line + b"\n")
    with pytest.raises(SconesError) as caught:
        read_texts(path)
    assert f"{path}, line 2" in str(caught.value)
    assert fault in str(caught.value)


def test_read_texts_refuses_a_line_that_would_be_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 10)
    with pytest.raises(SconesError, match="line 2 is longer than 10 bytes"):
        read_texts(written(tmp_path, b"x" * 10 + b"\n" + b"y" * 11))


# Standard input in chunks: what waits together comes together, what does not does not.


@pytest.fixture
def pipe():
    """The two ends of a pipe: one to read, one to write, unbuffered."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        yield reader, writer


def chunks_of(pipe, data, most):
    reader, writer = pipe
    writer.write(data)
    writer.close()
    return list(chunks_of_lines(reader, most))


def test_a_chunk_holds_at_most_so_many_lines(pipe):
    found = chunks_of(pipe, b"a\nb\nc\nd\ne\n", most=2)
    assert found == [[(1, "a"), (2, "b")], [(3, "c"), (4, "d")], [(5, "e")]]


def test_a_line_is_answered_before_the_next_one_comes(pipe):
    reader, writer = pipe
    chunks = chunks_of_lines(reader, most=100)
    writer.write(b"one\n")
    assert next(chunks) == [(1, "one")]
    writer.write(b"two\nthree\nfo")
    assert next(chunks) == [(2, "two"), (3, "three")]
    writer.write(b"ur\n")
    assert next(chunks) == [(4, "four")]
    writer.close()
    assert list(chunks) == []


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n", b"a", b"a\n\nb", "ä\u2028ö\x0bü\n".encode()])
def test_lines_end_in_a_newline_and_nowhere_else(pipe, data):
    expected = data.decode().removesuffix("\n").split("\n") if data else []
    found = [text for chunk in chunks_of(pipe, data, 100) for _, text in chunk]
    assert found == expected


def test_what_windows_adds_is_taken_off(pipe):
    found = chunks_of(pipe, b"\xef\xbb\xbfa\r\nb\r\n\xef\xbb\xbfc\n", 100)
    assert found == [[(1, "a"), (2, "b"), (3, "\ufeffc")]]


def test_a_line_longer_than_a_block_stays_whole(pipe):
    reader, writer = pipe
    chunks = chunks_of_lines(reader, most=100)
    line = "ä" * 30_000
    for _ in range(3):  # a pipe holds 64 KiB; each write fits after the one before was read
        writer.write(line.encode())
        writer.write(b"\n")
        assert [text for _, text in next(chunks)] == [line]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"g\xc3t", "Line 3 .*UTF-8 text .byte 2 is 0xC3"),
        (b"g\0t", "Line 3 .*UTF-8 text .byte 2 is 0x00"),
    ],
)
def test_the_lines_before_a_bad_one_are_given_first(pipe, bad, said):
    reader, writer = pipe
    writer.write(b"a\nb\n" + bad + b"\nd\n")
    chunks = chunks_of_lines(reader, most=100)
    assert next(chunks) == [(1, "a"), (2, "b")]
    with pytest.raises(SconesError, match=said):
        next(chunks)
