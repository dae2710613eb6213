"""The documentation site, which opens without a network: `make docs` writes it into site/.

    python tools/docs.py [FOLDER]    build/pages and site, in this checkout or in a folder

Pages are the Markdown files of the navigation in zensical.toml, and those that they link to;
`tools/reference.py` writes the reference from the code. What else they link to below docs/ comes
along; other files of the repository are named. At the end every link of the site is followed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))  # however this file is called

import reference

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CONFIG = ROOT / "zensical.toml"
COPIED = (".svg", ".html", ".csv", ".json")
STYLE = ROOT / "tools" / "docs.css"
WORKER = ROOT / "tools" / "docs_worker.js"
SHIM = '<script src="https://unpkg.com/iframe-worker/shim"'

_LINK = re.compile(r"(?<!`)(!?)\[([^\]]+)\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a href="([^"#]+)">(.*?)</a>')


def main() -> None:
    """Gather, build, check."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    project = tomllib.loads(CONFIG.read_text())["project"]
    pages, site = folder / project["docs_dir"], folder / project["site_dir"]
    for old in (pages, site):
        shutil.rmtree(old, ignore_errors=True)
    problems = gather(pages)
    if not problems:
        if folder != ROOT:
            shutil.copyfile(CONFIG, folder / CONFIG.name)
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
        subprocess.run(command, cwd=folder, check=True)
        own_worker(site)
        problems = dead_links(site)
    sys.exit("\n".join(problems) or None)


def listed(nav: list[dict[str, str | list[dict[str, str]]]]) -> Iterator[str]:
    """Give the pages of the navigation."""
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from listed(value)  # type: ignore[arg-type]


# Gathering.


def place(path: Path) -> str:
    """Say where a file of the repository stands in the site."""
    if path == ROOT / "README.md":
        return "index.md"
    return str(path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT))


def gather(pages: Path) -> list[str]:
    """Write the pages, and what they link to; give the links that lead nowhere."""
    gathering = _Gathering()
    written = reference.pages()
    for name, text in written.items():
        write(pages / name, text)
    roots = {place(path): path for path in ROOT.glob("*.md")}
    for name in listed(tomllib.loads(CONFIG.read_text())["project"]["nav"]):
        if name not in written:
            gathering.ask(roots.get(name, DOCS / name), CONFIG)
    write(pages / STYLE.name, STYLE.read_text())
    while gathering.waiting:
        path = gathering.waiting.pop()
        rewrite = REWRITES.get(path.suffix)
        text = path.read_text()
        write(pages / place(path), rewrite(path, text, gathering.follow) if rewrite else text)
    return gathering.problems


@dataclass
class _Gathering:
    """The files that are to be pages of the site, or to come along."""

    waiting: list[Path] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def ask(self, path: Path, asking: Path) -> None:
        """Let a file be a page, once.

        The reference is no file: a link to it would be dead wherever the pages are read as files.
        """
        if not path.exists():
            self.problems.append(f"{asking.relative_to(ROOT)}: no {path.relative_to(ROOT)}")
        elif path not in self.seen:
            self.waiting.append(path)
        self.seen.add(path)

    def follow(self, path: Path, target: str) -> str | None:
        """Give a link of a file as the site has it; None where the site has no such file."""
        address = urlsplit(target)
        if address.scheme or not address.path:
            return target
        found = (path.parent / unquote(address.path)).resolve()
        if found.is_dir() or (found.exists() and not belongs(found)):
            return None
        self.ask(found, path)
        way = os.path.relpath(place(found), Path(place(path)).parent)
        return f"{way}#{address.fragment}" if address.fragment else way


def write(path: Path, text: str) -> None:
    """Write a file of the site."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def belongs(path: Path) -> bool:
    """Whether the site has such files: pages, and what pages below docs/ show."""
    return path.suffix == ".md" or (path.is_relative_to(DOCS) and path.suffix in COPIED)


Follow = Callable[[Path, str], str | None]


def in_markdown(path: Path, text: str, follow: Follow) -> str:
    """Turn links into those of the site, outside of code."""

    def link(found: re.Match[str]) -> str:
        kind, words, target = found.groups()
        address = follow(path, target)
        if address is not None:
            return f"{kind}[{words}]({address})"
        file = place((path.parent / target).resolve())
        return f"`{file}`" if file.endswith(words.strip("`")) else f"{words} (`{file}`)"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def in_html(path: Path, text: str, follow: Follow) -> str:
    """Leave away links to what the site does not have."""
    return _ANCHOR.sub(lambda link: link[0] if follow(path, link[1]) else link[2], text)


REWRITES = {".md": in_markdown, ".html": in_html}


# The built site.


def own_worker(site: Path) -> None:
    """Let the search of a page that was opened from a folder ask nobody else for its worker."""
    shutil.copyfile(WORKER, site / "assets" / "worker.js")
    (site / "404.html").unlink()  # for servers alone; its links begin at a root
    for page in site.rglob("*.html"):
        way = os.path.relpath(site / "assets" / "worker.js", page.parent)
        page.write_text(page.read_text().replace(SHIM, f'<script src="{way}"'))


class _Links(HTMLParser):
    """The links of a page, and the places in it that links may name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.names.add(value)
            if value and (name == "src" or (name == "href" and tag in ("a", "link"))):
                self.links.add(value)
                self.loaded.update([value] if tag != "a" else [])


def dead_links(site: Path) -> list[str]:
    """Give the links of a site that lead nowhere, and what it would load from elsewhere."""
    pages = {page: _Links(page.read_text()) for page in site.rglob("*.html")}
    problems = []
    for page, parsed in pages.items():
        for link in sorted(parsed.links):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                if link in parsed.loaded:
                    problems.append(f"{page.relative_to(site)}: {link} is loaded from elsewhere")
                continue
            found = (page.parent / unquote(address.path)).resolve() if address.path else page
            names = pages[found].names if found in pages else {""}
            if not found.is_file() or (address.fragment and unquote(address.fragment) not in names):
                problems.append(f"{page.relative_to(site)}: {link} leads nowhere")
    return problems


if __name__ == "__main__":
    main()
