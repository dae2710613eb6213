#!/usr/bin/env bash
# From a trained model (recipes/pocket/PAIR.toml) to the one that comes with the package: stored as
# int8, scored in that form on the test sets, described by its model card.
#
#   export SCONES_DATA=…
#   recipes/pocket/ship.sh de-en
set -euo pipefail
cd "$(dirname "$0")/../.."

pair=${1:?say which: recipes/pocket/ship.sh de-en or en-de}
name=pocket-$pair
out=scones/pocket/$name
scores=runs/$name-scores
mkdir -p "$scores"

scones export "runs/$name" "$out" --to pocket --overwrite
# Its confidence: one map for all kinds of text, fitted on the development sets together.
from=${pair%-*} to=${pair#*-} dev=()
for set in tatoeba/dev.de-en msdocs/dev newstest/newstest2018.de-en; do
    dev+=(--source "$SCONES_DATA/$set.$from.xz" -r "$SCONES_DATA/$set.$to.xz")
done
for set in tatoeba/test.de-en "newstest/newstest2019.$pair" europarl/test.de-en msdocs/test; do
    for search in greedy beam; do
        result=$scores/${set//\//.}.$search
        scones translate "$out" "$SCONES_DATA/$set.${pair%-*}.xz" --search $search --no-split > "$result.txt"
        scones evaluate -m bleu -r "$SCONES_DATA/$set.${pair#*-}.xz" "$result.txt" --json > "$result.json"
    done
done
python recipes/pocket/card.py "data/$name/report.json" "$scores" "$name" > "$scores/card.json"
scones export "runs/$name" "$out" --to pocket --overwrite --card "$scores/card.json"
scones calibrate "$out" "${dev[@]}"
scones info "$out"
