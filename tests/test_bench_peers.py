"""The rows of the bench write the same tokens, and transformers is told what the labels say."""

from __future__ import annotations

import pytest
import torch
from bench_subject import LENGTH, PROMPTS, plan, subject
from transformers import GenerationConfig

from specdec_core.lab.bench import peers, report, sections
from specdec_core.lab.bench.ours import Work, plain_row
from specdec_core.threads import Threads


@pytest.fixture(autouse=True)
def _one_thread():
    with Threads(1):
        yield


# All rows do the same work


@pytest.mark.parametrize(("stops", "draft"), [((2,), None), ("early", "self")])
def test_at_temperature_0_every_row_writes_what_plain_writes(stops, draft):
    """Ours and transformers'; with a stop token that comes early, and with one that does not."""
    tested = subject()
    settings = plan(temperature=0.0, draft=draft)
    if stops == "early":
        text = plain_row(tested.target, tested.work(settings)).run(0).texts[0]
        tested.stop_tokens = (text[4],)
    for kind in tested.prompts:
        rows = sections.method_rows(tested, settings, tested.work(settings, kind))
        names = [row.name for row in rows]
        assert "plain" in names and "speculative, other" in names
        assert ("speculative, self" in names) == (draft == "self")  # a loss, shown where chosen
        assert "speculative, lookup" in names
        assisted = [name for name in names if name.startswith("transformers assisted")]
        assert assisted[0] == f"transformers assisted, {draft or 'other'}" and len(assisted) == 2
        assert "transformers prompt look-up" in names
        assert "transformers assisted, its defaults" in names  # nothing to truncate at 0
        assert not [name for name in names if "generate, its defaults" in name]
        (wanted,) = rows[0].run(0).texts
        assert len(wanted) >= 3
        for row in rows:
            assert row.run(0).texts == [wanted], row.name
            row.measure(1)
            assert row.tokens == [len(wanted)] and row.same_law


@pytest.mark.skipif(peers.flashspec_version() is None, reason="flashspec is not installed")
def test_flashspec_writes_what_plain_writes():
    tested, settings = subject(torch.float32), plan(temperature=0.0)
    text = plain_row(tested.target, tested.work(settings)).run(0).texts[0]
    tested.stop_tokens = (text[4],)
    rows = sections.method_rows(tested, settings, tested.work(settings, "first"))
    theirs = [row for row in rows if row.name.startswith("flashspec")]
    assert len(theirs) == 2
    (wanted,) = rows[0].run(0).texts
    for row in theirs:
        row.measure(0)
        assert row.run(0).texts == [wanted] and row.tokens == [len(wanted)], row.name


def test_a_repeat_has_one_prompt_for_all_rows():
    work = Work(PROMPTS, temperature=0.0, max_new_tokens=4)
    assert [work.prompt(seed) for seed in (0, 1, 2)] == [PROMPTS[0], PROMPTS[1], PROMPTS[0]]
    tested = subject()
    both = tested.work(plan())
    assert both.prompts == PROMPTS and tested.work(plan(), "second").prompts == PROMPTS[1:]


# What transformers is told


def spy(model, monkeypatch) -> list[tuple]:
    """What `generate` is called with: its config, and the assistant's settings at that time."""
    seen, generate = [], model.generate

    def recorded(*ids, **given):
        assistant = given.get("assistant_model")
        own = assistant.generation_config.to_dict() if assistant is not None else None
        seen.append((given["generation_config"], own))
        return generate(*ids, **given)

    monkeypatch.setattr(model, "generate", recorded)
    return seen


def test_settings_of_the_library_rows_are_what_their_labels_say(monkeypatch):
    tested, settings = subject(), plan(temperature=0.7, gamma=3, lookup_gamma=5)
    own = tested.target.model.generation_config
    own.top_k, own.top_p, own.repetition_penalty = 7, 0.9, 1.3  # as a published model may have
    rows = sections.method_rows(tested, settings, tested.work(settings, "first"))
    seen = spy(tested.target.model, monkeypatch)
    found = {}
    for row in rows:
        if row.name.startswith("transformers"):
            row.run(3)
            found[row.name] = seen.pop()
    assert set(found) == {
        "transformers generate",
        "transformers generate, its defaults: top-k 7, top-p 0.9",
        "transformers assisted, other",
        "transformers assisted, its defaults: top-k 7, top-p 0.9",
        "transformers prompt look-up",
    }
    for name, (config, assistant) in found.items():
        assert config.do_sample and config.temperature == 0.7, name
        assert config.max_new_tokens == LENGTH and config.eos_token_id == [2], name
        defaults = "defaults" in name
        truncation = (config.top_k, config.top_p, config.repetition_penalty)
        assert truncation == ((None, None, None) if defaults else (0, 1.0, 1.0)), name
        look_up = (config.prompt_lookup_num_tokens, config.max_matching_ngram_size)
        longest = tested.drafters["lookup"].sizes[0]  # of our own look-up
        assert look_up == ((5, longest) if name.endswith("look-up") else (None, None))
        drafts = assistant and (
            assistant["num_assistant_tokens"], assistant["num_assistant_tokens_schedule"],
            assistant["assistant_confidence_threshold"],
        )  # fmt: skip
        if "assisted" not in name:
            assert assistant is None
        else:
            assert drafts == ((None, None, None) if defaults else (3, "constant", 0.0)), name
    # The assistant is as it was.
    kept = tested.drafters["other"].model.model.generation_config
    assert kept.num_assistant_tokens is None and kept.assistant_confidence_threshold is None
    assert {row.name: row.same_law for row in rows if not row.same_law} == {
        name: False for name in found if "defaults" in name
    }


def test_the_librarys_own_defaults_are_those_the_labels_and_the_head_name():
    known = GenerationConfig()._get_default_generation_params()
    assert known["top_k"] == peers.LIBRARY_TOP_K == 50
    assert known["num_assistant_tokens"] == 20 and "20 tokens a round" in report.PEERS
    assert known["assistant_confidence_threshold"] == 0.4 and "likelier than .4" in report.PEERS
    row = peers.generate_row(subject().target, Work(PROMPTS), own_defaults=True)
    assert row.name == "transformers generate, its defaults: top-k 50" and not row.same_law


@pytest.mark.parametrize(
    ("top_k", "top_p", "label"), [(0, None, "no truncation"), (0, 0.9, "top-p 0.9")]
)
def test_a_model_may_switch_the_librarys_top_k_off(top_k, top_p, label):
    target = subject().target
    own = target.model.generation_config
    own.top_k, own.top_p = top_k, top_p
    row = peers.generate_row(target, Work(PROMPTS), own_defaults=True)
    assert row.name == f"transformers generate, its defaults: {label}"


def test_a_truncation_of_the_models_own_does_not_reach_the_rows_of_our_law():
    tested = subject()
    tested.target.model.generation_config.top_k = 1  # would make every sample the same
    work = Work(PROMPTS[:1], max_new_tokens=LENGTH)
    for row, many in [
        (peers.generate_row(tested.target, work), True),
        (peers.generate_row(tested.target, work, own_defaults=True), False),
    ]:
        texts = {tuple(row.run(seed).texts[0]) for seed in range(6)}
        assert (len(texts) > 1) == many, row.name
