"""Is the paper's finding seen? A rule, applied to the figures of an experiment.

The finding: where a language is highly ambiguous, the most probable translations of softmax and of
SCONES with α = 1 are heavily degraded, those of SCONES with α = 0.2 much less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEGRADED = 0.5
"""Exact search below this share of softmax's beam BLEU is called degraded."""
RULE = (
    "at the highest temperature, BLEU of exact search is below half of softmax's BLEU with beam "
    "search for softmax and for SCONES with the largest α, but not for SCONES with the smallest α"
)


def judge(rows: Mapping[str, Any], alphas: Mapping[str, float | None]) -> dict[str, Any]:
    """Judge the figures of `Synthetic.run`, given by temperature; α are given by system."""
    temperature = max(rows, key=float)
    ordered = sorted((alpha, name) for name, alpha in alphas.items() if alpha is not None)
    systems = rows[temperature]["systems"]
    asked = ["softmax", *dict.fromkeys(ordered[at][1] for at in (-1, 0) if ordered)]
    relative = {name: systems[name]["relative"] for name in asked}
    unfinished = {name: systems[name]["exact"]["unproved"] for name in asked}
    seen = None
    if len(asked) == 3 and None not in relative.values():
        softmax, large, small = relative.values()
        seen = softmax < DEGRADED and large < DEGRADED and small >= DEGRADED
    return {
        "rule": RULE,
        "temperature": float(temperature),
        "seen": seen,
        "relative": relative,
        "unfinished": unfinished,
        "p": {name: systems[name]["p"] for name in asked[1:]},
        "ahead": seen is not None and small > max(softmax, large),
    }


def verdict_sentences(verdict: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """Say the verdict with its numbers; `labels` names the systems for readers."""
    relative = verdict["relative"]
    if verdict["seen"] is None:
        return [
            "**The paper's finding cannot be judged**: it takes two values of α, and a BLEU of "
            "softmax with beam search above 0."
        ]
    *_, small = relative
    keeps = "keeps" if verdict["ahead"] else "does not keep"
    return [
        f"**The paper's finding is {'seen' if verdict['seen'] else 'not seen'}** by this rule: "
        f"{verdict['rule']}.",
        f"At γ = {verdict['temperature']} exact search keeps of softmax's beam BLEU: "
        f"{_shares(relative, labels)}. {labels[small]} {keeps} more than the other two (against "
        f"exact search of softmax: p = {verdict['p'][small]:.3f}, paired bootstrap).",
        f"Sentences there whose mode is not proved: {_shares(verdict['unfinished'], labels)}. For "
        "them the best translation found counts; the mode itself may be better or worse.",
    ]


def _shares(shares: Mapping[str, float | None], labels: Mapping[str, str]) -> str:
    return ", ".join(
        f"{labels[name]} {'–' if share is None else f'{share:.0%}'}"
        for name, share in shares.items()
    )
