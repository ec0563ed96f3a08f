"""The command line: `specdec demo | exact | pairs | check | bench | models`.

Bad input gets one sentence on standard error and exit code 2. Every number printed was measured or
counted in the same run, unless it says that it comes from the card of the bundled weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from specdec_core.decode import speculative_decode
from specdec_core.demo import Painter, run_demo
from specdec_core.drafters import Drafter
from specdec_core.exact import largest_difference, marginal
from specdec_core.lab import exact_cases, measure, memory, speed_model
from specdec_core.lab.bench import run_bench
from specdec_core.lab.bench.coin import SHAPES, coin_subject
from specdec_core.lab.bench.plan import SECTIONS, Plan, Subject, subject_of
from specdec_core.lab.museum import MISTAKES
from specdec_core.loading import DTYPES, load_config, load_tokenizer
from specdec_core.models import CausalLM
from specdec_core.pairs import PAIR_NAMES, Pair, load_pair, storyworld_card
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling
from specdec_core.smollm2 import FOLDER, NOTE, install, installed_folder
from specdec_core.storyworld import WEIGHTS
from specdec_core.tokenizer_match import find_mismatch
from specdec_core.trace import Stats

BENCH = """Compare methods of decoding in one run: our plain and speculative decoding, transformers'
own generate, assisted generation and prompt look-up, and flashspec where it is installed. All rows
get the same models, prompts and sampling, take turns, and are counted by one counter; ratios are
to our plain decoding within the same repeat. The bundled pair takes about two minutes on two
cores, smollm2 far longer: choose tables with --only and kinds of text with --kinds.

