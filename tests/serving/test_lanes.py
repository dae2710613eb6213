"""Who waits, who goes together, who is sent away; and keys, with models that only count."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from http_clients import Client, listening

from scones.errors import SconesError
from scones.serving import Refused
from scones.serving.app import application
from scones.serving.guard import Keys
from scones.serving.hall import Hall
from scones.serving.lanes import Lane, Unavailable
from scones.serving.limits import Limits, Served
from scones.serving.worker import Item, Task

FIRST, SECOND = Task("translate", "first"), Task("translate", "second")


class Counting:
    """An owner that answers with the length of each text, when it may."""

    def __init__(self, dies=0):
        self.may, self.batches, self.interrupted, self.dies = threading.Event(), [], 0, dies
        self.started = 0
        self.may.set()

    def answers(self, task, items, seconds):
        self.batches.append((task, [len(item.text) for item in items]))
        assert self.may.wait(10)
        if self.dies:
            self.dies -= 1
            raise Unavailable("Gone.")
        return [[{"text": str(len(item.text))}] for item in items]

    def interrupt(self):
        self.interrupted += 1
        self.may.set()

    def start(self):
        self.started += 1

    def stop(self):
        pass


def in_lane(owner, test, together=3, most=5):
    """Run a test with a lane."""

    async def run():
        lane = Lane(owner, together, most, 1.0)
        running = asyncio.create_task(lane.run())
        try:
            await asyncio.wait_for(test(lane), 20)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    asyncio.run(run())


def items(*lengths):
    return [Item("x" * length) for length in lengths]


def test_batches_are_of_one_task_and_of_like_lengths():
    owner = Counting()
    owner.may.clear()

    async def test(lane):
        first = asyncio.create_task(lane.ask(FIRST, items(9)))
        await asyncio.sleep(0.05)  # it is being done; the others wait
        others = [lane.ask(FIRST, items(5, 90, 6, 4)), lane.ask(SECOND, items(5))]
        others = [asyncio.create_task(one) for one in others]
        await asyncio.sleep(0.05)
        owner.may.set()
        (answer,) = await first
        assert answer == [{"text": "9"}]
        assert [one[0]["text"] for one in await others[0]] == ["5", "90", "6", "4"]
        await others[1]

    in_lane(owner, test)
    assert owner.batches == [(FIRST, [9]), (FIRST, [5, 6, 4]), (FIRST, [90]), (SECOND, [5])]


def test_a_full_queue_sends_away_and_a_place_that_is_left_is_free():
    owner = Counting()
    owner.may.clear()

    async def test(lane):
        doing = asyncio.create_task(lane.ask(FIRST, items(1)))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(lane.ask(FIRST, items(1, 2, 3, 4)))
        await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="Too many"):
            await lane.ask(FIRST, items(1, 2))
        waiting.cancel()
        await asyncio.sleep(0.01)
        assert len(lane) == 0
        assert not owner.interrupted
        doing.cancel()  # now it is done for nobody
        await asyncio.sleep(0.01)
        assert owner.interrupted
        assert await lane.ask(FIRST, items(7)) == [[{"text": "7"}]]

    in_lane(owner, test)


def test_an_owner_that_dies_is_started_again():
    owner = Counting(dies=1)

    async def test(lane):
        (refusal,) = await lane.ask(FIRST, items(1))
        assert refusal.status == 503
        assert await lane.ask(FIRST, items(2)) == [[{"text": "2"}]]
        assert lane.ready

    in_lane(owner, test)
    assert owner.started == 1


@pytest.fixture
def guarded(tiny_model, tmp_path):
    """A server with keys, another site that may ask, and room for one that waits."""
    (tmp_path / "keys").write_text("one\ntwo\n")
    owner, limits = Counting(), Limits(max_waiting=1)
    lanes = Lane(owner, 1, limits.max_waiting, 1.0), Lane(Counting(), 1, 1, 1.0)
    hall = Hall([Served("scones", tiny_model)], *lanes, limits, Keys(tmp_path / "keys"))
    with listening(application(hall, ["https://friend.example"])) as client:
        yield client, owner


ASKED = json.dumps({"text": "Tee.", "source": "de", "target": "en", "tokens": False})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer three"}, 401),
        ({"authorization": "Bearer \xff"}, 401),
        ({"authorization": "Bearer two"}, 200),
        ({"x-api-key": "one"}, 200),
    ],
)
def test_keys(guarded, headers, status):
    client, _ = guarded
    assert client.ask("POST", "/v1/translate", ASKED, **headers)[0] == status
    assert client.ask("GET", "/metrics", **headers)[0] == status
    assert client.get("/health")[0] == 200
    body = {"q": "Tee.", "source": "de", "target": "en"}
    assert client.post("/translate", **body)[0] == 401
    assert client.post("/translate", **body, api_key="two")[0] == 200


@pytest.mark.parametrize(("content", "said"), [(b"", "no key"), (b"\xff", "cannot be read")])
def test_a_file_of_keys_that_holds_none_is_refused(tmp_path, content, said):
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(SconesError, match=said):
        Keys(tmp_path / "keys")


def test_too_many_are_told_when_to_come_again(guarded):
    client, owner = guarded
    owner.may.clear()
    statuses, headers = [], {"x-api-key": "one"}

    def ask():
        statuses.append(client.ask("POST", "/v1/translate", ASKED, **headers)[:2])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    while sum(status == 429 for status, _ in statuses) < 4:
        time.sleep(0.01)
    owner.may.set()
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in statuses) == [200, 200, 429, 429, 429, 429]
    assert all(said["retry-after"] == "1" for status, said in statuses if status == 429)


def test_other_sites_may_not_ask_unless_they_are_named(guarded):
    client, _ = guarded
    allowed = "access-control-allow-origin"
    friend = {"origin": "https://friend.example"}
    assert client.ask("GET", "/health", **friend)[1][allowed] == "https://friend.example"
    assert allowed not in client.ask("GET", "/health", origin="https://other.example")[1]


@pytest.mark.slow
def test_the_command_answers_what_it_has_before_it_ends(tiny_model):
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    command = [sys.executable, "-m", "scones", "serve", str(tiny_model), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert f"http://127.0.0.1:{port}/" in server.stdout.readline()
    client, statuses = Client(port), []
    text = " ".join(["Tee und Wasser."] * 100)
    body = {"text": text, "source": "de", "target": "en", "search": "beam", "beam_size": 16}
    thread = threading.Thread(target=lambda: statuses.append(client.post("/v1/translate", **body)))
    thread.start()
    time.sleep(0.5)
    server.send_signal(signal.SIGTERM)
    thread.join()
    assert statuses[0][0] == 200
    assert server.wait(60) in (0, -signal.SIGTERM)
    again = subprocess.run([*command[:-1], "70000"], capture_output=True, text=True)
    assert (again.returncode, "--port must be at most" in again.stderr) == (2, True)
