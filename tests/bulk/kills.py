"""Bulk jobs whose workers, nodes and drivers are killed at random moments, and started again.

    python tests/bulk/kills.py MODEL INPUT FOLDER --rounds 10 --seed 1

Every round kills one kind of process, in turn, of the local launcher or of a Ray cluster of three
nodes on this machine, and gives the same command until it ends well. It then has to be complete and
identical to what was made undisturbed, and no finished shard may have been written again.
"""

import argparse
import filecmp
import random
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

ROUNDS = [("local", "worker"), ("ray", "worker"), ("ray", "node"), ("ray", "driver")]
ROUNDS += [("local", "driver")]


@contextmanager
def three_nodes():
    """A Ray cluster of three nodes, one core each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        cluster.shutdown()


def command(model, source, output, rows, *more):
    words = ["bulk", model, source, output, "--rows", rows, "--scores", *more]
    return [sys.executable, "-m", "scones", *map(str, words)]


class Watch(threading.Thread):
    """Notes when records of shards were written, so that one written twice is seen."""

    def __init__(self, output):
        super().__init__(daemon=True)
        self.output, self.states, self.done = output, {}, False

    def run(self):
        while not self.done:
            self.look()
            time.sleep(0.02)
        self.look()

    def look(self):
        for path in self.output.glob("[0-9]*"):
            with suppress(OSError):
                stat = path.stat()
                self.states.setdefault(path.name, set()).add((stat.st_ino, stat.st_mtime_ns))

    @property
    def finished(self):
        return len(list(self.output.glob("_shards/[0-9]*")))


def victims(kind, launcher, driver):
    if kind == "driver":
        return [driver]
    if launcher == "local":
        children = psutil.Process(driver.pid).children(recursive=True)
        return [one for one in children if "spawn_main" in " ".join(one.cmdline())]
    named = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if "ray::MapWorker" in " ".join(one.cmdline()):
                named.append(one)
    return named


def disturbed(words, launcher, kind, watch, cluster, shards, chance):
    """Start the command, kill something at a random moment, and start it until it ends well."""
    at, starts, killed = chance.randint(1, max(1, int(shards * 0.7))), 0, False
    while True:
        starts += 1
        driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        threading.Thread(target=driver.stderr.read, daemon=True).start()
        while driver.poll() is None:
            if not killed and watch.finished >= at:
                time.sleep(chance.random() * 0.3)
                if kind == "node":
                    cluster.remove_node(chance.choice(sorted(cluster.worker_nodes, key=id)), False)
                    cluster.add_node(num_cpus=1)
                    killed = True
                elif found := victims(kind, launcher, driver):
                    chance.choice(found).kill()
                    killed = True
            time.sleep(0.02)
        if driver.returncode == 0:
            return starts, killed, at


def same(one, other):
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    there = sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    return names == there and filecmp.cmpfiles(one, other, names, shallow=False)[0] == names


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(words=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    chance = random.Random(options.seed)
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir()
    whole = options.folder / "undisturbed"
    began = time.monotonic()
    given = options.model, options.source
    subprocess.run(command(*given, whole, options.rows), check=True, capture_output=True)
    shards, twice = len(list(whole.glob("_shards/*"))), 0
    say(f"undisturbed: {shards} shards, {time.monotonic() - began:.0f} s")
    with three_nodes() as cluster:
        for number in range(options.rounds):
            launcher, kind = ROUNDS[number % len(ROUNDS)]
            output = options.folder / f"{number}-{launcher}-{kind}"
            more = ["--ray-address", cluster.address] if launcher == "ray" else ["--workers", 2]
            began, watch = time.monotonic(), Watch(output)
            watch.start()
            words = command(*given, output, options.rows, *more)
            starts, killed, at = disturbed(words, launcher, kind, watch, cluster, shards, chance)
            watch.done = True
            watch.join()
            again = sum(len(states) - 1 for states in watch.states.values())
            twice += again
            assert killed
            assert same(whole, output), output
            say(
                f"{number + 1}: {launcher}, a {kind} killed after {at} shards: {starts} starts, "
                f"identical, {again} of {len(watch.states)} finished shards written again, "
                f"{time.monotonic() - began:.0f} s"
            )
    assert twice == 0


if __name__ == "__main__":
    main()
