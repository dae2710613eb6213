"""The documentation site, which opens without a network: `make docs` writes it into site/.

    python tools/site.py

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
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))  # however this file is called

import reference

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CONFIG = ROOT / "zensical.toml"
COPIED = (".svg", ".png", ".html", ".csv", ".json")
WORKER = ROOT / "tools" / "site_worker.js"
SHIM = '<script src="https://unpkg.com/iframe-worker/shim"'

_LINK = re.compile(r"(?<!`)(!?)\[([^\]]+)\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a href="([^"#]+)">(.*?)</a>')


def main() -> None:
    """Gather, build, check."""
    project = tomllib.loads(CONFIG.read_text())["project"]
    pages, site = ROOT / project["docs_dir"], ROOT / project["site_dir"]
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    problems = gather(list(listed(project["nav"])), pages)
    if not problems:
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
        subprocess.run(command, cwd=ROOT, check=True)
        own_shim(site)
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


def gather(names: list[str], pages: Path) -> list[str]:
    """Write the pages, and what they link to; give the links that lead nowhere."""
    written = reference.pages()
    for name, text in written.items():
        target = pages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    origins = {place(path): path for path in (*ROOT.glob("*.md"), *DOCS.glob("*.md"))}
    waiting = [origins.get(name, DOCS / name) for name in names if name not in written]
    problems, done = [], set(waiting)

    def follow(path: Path, target: str) -> str | None:
        """Give a link as the site has it; None where the site has no such file."""
        address = urlsplit(target)
        if address.scheme or not address.path:
            return target
        found = (path.parent / unquote(address.path)).resolve()
        if not found.exists():
            generated = place(found) in written
            problems.extend([] if generated else [f"{path.relative_to(ROOT)}: no {target}"])
        elif found.is_dir() or not (found.suffix == ".md" or comes_along(found)):
            return None
        elif found not in done:
            done.add(found)
            waiting.append(found)
        way = os.path.relpath(place(found), Path(place(path)).parent)
        return f"{way}#{address.fragment}" if address.fragment else way

    while waiting:
        path = waiting.pop()
        if not path.exists():
            problems.append(f"{CONFIG.name}: no {place(path)}")
            continue
        target = pages / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        rewrite = REWRITES.get(path.suffix)
        if rewrite is None:
            shutil.copyfile(path, target)
        else:
            target.write_text(rewrite(path, path.read_text(), follow))
    return problems


def comes_along(path: Path) -> bool:
    return path.is_relative_to(DOCS) and path.suffix in COPIED


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


def own_shim(site: Path) -> None:
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
