"""The package as a whole: its public names, what it imports, who knows whom."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import scones

ROOT = Path(scones.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# From left to right; a station imports from stations to its left. What is not a station (errors,
# files, options and the like) stands left of all.
STATIONS = ["text", "kernels", "outputs", "model", "search", "bridges", "evaluation"]
STATIONS += ["translator", "analysis", "training", "ibm3", "cli"]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_public_names_are_there() -> None:
    assert all(getattr(scones, name) is not None for name in scones.__all__)
    with pytest.raises(AttributeError, match="'sconse'"):
        scones.sconse  # noqa: B018


def test_importing_the_package_costs_nothing() -> None:
    program = "import sys, scones; print({'torch', 'numpy', 'typer'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_every_module_says_what_it_is_for() -> None:
    for path in MODULES:
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, path
        assert docstring.splitlines()[0].endswith((".", "?")), path


def place_of(module: str) -> int:
    """Give the place of a module on the way from text to the command line, from -1."""
    _, _, rest = module.partition(".")
    station = rest.partition(".")[0]
    if module in ("scones", "scones.__main__"):  # the front of the house looks into all of it
        return len(STATIONS)
    return STATIONS.index(station) if station in STATIONS else -1


def imported(path: Path) -> set[str]:
    """Give the modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            # `from scones.text import store` imports a module too.
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module and module.startswith("scones.")}


def test_stations_import_from_their_left_only() -> None:
    wrong = {
        (name_of(path), module)
        for path in MODULES
        for module in imported(path)
        if place_of(module) > place_of(name_of(path))
    }
    assert not wrong


def test_the_documented_import_graph_is_current() -> None:
    house = runpy.run_path(str(ROOT.parent / "tools" / "house.py"))
    document = (ROOT.parent / "docs" / "design.md").read_text()
    assert house["with_graph"](document) == document, "run: python tools/house.py graph --write"
