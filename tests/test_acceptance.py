"""Acceptance along a text: what the forwards say is what a decoder's drafts meet."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import model, prompt

from specdec_core import CausalLM, Sampling, Seeded, TableModel, load_pair, speculative_decode
from specdec_core.drafters import (
    EarlyExitModel,
    LookupDrafter,
    LookupElse,
    MedusaDrafter,
    MedusaHeads,
    ModelDrafter,
    TableDrafter,
)
from specdec_core.lab import acceptance
from specdec_core.lab.acceptance import (
    AcceptanceRecord,
    Rate,
    by_depth,
    by_position,
    record_acceptance,
)
from specdec_core.trace import Round, Stats, Trace


def target_row(prefix):
    """Depends on the whole prefix, so a row read one place off shows."""
    x = 0.2 + 0.6 * math.sin(1 + len(prefix) + prefix[-1]) ** 2
    return x, (1 - x) / 2, (1 - x) / 2


def draft_row(prefix):
    x = 0.2 + 0.6 * math.cos(sum(prefix)) ** 2
    return (1 - x) / 2, x, (1 - x) / 2


TEXT = (0, 1, 1, 2, 0, 2, 1)


def by_hand(text, start=1):
    rows = [(target_row(text[:i]), draft_row(text[:i])) for i in range(start, len(text))]
    return [sum(map(min, p, q)) for p, q in rows]


@pytest.mark.parametrize("rows", [1, 2, 64])
@pytest.mark.parametrize("start", [1, 2, 6])
def test_beta_is_the_sum_of_the_smaller_at_each_position(start, rows, monkeypatch):
    monkeypatch.setattr(acceptance, "ROWS", rows)
    target = TableModel(target_row, 3)
    for draft in (TableModel(draft_row, 3), TableDrafter(draft_row, 3)):
        record = record_acceptance(target, draft, TEXT, start=start)
        assert record.tokens == TEXT and record.start == start
        assert record.beta == pytest.approx(by_hand(TEXT, start), abs=1e-12)
        assert record.mean == pytest.approx(sum(by_hand(TEXT, start)) / (len(TEXT) - start))
        p = target_row(TEXT[:start])
        assert record.target_top[0][0] == (max(range(3), key=p.__getitem__), pytest.approx(max(p)))
        assert len(record.draft_top) == len(record.beta)


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("start", [1, 3])
def test_drafters_that_read_the_target_are_judged_beside_it(start, rows, monkeypatch):
    """An exit after all layers is the target; a head of zeros guesses the newest token again."""
    monkeypatch.setattr(acceptance, "ROWS", rows)
    target = CausalLM(model("llama"))
    text, width = prompt(12), target.own.norm.shape[0]
    whole = ModelDrafter(EarlyExitModel(target, 2))
    for draft in (whole, whole.model):
        record = record_acceptance(target, draft, text, start=start)
        assert record.beta == pytest.approx([1.0] * (12 - start), abs=1e-12)
    zeros = torch.zeros(2, width, width, dtype=torch.float64)
    again = MedusaDrafter(target, MedusaHeads(zeros, zeros[..., 0]))
    p = [target.model(torch.tensor([text])).logits[0].softmax(-1)]
    p = torch.cat([torch.zeros(1, target.vocab_size).double(), *p])
    expected = torch.minimum(p[:-1], p[1:]).sum(-1)[start - 1 : -1]
    record = record_acceptance(target, again, text, start=start)
    assert record.beta == pytest.approx(expected.tolist(), abs=1e-10)


def test_sampling_shapes_both_sides():
    target, draft = TableModel(target_row, 3), TableModel(draft_row, 3)
    greedy = record_acceptance(target, draft, TEXT, Sampling(temperature=0))
    same = [
        float(max(range(3), key=target_row(TEXT[:i]).__getitem__) ==
              max(range(3), key=draft_row(TEXT[:i]).__getitem__))
        for i in range(1, len(TEXT))
    ]  # fmt: skip
    assert list(greedy.beta) == same
    assert all(len(top) == 1 for top in greedy.target_top)


def test_a_processor_reads_the_prefix_of_each_position():
    seen = []

    def note(prefix, scores):
        seen.append(tuple(prefix[0].tolist()))
        return scores

    model = TableModel(target_row, 3)
    record_acceptance(model, model.fresh(), TEXT, Sampling(processors=(note,)), start=3)
    assert sorted(set(seen)) == [TEXT[:i] for i in range(3, len(TEXT))]


class OneByOne:
    """A model's draft behind `propose` alone."""

    def __init__(self, inner):
        self.inner, self.vocab_size, self.rollback = inner, inner.vocab_size, inner.rollback

    def propose(self, *arguments):
        return self.inner.propose(*arguments)


