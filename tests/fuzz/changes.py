"""One thing wrong with a valid folder: drawn at random, and told so that it can be kept and redone.

A change is a JSON object that names a file and says what to do to it:

    set, remove         the value `at` a path of keys: in JSON, in a line of JSON Lines, or in the
                        header of a safetensors file, whose length is put right
    splice              from byte `at` the next `take` bytes become `hex`, repeated `times`
    swap                the file's halves change places
    gone, folder, fifo, loop    something else in the file's place, or nothing
    beside              a file called `name` beside it
"""

import json
import os
from functools import reduce
from operator import getitem
from pathlib import Path

_NESTED = "nested deeply"
_VALUES = [None, True, 0, -1, 1, 2**31, 2**63, 10**30, 1e308, 0.5, float("nan")]
_VALUES += [float("inf"), "", "x", "\ud800", "\x1b[2J\x07", "a\nb", "\0", "x" * 70_000, _NESTED]
_VALUES += ["../neighbour/thesis.txt", [], {}, [[]], {"x": 1}, [None], ["x", 1]]
_BYTES = ["", "00", "ff", "0a", "7b", "22", "2d31", "393939", "1b5b324a", "ffffffffffffff7f"]
_NAMES = ["../step-00000060.bak", "step-00000060", ".hidden", "x\x1b[2J\ny", "\udcff", "x.json"]


def _parts(file):
    """What a file holds that has keys, and what stands before and behind it."""
    content = file.read_bytes()
    if file.suffix == ".jsonl":
        return b"", [json.loads(line) for line in content.splitlines()], b""
    header = content[8:10] == b'{"'
    end = 8 + int.from_bytes(content[:8], "little") if header else len(content)
    try:
        return content[: 8 * header], json.loads(content[8 * header : end]), content[end:]
    except ValueError:
        return b"", None, b""


def _paths(document, path=()):
    if path:
        yield path
    if isinstance(document, dict | list):
        for key in document if isinstance(document, dict) else range(len(document)):
            yield from _paths(document[key], (*path, key))


def draw(random, folder, command):
    """Draw a change of a file in a folder: of one that the command names, if it names any."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = random.choice([path for path in files if path.name in command] or files)
    change = {"file": str(file.relative_to(folder))}
    paths = list(_paths(_parts(file)[1]))
    size, sort = file.stat().st_size, random.random()
    if paths and sort < 0.1:
        return change | {"do": "remove", "at": random.choice(paths)}
    if paths and sort < 0.65:
        at = random.choice(paths)
        old = reduce(getitem, at, _parts(file)[1])
        near = [old + 1, old * 2, -old, str(old)] if isinstance(old, int | float) else [[old]]
        return change | {"do": "set", "at": at, "to": random.choice(random.choice([_VALUES, near]))}
    if sort < 0.85:
        at = random.choice([0, size, random.randint(0, size), random.randint(0, min(size, 200))])
        take = random.choice([0, 1, 1, 8, random.randint(0, size), size])
        new = {"hex": random.choice(_BYTES), "times": random.choice([1, 1, 1, take, 4096])}
        return change | {"do": "splice", "at": at, "take": take} | new
    # A text that is given may well be a pipe, and whoever reads it waits for the writer.
    pipe = [] if folder.name in ("texts", "given") else ["fifo"]
    what = random.choice(["swap", "gone", "folder", "loop", "beside", *pipe])
    return change | {"do": what} | ({"name": random.choice(_NAMES)} if what == "beside" else {})


def apply(change, folder):
    """Make a folder's file wrong."""
    file, what = folder / change["file"], change["do"]
    content, half = file.read_bytes(), file.stat().st_size // 2
    if what in ("set", "remove"):
        before, document, behind = _parts(file)
        inside, key = reduce(getitem, change["at"][:-1], document), change["at"][-1]
        if what == "set":
            inside[key] = change["to"]
        else:
            del inside[key]
        lines = document if file.suffix == ".jsonl" else [document]
        text = "\n".join(map(json.dumps, lines)).replace(f'"{_NESTED}"', "[" * 9999 + "]" * 9999)
        length = len(text).to_bytes(8, "little") if before else b""
        file.write_bytes(length + text.encode() + behind)
    elif what == "splice":
        at, new = change["at"], bytes.fromhex(change["hex"]) * change["times"]
        file.write_bytes(content[:at] + new + content[at + change["take"] :])
    elif what == "swap":
        file.write_bytes(content[half:] + content[:half])
    elif what == "beside":
        (file.parent / change["name"]).write_text("strange\n")
    else:
        file.unlink()
        make = {"folder": Path.mkdir, "fifo": os.mkfifo, "loop": lambda file: file.symlink_to(file)}
        make.get(what, str)(file)
