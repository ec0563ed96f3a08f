"""The draft of SmolLM2: its training on a tiny chat model, and what the bundled weights do."""

from __future__ import annotations

import json
import random
import re
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import CausalLM, ModelDrafter, Sampling, Seeded, load_pair, speculative_decode
from specdec_core.lab.bench.plan import CHAT
from specdec_core.lab.memory import memory_bill
from specdec_core.smollm2 import installed_folder
from specdec_core.smollm2_draft import network, prompts, samples, states, train
from specdec_core.smollm2_draft.prompts import KINDS, request

VOCAB = 64
WORDS = {
    "who": prompts.CHARACTERS, "rival": prompts.CHARACTERS, "where": prompts.PLACES,
    "what": prompts.THINGS, "subject": prompts.SUBJECTS, "other": prompts.SUBJECTS,
    "task": prompts.TASKS, "question": prompts.QUESTIONS, "machine": prompts.MACHINES,
    "language": prompts.LANGUAGES, "person": prompts.PEOPLE,
}  # fmt: skip
FILLERS = {slot: f"(?:{'|'.join(map(re.escape, words))})" for slot, words in WORDS.items()}
EXAMPLE = {slot: words[-1] for slot, words in WORDS.items()}


@pytest.fixture(scope="module")
def teacher() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        tie_word_embeddings=True, initializer_range=0.3, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def chat(teacher) -> SimpleNamespace:
    """As much of a pair as the conversations need."""
    return SimpleNamespace(
        target=CausalLM(teacher), stop_tokens=(2,),
        encode=lambda text, chat: [3 + len(word) % 9 for word in text.split()][:12],
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(teacher, tmp_path_factory):
    """Three shards of conversations of the tiny teacher, and its states."""
    folder = tmp_path_factory.mktemp("draft")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "BATCH", 32)
        patch.setattr(samples, "NEW_TOKENS", 24)
        samples.write_samples(chat(teacher), folder, 3)
    states.write_states(teacher, folder)
    return folder


def paths(folder):
    return sorted(folder.glob("conversations-*.safetensors"))


def test_requests_are_of_every_kind_and_the_same_for_a_seed():
    for kind in KINDS:
        some = {request(random.Random(seed), kind) for seed in range(40)}
        assert len(some) > 20 and not any("{" in one for one in some)
    assert request(random.Random(5), "code") == request(random.Random(5), "code")


def test_no_prompt_of_the_bench_can_be_drawn():
    bench = [text for kind in KINDS for text in CHAT[kind]]
    for template in (one for some in prompts.TEMPLATES.values() for one in some):
        pattern = re.sub(r"\\{(\w+)\\}", lambda slot: FILLERS[slot[1]], re.escape(template))
        assert re.fullmatch(pattern, template.format(**EXAMPLE))
        for text in bench:
            assert not re.fullmatch(pattern, text), text


def test_conversations_are_the_teachers_own_and_go_on_after_an_interruption(
    teacher, folder, monkeypatch, tmp_path
):
    monkeypatch.setattr(samples, "BATCH", 32)
    monkeypatch.setattr(samples, "NEW_TOKENS", 24)
    first = paths(folder)[0]
    again = samples.shard_path(tmp_path, 0)
    again.write_bytes(first.read_bytes())
    before = again.stat().st_mtime_ns
    samples.write_samples(chat(teacher), tmp_path, 2)
    assert again.stat().st_mtime_ns == before  # was there, and is not written again
    second = load_file(samples.shard_path(tmp_path, 1))
    for name, tensor in load_file(paths(folder)[1]).items():
        assert torch.equal(tensor, second[name])
    text = second["tokens"].split(second["lengths"].tolist())[7].tolist()
    answer = int(second["answers"][7])
    one = chat(teacher)
    alone = speculative_decode(
        one.target, ModelDrafter(CausalLM(teacher)), text[:answer], max_new_tokens=24, gamma=0,
        sampling=Sampling(samples.TEMPERATURES[1]),
        stop_tokens=(2,), randomness=Seeded(1 * 32 + 7),
    )  # fmt: skip
    assert text[answer:] == alone.tokens


