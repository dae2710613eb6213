#!/usr/bin/env bash
# One version of the Bible against seven, German → English, an eighth version and every thirtieth
# verse held out; recipes/several/bible.py tells the rest. Minutes on a GPU, hours on a CPU core.
#
#   SCONES_DATA=… bash recipes/several/bible.sh [STEPS]
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=data/several-bible
if [ ! -d $folder/one ]; then
    python recipes/several/bible.py text $folder
    limits=(-s de -t en --max-pieces 250 --max-words 120 --any-language)
    scones prepare $folder/all "${limits[@]}" --several $folder/all.tsv --pieces 8000
    scones prepare $folder/one "${limits[@]}" --several $folder/one.tsv \
        --subwords $folder/all/subwords.model
fi
for seed in 1 2 3; do
    for system in one rows all; do
        test -f $folder/$system.$seed.json ||
            python recipes/several/bible.py run $folder $system.$seed --steps "${1:-3000}"
    done
done
python recipes/several/bible.py table $folder
