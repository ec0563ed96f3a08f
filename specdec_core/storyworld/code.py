"""The toy code of storyworld: very regular functions, and a call of one of them."""

from __future__ import annotations

from . import lexicon as lex
from .writer import Writer


def code(w: Writer) -> None:
    """Two or three functions of two parameters, then a printed call of the last."""
    names = [_function(w, [])]
    for _ in range(w.choose((1, 2), (2.0, 1.0))):
        w.write("\n \n")
        names.append(_function(w, names))
    w.write(f"\n \n print ( {names[-1]} ( {_digit(w)} ,")
    w.write(f"{_digit(w)} ) )")


def _digit(w: Writer) -> str:
    return w.choose(lex.DIGITS)


def _function(w: Writer, others: list[str]) -> str:
    """`def name(a, b)`: a result, a limit at times, a return. Returns the name."""
    name = w.choose(tuple(name for name in lex.FUNCTION_NAMES if name not in others))
    operator, result = lex.FUNCTIONS[name]
    w.write(f"def {name} (")
    first, second = w.choose(lex.PARAMETERS, lex.PARAMETER_WEIGHTS)
    w.write(f"{first} , {second} ) : \n \t {result} = {first} {operator} {second} \n \t")
    if w.choose((True, False), (3.0, 1.0)):
        sign = w.choose((">", "<", "=="), (4.0, 2.0, 1.0))
        w.write(f"if {result} {sign}")
        w.write(f"{_digit(w)} : \n \t \t")
        w.write(w.choose((f"return {first}", f"return {second}", f"{result} = {first}")))
        w.write("\n \t")
    w.write(f"return {result}")
    return name