class Ahead(OneByOne):
    """Has its drafted token in the cache already, as some drafts do: it must be forgotten."""

    def propose(self, *arguments):
        draft = self.inner.propose(*arguments)
        self.inner.model.forward(draft.tokens)
        return draft


@pytest.fixture(scope="module")
def pair():
    return load_pair("storyworld", dtype="float64")


def test_all_ways_to_ask_a_draft_agree_on_the_bundled_pair(pair):
    text = pair.encode("Once upon a time, there was a curious brown hen named Max.")
    drafter = pair.drafters["strong"]
    ways = (drafter, drafter.model, OneByOne(drafter), Ahead(drafter))
    betas = [record_acceptance(pair.target, way, text, start=4).beta for way in ways]
    for other in betas[1:]:
        assert other == pytest.approx(betas[0], abs=1e-9)
    assert pair.target.length == drafter.length == 0
    itself = ModelDrafter(pair.target.fresh())
    assert record_acceptance(pair.target, itself, text).beta == pytest.approx(
        [1.0] * (len(text) - 1)
    )


def test_a_smaller_vocabulary_and_a_draft_that_passes():
    target = TableModel(target_row, 3)
    narrow = TableDrafter(lambda prefix: (0.5, 0.5), 2)
    record = record_acceptance(target, narrow, (0, 2, 1))
    expected = [sum(map(min, target_row((0, 2)[: i + 1]), (0.5, 0.5, 0.0))) for i in range(2)]
    # Token 2 is past the draft's rows: it reads its last one instead.
    assert record.beta == pytest.approx(expected)
    looked = record_acceptance(target, LookupDrafter(3), TEXT)
    assert looked.beta[0] == 0.0 and looked.draft_top[0] == ()
    assert looked.beta[2] == pytest.approx(target_row(TEXT[:3])[1])  # after 1 came 1


@pytest.mark.parametrize("name", ["strong", "exit", "medusa"])
def test_a_composite_is_its_look_up_where_that_finds_something(pair, name):
    text = pair.encode("The fox saw a hen. The fox saw a hen. The owl saw the fox.")
    other, lookup = pair.drafters[name], LookupDrafter(pair.target.vocab_size, 2, 2)
    copied = record_acceptance(pair.target, lookup, text, start=4)
    alone = record_acceptance(pair.target, other, text, start=4)
    record = record_acceptance(pair.target, LookupElse(lookup, other), text, start=4)
    found = [bool(top) for top in copied.draft_top]
    assert True in found and False in found
    assert record.beta == pytest.approx(
        [one if hit else two for hit, one, two in zip(found, copied.beta, alone.beta, strict=True)],
        abs=1e-12,
    )


def test_beta_predicts_what_a_run_accepts(pair):
    """Mean beta over the emitted text against the kept share of first drafts of many runs."""
    prompt, counts, records = pair.encode("Once upon a time"), [], []
    for seed in range(12):
        out = speculative_decode(
            pair.target, pair.drafter, prompt, gamma=1, max_new_tokens=30, randomness=Seeded(seed)
        )
        counts.append(out.stats)
        text = [*prompt, *out.tokens]
        records.append(record_acceptance(pair.target, pair.drafter, text, start=len(prompt)))
    kept = by_depth(counts)[0]
    betas = by_position(records, width=30)[0]
    assert betas.judged == 12 * 30
    spread = (betas.value * (1 - betas.value) / kept.judged) ** 0.5
    assert abs(kept.value - betas.value) < 4 * spread


@pytest.mark.parametrize("start", [0, True, 1.5, math.nan])
def test_a_start_that_is_no_position_is_one_sentence(start):
    model = TableModel(target_row, 3)
    with pytest.raises(ValueError, match=r"^start must be a whole number of at least 1"):
        record_acceptance(model, model, TEXT, start=start)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ((0, 3), ValueError, "token id 3, outside the vocabulary of 3"),
        ("abc", TypeError, r"^The text must be a list of token ids: pass pair\.encode"),
    ],
)
def test_a_text_that_the_target_cannot_read_is_one_sentence(text, error, says):
    model = TableModel(target_row, 3)
    with pytest.raises(error, match=says):
        record_acceptance(model, model, text)


