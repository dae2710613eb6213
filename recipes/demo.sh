#!/usr/bin/env bash
# The models that come along, at work: sentences in both directions, all translations above a
# probability, and sentences of your own. `make demo` and `make demo TEXT="Guten Tag!"` run it.
set -euo pipefail
cd "$(dirname "$0")/.."

for name in pocket-de-en pocket-en-de; do
    if [ ! -e "scones/pocket/$name/config.json" ]; then
        echo "This copy comes without $name, so two small models are trained and compared instead."
        exec bash recipes/compare.sh
    fi
done

# Sentences on standard input, each with its translation below it.
translate() {
    local sentences
    sentences=$(cat)
    paste -d '\n' <(sed 's/^/  /' <<< "$sentences") \
        <(scones translate "$1" <<< "$sentences" | sed 's/^/    → /')
}

# Lines "number TAB log-probability TAB text" with probabilities, as they arrive.
probabilities() {
    while IFS=$'\t' read -r _ log_prob text; do
        [ -n "$text" ] || continue
        printf '    %s  %s\n' "$(awk -v x="$log_prob" 'BEGIN { printf "%.2f", exp(x) }')" "$text"
    done
}

# All translations of a sentence above a probability.
alternatives() {
    local found
    found=$(scones translate "$1" --search all --threshold 0.1 --max-seconds 20 <<< "$2")
    echo "  $2"
    [ -n "$found" ] && probabilities <<< "$found" || echo "    none is so probable"
}

# The model that reads the language of a sentence.
model_for() {
    python -c '
import sys, py3langid
py3langid.set_languages(["de", "en"])
german = py3langid.classify(sys.argv[1])[0] == "de"
sys.stdout.write("pocket-de-en" if german else "pocket-en-de")' "$1"
}

echo "== German → English (pocket-de-en)"
translate pocket-de-en << 'END'
Ich hoffe, dass wir uns bald wiedersehen.
Ich hätte gern eine Tasse Tee mit Milch.
Wir stimmen morgen über den Vorschlag der Kommission ab.
Klicken Sie auf die Schaltfläche, um die Datei zu speichern.
END

echo "== English → German (pocket-en-de)"
translate pocket-en-de << 'END'
Where is the nearest train station?
She has lived in Berlin for three years.
The committee will vote on the report tomorrow.
Select the text that you want to copy.
END

echo "== More than one is right: every translation with a probability of at least 0.1"
alternatives pocket-de-en "Es tut mir leid."
alternatives pocket-de-en "Ich muss jetzt gehen."
alternatives pocket-en-de "Thank you for your help."

if [ -n "${TEXT:-}" ]; then
    model=$(model_for "$TEXT")
    echo "== Yours ($model): the translation, and every one with a probability of at least 0.1"
    translate "$model" <<< "$TEXT"
    alternatives "$model" "$TEXT" | tail -n +2
elif [ -t 0 ] && [ -t 1 ]; then
    echo "== Yours: German sentences, one a line; Ctrl-D ends (the four best, with probabilities)"
    scones translate pocket-de-en --search beam --beam-size 8 --n-best 4 | probabilities
fi

cat << 'END'

Try next:
  make demo TEXT="A sentence of yours, German or English"
  .venv/bin/scones translate pocket-de-en < input.de          a file, one sentence per line
  .venv/bin/scones info pocket-de-en                          what the model is, and how good
  .venv/bin/python -c 'import scones; print(scones.load("pocket-en-de").translate(["Hi!"])[0][0].text)'
  make compare                                                train softmax and SCONES, and compare
  .venv/bin/scones --help                                     from your own text to a model
END
