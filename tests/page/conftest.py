"""The page as people have it: `scones serve` with the pocket models, and Chromium."""

import os
import re
import shutil
from pathlib import Path

import pytest
from visiting import Server, Visitor

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def server():
    for needed in ("fastapi", "uvicorn", "prometheus_client", "multipart"):
        pytest.importorskip(needed)
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser():
    """Closed behind the module: while it is open, Playwright's event loop is everybody's."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("there is no Chromium here")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visitor(browser, server):
    """Whoever uses this complains of errors, of what the policy forbids, and of foreign hosts."""
    visitor = Visitor(browser, server)
    yield visitor
    visitor.context.close()
    assert visitor.complaints == []


SCREENSHOTS = os.environ.get("SCONES_SCREENSHOTS")


@pytest.fixture
def picture():
    """Keep a picture of a page where somebody wants to look at it."""

    def take(page, name):
        if SCREENSHOTS:
            name = re.sub(r"\W+", "-", name)
            page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)

    return take
