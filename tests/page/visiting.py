"""Somebody with the page before them: a browser, and `scones serve` with the pocket models."""

import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from recipes.pocket import everyday

ROOT = Path(__file__).parents[2]
BLOCKS = [
    block
    for part in ("train", "test")
    for block in everyday.read_blocks(everyday.HERE / "phrasebook" / f"{part}.txt")
]


def phrases(language, many, least_words=4):
    """Sentences of the phrasebook, drawn at random; a line may be two, which are left out."""
    lines = [line for block in BLOCKS for line in block.lines[language]]
    lines = [line for line in lines if not set(line[:-1]) & set(".!?…:")]
    return random.sample([line for line in lines if len(line.split()) >= least_words], many)


class Server:
    """`scones serve`, which can be stopped and started again at the same address."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/"
        self.start()

    def start(self, seconds=120):
        command = [sys.executable, "-m", "scones", "serve", "--port", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT)
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.address}ready", timeout=5):
                    return
            except OSError:
                time.sleep(0.2)
        raise AssertionError("the server does not get ready")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


class Visitor:
    """Somebody with the page before them."""

    def __init__(self, browser, server, **how):
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | how)
        self.context.set_default_timeout(30_000)
        self.server, self.complaints = server, []
        self.page = self.open()

    def open(self, address=None):
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        page.on("request", self._look_at)
        page.goto(address or self.server.address)
        page.wait_for_selector("#directions input")
        return page

    def _look_at(self, request):
        if not request.url.startswith(self.server.address):
            self.complaints.append(f"asked a foreign host: {request.url}")

    def ask(self, path, **body):
        """The API's own answer."""
        body = {"source": "de", "target": "en"} | body
        return self.page.request.post(f"{self.server.address}v1/{path}", data=body).json()

    def type(self, text):
        """Type a sentence; its translation as the page shows it."""
        self.page.fill("#text", text)
        return self.translated(text)

    def translated(self, text):
        shown = "text => document.querySelector('q.sentence').textContent === text"
        self.page.wait_for_function(shown, arg=text)
        return self.translation

    @property
    def translation(self):
        return self.page.locator("#translation").text_content().strip()

    def type_one_with_alternatives(self):
        """Type sentences until one has words with alternatives; the sentence."""
        for sentence in phrases("de", 40):
            self.type(sentence)
            if self.page.locator("#translation .word").count():
                return sentence
        raise AssertionError("no sentence of forty has a word with alternatives")
