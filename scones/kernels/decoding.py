"""What a decoding step on a GPU needs beside matrix products, each in one launch.

Every row has its own place in its own sentence, so that sentences of any length decode together,
and nothing here depends on a number that only the host knows: steps can be captured in a graph.

Shape letters: R rows, D model size, H heads, K size of a head, T positions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_and_norm(
    x, addend, scale, shift, normed, size, normed_row, epsilon,
    ADDS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * size
    part = tl.arange(0, SIZE)
    real = part < size
    value = tl.load(x + row + part, mask=real, other=0.0)
    if ADDS:
        value += tl.load(addend + part, mask=real, other=0.0)
        tl.store(x + row + part, value, mask=real)
    mean = tl.sum(value) / size
    apart = tl.where(real, value - mean, 0.0)
    deviation = tl.sqrt(tl.sum(apart * apart) / size + epsilon)
    factor = tl.load(scale + part, mask=real, other=0.0)
    term = tl.load(shift + part, mask=real, other=0.0)
    result = apart / deviation * factor + term
    out = tl.program_id(0).to(tl.int64) * normed_row + part
    tl.store(normed + out, result.to(normed.dtype.element_ty), mask=real)


def add_and_norm(
    x_RD: Tensor,
    addend_D: Tensor | None,
    scale_D: Tensor,
    shift_D: Tensor,
    epsilon: float,
    normed_RD: Tensor,
) -> Tensor:
    """Add a bias to rows, in place, and write their layer norm to `normed`, which is given back."""
    rows, size = x_RD.shape
    _add_and_norm[(rows,)](
        x_RD, addend_D, scale_D, shift_D, normed_RD, size, normed_RD.stride(0), epsilon,
        ADDS=addend_D is not None, SIZE=triton.next_power_of_2(size), num_warps=4,
    )  # fmt: skip
    return normed_RD


@triton.jit
def _attend(
    query, keys, values, first, row, owners, owners_row, steps, row_k, part, count,
    best, total, mix, scale, OWNED: tl.constexpr, STEPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Attend over `count` rows of keys and values, of which another row may be the owner."""
    best = tl.cast(best, tl.float32)
    total = tl.cast(total, tl.float32)
    for begin in range(0, count, BLOCK):
        place = begin + tl.arange(0, BLOCK)
        real = place < count
        if OWNED:
            owner = tl.load(owners + row * owners_row + place, mask=real, other=0)
            at = owner.to(tl.int64) * steps + place
        elif STEPPED:
            at = row.to(tl.int64) * steps + place
        else:
            at = first.to(tl.int64) + place
        here = at[:, None] * row_k + part[None, :]
        key = tl.load(keys + here, mask=real[:, None], other=0.0).to(tl.float32)
        value = tl.load(values + here, mask=real[:, None], other=0.0).to(tl.float32)
        score = tl.sum(key * query[None, :], axis=1) * scale
        score = tl.where(real, score, float("-inf"))
        better = tl.maximum(best, tl.max(score))
        weight = tl.exp2(score - better)
        shrink = tl.exp2(best - better)
        total = total * shrink + tl.sum(weight)
        mix = mix * shrink + tl.sum(value * weight[:, None], axis=0)
        best = better
    return total, mix


