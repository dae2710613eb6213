"""Everyday German and English of our own: sets that find weaknesses, and a phrasebook to train on.

    python recipes/pocket/everyday.py score pocket-de-en pocket-en-de    a table on standard output
    python recipes/pocket/everyday.py write data/pocket-everyday         text for scones prepare
    python recipes/pocket/everyday.py page scones/serving/page/phrases.json    what the page offers

`sets/` and `phrasebook/` hold blocks of lines, a blank line between them; every German line of a
block is translated by every English one:

    de: Wo ist der nächste Geldautomat?
    en: Where is the nearest ATM?
    en: Where's the nearest cash machine?

A set asks for the first line of a block and accepts every line of the other language. Instead, or
beside it, a block may say what the translation must hold: `keep: X` exactly this, `has: a | b` one
of these in any case, `most: N` at most so many words. A file called NAME.de-en.txt asks in that
direction only. `phrasebook/grammar.toml` makes sentences with numbers, dates, times, prices, names
and addresses. Nothing of `sets/` and `phrasebook/test.txt` is trained on: `write` lists it for
`held_out`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent
LANGUAGES = ("de", "en")
SENTENCES_OF_A_FRAME = 150
MORE_OF_STRINGS = (
    4  # times as many of a frame with something that has to be copied letter by letter
)
WORDS_OFFERED = 4
TEAS_OFFERED = 100


@dataclass
class Block:
    """One thing to say: its lines in each language, and what a translation has to show."""

    lines: dict[str, list[str]] = field(default_factory=lambda: {"de": [], "en": []})
    keep: list[str] = field(default_factory=list)
    has: list[list[str]] = field(default_factory=list)
    most: int | None = None

    def matches(self, translation: str, language: str) -> bool:
        """Say whether the translation is one of the accepted ones."""
        return plain(translation) in {plain(line) for line in self.lines[language]}

    @property
    def has_checks(self) -> bool:
        """Whether the block says what a translation must hold."""
        return bool(self.keep or self.has or self.most is not None)

    def kept(self, translation: str) -> bool:
        """Say whether the translation holds all that it must."""
        words, text = len(translation.split()), translation.casefold()
        return (
            all(item in translation for item in self.keep)
            and all(any(one.casefold() in text for one in several) for several in self.has)
            and (self.most is None or words <= self.most)
        )


def read_blocks(path: Path) -> list[Block]:
    """Read a file of blocks; what does not belong there is an error that names the line."""
    blocks = [Block()]
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        key, _, value = line.partition(":")
        value, block = value.strip(), blocks[-1]
        if not line.strip():
            if block != Block():
                blocks.append(Block())
        elif line.startswith("#"):
            continue
        elif key in LANGUAGES and value:
            block.lines[key].append(value)
        elif key == "keep" and value:
            block.keep.append(value)
        elif key == "has" and value:
            block.has.append([one.strip() for one in value.split(" | ")])
        elif key == "most" and value.isdigit():
            block.most = int(value)
        else:
            raise SystemExit(f"{path}, line {number}: {line!r} is none of de, en, keep, has, most.")
    blocks = [block for block in blocks if block != Block()]
    if lacking := [block for block in blocks if not all(block.lines.values())]:
        raise SystemExit(f"{path}: a block lacks a language: {lacking[0].lines}.")
    return blocks


def plain(text: str) -> str:
    """Give a text without what is not judged: case, apostrophes' shape, the mark at its end."""
    text = text.casefold().replace("’", "'").replace("„", '"').replace("“", '"').replace("”", '"')
    return " ".join(text.split()).rstrip(".!?… ")


def set_files(direction: str) -> dict[str, Path]:
    """Give the sets that ask in a direction, by name; the phrasebook's test part is one of them."""
    found = {"phrasebook": HERE / "phrasebook" / "test.txt"}
    for path in sorted((HERE / "sets").glob("*.txt")):
        name, _, only = path.stem.partition(".")
        if only in ("", direction):
            found[name] = path
    return found


