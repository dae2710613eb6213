#!/usr/bin/env bash
# The text of the pocket models that is made or cut before `scones prepare` reads it, below
# data/pocket-text: our own phrasebook and grammars, and the beginnings of two large corpora.
#
#   export SCONES_DATA=…
#   recipes/pocket/text.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

python recipes/pocket/everyday.py write data/pocket-text/everyday
# Europarl is shuffled, and the models start from weights that have seen all of it. The dictionary
# begins with its commonest words; behind these come words that few people ever ask for.
cut() {
    mkdir -p "data/pocket-text/$1"
    for language in de en; do
        python - "$SCONES_DATA/$1/$2.de-en.$language.xz" "$3" << 'END' > "data/pocket-text/$1/$2.$language"
import itertools, lzma, sys
with lzma.open(sys.argv[1]) as file:
    sys.stdout.buffer.writelines(itertools.islice(file, int(sys.argv[2])))
END
    done
}
cut europarl train 400000
cut dictionary words 80000
