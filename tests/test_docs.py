"""The documentation: no link of it is dead, and nothing public is missing in it."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

import scones
from scones.cli.commands import app
from scones.options import SECTIONS

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools" / "docs.py"


@pytest.fixture(scope="module")
def docs():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOL.parent)
        import docs

        yield docs


def names(group, before="scones"):
    for name, command in group.commands.items():
        yield f"{before} {name}"
        yield from names(command, f"{before} {name}") if hasattr(command, "commands") else ()


def test_the_reference_names_everything_and_pages_link_to_files(docs, tmp_path):
    assert docs.gather(tmp_path) == []
    texts = {path.stem: path.read_text() for path in (tmp_path / "reference").iterdir()}
    for command in names(typer.main.get_command(app)):
        assert f"# {command}\n" in texts["commands"]
    for name in scones.__all__:
        assert f"## `scones.{name}`\n" in texts["python"]
    for section in SECTIONS:
        assert f"## [{section}]" in texts["recipes"]
    assert "<code>--max-minutes &lt;float&gt;</code>" in texts["commands"]
    assert "<dt><code>max_minutes</code></dt><dd>stop after" in texts["recipes"]
    # Links lead to pages of the site, and what is none is named.
    assert "](docs/" not in (tmp_path / "index.md").read_text()
    assert "`recipes/tatoeba.toml`" in (tmp_path / "results.md").read_text()


def test_a_page_links_to_files_alone(docs, tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("[b](b.md) [all](reference/commands.md) [c](c.md)")
    (tmp_path / "docs" / "b.md").write_text("[a](a.md)")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "DOCS", tmp_path / "docs")
    (tmp_path / "zensical.toml").write_text('project.nav = [{ "A" = "a.md" }]')
    monkeypatch.setattr(docs, "CONFIG", tmp_path / "zensical.toml")
    missing = ["docs/a.md: no docs/reference/commands.md", "docs/a.md: no docs/c.md"]
    assert docs.gather(tmp_path / "pages") == missing


@pytest.mark.parametrize(
    ("page", "problems"),
    [
        ('<a id="x" href="other.html#y">', []),
        ('<a href="#x">', ["a.html: #x leads nowhere"]),
        ('<a href="other.html#z">', ["a.html: other.html#z leads nowhere"]),
        ('<img src="gone.svg">', ["a.html: gone.svg leads nowhere"]),
        ('<a href="https://example.org/">', []),
        ('<script src="https://example.org/x.js">', ["a.html: https://example.org/x.js is loaded"]),
    ],
)
def test_dead_links_are_found(docs, tmp_path, page, problems):
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "other.html").write_text('<p id="y">')
    found = docs.dead_links(tmp_path)
    assert len(found) == len(problems)
    assert all(one.startswith(said) for one, said in zip(found, problems, strict=True))


@pytest.mark.slow  # the test of the reference is the quick one
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("zensical")
    command = [sys.executable, str(TOOL), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = (tmp_path / "site" / "reference" / "commands.html").read_text()
    assert 'id="scones-paper-report"' in commands
    assert "scones translate" in (tmp_path / "site" / "search.json").read_text()
