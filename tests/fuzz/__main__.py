"""A fuzzer: commands on valid folders with one thing wrong, and commands with odd flags.

    python -m tests.fuzz --minutes 60 --processes 2 --seed 1   the kept cases, then new ones
    python -m tests.fuzz --repeat '{"kind": "model", …}'       one case, with what it said
    python -m tests.fuzz --kills 50 --seed 1                   instead: commands killed at random

Whatever the folder, a command ends in time with exit code 0 or with 2 and one sentence; it shows no
traceback and no control character, and touches nothing but its output. Exit code 1 tells of
findings; what was mended is kept in corpus.jsonl.
"""

# ruff: noqa: T201

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from random import Random

from tests.cli.running import contents
from tests.fuzz.changes import apply, draw
from tests.fuzz.forks import COMMANDS, FORKS, make, run_in_a_fork, words_of
from tests.fuzz.kills import killed

SECONDS = 10
UNCHANGED = ("flags", "nothing")
CORPUS = Path(__file__).with_name("corpus.jsonl")

_OUTPUT = ("out", "stdin", "stdout", "stderr")
_WORDS = ["", "-1", "0", "1", "2", "0.5", "1e308", "nan", "-inf", "2147483648", "9" * 18, "a=b"]
_WORDS += ["\udcff", "\x1b[2J", "ä", "x" * 5000, "{it}", "{it}/none", "{out}/other", "{neighbour}"]


def draw_case(random, kind, valid):
    """A command on a folder of this kind with one thing wrong, or on a valid one with odd flags."""
    if kind != "flags":
        command = random.choice(COMMANDS["fuzz"][kind])
        return {"kind": kind, "command": command} | draw(random, valid / kind, command)
    kind = random.choice(list(COMMANDS["fuzz"]))
    command = random.choice(COMMANDS["fuzz"][kind])
    flags = random.choice([0, 1, 1, 1, 2])
    for _ in range(flags):
        command += " " + shlex.join(_odd_flag(random, *command.split()[:2]))
    return {"kind": kind, "command": command, "do": "flags" if flags else "nothing"}


def _odd_flag(random, name, inner):
    from scones.cli.commands import Commands

    command = Commands()[name].commands[inner] if name == "ibm3" else Commands()[name]
    flags = [flag for flag in command.params if flag.opts[0][0] == "-"]
    # As many processes as a number says would be started, which is no mistake of ours.
    flag = random.choice([flag for flag in flags if flag.name not in ("workers", "jobs")])
    value = random.choice([*_WORDS, *(flag.metavar or "").split("|")])
    spelled = random.choice([*flag.opts, *flag.secondary_opts])
    return [spelled] if getattr(flag, "is_flag", False) else [spelled, value]


def run_case(case, place, valid):
    """Run a case in folders below `place`; gives what is wrong with how it ended, and its words."""
    shutil.rmtree(place, ignore_errors=True)
    places = {name: place / name for name in ("it", "out", "neighbour")}
    for name in ("out", "neighbour"):
        places[name].mkdir(parents=True)
    (place / "neighbour" / "thesis.txt").write_text("years of work\n")
    shutil.copytree(valid / case["kind"], place / "it")
    if case["do"] not in UNCHANGED:
        apply(case, place / "it")
    words = words_of(case["command"], own=place / "it", valid=valid, **places)
    before = _not_output(case, place, valid)
    # Whoever takes too long is interrupted as by Ctrl-C, which a long training answers in time.
    code, late = run_in_a_fork(words, place, SECONDS, signal.SIGINT, signal.SIGKILL)
    after = _not_output(case, place, valid)
    if "{neighbour}" in case["command"]:  # something may be put beside what is there
        after = {name: after.get(name) for name in before}
    out, err = ((place / name).read_bytes().decode(errors="replace") for name in _OUTPUT[2:])
    problem = _problem(case["do"], code, late, out, err)
    if problem is None and before != after:
        problem = "touched what is not its output"
    if problem and "traceback" not in problem:  # what is one cause, by and large, is told once
        problem += f" ({words[0]}, {case['do']} {case.get('file', '')})"
    return problem, f"exit code {code}\n{err[-1000:]}"


def _not_output(case, place, valid):
    """All that the command of a case must leave alone: what it holds, and modes."""
    writes = "{own}" in case["command"] or case["command"].count("{it}") > 2
    free = (*_OUTPUT, "it") if writes else _OUTPUT
    found = {name: held for name, held in contents(place).items() if not name.startswith(free)}
    modes = {name + " ": (place / name).lstat().st_mode for name in found}
    return found | modes | {f"valid/{name}": held for name, held in contents(valid).items()}


def _problem(do, code, late, out, err):
    *_, last = err.splitlines() or [""]
    if "Traceback (most recent call last)" in err:
        frames = re.findall(r'File "[^"]*/(scones/[^"]+)", line \d+, in (\w+)', err)
        return f"traceback: {last[:60]} ({':'.join(frames[-1] if frames else ())})"
    if late and (do != "flags" or code != 130):
        return f"longer than {SECONDS} seconds"
    if code not in (0, 2) and not late:
        return f"exit code {code}"
    if do != "flags" and re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", out + err):
        return "a control character in the output"
    told = re.findall(r"^scones: ", err, re.MULTILINE)  # a layer may have that name too
    if code == 2 and not (re.fullmatch(r"scones: \S.*[.?]", last) and len(told) == 1):
        return f"not one sentence: {last[:60]}"
    if do != "flags" and "not enough memory" in last:
        return "too much memory"
    return f"refuses what is valid: {last}" if do == "nothing" and code else None


def cases(share, given, valid):
    """One process's share of the kept cases, then new ones until the time is up."""
    lines = [given.repeat] if given.repeat else CORPUS.read_text().splitlines()
    yield from map(json.loads, lines[share :: given.processes])
    random, end = Random(f"{given.seed} {share}"), time.monotonic() + 60 * given.minutes
    while time.monotonic() < end:
        yield draw_case(random, random.choice([*COMMANDS["fuzz"], "flags"]), valid)


def work(share, given, valid):
    """Run cases; gives how many of each kind, and how many of each problem. New ones are shown."""
    run, found = Counter[str](), Counter[str]()
    for case in cases(share, given, valid):
        problem, said = run_case(case, valid.parent / str(share), valid)
        run[case["do"] if case["do"] in UNCHANGED else case["kind"]] += 1
        if problem and not found[problem]:
            print(f"{problem}\n  --repeat {shlex.quote(json.dumps(case))}\n{said}", flush=True)
        found.update([problem] if problem else [])
    return run, found


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=0.0, help="0: the kept cases alone")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", metavar="CASE", help="instead of the kept cases")
    parser.add_argument("--kills", type=int, help="how many; see tests/fuzz/kills.py")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        valid = make(Path(folder))
        if given.kills:
            wrong = list(filter(None, killed(given.kills, Random(given.seed), valid)))
            print("\n".join([*wrong, f"{given.kills} kills, {len(wrong)} findings."]))
            return int(bool(wrong))
        os.fsync = lambda descriptor: None  # no power is cut here, and disks are slow
        begin = time.monotonic()
        with ProcessPoolExecutor(given.processes, FORKS) as pool:
            shares = list(pool.map(work, range(given.processes), repeat(given), repeat(valid)))
    run, found = (sum(counts, Counter[str]()) for counts in zip(*shares, strict=True))
    print(f"{run.total():,} cases in {time.monotonic() - begin:,.0f} seconds: {dict(run)}")
    for problem, count in found.most_common():
        print(f"{count:6,} × {problem}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
