from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from scones.text.prepare import DuplicateFinder


def _digest(low: int, high: int) -> bytes:
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


@settings(max_examples=30)
@given(
    # Few values, so that many repeat; some differ in one half of the digest only.
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=60),
    st.integers(1, 7),
    st.integers(1, 20),
)
def test_all_but_the_first_are_marked(
    values: list[tuple[int, int]], chunk: int, buffered: int
) -> None:
    digests = [_digest(low, high) for low, high in values]
    with TemporaryDirectory() as folder:
        finder = DuplicateFinder(Path(folder) / "duplicates", buffered)
        for start in range(0, len(digests), chunk):
            finder.add(b"".join(digests[start : start + chunk]))
        assert len(finder) == len(digests)
        marks = finder.mark().tolist()
    assert marks == [digest in digests[:i] for i, digest in enumerate(digests)]


def test_every_byte_of_a_digest_counts(tmp_path: Path) -> None:
    base = bytes(16)
    different = [base[:i] + b"\1" + base[i + 1 :] for i in range(16)]
    finder = DuplicateFinder(tmp_path)
    finder.add(b"".join([base, *different, base, different[7]]))
    assert finder.mark().tolist() == [False] * 17 + [True, True]


def test_the_first_is_kept_across_flushes(tmp_path: Path) -> None:
    finder = DuplicateFinder(tmp_path, buffered=1)
    for low in (700, 3, 700, 3, 4, 700):
        finder.add(_digest(low, 0))
    assert finder.mark().tolist() == [False, False, True, True, False, True]
    assert not list(tmp_path.glob("bucket.*"))