def test_states_give_the_teachers_distribution(teacher, folder):
    text = train.read_texts(paths(folder)[0])[5]
    head = teacher.lm_head.weight.to(torch.bfloat16)
    p = ((text.hidden @ head.T).float() - text.log_total[:, None]).exp()
    with torch.no_grad():
        expected = teacher(text.ids[None]).logits[0].softmax(-1)
    assert (p - expected).abs().sum(-1).max() < 0.15  # bfloat16 hidden rows of large weights
    assert (p - expected).abs().sum(-1).mean() < 0.05


def test_a_lesson_counts_the_positions_that_predict_the_answer(folder):
    texts = train.read_all(paths(folder))[:3]
    batch = train.lesson(texts)
    for text, row in zip(texts, batch.counts, strict=True):
        wanted = list(range(text.answer - 1, len(text.ids) - 1))
        assert row.nonzero().flatten().tolist() == wanted
    assert len(batch.hidden) == len(batch.log_total) == int(batch.counts.sum())
    first = texts[0]
    assert torch.equal(batch.hidden[0], first.hidden[first.answer - 1])


def test_held_out_are_the_requests_that_were_never_learnt(folder):
    first = paths(folder)[0]
    whole = train.read_texts(first)
    assert not any(train.read_held_out(first, whole).values())
    held_out = train.read_held_out(first, whole[5:6])
    left = [text for text in whole if not torch.equal(request_of(text), request_of(whole[5]))]
    assert 0 < len(left) < len(whole) == 32
    assert sum(len(texts) for texts in held_out.values()) == len(left)
    assert torch.equal(held_out[KINDS[2]][0].ids, whole[2].ids)


def request_of(text: train.Text) -> torch.Tensor:
    return text.ids[: text.answer]


def test_the_slope_is_the_one_of_the_loss():
    torch.manual_seed(1)
    head, hidden, total = torch.randn(10, 6), torch.randn(4, 6), torch.full((4,), 6.0)
    rows = torch.randn(4, 6, requires_grad=True)
    slope, overlap, agreement = train.compare(rows.detach(), hidden, total, head)
    p = (hidden @ head.T - 6.0).exp()
    logits = rows @ head.T
    q = logits.softmax(-1)
    expected = torch.minimum(p, q).sum(-1)
    cross = -(p * logits.log_softmax(-1)).sum(-1).mean()
    weight = (-3 * expected.mean()).exp().detach()
    (weight * cross - (1 - weight) * expected.mean()).backward()
    torch.testing.assert_close(slope, rows.grad)
    torch.testing.assert_close(overlap, expected.detach())
    assert agreement.tolist() == (p.argmax(-1) == q.argmax(-1)).tolist()


def trained(teacher, tensors) -> train.Student:
    """The student these weights are of, started from them."""
    return train.Student(teacher, tensors["ids"].long(), tensors)


