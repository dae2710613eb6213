"""The package as a whole: its public names, what it imports, who knows whom."""

import ast
import os
import pydoc
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
STATIONS += ["translator", "bulk", "analysis", "training", "ibm3", "serving", "cli"]


def name_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_public_names_are_there():
    assert all(getattr(scones, name) is not None for name in scones.__all__)
    with pytest.raises(AttributeError, match="'sconse'"):
        scones.sconse  # noqa: B018


def test_help_and_tab_show_the_public_names():
    assert {name for name in dir(scones) if name[0] != "_"} == {*scones.__all__} - {"__version__"}
    page = pydoc.render_doc(scones, renderer=pydoc.plaintext)
    for name in ("class Translator", "load(", "scones_loss(", 'scones.load("pocket-de-en")'):
        assert name in page


def test_importing_the_package_costs_nothing():
    program = "import sys, scones; print({'torch', 'numpy', 'typer'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch has another OpenMP library there")
@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, 1000), ({"GOMP_SPINCOUNT": "7"}, 7), ({"OMP_WAIT_POLICY": "PASSIVE"}, 0)],
)
def test_waiting_threads_sleep_soon_unless_the_user_says_otherwise(given, spins):
    usual = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    done = subprocess.run(
        [sys.executable, "-c", "import scones, torch"],
        env=usual | {"OMP_DISPLAY_ENV": "verbose"} | given,
        capture_output=True,
        text=True,
    )
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr  # as the library understood it


def test_every_module_says_what_it_is_for():
    for path in MODULES:
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, path
        assert docstring.splitlines()[0].endswith((".", "?")), path


def place_of(module):
    """Give the place of a module on the way from text to the command line, from -1."""
    _, _, rest = module.partition(".")
    station = rest.partition(".")[0]
    if module in ("scones", "scones.__main__"):  # the front of the house looks into all of it
        return len(STATIONS)
    return STATIONS.index(station) if station in STATIONS else -1


def imported(path):
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


def test_stations_import_from_their_left_only():
    wrong = {
        (name_of(path), module)
        for path in MODULES
        for module in imported(path)
        if place_of(module) > place_of(name_of(path))
    }
    assert not wrong


def test_the_documented_import_graph_is_current():
    house = runpy.run_path(str(ROOT.parent / "tools" / "house.py"))
    document = (ROOT.parent / "docs" / "design.md").read_text()
    assert house["with_graph"](document) == document, "run: python tools/house.py graph --write"
