"""Decoding: one token a forward, or a draft of gamma tokens judged in one forward.

In this file p is the target's distribution and q the draft's, both as they are sampled from. Cache
rule, true before and after every round: the target's rows are prompt + emitted tokens minus the
newest, the draft's rows are a prefix of those. The newest token is fed first in the next forward.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_core.drafters import Drafter
from specdec_core.models import LanguageModel
from specdec_core.randomness import Randomness, Seeded, upload
from specdec_core.request import (
    check_drafter,
    check_gamma,
    check_parts,
    check_request,
    check_stops,
)
from specdec_core.sampling import Sampling
from specdec_core.schedules import Schedule
from specdec_core.text import Detokenize, Ending, TextStream
from specdec_core.threads import Threads
from specdec_core.trace import Round, Stats, Trace
from specdec_core.verify import Draft, Verification, verify


@dataclass
class Result:
    """What a decoder returns.

    tokens: new tokens only, the stop token included, never past it.
    finish_reason: "stop" or "length".
    stats: counts over the rounds. trace: the rounds, or None where they were not recorded.
    text: the new text, cut before a stop string; None where no `detokenize` was given.
    """

    tokens: list[int]
    finish_reason: str
    stats: Stats
    trace: Trace | None = None
    text: str | None = None


@torch.inference_mode()
def autoregressive_decode(
    target: LanguageModel,
    prompt: Sequence[int],
    *,
    sampling: Sampling = Sampling(),
    max_new_tokens: int = 64,
    stop_tokens: Iterable[int] = (),
    stop_strings: Iterable[str] = (),
    detokenize: Detokenize | None = None,
    randomness: Randomness | None = None,
) -> Result:
    """Plain decoding: one target forward for each token. Arguments as `speculative_decode`."""
    randomness = Seeded() if randomness is None else randomness
    check_parts(target=target, sampling=sampling, randomness=randomness)
    text = check_request(target, prompt, max_new_tokens)
    stop_tokens, stop_strings = check_stops(target, stop_tokens, stop_strings, detokenize)
    ending = ending_of(text, max_new_tokens, stop_tokens, stop_strings, detokenize)
    rounds: list[Round] = []
    nothing = torch.empty(0, dtype=torch.int64, device=target.device)
    with Threads(target.threads):
        _prefill(target, text)
        while ending.reason is None:
            p = _target_probs(target, text, nothing, sampling)[0]
            drawn = randomness.categorical(p).reshape(1)
            token, prob = torch.cat([drawn.double(), p.gather(-1, drawn).double()]).tolist()
            _check_finite(prob, "target", text)
            text += ending.keep([int(token)])
            rounds.append(_plain_round(int(token), target.length, ending.reason))
    return result_of(Trace(tuple(text[: -len(rounds)]), rounds), "full", stop_strings, detokenize)


def _plain_round(token: int, rows: int, finish_reason: str | None) -> Round:
    """A round without a draft: one forward, one token."""
    return Round(
        drafted=(), accepted=0, token=token, emitted=(token,), target_prob=(), draft_prob=(), u=(),
        residual_mass=1.0, zero_residual=False, target_length=(rows - 1, rows),
        draft_length=(0, 0), finish_reason=finish_reason,
    )  # fmt: skip


def speculative_decode(
    target: LanguageModel,
    drafter: Drafter,
    prompt: Sequence[int],
    *,
    gamma: int | Schedule = 4,
    sampling: Sampling = Sampling(),
    draft_sampling: Sampling | None = None,
    max_new_tokens: int = 64,
    stop_tokens: Iterable[int] = (),
    stop_strings: Iterable[str] = (),
    detokenize: Detokenize | None = None,
    randomness: Randomness | None = None,
    rule: str = "token",
    record: str = "full",
) -> Result:
    """Speculative decoding; the law of the tokens is exactly the target's.

    target, drafter: who judges and who proposes.
    prompt: token ids, at least one.
    gamma: tokens drafted a round, 0 or more, or a `Schedule` that chooses it round by round.
    sampling: how the target's distribution is made; draft_sampling: the draft's (default: same).
    max_new_tokens: most tokens to emit.
    stop_tokens: ids that end the text (kept). stop_strings: strings that end it (cut away); these
        need `detokenize`, token ids -> text.
    randomness: where choices come from; default: a fresh seed.
    rule: how drafts are judged, see `verify`.
    record: "full" keeps the rounds in `trace`, "stats" only counts them.

    Raises ValueError, in one sentence, for input that cannot be decoded. Source: Leviathan et al.
    2023 (arXiv 2211.17192), Algorithm 1; Chen et al. 2023 (arXiv 2302.01318), Algorithm 2.
    """
    if record not in ("full", "stats"):
        raise ValueError(f'record must be "full" or "stats", not {record!r}.')
    check_parts(target=target)
    text = check_request(target, prompt, max_new_tokens)
    stop_tokens, stop_strings = check_stops(target, stop_tokens, stop_strings, detokenize)
    rounds = speculative_rounds(
        target, drafter, text, gamma=gamma, sampling=sampling, draft_sampling=draft_sampling,
        max_new_tokens=max_new_tokens, stop_tokens=stop_tokens, stop_strings=stop_strings,
        detokenize=detokenize, randomness=randomness, rule=rule,
    )  # fmt: skip
    trace = Trace(tuple(text), list(rounds))
    return result_of(trace, record, stop_strings, detokenize)


def speculative_rounds(
    target: LanguageModel,
    drafter: Drafter,
    prompt: Sequence[int],
    *,
    gamma: int | Schedule = 4,
    sampling: Sampling = Sampling(),
    draft_sampling: Sampling | None = None,
    max_new_tokens: int = 64,
    stop_tokens: Iterable[int] = (),
    stop_strings: Iterable[str] = (),
    detokenize: Detokenize | None = None,
    randomness: Randomness | None = None,
    rule: str = "token",
) -> Iterator[Round]:
    """`speculative_decode`, one `Round` at a time; arguments and errors are the same.

    Between two rounds the models must not be used for another run: the caches hold this one.
    """
    draft_sampling = sampling if draft_sampling is None else draft_sampling
    randomness = Seeded() if randomness is None else randomness
    check_parts(
        target=target, drafter=drafter, sampling=sampling, draft_sampling=draft_sampling,
        randomness=randomness,
    )  # fmt: skip
    text = check_request(target, prompt, max_new_tokens)
    stop_tokens, stop_strings = check_stops(target, stop_tokens, stop_strings, detokenize)
    check_drafter(target, drafter, len(text), max_new_tokens)
    gamma = gamma if hasattr(gamma, "next") else check_gamma(gamma)
    rounds = _rounds(
        target, drafter, text, gamma, sampling, draft_sampling,
        ending_of(text, max_new_tokens, stop_tokens, stop_strings, detokenize), randomness, rule,
    )  # fmt: skip
    return Threads(target.threads).each(rounds)


@torch.inference_mode()
def _rounds(
    target: LanguageModel,
    drafter: Drafter,
    text: list[int],
    gamma: int | Schedule,
    sampling: Sampling,
    draft_sampling: Sampling,
    ending: Ending,
    randomness: Randomness,
    rule: str,
) -> Iterator[Round]:
    """The loop. `text` is prompt + emitted tokens and grows in place."""
    drafter.rollback(0)
    _prefill(target, text)
    stats = Stats()
    while ending.reason is None:
        before = target.length, drafter.length
        wanted = gamma if isinstance(gamma, int) else check_gamma(gamma.next(stats))
        # The last token of a run is never a draft: a round emits at most gamma + 1 tokens.
        draft = drafter.propose(text, min(wanted, ending.remaining - 1), draft_sampling, randomness)
        draft = Draft(draft.tokens.to(target.device), draft.probs.to(target.device))
        p = _target_probs(target, text, draft.tokens, sampling)
        verdict = verify(p, draft, randomness, rule)
        seen = _read(draft, verdict, text)
        emitted = ending.keep([*seen["drafted"][: seen["accepted"]], seen["token"]])
        text += emitted
        target.rollback(len(text) - 1)
        drafter.rollback(len(text) - 1)
        round = Round(
            **seen, emitted=tuple(emitted), target_length=(before[0], target.length),
            draft_length=(before[1], drafter.length), finish_reason=ending.reason,
        )  # fmt: skip
        stats.add(round)
        state = target.forwards, target.length, drafter.length
        yield round
        if (target.forwards, target.length, drafter.length) != state:
            raise RuntimeError(
                "Another run used these models between two rounds, so their caches are no longer "
                "this run's; finish one run before you start the next."
            )


def _prefill(target: LanguageModel, text: list[int]) -> None:
    """Feed the prompt but for its last token: that one starts the first forward."""
    target.rollback(0)
    if len(text) > 1:
        target.forward(text[:-1], keep=1)


def _target_probs(
    target: LanguageModel, text: list[int], drafted: Tensor, sampling: Sampling
) -> Tensor:
    """One target forward over the newest token and gamma drafts: p, [gamma + 1, V]."""
    newest = upload(text[-1:], torch.int64, target.device)
    logits = target.forward(torch.cat([newest, drafted]))
    if not sampling.processors:
        return sampling.probs(logits)
    return sampling.probs(logits, torch.cat([upload(text, torch.int64, target.device), drafted]))


def on_device(draft: Draft, verdict: Verification) -> Tensor:
    """Everything a round must know on the host, float64 [..., k], to be read in one transfer."""
    single = (verdict.accepted, verdict.token, verdict.residual_mass, verdict.zero_residual)
    parts = [draft.tokens, verdict.target_prob, verdict.draft_prob]
    if verdict.coins is not None:
        parts.append(verdict.coins)
    return torch.cat(
        [*(x.double() for x in parts), *(x.double().unsqueeze(-1) for x in single)], -1
    )


def on_host(values: list[float], gamma: int, width: int, coins: bool, text: list[int]) -> dict:
    """What `on_device` sent for one text, as `Round` calls it: the first `gamma` of `width` drafts.

    coins: whether uniforms were compared. Raises ValueError where p or q were no distributions.
    """
    *values, accepted, token, mass, zero = values
    columns = [tuple(values[i * width : i * width + gamma]) for i in range(3 + coins)]
    drafted, target_prob, draft_prob = columns[:3]
    if math.isnan(mass):
        judged = int(accepted)
        at_fault = "draft" if judged < gamma and math.isnan(draft_prob[judged]) else "target"
        _check_finite(mass, at_fault, text)
    return {
        "drafted": tuple(int(x) for x in drafted),
        "accepted": int(accepted),
        "token": int(token),
        "target_prob": target_prob,
        "draft_prob": draft_prob,
        "u": columns[3] if coins else None,
        "residual_mass": mass,
        "zero_residual": bool(zero),
    }


def _read(draft: Draft, verdict: Verification, text: list[int]) -> dict:
    """The round on the host: the one transfer from the device."""
    gamma, coins = draft.tokens.shape[-1], verdict.coins is not None
    return on_host(on_device(draft, verdict).tolist(), gamma, gamma, coins, text)


def _check_finite(value: float, side: str, text: list[int]) -> None:
    if math.isnan(value):
        raise ValueError(
            f"The {side}'s logits after {len(text)} tokens are NaN or infinite; check its weights, "
            "load it in float32, or see whether a processor forbids every token."
        )


def ending_of(
    text: list[int],
    max_new_tokens: int,
    stop_tokens: Iterable[int],
    stop_strings: tuple[str, ...],
    detokenize: Detokenize | None,
) -> Ending:
    stream = TextStream(detokenize, stop_strings, text) if stop_strings and detokenize else None
    return Ending(max_new_tokens, stop_tokens, stream)


def result_of(
    trace: Trace, record: str, stop_strings: tuple[str, ...], detokenize: Detokenize | None
) -> Result:
    """Sum up a finished run."""
    stats = Stats()
    for round in trace.rounds:
        stats.add(round)
    text = None
    if detokenize is not None:
        stream = TextStream(detokenize, stop_strings, trace.prompt)
        for token in trace.tokens:
            stream.push(token)
        stream.finish()
        text = stream.text
    reason = trace.rounds[-1].finish_reason
    return Result(trace.tokens, reason, stats, trace if record == "full" else None, text)
