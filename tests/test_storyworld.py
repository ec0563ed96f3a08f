"""The grammar is exact, the tokenizer loses nothing, and the bundled weights keep their promises."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdec_core import storyworld
from specdec_core.storyworld import evaluate, lexicon
from specdec_core.storyworld.grammar import KIND_WEIGHTS, KINDS, PROGRAMS, any_text
from specdec_core.storyworld.tokenizer import build_tokenizer
from specdec_core.storyworld.writer import SamplingWriter, Writer, derivations, enumerate_program

START, STOP = 1, 2
TEXTS = list(storyworld.texts(seed=2024, count=300))
MEGABYTE = 1_000_000

needs_weights = pytest.mark.skipif(
    not (storyworld.WEIGHTS / "card.json").exists(), reason="run `make train` first"
)


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_the_end_of_a_text_enumerated_completely(kind, seed):
    """All texts that share their first choices: distinct, and their shares sum to exactly one."""
    path = recorded_path(PROGRAMS[kind], seed)
    found = []
    for keep in range(len(path), 0, -1):
        group = list(itertools.islice(enumerate_program(PROGRAMS[kind], path[:keep]), 20_001))
        if len(group) > 20_000:
            break
        found = group
    assert len(found) > 500
    assert len({tuple(w.tokens) for w in found}) == len(found), "two derivations of one text"
    # The probability of the shared prefix is that of the choices made before the free ones.
    whole = math.fsum(math.exp(w.log_prob) for w in found)
    shared = prefix_log_prob(PROGRAMS[kind], path, found)
    assert abs(whole / math.exp(shared) - 1) < 1e-12


def prefix_log_prob(program, path, found) -> float:
    """Natural log probability of the choices that all the `found` texts share, by replaying."""
    paths = [w.path for w in (found[0], found[-1])]
    same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*paths, strict=False))))

    class Prefix(Writer):
        depth, total = 0, 0.0

        def choose_index(self, count, weights):
            index = path[self.depth]
            if self.depth < same:
                share = 1 / count if weights is None else weights[index] / math.fsum(weights)
                self.total += math.log(share)
            self.depth += 1
            return index

    writer = Prefix()
    program(writer)
    return writer.total


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
    expected = {k: (kinds[k], count, w / sum(KIND_WEIGHTS)) for k, w in zip(KINDS, KIND_WEIGHTS, strict=True)}
    expected["Once"] = (openings["Once"], stories, 8 / 12)
    expected["Long"] = (openings["Long"], stories, 2 / 12)
    expected["Mia"] = (openings["Mia"], stories, 2 / 12 / len(lexicon.NAMES))
    for name, (seen, total, p) in expected.items():
        assert abs(seen / total - p) < 4.5 * math.sqrt(p * (1 - p) / total), name


def test_one_seed_gives_one_text():
    again = list(storyworld.texts(seed=2024, count=300))
    assert again == TEXTS
    assert list(storyworld.texts(seed=2025, count=5)) != TEXTS[:5]
    assert storyworld.sample(random.Random(3), "code") == storyworld.sample(random.Random(3), "code")
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
    assert storyworld.unknown_words("The dragn and the spaceship sang, dragn") == ["dragn", "spaceship"]
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


@needs_weights
def test_sizes_and_formats():
    weights = storyworld.WEIGHTS
    assert size_of(weights / "target") <= 6 * MEGABYTE
    assert size_of(weights) <= 12 * MEGABYTE
    suffixes = {file.suffix for file in weights.rglob("*") if file.is_file()}
    assert suffixes == {".safetensors", ".json"}


@needs_weights
def test_the_folders_are_ordinary_transformers_folders():
    for name in ("target", "default", "strong"):
        folder = storyworld.WEIGHTS / name
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokens = AutoTokenizer.from_pretrained(folder)
        assert tokens.get_vocab() == build_tokenizer().get_vocab()
        assert model.config.vocab_size == len(tokens) == len(storyworld.vocabulary())
        assert model.config.max_position_embeddings >= 4096
        assert (model.config.bos_token_id, model.config.eos_token_id) == (START, STOP)
        assert model.generation_config.eos_token_id == STOP


@needs_weights
def test_the_card_says_what_the_issue_asks():
    card = json.loads((storyworld.WEIGHTS / "card.json").read_text())
    for name in ("target", "default", "strong"):
        assert {"parameters", "trained_length", "tokens_seen", "seed"} <= set(card[name])
    assert set(card["target"]["held_out"]) == set(KINDS)
    for name in ("default", "strong", "weak"):
        assert set(card[name]["acceptance"]) == set(KINDS)


@pytest.fixture(scope="module")
def models():
    weights = storyworld.WEIGHTS
    named = {name: evaluate.load_model(weights / name) for name in ("target", "default", "strong")}
    return named | {"weak": evaluate.load_table(weights / "weak")}


@needs_weights
def test_target_comes_close_to_the_entropy_of_the_grammar(models):
    """At most 5 % above it over all kinds, each weighted as the grammar weights it."""
    loss = entropy = 0.0
    for kind, weight in zip(KINDS, KIND_WEIGHTS, strict=True):
        h, ce, _ = evaluate.entropy_and_cross_entropy(models["target"], kind)
        loss, entropy = loss + weight * ce, entropy + weight * h
    assert entropy < loss < 1.05 * entropy


@needs_weights
def test_acceptance_of_the_three_drafts(models):
    """The rate that speculative decoding has at temperature 1, by kind of text."""
    with torch.inference_mode():
        rate = {
            name: evaluate.acceptance(models["target"], models[name], "story")
            for name in ("weak", "default", "strong")
        }
        on_code = evaluate.acceptance(models["target"], models["default"], "code")
    assert 0.30 <= rate["weak"] <= 0.60
    assert 0.75 <= rate["default"] <= 0.85
    assert rate["strong"] > 0.90
    assert on_code >= rate["default"] + 0.08
