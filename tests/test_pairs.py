"""Pairs: what loads, what is refused and how it is said, and that what loads decodes exactly."""

import json
import shutil
import time
from types import SimpleNamespace

import pytest
import torch
from model_folders import (
    CHAT_TEMPLATE,
    SPECIAL,
    WORDS,
    llama_config,
    make_tokenizer,
    one_sentence,
    save_folder,
)
from safetensors.torch import load_file, save_file
from transformers import MambaConfig, MistralConfig, T5Config

from specdec_core import (
    Sampling,
    Seeded,
    autoregressive_decode,
    load_pair,
    loading,
    pairs,
    smollm2,
    speculative_decode,
)
from specdec_core.loading import parse_device, parse_dtype
from specdec_core.tokenizer_match import find_mismatch

GREEDY = Sampling(temperature=0)
STORYWORLD = [
    "default", "weak", "strong", "distilled", "mismatched", "lookup", "exit", "medusa",
]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two models that share a tokenizer of 60 words, one padded to 64 rows."""
    root = tmp_path_factory.mktemp("models")
    save_folder(root / "rows60", llama_config(60), seed=1)
    save_folder(root / "rows64", llama_config(64), seed=2)
    return root


def refusal(**arguments) -> str:
    """The one sentence with which these arguments of `load_pair` are refused."""
    with pytest.raises(ValueError) as caught:
        load_pair(**arguments)
    return one_sentence(caught.value)


# The bundled pair


@pytest.fixture(scope="module")
def storyworld():
    return load_pair("storyworld", dtype="float64")


def test_storyworld_is_whole(storyworld):
    assert storyworld.name == "storyworld"
    assert list(storyworld.drafters) == STORYWORLD
    assert storyworld.drafter is storyworld.drafters["default"]
    assert storyworld.target.max_length == 4096
    assert storyworld.stop_tokens == (storyworld.tokenizer.convert_tokens_to_ids("</s>"),)


def test_storyworld_text_round_trips(storyworld):
    ids = storyworld.encode("Once upon a time, there was a")
    assert ids[0] == storyworld.tokenizer.bos_token_id
    assert storyworld.tokenizer.unk_token_id not in ids
    assert storyworld.decode(ids) == "Once upon a time, there was a"
    assert storyworld.decode([*ids, *storyworld.stop_tokens]) == storyworld.decode(ids)


@pytest.mark.parametrize("name", STORYWORLD)
def test_storyworld_drafters_keep_the_greedy_text(storyworld, name):
    run = {"sampling": GREEDY, "max_new_tokens": 24, "stop_tokens": storyworld.stop_tokens}
    prompt = storyworld.encode("Once upon a time")
    plain = autoregressive_decode(storyworld.target, prompt, **run)
    drafted = speculative_decode(storyworld.target, storyworld.drafters[name], prompt, **run)
    assert drafted.tokens == plain.tokens


def test_storyworld_names_words_near_an_unknown_one(storyworld):
    with pytest.raises(ValueError, match=r"'dragn' is not a word of storyworld.*dragon") as caught:
        storyworld.encode("Once upon a dragn")
    one_sentence(caught.value)


def test_chat_without_a_template_is_refused(storyworld):
    with pytest.raises(ValueError, match="no chat template") as caught:
        storyworld.encode("Once", chat=True)
    one_sentence(caught.value)


def test_encode_takes_text_only(storyworld):
    with pytest.raises(TypeError, match="takes text, not list"):
        storyworld.encode([1, 2])


# Any pair of folders


@pytest.mark.parametrize(("target", "draft"), [("rows60", "rows64"), ("rows64", "rows60")])
def test_padded_vocabularies_are_a_pair(folders, target, draft):
    """As 152,064 rows against 151,936: one tokenizer, logits of two widths."""
    pair = load_pair(target=folders / target, draft=folders / draft, dtype="float64")
    assert pair.target.vocab_size == int(target[4:]) and pair.drafter.vocab_size == 60
    run = {"max_new_tokens": 100, "randomness": Seeded(0), "gamma": 3}
    out = speculative_decode(pair.target, pair.drafter, pair.encode("w1 w2"), **run)
    assert max(token for round in out.trace.rounds for token in round.drafted) < 60
    # The wide target does write ids without a token here, and the narrow draft reads them.
    assert (max(out.tokens) >= 60) == (target == "rows64")
    run = {"sampling": GREEDY, "max_new_tokens": 40}
    plain = autoregressive_decode(pair.target, pair.encode("w1 w2"), **run)
    drafted = speculative_decode(pair.target, pair.drafter, pair.encode("w1 w2"), **run)
    assert drafted.tokens == plain.tokens


def swapped(a: int, b: int) -> list[str]:
    words = list(WORDS)
    words[a], words[b] = words[b], words[a]
    return words


MISMATCHES = {
    "two words swapped": (
        make_tokenizer(swapped(10, 20)), "'w7' is id 10 for the target and id 20",
    ),
    "special ids moved": (
        make_tokenizer(swapped(1, 2)), "special token '<s>' is id 1 for the target and id 2",
    ),
    "a word fewer": (make_tokenizer(WORDS[:-1]), "'w56' is id 59 for the target and unknown"),
    "a word more": (make_tokenizer((*WORDS, "w57")), "'w57' is unknown for the target and id 60"),
}  # fmt: skip


@pytest.mark.parametrize("how", MISMATCHES)
def test_another_tokenizer_is_refused(folders, tmp_path, how):
    tokenizer, difference = MISMATCHES[how]
    save_folder(tmp_path / "other", llama_config(64), tokenizer)
    said = refusal(target=folders / "rows60", draft=tmp_path / "other")
    assert difference in said and str(tmp_path / "other") in said


def test_same_ids_cut_differently_are_refused():
    """Equal vocabularies, but one side lower-cases: only the probe text tells."""
    words = (*SPECIAL, "Once", "once", "upon")
    mismatch = find_mismatch(make_tokenizer(words), make_tokenizer(words, lowercase=True))
    assert mismatch == "token 0 of a probe text is id 3 for the target and 4 for the draft"
    assert find_mismatch(make_tokenizer(words), make_tokenizer(words)) is None


def test_a_draft_with_too_few_rows_is_refused(folders, tmp_path):
    save_folder(tmp_path / "rows50", llama_config(50))
    said = refusal(target=folders / "rows60", draft=tmp_path / "rows50")
    assert "50 embedding rows" in said and "ids up to 59" in said


def test_without_a_draft_the_target_drafts_for_itself(folders):
    pair = load_pair(target=folders / "rows60", dtype="float64")
    assert list(pair.drafters) == ["self"]
    assert pair.drafter.model.model is pair.target.model
    out = speculative_decode(
        pair.target, pair.drafter, pair.encode("w5"), max_new_tokens=60, randomness=Seeded(1)
    )
    assert out.stats.acceptance_rate == 1.0


def test_max_length_is_the_room_of_both(folders, tmp_path):
    save_folder(tmp_path / "short", llama_config(60, max_position_embeddings=32))
    pair = load_pair(target=folders / "rows60", draft=tmp_path / "short")
    assert (pair.target.max_length, pair.drafter.max_length) == (256, 32)
    pair = load_pair(target=folders / "rows60", draft=folders / "rows64", max_length=16)
    assert (pair.target.max_length, pair.drafter.max_length) == (16, 16)
    assert "past the model's context of 256" in refusal(target=folders / "rows60", max_length=257)


def test_every_stop_token_is_found(tmp_path):
    words = (*WORDS, "<turn>", "user", "assistant", "Hi", "ANSWER")
    tokenizer = make_tokenizer(words, template=CHAT_TEMPLATE)
    model = save_folder(tmp_path, llama_config(65, eos_token_id=9), tokenizer)
    model.generation_config.eos_token_id = [7, 8]
    model.generation_config.save_pretrained(tmp_path)
    pair = load_pair(target=tmp_path)
    assert pair.stop_tokens == (2, 7, 8, 9, 60)
    assert pair.encode("Hi", chat=True) == [words.index(w) for w in ("user", "Hi", "<turn>",
                                                                      "assistant")]  # fmt: skip


def test_a_model_is_loaded_in_the_dtype_asked_for(folders):
    for dtype in ("bfloat16", torch.bfloat16, "torch.bfloat16"):
        pair = load_pair(target=folders / "rows60", dtype=dtype)
        assert {p.dtype for p in pair.target.model.parameters()} == {torch.bfloat16}


# What is refused


def test_arguments_that_name_no_pair():
    assert "storyworld or smollm2" in refusal()
    assert "storyworld or smollm2" in refusal(name="storyworld", target="x")
    assert "no pair named 'stroyworld'" in refusal(name="stroyworld")
    assert "draft= goes with target=" in refusal(name="storyworld", draft="weak")


def test_a_recurrent_model_is_refused_by_name(folders, tmp_path):
    config = MambaConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, state_size=4)
    save_folder(tmp_path / "tiny-mamba", config)
    for models in ({"target": tmp_path / "tiny-mamba"},
                   {"target": folders / "rows60", "draft": tmp_path / "tiny-mamba"}):  # fmt: skip
        said = refusal(**models)
        assert "tiny-mamba keeps a recurrent state, which cannot roll back" in said


def test_a_sliding_window_is_refused_past_its_window_only(tmp_path):
    sizes = llama_config(60).to_dict()
    for key in ("model_type", "architectures", "rope_parameters", "transformers_version"):
        sizes.pop(key, None)
    save_folder(tmp_path / "windowed", MistralConfig(**(sizes | {"sliding_window": 24})))
    said = refusal(target=tmp_path / "windowed")
    assert "windowed attends through a sliding window of 24 tokens" in said
    assert load_pair(target=tmp_path / "windowed", max_length=24).target.max_length == 24


def test_an_encoder_decoder_is_refused_by_name(tmp_path):
    T5Config(vocab_size=60).save_pretrained(tmp_path / "t5")
    make_tokenizer().save_pretrained(tmp_path / "t5")
    assert "t5 is an encoder-decoder" in refusal(target=tmp_path / "t5")


def test_folders_that_are_no_whole_model(folders, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no config.json, so it is no model" in refusal(target=tmp_path / "empty")
    llama_config(60).save_pretrained(tmp_path / "only-config")
    assert "no tokenizer beside the model" in refusal(target=tmp_path / "only-config")
    (tmp_path / "file").touch()
    assert "is a file" in refusal(target=tmp_path / "file")

    def broken(name: str):
        return shutil.copytree(folders / "rows60", tmp_path / name)

    (broken("no-weights") / "model.safetensors").unlink()
    assert "no complete weights in the safetensors" in refusal(target=tmp_path / "no-weights")
    weights = broken("pickled") / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    assert "no complete weights in the safetensors" in refusal(target=tmp_path / "pickled")
    weights = broken("damaged") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "damaged could not be loaded" in refusal(target=tmp_path / "damaged")
    weights = broken("incomplete") / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.norm.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    assert "lacks weights, model.norm.weight among them" in refusal(target=tmp_path / "incomplete")
    config = broken("unknown-kind") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "nonesuch"}))
    assert "cannot read the config" in refusal(target=tmp_path / "unknown-kind")


def test_code_that_comes_with_a_model_is_never_run(folders, tmp_path):
    folder = shutil.copytree(folders / "rows60", tmp_path / "own-code")
    mark = tmp_path / "mark"
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w')\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    refusal(target=folder)
    assert not mark.exists()


def test_no_hub_and_no_copy_fails_fast(monkeypatch):
    monkeypatch.setattr(loading.constants, "ENDPOINT", "http://127.0.0.1:9")
    started = time.perf_counter()
    said = refusal(target="nobody/nothing")
    assert "neither a folder here nor in the local hub cache" in said
    assert time.perf_counter() - started < 10
    monkeypatch.setattr(loading.constants, "HF_HUB_OFFLINE", True)
    assert "the hub cannot be reached" in refusal(target="nobody/nothing")


def test_the_hub_cache_is_enough(folders, tmp_path, monkeypatch):
    """A model downloaded earlier loads by its name, and an unfinished download does not count."""
    monkeypatch.setattr(loading.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(loading, "hub_reachable", lambda: False)
    repository = tmp_path / "models--someone--rows60"
    snapshot = repository / "snapshots" / ("0" * 40)
    shutil.copytree(folders / "rows60", snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    assert load_pair(target="someone/rows60").name == "rows60"
    (snapshot / "model.safetensors").unlink()
    assert "the hub cannot be reached" in refusal(target="someone/rows60")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_asked_for_and_not_there(folders):
    for device in ("cuda", "cuda:1"):
        for side in ("device", "draft_device"):
            said = refusal(target=folders / "rows60", **{side: device})
            assert f"{device} is asked for" in said and "no CUDA device" in said


def test_devices_and_dtypes_that_do_not_exist(monkeypatch):
    for device in ("tpu", "", "meta", None):
        with pytest.raises(ValueError, match='device must be "cpu", "cuda"'):
            parse_device(device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert parse_device("cuda") == torch.device("cuda")
    with pytest.raises(ValueError, match="cuda:1 is asked for"):
        parse_device("cuda:1")
    for dtype in ("int8", torch.int64, "half", None):
        with pytest.raises(ValueError, match="dtype must be one of float32, float64"):
            parse_dtype(dtype)


@pytest.mark.gpu
def test_a_pair_on_a_gpu_keeps_the_greedy_text(folders):
    models = {"target": folders / "rows64", "draft": folders / "rows60", "dtype": "float64"}
    texts = []
    for device in ("cpu", "cuda"):
        pair = load_pair(**models, device=device)
        assert pair.drafter.model.device.type == device
        prompt = pair.encode("w1 w2")
        out = speculative_decode(pair.target, pair.drafter, prompt, randomness=Seeded(3))
        texts.append(out.tokens)
    assert texts[0] == texts[1]


# SmolLM2


def write_fake(gguf, folder):
    save_folder(folder, llama_config(60))


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """An empty cache folder, no hub, and a package that is a tiny model."""
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "hub_reachable", lambda: False)
    monkeypatch.setattr(smollm2, "cached_folder", lambda name: None)
    monkeypatch.setattr(smollm2, "_download_gguf", lambda work: work / "none.gguf")
    monkeypatch.setattr(smollm2, "_dequantise", write_fake)
    # The draft fits SmolLM2 alone, which this fake is not.
    monkeypatch.setattr(pairs, "_distilled_for_smollm2", lambda pair: {})
    return tmp_path / "cache"


def test_smollm2_is_installed_once(no_hub, monkeypatch):
    assert "make models" in refusal(name="smollm2")
    said: list[str] = []
    folder = smollm2.install(said.append)
    assert list(no_hub.iterdir()) == [folder]
    assert "dequantised from Q4_1" in said[-1]
    assert list(load_pair("smollm2").drafters) == ["lookup", "self"]
    monkeypatch.setattr(smollm2, "_dequantise", None)  # would fail if it were called again
    assert smollm2.install(said.append) == folder
    assert "already here" in said[-2]


def test_an_interrupted_install_leaves_nothing(no_hub, monkeypatch):
    def interrupted(gguf, folder):
        write_fake(gguf, folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_dequantise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        smollm2.install(lambda line: None)
    assert list(no_hub.iterdir()) == []
    assert smollm2.installed_folder() is None


def test_neither_hub_nor_package(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "hub_reachable", lambda: False)
    monkeypatch.setattr(smollm2, "cached_folder", lambda name: None)
    failed = SimpleNamespace(returncode=1, stderr="ERROR: no network.\n")
    monkeypatch.setattr(smollm2.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match=r"could not be downloaded by pip: ERROR: no network\."):
        smollm2.install(lambda line: None)
    assert list(tmp_path.iterdir()) == []


needs_smollm2 = pytest.mark.skipif(
    smollm2.installed_folder() is None, reason="SmolLM2 is not here: run `make models`"
)


@needs_smollm2
def test_smollm2_answers_a_message():
    pair = load_pair("smollm2", max_length=256)
    assert pair.stop_tokens == (2,) and pair.tokenizer.decode([2]) == "<|im_end|>"
    prompt = pair.encode("What is the capital of France?", chat=True)
    assert pair.tokenizer.decode(prompt).endswith("<|im_end|>\n<|im_start|>assistant\n")
    run = {"sampling": GREEDY, "max_new_tokens": 24, "stop_tokens": pair.stop_tokens}
    plain = autoregressive_decode(pair.target, prompt, **run)
    assert "Paris" in pair.decode(plain.tokens) and plain.finish_reason == "stop"
    assert list(pair.drafters) == ["distilled", "lookup else distilled", "lookup", "self"]
    for name, drafter in pair.drafters.items():
        drafted = speculative_decode(pair.target, drafter, prompt, **run)
        assert drafted.tokens == plain.tokens, name
        assert drafted.stats.acceptance_rate >= (name == "self")
    text = "naïve café — 你好 🎉\n\tx  =  1"
    assert pair.decode(pair.encode(text)) == text
