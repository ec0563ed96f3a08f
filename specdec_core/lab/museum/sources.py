"""Where each mistake was met: a public report or change that describes it, where one was found.

Read on 30 November 2026. A link says that a mistake happens to able people, and nothing against
the project it names: most were reported, understood and mended there. Where no link stands, the
mistake was met in public code or reports, and no page that describes it was found to cite.
"""

from __future__ import annotations

GITHUB = "https://github.com/"
UNCITED = "no page to cite"
HEARD_OF = f"public code and reports; {UNCITED}"

# id -> what the page says, and its path on GitHub.
SOURCES: dict[str, tuple[str, str]] = {
    "M1": (
        "a report that a training system draws from p at the first rejection (there on purpose)",
        "ShopeeLLM/Spec-RL/issues/14",
    ),
    "M2": (
        "a report with this very toy: .8 and .6 give .75 where the draft is greedy",
        "huggingface/transformers/issues/32867",
    ),
    "M3": (
        "a change that takes a softmax off the residual: the paper normalises it",
        "huggingface/transformers/pull/28508",
    ),
    "M4": (f"hand-written samplers; {UNCITED}", ""),
    "M5": (
        "a report of acceptance by argmax at every temperature",
        "lablup/mlxcel/issues/902",
    ),
    "M6": (f"a seed set inside the loop; {UNCITED}", ""),
    "M6b": (
        "a sampler that sets the seed, where one is given, before every draw",
        "feifeibear/LLMSpeculativeSampling/blob/02d664be4f39a93bfaf3e80f9cb4e58499b43310/"
        "sampling/utils.py",
    ),
    "M7": (f"code left over from greedy decoding; {UNCITED}", ""),
    "M8": (HEARD_OF, ""),
    "M9": (HEARD_OF, ""),
    "M10": (HEARD_OF, ""),
    "M11": (
        "a report that the first draft is never checked: the loop is shifted by one",
        "ohdearquant/lattice/issues/243",
    ),
    "M12": (
        "a report of q taken before top-k: acceptance .78 looked better than the right .73",
        "huggingface/transformers/issues/47932",
    ),
    "M13": (
        "a change that applies the penalties so far to a whole block of drafts",
        "sgl-project/sglang/pull/28242",
    ),
    "M14": (
        "a review of a residual clamped at the smallest positive number instead of 0",
        "vllm-project/vllm/pull/2336",
    ),
    "M15": (
        "a report of drafts drawn from bfloat16 logits and judged in float32",
        "deepseek-ai/DeepSpec/issues/31",
    ),
    "M16": (
        "a report of NaN where the draft and the target agree",
        "jaymody/speculative-sampling/issues/5",
    ),
    "M17": (
        "a report of tokens after a stop that an accepted block holds",
        "sgl-project/sglang/issues/31599",
    ),
    "M18": (
        "a change that refuses caches in which rejected drafts stay",
        "ml-explore/mlx-lm/pull/1109",
    ),
    "M18b": (HEARD_OF, ""),
    "M18c": (
        "a report of a count that stays one token too high after a rejection",
        "openvinotoolkit/openvino.genai/issues/4190",
    ),
    "M19": (
        "a change that mends the draft's cache after bonus tokens: acceptance had dropped",
        "vllm-project/vllm/pull/9730",
    ),
    "M19b": (
        "a change that mends the draft's rewind, and the row a full accept leaves open",
        "lablup/mlxcel/pull/1002",
    ),
    "M20": (
        "a request to switch bonus tokens on again",
        "vllm-project/vllm/issues/4212",
    ),
    "M21": (HEARD_OF, ""),
    "M22": (
        "a change that calls the sampler match biased; only its acceptance is lower",
        "ml-explore/mlx-swift-lm/pull/459",
    ),
    "M23": (
        "a change that compares token by token: drafts of the wrong vocabulary always fail",
        "ggml-org/llama.cpp/pull/3812",
    ),
    "M23b": (
        "a report of a padded pair refused by an assertion on the two sizes",
        "vllm-project/vllm/issues/5203",
    ),
}
