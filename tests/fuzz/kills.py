"""Commands that are killed at random moments and started again.

Started again, each must end with the bytes of a run that nothing happened to, and with nothing else
in its folder or beside it. What was finished before it was killed may be refused, as it exists.
"""

import re
import shutil
import signal
import time

from tests.cli.running import contents
from tests.fuzz.forks import COMMANDS, run_in_a_fork, words_of

NOT_COMPARED = re.compile(
    rb'"(seconds|tokens_per_second|pairs_per_second|hardware_share|peak_memory)": '
    rb"({[^}]*}|[^,}\n]*)"
    rb'|"state\.json": "\w+"'  # a digest; the file holds seconds
    rb"|(?<=\| )\d*\.\d+(?= \|)"  # in Markdown, which is made of a JSON file that is compared too
)


def killed(kills, random, valid):
    """Kill commands so many times; gives what was wrong each time, if anything."""
    place, straight, done = valid.with_name("place"), {}, 0
    while done < kills:
        command = COMMANDS["kill"]["commands"][done % len(COMMANDS["kill"]["commands"])]
        if command not in straight:
            straight[command] = _run(command, place, valid)
            shutil.rmtree(place)
        expected, seconds = straight[command]
        moment = random.uniform(0, seconds)
        if _run(command, place, valid, moment)[0]["exit code"] == -signal.SIGKILL:
            done += 1
            found, _ = _run(command, place, valid)
            names = expected.keys() | found.keys()
            wrong = {name for name in names if expected.get(name, 0) != found.get(name, 0)}
            about = f"{command}\n  killed after {moment:.3f} of {seconds:.3f} seconds"
            yield f"{about}; not the same: {sorted(wrong)}" if wrong else None
        shutil.rmtree(place)


def _run(command, place, valid, seconds=600):
    """Run a command, or kill it after so many seconds; gives all that is left, and its seconds."""
    (place / "out").mkdir(parents=True, exist_ok=True)
    begin, words = time.monotonic(), words_of(command, valid=valid, out=place / "out")
    code, _ = run_in_a_fork(words, place, seconds, signal.SIGKILL)
    seconds = time.monotonic() - begin
    if code == 2 and "exists already" in (place / "stderr").read_text():
        code = 0
    compared = ("out", "stdout") if words[0] == "translate" else ("out",)
    left = {name: held for name, held in contents(place).items() if name.startswith(compared)}
    masked = {name: held and NOT_COMPARED.sub(b"", held) for name, held in left.items()}
    return masked | {"exit code": code}, seconds