@triton.jit
def _attend_back(
    projected, cache, owners, positions, mixed, owners_row, steps, size, scale,
    OWNED: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    part = head * SIZE + tl.arange(0, SIZE)
    position = tl.load(positions + row)
    new = projected + row.to(tl.int64) * 3 * size + part
    query = tl.load(new).to(tl.float32)
    key = tl.load(new + size)
    value = tl.load(new + 2 * size)
    owner = row
    if OWNED:
        owner = tl.load(owners + row * owners_row + position)
    mine = cache + (owner.to(tl.int64) * steps + position) * 2 * size + part
    tl.store(mine, key)
    tl.store(mine + size, value)
    # The row's own newest position begins the sum; what was there before is read from the cache.
    best = tl.sum(key.to(tl.float32) * query) * scale
    total, mix = _attend(
        query, cache, cache + size, row, row, owners, owners_row, steps, 2 * size, part, position,
        best, 1.0, value.to(tl.float32), scale, OWNED, True, BLOCK,
    )  # fmt: skip
    out = mixed + row.to(tl.int64) * size + part
    tl.store(out, (mix / total).to(mixed.dtype.element_ty))


def attend_back(
    projected_R3D: Tensor,
    cache_RT2D: Tensor,
    positions_R: Tensor,
    owners_RT: Tensor | None,
    heads: int,
) -> Tensor:
    """Put each row's newest key and value into the cache and attend over all up to there.

    `owners` says in which row of the cache a row finds each of its positions, the newest included;
    without it, in its own.
    """
    rows, width = projected_R3D.shape
    size = width // 3
    mixed = projected_R3D.new_empty(rows, size)
    _attend_back[(rows, heads)](
        projected_R3D, cache_RT2D, owners_RT, positions_R, mixed,
        0 if owners_RT is None else owners_RT.stride(0), cache_RT2D.size(1), size,
        (size // heads) ** -0.5 * 1.4426950408889634,
        OWNED=owners_RT is not None, BLOCK=32, SIZE=size // heads, num_warps=2,
    )  # fmt: skip
    return mixed


@triton.jit
def _attend_source(
    queries, memory, starts, lengths, sentences, mixed, size, scale,
    BEAMS: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    part = head * SIZE + tl.arange(0, SIZE)
    sentence = tl.load(sentences + row // BEAMS)
    first, count = tl.load(starts + sentence), tl.load(lengths + sentence)
    query = tl.load(queries + row.to(tl.int64) * size + part).to(tl.float32)
    total, mix = _attend(
        query, memory, memory + size, first, row, starts, 0, 0, 2 * size, part, count,
        float("-inf"), 0.0, tl.zeros((SIZE,), dtype=tl.float32), scale, False, False, BLOCK,
    )  # fmt: skip
    mix = tl.where(total > 0, mix / total, 0.0)
    tl.store(mixed + row.to(tl.int64) * size + part, mix.to(mixed.dtype.element_ty))


def attend_source(
    queries_RD: Tensor,
    memory_S2D: Tensor,
    starts_N: Tensor,
    lengths_N: Tensor,
    sentences_A: Tensor,
    heads: int,
) -> Tensor:
    """Attend over the source of each row's sentence; R / A rows in turn share one.

    A sentence without a source gives zeros.
    """
    rows, size = queries_RD.shape
    mixed = torch.empty_like(queries_RD)
    _attend_source[(rows, heads)](
        queries_RD, memory_S2D, starts_N, lengths_N, sentences_A, mixed, size,
        (size // heads) ** -0.5 * 1.4426950408889634,
        BEAMS=rows // len(sentences_A), BLOCK=32, SIZE=size // heads, num_warps=2,
    )  # fmt: skip
    return mixed


@triton.jit
def _advance(
    chosen, scores, tokens, positions, sentences, limits, written, written_scores, counts,
    rows, capacity, steps, end, pad, SCORED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.arange(0, ROWS)
    real = row < rows
    token = tl.load(chosen + row, mask=real, other=0)
    position = tl.load(positions + row, mask=real, other=0)
    sentence = tl.load(sentences + row, mask=real, other=capacity)
    busy = sentence < capacity
    place = sentence.to(tl.int64) * steps + position
    tl.store(written + place, token, mask=busy)
    if SCORED:
        tl.store(written_scores + place, tl.load(scores + row, mask=busy, other=0.0), mask=busy)
    limit = tl.load(limits + sentence, mask=busy, other=1)
    done = busy & ((token == end) | (position + 1 >= limit))
    waiting, all_sentences = tl.load(counts), tl.load(counts + 1)
    enters = waiting + tl.cumsum(done.to(tl.int64), axis=0) - 1
    sentence = tl.where(done, tl.where(enters < all_sentences, enters, capacity), sentence)
    goes_on = busy & (done == 0)
    tl.store(sentences + row, sentence, mask=real)
    tl.store(positions + row, tl.where(goes_on, position + 1, 0), mask=real)
    tl.store(tokens + row, tl.where(goes_on, token, pad), mask=real)
    leaving = tl.sum(done.to(tl.int64))
    tl.store(counts, waiting + leaving)
    tl.store(counts + 2, tl.load(counts + 2) + leaving)


def advance(
    chosen_R: Tensor,
    scores_R: Tensor | None,
    tokens_R: Tensor,
    positions_R: Tensor,
    sentences_R: Tensor,
    limits_N: Tensor,
    written_NT: Tensor,
    written_scores_NT: Tensor,
    counts: Tensor,
    end: int,
    pad: int,
) -> None:
    """Write down what each row chose; where its sentence is done, let the next one enter.

    The last sentence of `limits` and `written` stands for "none". `counts`: the sentence that
    enters next, how many there are, how many are done.
    """
    rows, steps = len(tokens_R), written_NT.size(1)
    _advance[(1,)](
        chosen_R, scores_R, tokens_R, positions_R, sentences_R, limits_N,
        written_NT, written_scores_NT, counts, rows, len(written_NT) - 1, steps, end, pad,
        SCORED=scores_R is not None, ROWS=triton.next_power_of_2(rows), num_warps=4,
    )  # fmt: skip


@triton.jit
def _block_bests(
    logits, values, places, sums, columns, row_stride,
    BEST: tl.constexpr, KEPT: tl.constexpr, NORMED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(0), tl.program_id(1)
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    real = column < columns
    here = logits + row.to(tl.int64) * row_stride + column
    z = tl.load(here, mask=real, other=float("-inf")).to(tl.float32)
    part = row * tl.num_programs(1) + block
    if NORMED:
        largest = tl.max(z)
        largest = tl.where(largest == float("-inf"), 0.0, largest)
        total = tl.sum(tl.exp(z - largest))
        tl.store(sums + part, largest + tl.log(total))
    rank = tl.arange(0, KEPT)
    best_values = tl.full((KEPT,), float("-inf"), dtype=tl.float32)
    best_places = tl.zeros((KEPT,), dtype=tl.int32)
    for index in tl.static_range(BEST):
        value, place = tl.max(z, axis=0, return_indices=True)
        best_values = tl.where(rank == index, value, best_values)
        best_places = tl.where(rank == index, block * COLUMNS + place, best_places)
        z = tl.where(column == block * COLUMNS + place, float("-inf"), z)
    tl.store(values + part * BEST + rank, best_values, mask=rank < BEST)
    tl.store(places + part * BEST + rank, best_places, mask=rank < BEST)


def best_logits(logits_RV: Tensor, best: int, normed: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Give the best logits of each row and their columns, and the row's normaliser where asked for.

    One pass over the logits finds the best of each block of columns, and from those few the best
    of all are taken. Meant for a handful; the work grows with `best`.
    """
    rows, columns = logits_RV.shape
    width = 2048
    blocks = triton.cdiv(columns, width)
    values = logits_RV.new_empty(rows, blocks * best, dtype=torch.float32)
    places = logits_RV.new_empty(rows, blocks * best, dtype=torch.int32)
    sums = logits_RV.new_empty(rows, blocks, dtype=torch.float32)
    _block_bests[(rows, blocks)](
        logits_RV, values, places, sums, columns, logits_RV.stride(0),
        BEST=best, KEPT=triton.next_power_of_2(best), NORMED=normed, COLUMNS=width, num_warps=4,
    )  # fmt: skip
    best_values, order = values.topk(best, dim=-1)
    best_places = places.gather(1, order).long()
    return best_values, best_places, torch.logsumexp(sums, dim=-1) if normed else None
