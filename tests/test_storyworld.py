"""The grammar is exact, the tokenizer loses nothing, the bundled weights keep their promises."""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdec_core import MedusaHeads, storyworld
from specdec_core.storyworld import distil, evaluate, lexicon, train
from specdec_core.storyworld.grammar import KIND_WEIGHTS, KINDS, PROGRAMS, any_text
from specdec_core.storyworld.tokenizer import build_tokenizer
from specdec_core.storyworld.writer import SamplingWriter, Writer, derivations, enumerate_program

START, STOP = 1, 2
TEXTS = list(storyworld.texts(seed=2024, count=300))
MEGABYTE = 1_000_000
LIMIT = 3_000  # texts of the largest sub-grammar that is enumerated


# --- the grammar -------------------------------------------------------------------------------


def recorded_path(program, seed: int) -> list[int]:
    """The option numbers of one random text."""
    path: list[int] = []

    class Recording(SamplingWriter):
        def choose_index(self, count, weights):
            path.append(super().choose_index(count, weights))
            return path[-1]

    program(Recording(random.Random(seed)))
    return path


def narrow_code(monkeypatch):
    monkeypatch.setattr(lexicon, "FUNCTION_NAMES", ("add", "scale", "share"))
    monkeypatch.setattr(lexicon, "PARAMETERS", (("x", "y"),))
    monkeypatch.setattr(lexicon, "PARAMETER_WEIGHTS", (1.0,))
    monkeypatch.setattr(lexicon, "DIGITS", ("7",))


def narrow_recipe(monkeypatch):
    pie = ("tin", "bake", ("hot", "cold"), ("apples", "butter", "plums", "leeks"))
    for name, value in {
        "DISHES": {"pie": pie}, "DISH_NAMES": ("pie",), "DISH_WEIGHTS": (1.0,),
        "COUNTS": ("two",), "COUNT_WEIGHTS": (1.0,), "STATES": ("ripe",), "CARES": ("well",),
        "MINUTES": ("ten",), "SPICES": ("salt", "mint"),
    }.items():  # fmt: skip
        monkeypatch.setattr(lexicon, name, value)


@pytest.mark.parametrize(("kind", "narrow"), [("code", narrow_code), ("recipe", narrow_recipe)])
def test_a_small_sub_grammar_enumerated_completely(kind, narrow, monkeypatch):
    """With few words in the lexicon every text can be listed: all distinct, summing to 1."""
    narrow(monkeypatch)
    found = list(enumerate_program(PROGRAMS[kind]))
    assert len(found) > 2000
    assert len({tuple(w.tokens) for w in found}) == len(found), "two derivations of one text"
    assert abs(math.fsum(math.exp(w.log_prob) for w in found) - 1) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_end_of_a_text_enumerated_completely(kind, seed):
    """All texts that begin with the same choices: distinct, their shares sum to exactly one."""
    program = PROGRAMS[kind]
    path = recorded_path(program, seed)
    found, shared = [], []
    for keep in range(len(path), 0, -1):
        group = list(itertools.islice(enumerate_program(program, path[:keep]), LIMIT + 1))
        if len(group) > LIMIT:
            break
        found, shared = group, path[:keep]
    assert len(found) > 50
    assert len({tuple(w.tokens) for w in found}) == len(found), "two derivations of one text"
    whole = math.fsum(math.exp(w.log_prob) for w in found)
    assert abs(whole / prefix_probability(program, shared) - 1) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_opening_choices_enumerated_completely(kind):
    """The first choices free and the rest fixed is a grammar too; it must be complete."""
    program, free = PROGRAMS[kind], 3
    shares, texts = [], []
    for prefix in prefixes(program, free):
        writer = next(enumerate_program(program, prefix))
        shares.append(prefix_probability(program, prefix))
        texts.append(tuple(writer.tokens))
    assert len(set(texts)) == len(texts) > 20
    assert abs(math.fsum(shares) - 1) < 1e-12


