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
# Words with all their translations: as lines of source TAB target TAB target … in the direction that
# is trained, as pairs in the other.
mkdir -p data/pocket-text/dictionary
python - << 'END'
import itertools, lzma, os
for pair in ("de-en", "en-de"):
    name = f"data/pocket-text/dictionary/{pair}"
    with lzma.open(f"{os.environ['SCONES_DATA']}/dictionary/multi.{pair}.tsv.xz", "rt") as file:
        lines = list(itertools.islice(file, 80000))
    columns = [line.rstrip("\n").split("\t") for line in lines]
    with open(f"{name}.tsv", "w") as several:
        several.writelines(lines)
    for side, index in zip(pair.split("-"), (0, 1), strict=True):
        with open(f"{name}.{side}", "w") as texts:
            texts.writelines(f"{(one[0], of)[index]}\n" for one in columns for of in one[1:])
END
# Everyday sentences as people type them in haste.
mkdir -p data/pocket-text/typed
for pair in de-en en-de; do
    from=${pair%-*} to=${pair#*-}
    for corpus in tatoeba/train phrases/tatoeba; do
        name=$SCONES_DATA/$corpus.de-en typed=data/pocket-text/typed/$(basename $corpus).$pair
        python recipes/pocket/typed.py $name.$from.xz $name.$to.xz $typed.$from $typed.$to
    done
done