def score(models: list[str], show: bool) -> None:
    """Print a table: for each set and model how many match, and of how many all is kept."""
    import scones

    columns: dict[str, dict[str, tuple[str, str]]] = {}
    for name in models:
        translator = scones.load(name)
        source, target = translator.source_language, translator.target_language
        for title, path in set_files(f"{source}-{target}").items():
            blocks = read_blocks(path)
            asked = [block.lines[source][0] for block in blocks]
            answers = [found[0].text for found in translator.translate(asked)]
            pairs = list(zip(blocks, answers, strict=True))
            matching = sum(block.matches(answer, target) for block, answer in pairs)
            checked = [(block, answer) for block, answer in pairs if block.has_checks]
            kept = sum(block.kept(answer) for block, answer in checked)
            columns.setdefault(title, {})[name] = (
                f"{matching} / {len(pairs)}",
                f"{kept} / {len(checked)}" if checked else "",
            )
            if show:
                for number, (block, answer) in enumerate(pairs, start=1):
                    mark = "=" if block.matches(answer, target) else " "
                    mark += "k" if block.has_checks and block.kept(answer) else " "
                    sys.stderr.write(
                        f"{name} {title} {number} {mark} {asked[number - 1]} → {answer}\n"
                    )
    cells = [f"{name}, {what}" for name in models for what in ("matches", "kept")]
    rows = [["set", *cells], ["---", *["---:"] * len(cells)]]
    for title in sorted(columns):
        found = [columns[title].get(name, ("", "")) for name in models]
        rows.append([title, *(cell for pair in found for cell in pair)])
    for row in rows:
        sys.stdout.write(f"| {' | '.join(row)} |\n")


