#!/usr/bin/env bash
# The whole way of a sentence on the built-in corpus: write it, prepare it, train a softmax and a
# SCONES model with the same recipe, and compare them as the paper does. `make compare` runs it.
set -euo pipefail
trap 'trap - INT TERM; kill 0' INT TERM  # a stop stops both trainings
cd "$(dirname "$0")/.."

recipe=recipes/creamtea.toml
work=runs/compare
rm -rf "$work"

echo "== 1. The corpus: sentences about a cream tea, with every valid translation of each"
scones creamtea "$work/corpus"

echo "== 2. Cleaning and subwords"
scones prepare "$work/store" --recipe "$recipe"

echo "== 3. Training: softmax and SCONES, side by side, one core each (softmax's log: $work/softmax.log)"
scones train "$work/store" "$work/softmax" --recipe "$recipe" --output-layer softmax \
    2> "$work/softmax.log" &
softmax=$!
scones train "$work/store" "$work/scones" --recipe "$recipe"
wait $softmax

echo "== 4. The comparison"
scones compare "softmax=$work/softmax" "SCONES=$work/scones" \
    --source "$work/corpus/test.de" --reference "$work/corpus/test.en" \
    --judged "$work/corpus/test.json" --judged-dev "$work/corpus/dev.json" \
    --output "$work/comparison.json"

echo
echo "Try: echo 'Erst kommt die Marmelade auf den Scone, dann die Sahne.' |"
echo "         .venv/bin/scones translate $work/scones --search beam --beam-size 8 --n-best 4"
