"""`python -m replication`: what `scones paper` is, without installing anything."""

import sys

from scones.cli import main

# As if typed that way, so that the command which results keep is one that works everywhere.
sys.argv.insert(1, "paper")
main()
