"""`scones ibm3`: the commands around IBM Model 3, put together."""

from __future__ import annotations

import typer

from scones.cli.help import Command, Group
from scones.cli.ibm3_fit import fit, import_tables
from scones.cli.ibm3_measure import measure
from scones.cli.ibm3_sample import sample

_HELP = """\
Make languages with a dial for ambiguity: IBM Model 3.

It tells how a sentence of one language comes from one of another, word by word. Fitted to real text
it can be asked for translations that are only like English, at a temperature that decides how many
ways there are to say the same:

    scones ibm3 fit de-en.ibm3 --store data/de-en
    scones ibm3 measure de-en.ibm3 --store data/de-en -o de-en.ambiguity
    scones ibm3 sample de-en.ibm3 --temperature 0.3 < input.de > output.txt
    scones ibm3 sample de-en.ibm3 -T 0.3 --store data/de-en --output data/new
"""

ibm3 = typer.Typer(
    name="ibm3",
    cls=Group,
    help=_HELP,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _command in (
    ("fit", fit),
    ("import", import_tables),
    ("sample", sample),
    ("measure", measure),
):
    ibm3.command(_name, cls=Command)(_command)
