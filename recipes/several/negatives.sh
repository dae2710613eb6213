#!/usr/bin/env bash
# The pocket models trained on with and without known wrong continuations: text, store, every run,
# the table. A run is 7 million target tokens: a minute on a GPU, more than an hour on a CPU core.
#
#   SCONES_DATA=… bash recipes/several/negatives.sh OUT [SIDE_BY_SIDE]
set -euo pipefail
out=${1:?say where the results go: recipes/several/negatives.sh OUT}
cd "$(dirname "$0")/../.."
if [ ! -d data/several-de-en ]; then
    mkdir -p data/several-text
    python - "$SCONES_DATA" << 'END'
import itertools, lzma, sys
for corpus, name, count in (("europarl/train", "europarl", 90000), ("msdocs/train", "msdocs", 40000)):
    for language in ("de", "en"):
        with (
            lzma.open(f"{sys.argv[1]}/{corpus}.de-en.{language}.xz") as file,
            open(f"data/several-text/{name}.{language}", "wb") as cut,
        ):
            cut.writelines(itertools.islice(file, count))
END
    scones prepare data/several-de-en --recipe recipes/several/negatives.toml
fi
python recipes/several/negatives.py data/several-de-en "$out" --side-by-side "${2:-1}"
python recipes/several/negatives.py --table "$out" > "$out/table.md"
