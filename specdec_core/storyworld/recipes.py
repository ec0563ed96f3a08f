"""The recipes of storyworld: what is listed first is used later, in the same order."""

from __future__ import annotations

from . import lexicon as lex
from .writer import Writer


def recipe(w: Writer) -> None:
    """One recipe: a title, a list, the steps, the serving."""
    dish = w.pick(lex.DISH_NAMES, lex.DISH_WEIGHTS)
    vessel, cooking, servings, larder = lex.DISHES[dish]
    main = w.pick(larder)
    guests = w.choose(lex.COUNTS, lex.COUNT_WEIGHTS)
    w.write(f"Recipe : {dish} with {main} for {guests} . \n You need :")
    items = _shopping(w, main, larder)
    spice = w.choose(lex.SPICES)
    w.write(f"and some {spice} . \n")
    for number, item in enumerate(items):
        _prepare(w, item, number, vessel)
    minutes = w.choose(lex.MINUTES)
    w.write(f"Then add the {spice} and {cooking} for {minutes} minutes . \n")
    serving = w.choose(servings, (3.0, 1.0))
    w.write(f"Serve the {dish} {serving} . It is enough for {guests} .")


def _shopping(w: Writer, main: str, larder: tuple[str, ...]) -> list[str]:
    """The list: the main item first, then one to three more."""
    items = [main]
    _measure(w, main)
    for _ in range(w.choose((1, 2, 3), (2.0, 3.0, 1.0))):
        item = w.pick(tuple(other for other in larder if other not in items))
        _measure(w, item)
        items.append(item)
    return items


def _measure(w: Writer, item: str) -> None:
    count = w.choose(lex.COUNTS, lex.COUNT_WEIGHTS)
    unit = lex.MEASURE.get(item)
    state = w.pick(lex.STATES)
    w.write(f"{count} {unit} {state} {item} ," if unit else f"{count} {state} {item} ,")


def _prepare(w: Writer, item: str, number: int, vessel: str) -> None:
    """One step: the item is treated in its own way and goes into the vessel."""
    verb = w.choose(lex.TREATMENTS[item], (2.0, 1.0))
    care = w.choose(lex.CARES)
    if number == 0:
        w.write(f"First {verb} the {item} {care} and put them in a {vessel} .")
    else:
        w.write(f"Next {verb} the {item} {care} and add them to the {vessel} .")