tables:
  methods   every method on every kind of text
  gammas    one drafter at each gamma
  batches   plain and speculative decoding of many texts at once
  loop      how much of the time the forwards alone would take"""
COMMANDS = "demo | exact | pairs | check | bench | models"


class UsageError(ValueError):
    """The arguments cannot be parsed."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 1 (a check failed), 2 (bad input), or 130."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a console without “ shows ?, and goes on
    try:
        options = build_parser().parse_args(argv)
        return options.run(options)
    except (ValueError, TypeError) as error:
        print(f"specdec: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nspecdec: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has left: nothing more to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def build_parser() -> Parser:
    parser = Parser(prog="specdec", description="Speculative decoding, exact end to end.")
    commands = parser.add_subparsers(required=True, metavar=COMMANDS)
    demo = commands.add_parser("demo", help="stream a text, marked by who wrote each token")
    _add_pair_options(demo)
    _add_text_options(demo, max_new_tokens=64)
    demo.add_argument("--top-k", type=int, help="keep the k most likely tokens")
    demo.add_argument("--top-p", type=float, help="keep the likeliest tokens of this mass")
    demo.add_argument("--gamma", type=int, default=4, help="drafted tokens a round (default 4)")
    demo.add_argument(
        "--repeats", type=int, default=3, help="timed repeats, 0 for none (default 3)"
    )
    demo.add_argument("--no-color", action="store_true", help="marks without colours")
    demo.set_defaults(run=_demo)
    exact = commands.add_parser("exact", help="check that the law is exactly the target's")
    exact.set_defaults(run=_exact)
    pairs = commands.add_parser("pairs", help="list the pairs there are")
    pairs.set_defaults(run=_pairs)
    check = commands.add_parser("check", help="examine a pair: tokens, memory, speed, best gamma")
    _add_pair_options(check)
    _add_text_options(check, max_new_tokens=128)
    check.set_defaults(run=_check)
    bench = commands.add_parser(
        "bench", help="compare methods of decoding, ours and others', in one run",
        description=BENCH, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    _add_bench_options(bench)
    bench.set_defaults(run=_bench)
    models = commands.add_parser("models", help="get SmolLM2-135M-Instruct for --pair smollm2")
    models.set_defaults(run=_models)
    return parser


def _add_pair_options(parser: Parser) -> None:
    parser.add_argument("--pair", help=f"{' or '.join(PAIR_NAMES)} (default storyworld)")
    parser.add_argument("--target", metavar="MODEL", help="any target: a folder or a hub name")
    parser.add_argument(
        "--draft", help="a drafter of the pair; with --target, a folder or hub name"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1 (default cpu)")
    parser.add_argument("--dtype", default="float32", help=f"{', '.join(DTYPES)}")
    parser.add_argument(
        "--max-length", type=int, help="longest text in tokens, at most the context"
    )


def _add_text_options(parser: Parser, max_new_tokens: int) -> None:
    parser.add_argument("--prompt", default="Once upon a time", help="the text to continue")
    parser.add_argument(
        "--chat", action="store_true", help="the prompt is a message to a chat model"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="0 is greedy (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices (default 0)")
    parser.add_argument(
        "--max-new-tokens", type=int, default=max_new_tokens, metavar="N",
        help=f"most tokens to write (default {max_new_tokens})",
    )  # fmt: skip


def _add_bench_options(parser: Parser) -> None:
    """What `Plan` and `Subject` are made of; what is left out is as the plan has it."""
    _add_pair_options(parser)
    parser.add_argument(
        "--draft-device", metavar="DEVICE", help="add a row with the draft on another device"
    )
    parser.add_argument(
        "--acceptance", type=float, metavar="A",
        help="random weights instead of a pair: a coin keeps each draft with probability A",
    )  # fmt: skip
    parser.add_argument("--shape", choices=SHAPES, help="of the random weights")
    task = parser.add_argument_group("task")
    task.add_argument("--kinds", nargs="+", metavar="KIND", help="kinds of text (default all)")
    task.add_argument("--temperature", type=float, help="0 is greedy (default 1)")
    task.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="most tokens of a text (default 64)"
    )
    task.add_argument("--gamma", type=int, help="drafted tokens a round (default 4)")
    task.add_argument("--lookup-gamma", type=int, metavar="N", help="of look-up (default 10)")
    run = parser.add_argument_group("measurement")
    run.add_argument(
        "--only", nargs="+", dest="sections", choices=SECTIONS, metavar="TABLE",
        help=f"{', '.join(SECTIONS)} (default all)",
    )  # fmt: skip
    run.add_argument("--gammas", type=int, nargs="+", metavar="N", help="of the gamma sweep")
    run.add_argument("--batches", type=int, nargs="+", metavar="N", help="sizes of the batches")
    run.add_argument("--repeats", type=int, metavar="N", help="of each row (default 5)")
    run.add_argument(
        "--threads", type=int, metavar="N",
        help="of torch, for every row (default: those our target is fastest in)",
    )  # fmt: skip
    run.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers there")


def _load_pair(options: argparse.Namespace) -> Pair:
    """The pair the options ask for."""
    common = {"device": options.device, "dtype": options.dtype, "max_length": options.max_length}
    if options.target is None:
        return load_pair(options.pair or "storyworld", **common)
    if options.pair is not None:
        raise UsageError("--pair and --target exclude each other.")
    return load_pair(target=options.target, draft=options.draft, **common)


def _load(options: argparse.Namespace) -> tuple[Pair, Drafter, str]:
    """The pair the options ask for, and the drafter with its name."""
    if not options.prompt:
        raise UsageError("--prompt is empty: give a text to continue.")
    pair = _load_pair(options)
    name = next(iter(pair.drafters))
    if options.target is None:
        name = options.draft or name
    if name not in pair.drafters:
        raise UsageError(
            f"{pair.name} has no drafter {name!r}: choose {' or '.join(pair.drafters)}."
        )
    return pair, pair.drafters[name], name


def _demo(options: argparse.Namespace) -> int:
    if options.repeats < 0:
        raise UsageError(f"--repeats must be 0 or more, not {options.repeats}.")
    pair, drafter, _ = _load(options)
    painter = Painter(sys.stdout, colour=False if options.no_color else None)
    return run_demo(pair, drafter, options, painter)


def _exact(options: argparse.Namespace) -> int:
    print("The exact law of speculative decoding, found by running the code once for every outcome")
    print("of its random choices (float64), against the law of the target alone.\n")
    print(f"{'tables':<46}{'gamma':>6}{'runs':>8}{'outputs':>9}{'largest difference':>20}")
    worst = 0.0
    for found in exact_cases.check_cases():
        worst = max(worst, found.difference)
        name = found.case.name if found.gamma == 0 else ""
        print(
            f"{name:<46}{found.gamma:>6}{found.runs:>8}{found.outputs:>9}{found.difference:>20.1e}"
        )
    exact = worst <= exact_cases.TOLERANCE
    print(f"\n{'Exact' if exact else 'NOT EXACT'}: the largest difference is {worst:.1e}, ", end="")
    print(f"{'within' if exact else 'beyond'} {exact_cases.TOLERANCE:.0e}.")
    _show_mistake()
    return 0 if exact else 1


def _show_mistake() -> None:
    """The same check on one wrong decoder, so that one sees it can fail."""
    mistake = MISTAKES["M1"]
    wrong, right = (marginal(mistake.example.law(which), 1) for which in ("M1", None))
    told = [", ".join(f"{law[(token,)]:.2f}" for token in (0, 1)) for law in (wrong, right)]
    print("\nThe check can fail: with p = (.6, .4), q = (.8, .2) and the mistake")
    print(f'"{mistake.title}" (M1), the first token has the law')
    print(f"({told[0]}) instead of ({told[1]}), ", end="")
    print(f"a difference of {largest_difference(wrong, right):.2f}.")


# Drafters that are no models of their own.
NO_NETWORK = {
    "weak": "an n-gram table, no network",
    "lookup": "copies what followed the last tokens before: no network",
    "exit": "the target's own first layer and its head",
    "medusa": "four small heads on the target's last hidden state",
}


def _pairs(options: argparse.Namespace) -> int:
    print(
        "storyworld   bundled, works offline: a small invented world of stories, recipes and code"
    )
    card = storyworld_card()
    for name in ("target", "default", "strong", "distilled", "mismatched"):
        print(f"  {name:<10} {_size(WEIGHTS / name)}{_rates(card.get(name, {}))}")
    for name, what in NO_NETWORK.items():
        print(f"  {name:<10} {what}{_rates(card.get(name, {}))}")
    if card:
        print("  (acceptance at temperature 1, from the card of the bundled weights)")
    folder = installed_folder()
    origin = f" ({NOTE})" if folder and folder.name == FOLDER else ""
    print("\nsmollm2      SmolLM2-135M-Instruct, a real chat model: use --chat")
    print(f"             {f'installed{origin}' if folder else 'not installed: run `make models`'}")
    if folder:
        print(f"  {'target':<10} {_size(folder)}")
    print(f"  {'distilled':<10} two layers taught by the target, a head for its 8,192 usual tokens")
    print(f"  {'lookup':<10} {NO_NETWORK['lookup']}")
    print("  lookup else distilled: the one where the text repeats itself, else the other")
    print(f"  {'self':<10} the target as its own draft: all is accepted, nothing is gained")
    print("\nany other    specdec demo --target MODEL --draft MODEL, each a folder or a hub name")
    return 0


def _size(folder: Path) -> str:
    if not folder.is_dir():
        return "missing: run `make train`"
    config = load_config(folder, folder.name)
    layers = config.num_hidden_layers
    return f"{memory.count_parameters(config):,} parameters, {layers} layer{'s' * (layers != 1)}"


def _rates(facts: dict) -> str:
    rates = [f"{kind} {rate:.2f}" for kind, rate in facts.get("acceptance", {}).items()]
    return f"; acceptance: {', '.join(rates)}" if rates else ""


def _check(options: argparse.Namespace) -> int:
    pair, drafter, name = _load(options)
    dtype = str(pair.target.dtype).removeprefix("torch.")
    print(f"{pair.name}, drafter {name}, {pair.target.device}, {dtype}\n")
    _check_tokens(pair, drafter)
    prompt = pair.encode(options.prompt, chat=options.chat)
    sampling = Sampling(options.temperature)
    run = speculative_decode(
        pair.target, drafter, prompt, sampling=sampling, max_new_tokens=options.max_new_tokens,
        stop_tokens=pair.stop_tokens, randomness=Seeded(options.seed), record="stats",
    )  # fmt: skip
    _check_memory(pair, drafter)
    costs = measure.measure_costs(pair.target, drafter, prompt, sampling=sampling)
    overhead = measure.measure_overhead(pair.target, prompt, costs.step, sampling)
    _check_speed(costs, run.stats, overhead, _c_hat(pair.target, drafter))
    return 0


def _check_tokens(pair: Pair, drafter: Drafter) -> None:
    """The tokenizers again, and the widths of both models' logits."""
    draft = measure.draft_network(drafter)
    same = "the draft works on the target's own token ids"
    if draft is not None and draft.model is not pair.target.model:
        theirs = load_tokenizer(draft.model.config.name_or_path)
        same = find_mismatch(pair.tokenizer, theirs) or "same token, same id, on both sides"
    widths = f"logits {pair.target.vocab_size:,} and {drafter.vocab_size:,} wide"
    print(f"Tokens      {same} ({len(pair.tokenizer):,} tokens; {widths})")
    stops = ", ".join(repr(pair.tokenizer.decode([token])) for token in pair.stop_tokens)
    print(f"            a text stops at {stops or 'no token: only the length ends it'}\n")


def _check_memory(pair: Pair, drafter: Drafter) -> None:
    print(f"{'Memory':<12}{'':<34}{'predicted':>12}{'allocated':>12}")
    bill = memory.memory_bill(pair.target, drafter, gamma=4)
    for line in bill:
        allocated = "" if line.allocated is None else _megabytes(line.allocated)
        print(f"{'':<12}{line.what:<34}{_megabytes(line.predicted):>12}{allocated:>12}")
    print(f"{'':<12}{'together':<34}{_megabytes(sum(line.predicted for line in bill)):>12}\n")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _c_hat(target: CausalLM, drafter: Drafter) -> float:
    """About the arithmetic of a draft step / of a step; 0 where no model drafts."""
    return memory.step_weights(getattr(drafter, "model", None)) / memory.step_weights(target)


def _check_speed(costs: speed_model.Costs, stats: Stats, overhead: float, c_hat: float) -> None:
    """Times, acceptance, the predicted speed-up of each gamma, and the advice, with its work."""
    judged = stats.accepted + stats.rejected
    alpha = stats.acceptance_rate
    print(f"Time        one plain step takes {1000 * costs.step:.2f} ms; in that unit a draft step")
    print(f"            takes c = {costs.c:.3f}, and the rest of a round o = {overhead:.2f}")
    if not judged:
        print("Acceptance  no draft was judged in so short a text: raise --max-new-tokens")
        return
    print(f"Acceptance  {alpha:.2f}, {stats.accepted} of {judged} judged drafts of this run\n")
    print(f"            {'gamma':>6}{'v':>8}{'tokens a forward':>19}{'predicted speed-up':>21}")
    for gamma, v in costs.v.items():
        tokens = speed_model.expected_tokens(alpha, gamma)
        gain = speed_model.speedup(alpha, gamma, costs.c, v, overhead)
        print(f"            {gamma:>6}{v:>8.2f}{tokens:>19.2f}{gain:>20.2f}x")
    gamma, gain = speed_model.best_gamma(alpha, costs, overhead)
    if gamma:
        print(f"\nAdvice      gamma {gamma}: about {gain:.2f}x as fast as plain decoding")
        reads = speed_model.weight_reads(alpha, gamma)
        work = speed_model.operations_factor(alpha, gamma, c_hat)
        print(f"            Each token then reads the target's weights {reads:.2f} times, and")
        print(f"            takes {work:.1f} times the arithmetic.")
    else:
        print("\nAdvice      gamma 0: plain decoding is the fastest here, no draft pays")


def _bench(options: argparse.Namespace) -> int:
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name in (field.name for field in dataclasses.fields(Plan))
        if (value := getattr(options, name)) is not None
    }
    if options.target is not None:
        given.pop("draft", None)  # there it is a folder or a hub name, and the only draft
    plan, subject = Plan(**given), _bench_subject(options)
    subject.chosen(plan)  # a drafter that is not there is refused before a file is made
    if options.json is not None:
        try:
            options.json.open("a").close()
        except OSError as error:
            raise UsageError(
                f"--json: {options.json} cannot be written ({error.strerror})."
            ) from None
    run_bench(subject, plan, print, _progress, options.json)
    return 0


def _bench_subject(options: argparse.Namespace) -> Subject:
    """A pair, or a shape whose verdicts a coin sets."""
    if options.acceptance is None:
        if options.shape is not None:
            raise UsageError("--shape goes with --acceptance, which a coin then keeps to.")
        return subject_of(_load_pair(options), options.kinds)
    if options.pair or options.target or options.draft or options.kinds:
        raise UsageError("--acceptance makes random models: leave out pair, models and --kinds.")
    return coin_subject(
        options.shape or "storyworld", options.acceptance, options.device, options.dtype,
        options.max_length,
    )  # fmt: skip


def _progress(what: str) -> None:
    """What runs now, on one line of a terminal that is written over; "" clears it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what[:79]}", end="", file=sys.stderr, flush=True)


def _models(options: argparse.Namespace) -> int:
    install()
    return 0


if __name__ == "__main__":
    sys.exit(main())
