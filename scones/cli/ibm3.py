"""`scones ibm3`: the commands around IBM Model 3, put together."""

from __future__ import annotations

from collections.abc import Callable

from scones.cli.ibm3_fit import fit, import_tables
from scones.cli.ibm3_measure import measure
from scones.cli.ibm3_sample import sample

IBM3_HELP = """\
Make languages with a dial for ambiguity: IBM Model 3.

It tells how a sentence of one language comes from one of another, word by word. Fitted to real text
it can be asked for translations that are only like English, at a temperature that decides how many
ways there are to say the same:

    scones ibm3 fit de-en.ibm3 --store data/de-en
    scones ibm3 measure de-en.ibm3 --store data/de-en -o de-en.ambiguity
    scones ibm3 sample de-en.ibm3 --temperature 0.3 < input.de > output.txt
    scones ibm3 sample de-en.ibm3 -T 0.3 --store data/de-en --output data/new
"""

IBM3_COMMANDS: dict[str, Callable[..., None]] = {
    "fit": fit,
    "import": import_tables,
    "sample": sample,
    "measure": measure,
}