@pytest.mark.parametrize(("text", "start"), [((0,), 1), ((), 1), (TEXT, 7)])
def test_a_text_without_a_position_is_one_sentence(text, start):
    model = TableModel(target_row, 3)
    with pytest.raises(ValueError, match=f"A text of {len(text)} tokens has no position {start}"):
        record_acceptance(model, model, text, start=start)


def test_the_rolling_mean_looks_back_only():
    record = AcceptanceRecord(TEXT, (1.0, 0.0, 0.5, 0.5, 1.0, 0.0))
    assert record.rolling(2) == [1.0, 0.5, 0.25, 0.5, 0.75, 0.5]
    assert record.rolling(100)[-1] == record.mean == 0.5


def test_rates_by_depth_and_by_position(pair):
    options = {"gamma": 3, "max_new_tokens": 40}
    prompt = pair.encode("Once upon a time")
    outs = [
        speculative_decode(pair.target, pair.drafter, prompt, randomness=Seeded(s), **options)
        for s in (1, 2)
    ]
    traces = [out.trace for out in outs]
    one = by_depth([outs[0].stats])
    assert [rate.value for rate in one] == outs[0].stats.per_position
    pooled = Stats()
    for round in [round for trace in traces for round in trace.rounds]:
        pooled.add(round)
    both = by_depth(out.stats for out in outs)
    assert [(rate.kept, rate.judged) for rate in both] == list(
        zip(pooled.accepted_at, pooled.judged_at, strict=True)
    )
    places = by_position(traces)
    accepted = sum(out.stats.accepted for out in outs)
    rejected = sum(out.stats.rejected for out in outs)
    assert sum(rate.kept for rate in places) == accepted
    assert sum(rate.judged for rate in places) == accepted + rejected
    tens = by_position(traces, width=10)
    assert [rate.judged for rate in tens] == [
        sum(rate.judged for rate in places[i : i + 10]) for i in range(0, len(places), 10)
    ]
    # The first draft of a run stands at position 0, and a bonus or corrected token is no draft.
    assert places[0].judged == 2
    assert by_position([AcceptanceRecord((0, 1, 2), (0.5, 0.25))] * 2) == [
        Rate(1.0, 2), Rate(0.5, 2),
    ]  # fmt: skip
    assert by_depth([]) == by_position([Trace((0,))]) == []
    assert math.isnan(Rate(0, 0).value)


def test_acceptance_by_depth_pools_runs_that_drafted_differently_far():
    short, long = Stats(accepted_at=[3], judged_at=[4]), Stats(accepted_at=[1, 1], judged_at=[2, 1])
    for counts in ([short, long], [long, short]):
        assert by_depth(counts) == [Rate(4, 6), Rate(1, 1)]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda r: r.rolling(0), "window must be a whole number of at least 1, not 0"),
        (lambda r: by_position([r], width=-1), "width must be a whole number of at least 1"),
        (lambda r: by_position([r], width=True), "width must be a whole number of at least 1"),
    ],
)
def test_windows_and_widths_that_hold_no_position(ask, says):
    with pytest.raises(ValueError, match=says):
        ask(AcceptanceRecord((0, 1, 2), (0.5, 0.25)))


def test_positions_follow_what_was_emitted():
    """One of four drafts kept, then both of two, with a corrected and a bonus token between."""
    fields = {
        "target_prob": (), "draft_prob": (), "u": None, "residual_mass": 1.0,
        "zero_residual": False, "target_length": (0, 0), "draft_length": (0, 0), "token": 0,
    }  # fmt: skip
    rounds = [
        Round(drafted=(0,) * 4, accepted=1, emitted=(0, 0), **fields),
        Round(drafted=(0, 0), accepted=2, emitted=(0, 0, 0), **fields),
        Round(drafted=(0,), accepted=0, emitted=(0,), **fields),
    ]
    kept = [(rate.kept, rate.judged) for rate in by_position([Trace((0,), rounds)])]
    assert kept == [(1, 1), (0, 1), (1, 1), (1, 1), (0, 0), (0, 1)]


def test_half_precision_is_upcast():
    class Half(TableModel):
        def forward(self, tokens, keep=None):
            return super().forward(tokens, keep).to(torch.bfloat16)

        def fresh(self):
            return Half(self.function, self.vocab_size)

    record = record_acceptance(Half(target_row, 3), TableModel(draft_row, 3), TEXT)
    assert record.beta == pytest.approx(by_hand(TEXT), abs=0.01)