def prefixes(program, depth: int):
    """Every way the first `depth` choices can go."""
    if depth == 0:
        yield []
        return
    for shorter in prefixes(program, depth - 1):
        writer = next(enumerate_program(program, shorter))
        yield from ([*shorter, i] for i in range(writer.counts[depth - 1]))


def prefix_probability(program, prefix) -> float:
    class Prefix(Writer):
        depth, total = 0, 1.0

        def choose_index(self, count, weights):
            index = prefix[self.depth] if self.depth < len(prefix) else 0
            if self.depth < len(prefix):
                self.total *= 1 / count if weights is None else weights[index] / math.fsum(weights)
            self.depth += 1
            return index

    writer = Prefix()
    program(writer)
    return writer.total


def test_every_text_has_exactly_one_derivation():
    """Parsing visits every derivation; a second one would make log_prob a lie."""
    for text in TEXTS[:60]:
        found = derivations(any_text, text.tokens)
        assert len(found) == 1
        assert found[0] == pytest.approx(text.log_prob, abs=1e-9)


def test_a_derivation_too_many_is_found():
    def ambiguous(w):
        w.write(w.choose(("a", "a b")))
        if w.choose((True, False)):
            w.write("b")

    assert len(derivations(ambiguous, ["a", "b"])) == 2
    assert len(derivations(ambiguous, ["a"])) == 1
    assert derivations(ambiguous, ["c"]) == []


def test_log_prob_of_a_foreign_text_is_refused():
    assert storyworld.log_prob(TEXTS[0].tokens) == pytest.approx(TEXTS[0].log_prob)
    with pytest.raises(ValueError, match="cannot write this text"):
        storyworld.log_prob(("Once", "upon", "a", "time"))


def test_samples_follow_the_stated_probabilities():
    """Kinds, the first operator and the opening words, each within 4.5 standard errors."""
    count = 20_000
    drawn = list(storyworld.texts(seed=5, count=count))
    kinds = Counter(text.kind for text in drawn)
    openings = Counter(text.tokens[0] for text in drawn if text.kind == "story")
    stories = kinds["story"]
    expected = {
        k: (kinds[k], count, w / sum(KIND_WEIGHTS))
        for k, w in zip(KINDS, KIND_WEIGHTS, strict=True)
    }
    expected["Once"] = (openings["Once"], stories, 8 / 12)
    expected["Long"] = (openings["Long"], stories, 2 / 12)
    expected["Mia"] = (openings["Mia"], stories, 2 / 12 / len(lexicon.NAMES))
    for name, (seen, total, p) in expected.items():
        assert abs(seen / total - p) < 4.5 * math.sqrt(p * (1 - p) / total), name


def test_one_seed_gives_one_text():
    again = list(storyworld.texts(seed=2024, count=300))
    assert again == TEXTS
    assert list(storyworld.texts(seed=2025, count=5)) != TEXTS[:5]
    assert storyworld.sample(random.Random(3), "code") == storyworld.sample(
        random.Random(3), "code"
    )
    with pytest.raises(ValueError, match="no kind 'poem'"):
        storyworld.sample(random.Random(3), "poem")


def test_names_and_things_come_back():
    for text in TEXTS:
        words = Counter(text.tokens)
        if text.kind == "story":
            named = [name for name in lexicon.NAMES if words[name]]
            assert len(named) == 2
            assert max(words[name] for name in named) >= 2
        elif text.kind == "recipe":
            listed = [item for item in lexicon.TREATMENTS if words[item]]
            assert all(words[item] >= 2 for item in listed)
        else:
            name = text.tokens[len(text.tokens) - 1 - text.tokens[::-1].index("print") + 2]
            assert words[name] == 2  # defined, then called


def test_lengths_and_entropy():
    """50 to 155 words a text; stories are the least regular kind, code the most."""
    assert all(50 <= len(text.tokens) <= 155 for text in TEXTS)
    rates = {}
    for kind in KINDS:
        some = [text for text in TEXTS if text.kind == kind]
        rates[kind] = -sum(t.log_prob for t in some) / sum(len(t.tokens) + 1 for t in some)
    assert rates["story"] > rates["recipe"] > rates["code"] > 0.2


