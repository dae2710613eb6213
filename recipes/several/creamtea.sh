#!/usr/bin/env bash
# One reference against all of them, on the built-in corpus, which knows every valid translation: the
# same sources, sizes and steps, three seeds; some half an hour on one CPU core.
#
#   bash recipes/several/creamtea.sh OUT      # OUT/SEED.json: validity, acceptance, BLEU of each system
#
# `one` has a random valid translation of every source, as corpora do. `rows` has all of them as pairs
# of their own, as corpora could. `all` has the same pairs, and is told of the others at each prefix.
set -euo pipefail
out=${1:?say where the results go: recipes/several/creamtea.sh OUT}
cd "$(dirname "$0")/../.."
work=runs/several-tea
if [ ! -d $work/all ]; then
    rm -rf $work && mkdir -p $work
    scones creamtea $work/tea
    python - $work/tea/train.de > $work/all.tsv << 'END'
import sys
from scones.text.creamtea import CreamTea
tea = CreamTea.load()
for source in open(sys.argv[1], encoding="utf-8").read().splitlines():
    print(source, *tea.translations(source), sep="\t")
END
    text=(-s de -t en --dev-source $work/tea/dev.de --dev-target $work/tea/dev.en)
    scones prepare $work/one "${text[@]}" --pieces 700 \
        --source $work/tea/train.de --target $work/tea/train.en
    scones prepare $work/all "${text[@]}" --subwords $work/one/subwords.model --several $work/all.tsv
fi
mkdir -p "$out"
for seed in 1 2 3; do
    models=()
    for system in one rows all; do
        told=(); store=all
        test $system != one || store=one
        test $system != all || told=(--references all)
        scones train $work/$store $work/$system-$seed --recipe recipes/creamtea.toml \
            --seed $seed "${told[@]}"
        models+=("$system=$work/$system-$seed/last")
    done
    scones compare "${models[@]}" --source $work/tea/test.de --reference $work/tea/test.en \
        --judged $work/tea/test.json --judged-dev $work/tea/dev.json --output "$out/$seed.json"
done
