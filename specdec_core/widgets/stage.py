"""The shell of every widget: labelled controls around a view, which is a pure function of a state.

    def view(gamma, fault): return Picture(svg, sentence, table)
    Stage(view, "Coin tape", [stepper("gamma", "gamma", 1, 8)], gamma=4, fault="none")

The browser sends the state that the controls and the clickable parts change; Python draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import anywidget
import traitlets

from specdec_core.widgets.picture import Picture

HERE = Path(__file__).parent
SHELL = (HERE / "stage.js").read_text()


@dataclass(frozen=True)
class Control:
    """A native, labelled control of the state `name`; `kind` is a key of `kinds` in stage.js."""

    kind: str
    name: str
    label: str
    options: dict = field(default_factory=dict)


def slider(name: str, label: str, low: float, high: float, step: float = 0.01) -> Control:
    """A slider beside a number field."""
    return Control("range", name, label, {"min": low, "max": high, "step": step})


def stepper(name: str, label: str, low: int, high: int) -> Control:
    """A whole number between two arrow buttons."""
    return Control("stepper", name, label, {"min": low, "max": high, "step": 1})


def select(name: str, label: str, choices: Mapping[str, str] | Sequence[str]) -> Control:
    """One of several values; a mapping gives each value the words to show."""
    pairs = choices.items() if isinstance(choices, Mapping) else zip(choices, choices, strict=True)
    return Control("select", name, label, {"choices": [list(pair) for pair in pairs]})


def toggle(name: str, label: str) -> Control:
    """On or off."""
    return Control("toggle", name, label)


def text(name: str, label: str, size: int = 24) -> Control:
    """A line of text, sent when it is left or on Enter."""
    return Control("text", name, label, {"size": size})


def button(name: str, label: str) -> Control:
    """A button that adds one to a number: a seed, a count of presses."""
    return Control("button", name, label)


def shell_with(script: str) -> str:
    """The shell's code with a view's own functions in it, for what must follow a drag at once.

    `script` sets `local.move(state, picture) -> sentence`, which moves the parts of the picture
    that Python drew, and maybe `local.reduce(state, changes) -> state`.
    """
    return SHELL.replace("const local = {};", f"const local = {{}};\n{script}", 1)


class Stage(anywidget.AnyWidget):
    """A live view. In a saved notebook it leaves its first picture, sentence and table.

    view: state as keywords -> Picture. A ValueError it raises is shown as its sentence, any other
        error by its name; the picture stays as it was.
    state: the state now; set it to a new dict to change the picture from Python.
    """

    _esm = SHELL
    _css = (HERE / "stage.css").read_text()
    label = traitlets.Unicode("").tag(sync=True)
    controls = traitlets.List().tag(sync=True)
    # Not echoed: the picture that follows answers the browser.
    state = traitlets.Dict().tag(sync=True, echo_update=False)
    svg = traitlets.Unicode("").tag(sync=True)
    sentence = traitlets.Unicode("").tag(sync=True)
    table = traitlets.Unicode("").tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)
    drawn = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, view: Callable[..., Picture], label: str, controls: Sequence[Control], **state: object
    ) -> None:
        self._view = view
        self._first = view(**state)
        super().__init__(
            label=label, controls=[asdict(c) for c in controls], state=state,
            svg=self._first.svg, sentence=self._first.sentence, table=self._first.table,
        )  # fmt: skip
        self.observe(self._redraw, "state")

    def settled(self, before: dict, now: dict) -> dict:
        """The state to show where the browser asks for `now`; a widget may put parts of it back."""
        return now

    def _redraw(self, change: dict) -> None:
        fresh = change["new"]
        # The view meets the same error, and the shell says it.
        with suppress(Exception):
            fresh = self.settled(change["old"], change["new"])
        if fresh != change["new"]:
            self.state = fresh
            return
        # One message, so that the words never lag behind the picture; `drawn` comes last.
        with self.hold_sync():
            try:
                picture = self._view(**change["new"])
                self.svg, self.sentence = picture.svg, picture.sentence
                self.table, self.problem = picture.table, ""
            except ValueError as error:
                self.problem = str(error)
            except Exception as error:  # a frozen picture would say nothing
                self.problem = f"This cannot be drawn ({type(error).__name__}: {error})."
            self.drawn += 1

    def __repr__(self) -> str:
        return f"{self.label}: {self._first.sentence}"

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**kwargs)
        note = "<p><small>Run this cell for the controls.</small></p>"
        html = self._first._repr_html_() + note
        return {**data, "text/html": html, "text/plain": repr(self)}, metadata