# --- the tokenizer -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    storyworld.tokenizer.save_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder)


def test_vocabulary():
    words = storyworld.vocabulary()
    assert 300 <= len(words) <= 600
    assert len(set(words)) == len(words)
    assert {"Once", "upon", "a", "time"} <= set(words)


def test_round_trips(tokenizer):
    for text in TEXTS:
        ids = tokenizer.encode(text.text)
        assert ids[0] == START
        assert tokenizer.convert_ids_to_tokens(ids[1:]) == list(text.tokens)
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode([*ids, STOP], skip_special_tokens=True) == text.text
        assert storyworld.unknown_words(text.text) == []


def test_decoding_only_ever_adds_text(tokenizer):
    for text in TEXTS[:100]:
        ids = tokenizer.encode(text.text)
        before = ""
        for end in range(len(ids) + 1):
            now = tokenizer.decode(ids[:end], skip_special_tokens=True)
            assert now.startswith(before)
            before = now


def test_straight_quotes_are_understood(tokenizer):
    assert tokenizer.encode('"Yes , Tim ! "') == tokenizer.encode("“Yes, Tim!”")


def test_unknown_words_are_named():
    assert storyworld.unknown_words("The dragn and the spaceship sang, dragn") == [
        "dragn",
        "spaceship",
    ]
    storyworld.check_words('Once upon a time, "Yes" said Tim.\ndef add(a, b):\n    total = a + b')
    for text, sentence in {
        "Once upon a dragn": "'dragn' is not a word of storyworld; near words: dragon",
        "once upon": "'once' is not a word of storyworld; near words: Once",
        "5 § 3": "'§' is not a word of storyworld",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            storyworld.check_words(text)


# --- the bundled weights -----------------------------------------------------------------------


def size_of(folder) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_sizes_and_formats():
    weights = storyworld.WEIGHTS
    assert size_of(weights / "target") <= 6 * MEGABYTE
    assert size_of(weights) <= 12 * MEGABYTE
    suffixes = {file.suffix for file in weights.rglob("*") if file.is_file()}
    assert suffixes == {".safetensors", ".json"}


def test_the_folders_are_ordinary_transformers_folders():
    for name in ("target", *evaluate.DRAFT_MODELS):
        folder = storyworld.WEIGHTS / name
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokens = AutoTokenizer.from_pretrained(folder)
        assert tokens.get_vocab() == build_tokenizer().get_vocab()
        assert model.config.vocab_size == len(tokens) == len(storyworld.vocabulary())
        assert model.config.max_position_embeddings >= 4096
        assert (model.config.bos_token_id, model.config.eos_token_id) == (START, STOP)
        assert model.generation_config.eos_token_id == STOP


def test_the_card_says_what_the_issue_asks():
    card = json.loads((storyworld.WEIGHTS / "card.json").read_text())
    assert set(card) == {"note", *train.PARTS}
    for name in set(train.PARTS) - {"weak"}:
        told = {"parameters", "trained_length", "tokens_seen", "seed", "training_seconds"}
        assert told <= set(card[name]), name
    assert set(card["target"]["held_out"]) == set(KINDS)
    for name in set(train.PARTS) - {"target", "medusa"}:
        assert set(card[name]["acceptance"]) == set(KINDS)
    for name, (lesson, _) in distil.LESSONS.items():
        assert card[name]["teacher_seconds"] > 0
        assert lesson.facts().items() <= card[name].items()
    for name, plan in train.PLANS.items():
        assert plan.facts().items() <= card[name].items()


@pytest.fixture(scope="module")
def measured():
    target, drafts = evaluate.load_all(storyworld.WEIGHTS)
    return evaluate.measure(target, drafts)


def test_target_comes_close_to_the_entropy_of_the_grammar(measured):
    """At most 5 % above it over all kinds, mixed as the grammar mixes them."""
    assert 0 < measured["excess_over_entropy"] < 0.05
    for entropy, cross_entropy in measured["held_out"].values():
        assert cross_entropy > entropy


def test_acceptance_of_the_three_drafts(measured):
    """The rate that speculative decoding has at temperature 1, by kind of text."""
    rate = measured["acceptance"]
    assert 0.30 <= rate["weak"]["story"] <= 0.60
    assert 0.75 <= rate["default"]["story"] <= 0.85
    assert rate["strong"]["story"] > 0.90
    assert rate["default"]["code"] >= rate["default"]["story"] + 0.08


def test_acceptance_of_what_learnt_from_the_target(measured):
    """The distilled draft fits every kind; one that read recipes alone fits recipes alone."""
    rate = measured["acceptance"]
    assert min(rate["distilled"].values()) > 0.90
    assert min(rate["exit"].values()) > 0.95
    fits, misfits = rate["mismatched"]["recipe"], rate["mismatched"]
    assert fits > 0.80
    assert 0 < misfits["story"] < 0.30 and 0 < misfits["code"] < 0.30


def test_acceptance_of_each_medusa_head():
    """Far above untrained heads, which repeat the target's prediction; stories tell least ahead."""
    target, _ = evaluate.load_all(storyworld.WEIGHTS)
    heads = evaluate.load_heads(storyworld.WEIGHTS)
    found = evaluate.measure_heads(target, heads)
    nothing = MedusaHeads(torch.zeros_like(heads.weight), torch.zeros_like(heads.bias))
    untrained = evaluate.measure_heads(target, nothing, count=5)
    for kind in KINDS:
        assert min(found[kind]) > max(untrained[kind]) + 0.2
        assert found[kind][0] > found[kind][-1]
    assert max(found["story"]) < min(found["recipe"] + found["code"])
    card = json.loads((storyworld.WEIGHTS / "card.json").read_text())
    for kind, rates in card["medusa"]["acceptance_by_head"].items():
        assert rates == pytest.approx(found[kind], abs=5e-3)


def test_a_draft_distilled_from_one_target_fits_another_less(measured):
    """`strong` as the target: the same words, another model."""
    _, drafts = evaluate.load_all(storyworld.WEIGHTS)
    other = evaluate.measure(drafts["strong"], {"distilled": drafts["distilled"]})
    rates = other["acceptance"]["distilled"]
    for kind in KINDS:
        assert rates[kind] < measured["acceptance"]["distilled"][kind]
    card = json.loads((storyworld.WEIGHTS / "card.json").read_text())
    assert card["distilled"]["acceptance_under_strong"] == pytest.approx(rates, abs=5e-3)


def test_training_one_part_leaves_the_others_alone(tmp_path, monkeypatch):
    """`--only weak`: the same counts again, and every other file byte for byte."""
    output = tmp_path / "weights"
    shutil.copytree(storyworld.WEIGHTS, output)
    table = output / "weak" / "ngrams.safetensors"
    kept = table.read_bytes()
    table.write_bytes(b"")
    told = {}
    monkeypatch.setattr(train, "write_card", lambda folder, facts: told.update(facts))
    checkpoints = ["--checkpoints", str(tmp_path / "train")]
    train.main(["--only", "weak", "--output", str(output), *checkpoints])
    assert set(told) == {"weak"} and table.read_bytes() == kept
    files = [file.relative_to(output) for file in output.rglob("*") if file.is_file()]
    assert len(files) == len([f for f in storyworld.WEIGHTS.rglob("*") if f.is_file()])
    for file in files:
        assert (output / file).read_bytes() == (storyworld.WEIGHTS / file).read_bytes(), file
    with pytest.raises(SystemExit):
        train.main(["--only", "wek"])


def test_the_card_repeats_what_is_measured(measured):
    card = json.loads((storyworld.WEIGHTS / "card.json").read_text())
    assert card["target"]["excess_over_entropy"] == pytest.approx(
        measured["excess_over_entropy"], abs=2e-3
    )
    for name, rates in measured["acceptance"].items():
        assert card[name]["acceptance"] == pytest.approx(rates, abs=5e-3)
