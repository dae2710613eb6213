"""How much do batches of many clients' requests give: `scones serve` against plain servers?

    SCONES_DATA=... python benchmarks/serving.py --json FILE
    SCONES_DATA=... python benchmarks/serving.py --soak 20

Many clients ask at once, each for one sentence after another. "plain" is a FastAPI server that
calls the same translator for one request at a time, in a process a core or in one with as many
threads; "generate" is the same around Hugging Face's generate. All run at once and take turns;
every reply is compared with what the translator says offline. --soak saturates ours for so many
minutes, exact searches, vanishing clients and an overflowing queue included.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil

PAIR = {"source": "de", "target": "en"}
FIRST_PORT = 8410
CORES = len(os.sched_getaffinity(0))


# The plain servers, in processes of their own.


def plain_app() -> Any:
    """A server that translates one request at a time."""
    from fastapi import FastAPI

    kind, folder = os.environ["PLAIN"].split(":", 1)
    translate = {"plain": by_scones, "generate": by_generate}[kind](folder)
    translate("Hallo.")
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/translate")
    async def answer(said: dict[str, Any]) -> dict[str, Any]:
        return {"translations": [{"text": translate(said["text"])}]}

    return app


def by_scones(folder: str) -> Any:
    import scones

    translator = scones.load(folder)
    return lambda text: translator.translate([text])[0][0].text


def by_generate(folder: str) -> Any:
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()  # else a line for every request
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def translate(text: str) -> str:
        source = tokenizer(text, return_tensors="pt")
        limit = 2 * source["input_ids"].size(1) + 20
        found = model.generate(**source, num_beams=1, do_sample=False, max_new_tokens=limit)
        return str(tokenizer.decode(found[0], skip_special_tokens=True))

    return translate


def serve_plainly(port: int, workers: int) -> None:
    import uvicorn

    place = str(Path(__file__).parent)
    uvicorn.run(
        "serving:plain_app",
        factory=True,
        port=port,
        workers=workers,
        app_dir=place,
        access_log=False,
        log_level="warning",
    )


@contextmanager
def server(
    command: Sequence[str], port: int, threads: int, **environment: str
) -> Iterator[psutil.Process]:
    """A server, as soon as it answers, until it is not needed any more."""
    told = os.environ | {"OMP_NUM_THREADS": str(threads)} | environment
    process = psutil.Popen([sys.executable, *command], env=told)
    try:
        until = time.monotonic() + 300
        while not asyncio.run(answers(port)):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{' '.join(command)} did not start.")
            time.sleep(0.5)
        yield process
    finally:
        process.terminate()
        process.wait(120)


async def answers(port: int) -> bool:
    try:
        async with asyncio.timeout(5):
            status, _ = await Client(port).get("/health")
            return status == 200
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False


# Clients.


class Client:
    """One connection, which stays open; as little work as can be."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[int, Any]:
        await self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await self.receive()

    async def post(self, path: str, **said: Any) -> tuple[int, Any]:
        await self.begin(path, **said)
        return await self.receive()

    async def begin(self, path: str, **said: Any) -> None:
        body = json.dumps(said).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        await self.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def send(self, message: bytes) -> None:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**24)
        self.streams[1].write(message)
        await self.streams[1].drain()

    async def receive(self) -> tuple[int, Any]:
        assert self.streams is not None
        reader = self.streams[0]
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        if "connection: close" in head:
            body, self.streams = await reader.readexactly(length), None
        else:
            body = await reader.readexactly(length)
        return int(head.split()[1]), json.loads(body)

    def vanish(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def load(
    server: psutil.Process, port: int, texts: Sequence[str], clients: int
) -> dict[str, Any]:
    """Let clients ask for all texts, each for one after another; tell rates, times and answers."""
    waiting, took, replies = list(enumerate(texts))[::-1], [0.0] * len(texts), [""] * len(texts)

    async def ask() -> None:
        client = Client(port)
        while waiting:
            number, text = waiting.pop()
            began = time.perf_counter()
            status, said = await client.post("/v1/translate", text=text, **OURS)
            took[number] = time.perf_counter() - began
            replies[number] = said["translations"][0]["text"] if status == 200 else f"{status}"
        client.vanish()

    began, busy = time.perf_counter(), cpu_seconds(server)
    await asyncio.gather(*(ask() for _ in range(clients)))
    rate = len(texts) / (time.perf_counter() - began)
    per_cpu = len(texts) / (cpu_seconds(server) - busy)
    ranked = sorted(took)
    p50, p99 = ranked[len(ranked) // 2], ranked[int(len(ranked) * 0.99)]
    return {"rate": rate, "per_cpu": per_cpu, "p50": p50, "p99": p99, "replies": replies}


def cpu_seconds(server: psutil.Process) -> float:
    """What a server and its processes have computed."""
    family = [server, *server.children(recursive=True)]
    return sum(one.cpu_times().user + one.cpu_times().system for one in family)


OURS: dict[str, Any] = {**PAIR, "tokens": False, "split": False}
"""What is asked; the plain servers look at the text alone."""


# Load.


def compare(options: Any, texts: list[str], offline: list[str]) -> dict[str, Any]:
    from common import number, show, take_turns

    with tempfile.TemporaryDirectory() as place, ExitStack() as running:
        exported = f"{place}/exported"
        export = ["-m", "scones", "export", options.model, exported, "--to", "huggingface"]
        subprocess.run([sys.executable, *export], check=True, stdout=subprocess.DEVNULL)
        ports = {}
        for port, (name, workers) in enumerate(
            [("ours", 0), *((kind, w) for kind in options.against for w in {1, CORES})], FIRST_PORT
        ):
            if name == "ours":
                command = ["-m", "scones", "serve", options.model, "--port", str(port)]
                ports["ours"] = running.enter_context(server(command, port, CORES)), port
                continue
            folder = options.model if name == "plain" else exported
            command = [__file__, "--plain", str(port), str(workers)]
            threads = CORES // workers
            plain = server(command, port, threads, PLAIN=f"{name}:{folder}")
            ports[f"{name}, {workers} × {threads} threads"] = running.enter_context(plain), port

        def once(process: psutil.Process, port: int, several: list[str]) -> dict[str, Any]:
            return asyncio.run(load(process, port, several, options.clients))

        for process, port in ports.values():
            once(process, port, texts[: 2 * options.clients])
        runs = {name: partial(once, *place, texts) for name, place in ports.items()}
        found = take_turns(runs, options.repeats)
    rows = {}
    for name, several in found.items():
        row = {
            key: median(one[key] for one in several) for key in ("rate", "per_cpu", "p50", "p99")
        }
        row["wrong"] = sum(
            reply != right
            for one in several
            for reply, right in zip(one["replies"], offline, strict=True)
        )
        row["lost"] = sum(reply.isdecimal() for one in several for reply in one["replies"])
        rows[name] = row
    best = {
        kind: max((row["rate"] for name, row in rows.items() if name.startswith(kind)), default=0)
        for kind in options.against
    }
    show(
        f"{options.clients} clients, {len(texts):,} sentences",
        [
            "/s",
            "/CPU s",
            "p50 ms",
            "p99 ms",
            "not as offline",
            "refused",
            *(f"× {kind}" for kind in best),
        ],
        [
            [name, number(row["rate"], 1), number(row["per_cpu"], 1)]
            + [number(row["p50"] * 1e3), number(row["p99"] * 1e3)]
            + [str(row["wrong"]), str(row["lost"])]
            + [number(row["rate"] / rate, 2) for rate in best.values()]
            for name, row in rows.items()
        ],
    )
    return {"rows": rows}


# Saturation.


def soak(options: Any, texts: list[str], offline: list[str]) -> dict[str, Any]:
    from common import number, show

    port = FIRST_PORT
    command = ["-m", "scones", "serve", options.model, "--port", str(port)]
    limits = ["--max-waiting", "48", "--max-searches", "4", "--max-seconds", "2"]
    seconds = options.soak * 60
    with server([*command, *limits], port, CORES) as process:
        probe = multiprocessing.get_context("spawn").Process(
            target=watch, args=(port, process.pid, seconds, f"{options.place}/health.json")
        )
        probe.start()
        counts = asyncio.run(saturate(port, seconds, texts, offline))
        probe.join()
    watched = json.loads(Path(options.place, "health.json").read_text())
    # A search takes memory for as long as it lasts: a minute tells more than a moment.
    minutes: dict[int, list[int]] = {}
    for at, taken in watched["memory"]:
        if at > min(120, seconds / 5):
            minutes.setdefault(int(at // 60), []).append(taken)
    levels = [median(several) for several in minutes.values()]
    moments = [taken for several in minutes.values() for taken in several]
    middle = median(moments)
    low, high = min(levels) / middle - 1, max(levels) / middle - 1
    show("soak", ["count"], [[name, f"{count:,}"] for name, count in sorted(counts.items())])
    print(
        f"memory {middle / 1e6:,.0f} MB after warm-up, by minutes {low:+.1%} to {high:+.1%}, "
        f"moments {min(moments) / middle - 1:+.1%} to {max(moments) / middle - 1:+.1%}"
    )
    result: dict[str, Any] = {"counts": dict(counts), "memory": watched["memory"]}
    # What only sleeps is late too on a machine that others use: no server answers sooner.
    for name in ("health", "sleep"):
        ranked = sorted(watched[name])
        within = sum(one <= 0.1 for one in ranked) / len(ranked)
        most, worst = ranked[int(len(ranked) * 0.999)], ranked[-1]
        result[name] = {"n": len(ranked), "within 100 ms": within, "99.9 %": most, "worst": worst}
        print(
            f"{name}, {len(ranked):,} times: {within:.3%} within 100 ms, 99.9 % within "
            f"{number(most * 1e3, 1)} ms, worst {number(worst * 1e3, 1)} ms"
        )
    return result


def watch(port: int, pid: int, seconds: float, place: str) -> None:
    """Ask for /health over and over, and look at the memory of the server and its processes."""

    async def health() -> None:
        client = Client(port)
        while time.monotonic() < until:
            began = time.perf_counter()
            status, _ = await client.get("/health")
            taken.append(time.perf_counter() - began if status == 200 else 1e9)
            began = time.perf_counter()
            await asyncio.sleep(0.05)
            late.append(time.perf_counter() - began - 0.05)
            if len(taken) % 40 == 0:
                memory.append((time.monotonic() - start, resident()))

    def resident() -> int:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        total = 0
        for one in family:
            with suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
        return total

    start = time.monotonic()
    until, taken, late = start + seconds, list[float](), list[float]()
    memory = list[tuple[float, int]]()
    asyncio.run(health())
    Path(place).write_text(json.dumps({"health": taken, "sleep": late, "memory": memory}))


async def saturate(port: int, seconds: float, texts: list[str], offline: list[str]) -> Counter[str]:
    until = time.monotonic() + seconds
    counts: Counter[str] = Counter()

    def note(kind: str, status: int, right: bool = True) -> None:
        counts[f"{kind}: {status}" if right else f"{kind}: CROSSED"] += 1

    async def repeatedly(step: Any, rest: float = 0.0) -> None:
        client = Client(port)
        while time.monotonic() < until:
            try:
                async with asyncio.timeout(60):
                    await step(client, random.randrange(len(texts)))
            except (OSError, asyncio.IncompleteReadError):
                counts["LOST: the connection broke"] += 1
                client.vanish()
            except TimeoutError:
                counts["LOST: no answer in 60 s"] += 1
                client.vanish()
            await asyncio.sleep(rest)

    async def translate(client: Client, number: int) -> None:
        with_tokens = random.random() < 0.3
        said = PAIR | {"split": False, "tokens": with_tokens}
        status, answer = await client.post("/v1/translate", text=texts[number], **said)
        right = status != 200 or answer["translations"][0]["text"] == offline[number]
        note("translate", status, right)
        if status == 429:
            await asyncio.sleep(0.2)

    async def other(client: Client, number: int) -> None:
        asked: list[tuple[str, dict[str, Any]]] = [
            ("/v1/score", {"translation": offline[number]}),
            ("/v1/continue", {"prefix": offline[number][:6]}),
            ("/v1/translate", {"search": "beam"}),
        ]
        path, more = random.choice(asked)
        status, _ = await client.post(path, text=texts[number], **PAIR, **more)
        note(path, status)
        if status == 429:
            await asyncio.sleep(0.2)

    async def exact(client: Client, number: int) -> None:
        more: dict[str, Any] = random.choice(
            [{"n_best": 5}, {"threshold": 0.01}, {"threshold": 0.001}]
        )
        status, answer = await client.post("/v1/alternatives", text=texts[number], **PAIR, **more)
        right = status != 200 or bool(
            answer["certificate"]["complete"] or answer["certificate"]["stopped_by"]
        )
        note("exact", status, right)

    async def vanish(client: Client, number: int) -> None:
        path = random.choice(["/v1/translate", "/v1/alternatives"])
        await client.begin(path, text=texts[number], **PAIR)
        await asyncio.sleep(random.random() * 0.5)
        client.vanish()
        counts["vanished"] += 1

    steps = [(translate, 48), (other, 8), (exact, 6), (vanish, 6)]
    burst = [repeatedly(translate, rest=3.0) for _ in range(64)]
    await asyncio.gather(*(repeatedly(step) for step, many in steps for _ in range(many)), *burst)
    return counts


def sentences(toy: bool, count: int) -> list[str]:
    from scones.text.creamtea import CreamTea
    from scones.text.reading import read_texts

    if toy:
        return [one.source for one in CreamTea.load().sample(count, seed=1)]
    lines = read_texts(Path(os.environ["SCONES_DATA"]) / "tatoeba" / "test.de-en.de.xz")
    return random.Random(1).sample(lines, min(count, len(lines)))


def main() -> None:
    """Measure and print; or, behind --plain, be one of the servers."""
    if sys.argv[1:2] == ["--plain"]:
        serve_plainly(*map(int, sys.argv[2:]))
        return
    import torch
    from common import facts, flags, save

    import scones

    parser = flags(__doc__)
    parser.add_argument("--model", default="pocket-de-en")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--against", nargs="*", default=["plain", "generate"])
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    options = parser.parse_args()
    texts = sentences(options.toy, options.sentences)
    offline = [one.text for (one,) in scones.load(options.model).translate(texts)]
    result: dict[str, Any] = facts(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as options.place:
        measure = compare if options.soak is None else soak
        result |= measure(options, texts, offline)
    save(result, options.json)


if __name__ == "__main__":
    main()