def test_training_lifts_acceptance_and_goes_on_where_it_stopped(
    teacher, folder, monkeypatch, tmp_path
):
    monkeypatch.setattr(train, "HEAD_IDS", 40)
    monkeypatch.setattr(train, "HELD_OUT", 1)
    monkeypatch.setattr(train, "REPORT_EVERY", 10)
    monkeypatch.setattr(train, "compiled", lambda function: function)

    def run(name: str, stops: tuple[int, ...]) -> dict:
        work = tmp_path / name
        work.mkdir()
        for path in folder.iterdir():
            (work / path.name).write_bytes(path.read_bytes())
        monkeypatch.setattr(train, "CARD", work / "weights" / "card.json")
        monkeypatch.setattr(train, "FILE", work / "weights" / "draft.safetensors")
        learn, calls = train.Student.learn, []
        for stop in stops:

            def interrupted(self, *args, stop=stop):
                calls.append(0)
                if len(calls) > stop:
                    raise KeyboardInterrupt
                return learn(self, *args)

            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(train.Student, "learn", interrupted)
                train.distil(teacher, work, 120)
        train.distil(teacher, work, 120)
        return load_file(work / "weights" / "draft.safetensors")

    whole, resumed = run("whole", ()), run("resumed", (25,))
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
    card = json.loads((tmp_path / "whole" / "weights" / "card.json").read_text())
    untrained = train.Student(teacher, whole["ids"].long())
    last = paths(folder)[-1]
    by_kind = train.read_held_out(last, train.read_all(paths(folder)[:-1]))
    watched = [text for texts in by_kind.values() for text in texts]
    before = untrained.found(watched)
    found = card["held_out"][f"temperature {samples.temperature(last)}"]
    assert "all" in found and set(found) <= {"all", *KINDS}
    assert found["all"]["acceptance"] > before.acceptance + 0.05
    stored = trained(teacher, whole).found(watched)
    expected = {"conversations": len(watched), **stored._asdict()}
    assert found["all"] == pytest.approx(expected, abs=0.02)  # stored in bfloat16
    assert card["started_from"].startswith("the target's")
    monkeypatch.setattr(train, "CARD", tmp_path / "whole" / "weights" / "card.json")
    monkeypatch.setattr(train, "FILE", tmp_path / "whole" / "weights" / "draft.safetensors")
    train.distil(teacher, tmp_path / "whole", 1, go_on=True)
    second = json.loads(train.CARD.read_text())
    assert second["started_from"] == card
    assert second["held_out"]["temperature 0.6"]["all"]["acceptance"] > before.acceptance + 0.05
    draft = network.draft_network(teacher, whole)
    drafter = ModelDrafter(CausalLM(draft))
    kept = set(whole["ids"].tolist())
    out = speculative_decode(
        CausalLM(teacher), drafter, [3, 4], max_new_tokens=60, randomness=Seeded(0)
    )
    assert {token for round in out.trace.rounds for token in round.drafted} <= kept
    assert 0 < out.stats.acceptance_rate < 1


def test_a_draft_is_what_was_trained_and_shares_the_targets_embedding(teacher):
    body = network.trainable_body(teacher)
    ids = torch.arange(0, VOCAB, 2)
    draft = network.draft_network(teacher, network.trained_tensors(body, ids))
    assert (
        draft.model.embed_tokens.weight.data_ptr() == teacher.model.embed_tokens.weight.data_ptr()
    )
    text = torch.tensor([[5, 9, 33, 4]])
    with torch.no_grad():
        rows = body(text).last_hidden_state[0]
        logits = draft(text).logits[0]
    torch.testing.assert_close(
        logits[:, ids], rows @ teacher.lm_head.weight[ids].T, rtol=0.02, atol=0.3
    )
    assert (logits[:, 1::2] == -torch.inf).all()


def test_the_memory_bill_counts_what_it_adds_to_the_targets(teacher):
    body = network.trainable_body(teacher)
    draft = network.draft_network(teacher, network.trained_tensors(body, torch.arange(8)))
    bill = memory_bill(CausalLM(teacher), ModelDrafter(CausalLM(draft)), gamma=2)
    (line,) = (line for line in bill if line.what == "draft weights")
    trained = sum(p.numel() for p in body.parameters() if p.requires_grad)
    assert line.predicted == 4 * (trained + 8 * 32) == line.allocated


def test_a_target_it_does_not_fit_is_refused(teacher):
    tensors = network.trained_tensors(network.trainable_body(teacher), torch.arange(8))
    other = LlamaConfig(**{**teacher.config.to_dict(), "hidden_size": 16, "head_dim": 4})
    with pytest.raises(ValueError, match="does not fit this target"):
        network.draft_network(LlamaForCausalLM(other), tensors)


needs_smollm2 = pytest.mark.skipif(
    installed_folder() is None, reason="SmolLM2 is not here: run `make models`"
)


def test_the_bundled_weights_are_small():
    assert network.FILE.stat().st_size <= 20e6
    assert len(load_file(network.FILE)["ids"]) == train.HEAD_IDS


@needs_smollm2
def test_the_bundled_draft_is_accepted():
    pair = load_pair("smollm2", dtype="bfloat16", max_length=512)
    prompt = pair.encode("Write an email to a friend about a lost key.", chat=True)
    stats = [
        speculative_decode(
            pair.target, pair.drafters["distilled"], prompt, gamma=3, max_new_tokens=60,
            stop_tokens=pair.stop_tokens, randomness=Seeded(seed),
        ).stats
        for seed in range(4)
    ]  # fmt: skip
    judged = sum(one.accepted + one.rejected for one in stats)
    assert sum(one.accepted for one in stats) / judged > 0.4