def write(folder: Path) -> None:
    """Write what is trained on, phrasebook.{de,en} and grammar.{de,en}, and held_out.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    blocks = read_blocks(HERE / "phrasebook" / "train.txt")
    phrases = [pair for block in blocks for pair in product(block.lines["de"], block.lines["en"])]
    held_out = {
        variant
        for path in [*(HERE / "sets").glob("*.txt"), HERE / "phrasebook" / "test.txt"]
        for block in read_blocks(path)
        for line in block.lines["de"] + block.lines["en"]
        for variant in variants(line)
    }
    for name, pairs in (("phrasebook", phrases), ("grammar", list(sentences()))):
        for side, language in enumerate(LANGUAGES):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
    lines = "".join(f"{line}\n" for line in sorted(held_out))
    (folder / "held_out.txt").write_text(lines, encoding="utf-8", newline="\n")


def page(path: Path) -> None:
    """Write what the page of `scones serve` offers: sentences of which its models read none."""
    from scones.text.creamtea import CreamTea

    blocks = read_blocks(HERE / "phrasebook" / "test.txt")
    phrases = {side: [block.lines[side][0] for block in blocks] for side in LANGUAGES}
    offered = {
        side: [line for line in lines if len(line.split()) >= WORDS_OFFERED]
        for side, lines in phrases.items()
    }
    # As `scones creamtea` draws them: first the development set, then what is tested with.
    teas = CreamTea.load().sample(500 + TEAS_OFFERED, seed=1)[500:]
    offered["tea"] = [tea.source for tea in teas if len(tea.references) > 1]
    text = json.dumps(offered, indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8", newline="\n")


def variants(line: str) -> Iterator[str]:
    """Give a line as training text may have it: with and without its mark, its capitals."""
    for text in {line, line.rstrip(".!?"), line.rstrip(".!?") + "."}:
        yield text
        yield text.lower()
        yield text[:1].upper() + text[1:]


def sentences() -> Iterator[tuple[str, str]]:
    """Make sentences from the frames of grammar.toml; the same ones every time."""
    grammar = tomllib.loads((HERE / "phrasebook" / "grammar.toml").read_text(encoding="utf-8"))
    lists = {
        name: [two_sides(one) for one in several] for name, several in grammar["lists"].items()
    }
    dice = random.Random(1)
    seen = set()
    for frame in grammar["frames"]:
        german, english = two_sides(frame)
        slots = sorted(set(re.findall(r"\{(\w+)\}", german + english)))
        times = MORE_OF_STRINGS if STRINGS.keys() & set(slots) else 1
        for _ in range(times * SENTENCES_OF_A_FRAME):
            fillers = {
                slot: SLOTS[slot](dice) if slot in SLOTS else dice.choice(lists[slot])
                for slot in slots
            }
            sides = [
                re.sub(r"\{(\w+)\}", lambda slot: fillers[slot[1]][side], frame_side)  # noqa: B023
                for side, frame_side in enumerate((german, dice.choice(english.split(" | "))))
            ]
            # "… at 6 a.m." needs no second full stop.
            left, right = (text[:1].upper() + text[1:].replace("m..", "m.") for text in sides)
            if (left, right) not in seen:
                seen.add((left, right))
                yield left, right


def two_sides(text: str) -> tuple[str, str]:
    """Split "German = English"; a text without the sign is the same in both languages."""
    german, sign, english = text.partition(" = ")
    return (german, english) if sign else (text, text)


# --- Numbers, times, dates and prices: a pair of German and English, drawn by lot. ---

Pair = tuple[str, str]
_DE = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn"
).split()
_EN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_DE_TENS = ". . zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
_EN_TENS = ". . twenty thirty forty fifty sixty seventy eighty ninety".split()
_DE_MONTHS = (
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
).split()
_EN_MONTHS = (
    "January February March April May June July August September October November December"
).split()


def german_number(n: int) -> str:
    """Spell a number below a million as it stands alone: "eins", "hunderteins"."""
    text = _german(n)
    return text + "s" if text.endswith("ein") else text


def _german(n: int) -> str:
    if n < 20:
        return _DE[n]
    if n < 100:
        return (f"{_DE[n % 10]}und" if n % 10 else "") + _DE_TENS[n // 10]
    if n < 1000:
        return (
            (_DE[n // 100] if n >= 200 else "ein")
            + "hundert"
            + (_german(n % 100) if n % 100 else "")
        )
    return _german(n // 1000) + "tausend" + (_german(n % 1000) if n % 1000 else "")


def english_number(n: int, *, british: bool = False) -> str:
    """Spell a number below a million; the British say "and" after hundreds."""
    if n < 20:
        return _EN[n]
    if n < 100:
        return _EN_TENS[n // 10] + (f"-{_EN[n % 10]}" if n % 10 else "")
    if n < 1000:
        rest = english_number(n % 100) if n % 100 else ""
        joint = " and " if british and rest else " " if rest else ""
        return f"{_EN[n // 100]} hundred{joint}{rest}"
    rest = english_number(n % 1000, british=british) if n % 1000 else ""
    return f"{english_number(n // 1000, british=british)} thousand{' ' if rest else ''}{rest}"


def number(dice: random.Random) -> Pair:
    """A number from 2 on, in words or in figures."""
    n = dice.choice(
        [
            dice.randint(2, 20),
            dice.randint(2, 100),
            dice.randint(100, 1000),
            dice.randint(1000, 99999),
        ]
    )
    if (n < 1000 and dice.random() < 0.5) or n % 1000 == 0:
        return german_number(n), english_number(n, british=dice.random() < 0.5)
    return (
        (f"{n:,}".replace(",", "."), f"{n:,}")
        if n >= 10000 or dice.random() < 0.5
        else (str(n), str(n))
    )


def figures(dice: random.Random) -> Pair:
    """A small number in figures."""
    text = str(dice.choice([dice.randint(2, 12), dice.randint(13, 300)]))
    return text, text


def time(dice: random.Random) -> Pair:
    """A time of day as people say or write it."""
    hour, minute = dice.randint(1, 12), dice.choice([0, 5, 10, 15, 20, 30, 35, 40, 45, 50])
    after = hour % 12 + 1
    de_hour, en_hour = german_number(hour), english_number(hour)
    spoken = {
        0: ("ein Uhr" if hour == 1 else f"{de_hour} Uhr", f"{en_hour} o'clock"),
        10: (f"zehn nach {de_hour}", f"ten past {en_hour}"),
        15: (f"Viertel nach {de_hour}", f"a quarter past {en_hour}"),
        30: (f"halb {german_number(after)}", f"half past {en_hour}"),
        45: (f"Viertel vor {german_number(after)}", f"a quarter to {english_number(after)}"),
        50: (f"zehn vor {german_number(after)}", f"ten to {english_number(after)}"),
    }
    if minute in spoken and dice.random() < 0.5:
        return spoken[minute]
    hour24 = dice.randint(6, 23)
    half, hour = ("a.m." if hour24 < 12 else "p.m."), (hour24 - 1) % 12 + 1
    german = (
        f"{hour24} Uhr"
        if minute == 0
        else dice.choice([f"{hour24}:{minute:02} Uhr", f"{hour24}.{minute:02} Uhr"])
    )
    full = f"{hour}:{minute:02} {half}" if minute else f"{hour} {half}"
    return german, dice.choice([full, f"{hour24}:{minute:02}"])


def date(dice: random.Random) -> Pair:
    """A day of a month, without a year."""
    day, month = dice.randint(1, 28), dice.randrange(12)
    ending = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(day, "th")
    name = _EN_MONTHS[month]
    english = [
        f"{name} {day}",
        f"{name} {day}{ending}",
        f"{day} {name}",
        f"the {day}{ending} of {name}",
    ]
    return f"{day}. {_DE_MONTHS[month]}", dice.choice(english)


def price(dice: random.Random) -> Pair:
    """A price in euros."""
    euros, cents = (
        dice.choice([dice.randint(2, 30), dice.randint(30, 900)]),
        dice.choice([20, 50, 80, 90, 95, 99]),
    )
    if dice.random() < 0.4:
        return f"{euros} Euro", f"{euros} euros"
    if dice.random() < 0.3:
        return f"{euros} €", f"€{euros}"
    return f"{euros},{cents} €", f"€{euros}.{cents}"


def year(dice: random.Random) -> Pair:
    """A year of the last two centuries or so."""
    text = str(dice.randint(1790, 2035))
    return text, text


def phone(dice: random.Random) -> Pair:
    """A telephone number, which stays as it is."""
    text = f"0{dice.randint(30, 999)} {dice.randint(10000, 9999999)}"
    return text, text


# --- What stays as it is, letter by letter: addresses, files, codes, names that no list has. ---

_PARTS = (
    "al an ba bel bo da den do el en fa fer ga gra ha hel ho il in ja ka kel ko la len lo ma mer "
    "mo na nor ol pa pel po ra ren ro sa ser so ta tel to ul un va ven wa wen za zel"
).split()
_WORDS = (
    "garten haus wetter musik reise foto plan liste bericht kunde shop team verein schule blog "
    "news mail data test home admin user photo report letter index page main backup summer winter "
    "garden river book market music travel office server cloud stern wolke berg fluss brief daten"
).split()
_ENDS = "de com org net at ch eu io info example co.uk".split()
_FILES = "pdf txt docx xlsx jpg png mp3 zip csv json toml html py md tar.gz exe log".split()
_BEGINNINGS = (
    "Berg Stein Rosen Linden Wald Grün Alten Neuen Ober Nieder Hoch Kirch Mühl Eichen Buchen "
    "Hirsch Wiesen Sand Gold Silber Eisen Lauter Königs Burg Kalten Schön Weiden Birken"
).split()
_ENDINGS = "feld hausen dorf stadt bach kirchen hagen heim berg au tal brück".split()


def _word(dice: random.Random) -> str:
    return dice.choice(_WORDS) if dice.random() < 0.5 else _made_up(dice)


def _made_up(dice: random.Random) -> str:
    return "".join(dice.choices(_PARTS, k=dice.randint(2, 4)))


def _digits(dice: random.Random, most: int) -> str:
    return "".join(dice.choices("0123456789", k=dice.randint(1, most)))


def _letters(dice: random.Random, most: int) -> str:
    return "".join(dice.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=dice.randint(1, most)))


def _host(dice: random.Random) -> str:
    name = dice.choice(["", "-"]).join(_word(dice) for _ in range(dice.randint(1, 2)))
    return f"{name}.{dice.choice(_ENDS)}"


def _url(dice: random.Random) -> str:
    begin = dice.choice(["https://", "http://", "https://www.", "www.", ""])
    path = "".join(f"/{_word(dice)}" for _ in range(dice.randint(0, 2)))
    rest = ["", "", f"/{_word(dice)}.html", f"?{_word(dice)}={_digits(dice, 3)}", f"#{_word(dice)}"]
    return begin + _host(dice) + path + dice.choice(rest)


def _mail(dice: random.Random) -> str:
    names = dice.choice([".", "_", "-", "+"]).join(_word(dice) for _ in range(dice.randint(1, 2)))
    return f"{names}@{_host(dice)}"


def _file(dice: random.Random) -> str:
    name = dice.choice(["", "_", "-"]).join([_word(dice), dice.choice([_word, _year])(dice)])
    path = [name, _word(dice), f"{_word(dice)}/{name}", f"/{_word(dice)}/{_word(dice)}/{name}"]
    windows = f"C:\\{_word(dice).title()}\\{_word(dice).title()}"
    return dice.choice([f"{dice.choice(path)}.{dice.choice(_FILES)}"] * 4 + [windows])


def _year(dice: random.Random) -> str:
    return str(dice.randint(1990, 2030))


def _account(dice: random.Random) -> str:
    joined = dice.choice(["_", ".", "-", ""]).join([_word(dice), dice.choice([_word, _year])(dice)])
    title = "_".join(_word(dice).title() for _ in range(dice.randint(1, 2))) + _digits(dice, 2)
    return dice.choice([f"@{joined}", f"#{joined}", joined, title])


def _code(dice: random.Random) -> str:
    pattern = dice.choice(
        [
            "A-1",
            "A 1",
            "A1",
            "1A-1",
            "A-1-A",
            "#A1",
            "v1.1",
            "1.1.1",
            "1.1.1.1",
            "0x1",
            "A1-A1",
            "A+A1",
        ]
    )
    parts = {"A": lambda: _letters(dice, 3), "1": lambda: _digits(dice, 4)}
    return "".join(parts[one]() if one in parts else one for one in pattern)


def _holder(dice: random.Random) -> str:
    name, number = _word(dice), dice.randint(0, 9)
    forms = [
        "{{{0}}}",
        "%{1}$s",
        "{{{1}}}",
        "${0}",
        "{{{{{0}}}}}",
        "%({0})s",
        "[{0}]",
        "&{0};",
        "<{0}>",
    ]
    return dice.choice([*forms, "%s", "%d", "%d%%"]).format(name, number)


def _place(dice: random.Random) -> str:
    return dice.choice(_BEGINNINGS) + dice.choice(_ENDINGS)


def _name(dice: random.Random) -> str:
    return dice.choice([_place(dice) + dice.choice(["er", "mann", ""]), _made_up(dice).title()])


def _alike(make: Callable[[random.Random], str]) -> Callable[[random.Random], Pair]:
    return lambda dice: (make(dice),) * 2


def marked(dice: random.Random) -> Pair:
    """A word between two tags."""
    both = [("wichtig", "important"), ("neu", "new"), ("kostenlos", "free"), ("hier", "here")]
    both += [("heute", "today"), ("nicht", "not"), ("immer", "always"), ("offen", "open")]
    tag = dice.choice(["b", "i", "em", "u", "strong", "span", f'a href="{_url(dice)}"'])
    german, english = dice.choice(both)
    return f"<{tag}>{german}</{tag.split()[0]}>", f"<{tag}>{english}</{tag.split()[0]}>"


STRINGS: dict[str, Callable[[random.Random], Pair]] = {
    "url": _alike(_url),
    "mail": _alike(_mail),
    "file": _alike(_file),
    "account": _alike(_account),
    "code": _alike(_code),
    "holder": _alike(_holder),
    "place": _alike(_place),
    "name": _alike(_name),
    "marked": marked,
}
SLOTS: dict[str, Callable[[random.Random], Pair]] = {
    **STRINGS,
    "number": number,
    "figures": figures,
    "time": time,
    "date": date,
    "price": price,
    "year": year,
    "phone": phone,
}


def main() -> None:
    """Read the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    scoring = commands.add_parser("score", help="how many of each set a model gets right")
    scoring.add_argument("models", nargs="+", help="model folders or names")
    scoring.add_argument("--show", action="store_true", help="every translation on standard error")
    writing = commands.add_parser("write", help="text for scones prepare")
    writing.add_argument("folder", type=Path)
    offering = commands.add_parser("page", help="phrases.json for the page of scones serve")
    offering.add_argument("file", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "score":
        score(arguments.models, arguments.show)
    elif arguments.command == "page":
        page(arguments.file)
    else:
        write(arguments.folder)


if __name__ == "__main__":
    main()
