"""What the house looks like: how large its rooms are, who knows whom, which way a sentence takes.

    python tools/house.py count [--against REVISION]   code lines by room, and how dense they are
    python tools/house.py graph [--write]              the rooms' imports, drawn into docs/design.md
    python tools/house.py walk translate               files entered by load and one translation
    python tools/house.py walk train STORE RUN         files entered by `scones train`, ten steps

A code line holds a token of code: blank lines, comments and docstrings do not count.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GPU_ROOMS = ("scones/kernels/", "scones/model/gpu", "scones/search/gpu", "scones/training/gpu")
BEGIN, END = "<!-- import graph: python tools/house.py graph --write -->", "<!-- end -->"

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass
class Size:
    """How much code there is, and how dense."""

    files: int = 0
    code: int = 0
    characters: int = 0
    statements: int = 0
    comments: int = 0

    def add(self, text: str) -> None:
        """Count a file in."""
        tree, lines = ast.parse(text), text.split("\n")
        code: set[int] = set()
        prose: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            self.comments += int(token.type == tokenize.COMMENT)
            if token.type not in _NO_CODE:
                code.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                if isinstance(node.value.value, str):
                    prose.update(range(node.lineno, (node.end_lineno or 0) + 1))
            elif isinstance(node, ast.stmt):
                self.statements += 1
        self.files += 1
        self.code += len(code - prose)
        self.characters += sum(len(lines[number - 1].strip()) for number in code - prose)


def part_of(path: str) -> str:
    """The line of the table that a file counts in."""
    if path.startswith(GPU_ROOMS):
        return "package, GPU rooms"
    return "package" if path.startswith("scones/") else path.partition("/")[0]


def sizes(revision: str | None) -> dict[str, Size]:
    """Sizes of all parts, in the working tree or at a revision."""
    listing = ["ls-tree", "-r", "--name-only", revision] if revision else ["ls-files"]
    result: dict[str, Size] = defaultdict(Size)
    for path in _git(*listing).split("\n"):
        if path.endswith(".py"):
            text = _git("show", f"{revision}:{path}") if revision else (ROOT / path).read_text()
            result[part_of(path)].add(text)
    return result


def count(against: str | None) -> None:
    """Print the table, and below it that of another revision."""
    for revision in (None, against) if against else (None,):
        print(f"{revision or 'now':<20} files   code  chars/line  lines/statement  comments/100")
        for part, size in sorted(sizes(revision).items()):
            print(
                f"{part:<20} {size.files:5} {size.code:6} {size.characters / size.code:11.1f} "
                f"{size.code / size.statements:16.2f} {100 * size.comments / size.code:13.1f}"
            )


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def room_of(module: str) -> str:
    """The folder of the package that a module is in; the file itself where it is in none."""
    return module.split(".")[1]


def graph() -> str:
    """Which room imports from which, as a table in Markdown."""
    known: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "scones").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if len(parts) == 2 and (parts[1].startswith("__")):  # the front looks into all rooms
            continue
        room = room_of(".".join(parts))
        known[room] |= {room_of(module) for module in _imports(path)} - {room}
    # A room that knows fewer others, directly or through them, stands before those that know more.
    order = sorted(known, key=lambda room: (len(_all_known(room, known)), room))
    rows = [f"| `{room}` | {', '.join(f'`{other}`' for other in order if other in known[room])} |"
            for room in order]  # fmt: skip
    return "\n".join([BEGIN, "| room | imports from |", "|---|---|", *rows, END])


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "scones":
            yield from (f"scones.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scones."):
            yield node.module or ""


def _all_known(room: str, known: dict[str, set[str]]) -> set[str]:
    reached, waiting = set[str](), {room}
    while waiting:
        reached |= waiting
        waiting = {other for one in waiting for other in known.get(one, ())} - reached
    return reached - {room}


def with_graph(text: str) -> str:
    """A document with the graph put where it belongs."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + graph() + after


def walk(arguments: list[str]) -> None:
    """Print the files whose functions are called, in the order of their first call."""
    calls: dict[str, int] = {}
    changes, last = 0, ""

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal changes, last
        path = frame.f_code.co_filename
        # Class bodies and modules run while importing; they are no calls of functions.
        if event != "call" or not path.startswith(package) or not frame.f_code.co_flags & 1:
            return
        calls[path] = calls.get(path, 0) + 1
        changes += path != last
        last = path

    package = str(ROOT / "scones")
    sys.path.insert(0, str(ROOT))
    opened: list[str] = []
    sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == "open" else None)
    sys.setprofile(profile)
    if arguments[0] == "translate":
        import scones

        scones.load("pocket-de-en", engine="torch").translate(["Guten Morgen."])
    else:
        from scones.cli import main

        sys.argv = ["scones", "train", *arguments[1:], "--preset", "tiny", "--max-steps", "10"]
        with contextlib.suppress(SystemExit):
            main()
    sys.setprofile(None)
    configs = len([path for path in opened if path.endswith("config.json")])
    print(f"{len(calls)} files, {changes} changes of file, config.json opened {configs} times")
    for path, number in calls.items():
        print(f"{number:8,}  {Path(path).relative_to(ROOT)}")


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("count").add_argument("--against")
    commands.add_parser("graph").add_argument("--write", action="store_true")
    commands.add_parser("walk").add_argument("arguments", nargs="+")
    options = parser.parse_args()
    if options.command == "count":
        count(options.against)
    elif options.command == "walk":
        walk(options.arguments)
    elif options.write:
        document = ROOT / "docs" / "design.md"
        document.write_text(with_graph(document.read_text()))
    else:
        print(graph())


if __name__ == "__main__":
    main()
