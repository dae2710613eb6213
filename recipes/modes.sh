#!/usr/bin/env bash
# The mode against training: what exact search keeps of a small model's BLEU, from undertrained to
# converged, for softmax and two values of α. Multi30k, German → English, some two hours on one core.
#
#   SCONES_DATA=… bash recipes/modes.sh OUT      # OUT/modes.json, modes.md and modes.svg
#
# The learning rate stays as it is after its warm-up, so that every number of steps is a point of one
# run, and the last, 1.5 times the one before it, tells whether that had converged.
set -euo pipefail
out=${1:?say where the results go: recipes/modes.sh OUT}
text=${SCONES_DATA:?the folder that holds multi30k/}/multi30k/test_2016_flickr
test -d data/multi30k-4000 ||
    scones prepare data/multi30k-4000 --recipe recipes/multi30k.toml --pieces 4000
for steps in 100 200 400 800 1600 3200 4800; do
    for system in softmax scones-0.2 scones-1.0; do
        name=$system-$steps
        layer=(--output-layer scones --alpha "${system#scones-}")
        test "$system" != softmax || layer=(--output-layer softmax)
        test -d "runs/modes/$name" || {
            scones train data/multi30k-4000 "runs/modes/$system" "${layer[@]}" \
                --preset tiny --size 192 --feed-forward 768 --dropout 0.1 --attention-dropout 0 \
                --max-tokens 2048 --learning-rate 0.01 --warmup-steps 200 --cooldown 0 --seed 1 \
                --precision bf16 --threads 1 --log-every 200 --checkpoint-every 400 --patience 0 \
                --validate-every 100000 --max-steps "$steps"
            cp -r "runs/modes/$system/last" "runs/modes/$name"
        }
        scones analyze "$name=runs/modes/$name" --source "$text.de.xz" -r "$text.en.xz" \
            --sentences 200 --beam-size 1 --beam-size 4 --max-states 20000 \
            -o "runs/modes.search/$name" > /dev/null
    done
done
python recipes/modes.py runs/modes.search "$out"
