"""Views: pure functions from data to a picture and a sentence, shown in notebooks."""

from specdec_core.widgets.picture import Picture
from specdec_core.widgets.ribbon import origin_ribbon

__all__ = ["Picture", "origin_ribbon"]
