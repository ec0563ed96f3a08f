"""What the tests of the views read in a picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import unescape

SVG = "{http://www.w3.org/2000/svg}"


def cells(picture) -> list[list[str]]:
    """The rows of the picture's table, without its header."""
    rows = re.findall(r"<tr>(.*?)</tr>", picture.table)[1:]
    return [[unescape(c) for c in re.findall(r"<td>(.*?)</td>", row)] for row in rows]


def words(picture) -> list[str]:
    return [node.text for node in ET.fromstring(picture.svg).iter(f"{SVG}text")]


def at(stage, **changes):
    """The stage after the reader changed some of its state."""
    stage.state = {**stage.state, **changes}
    assert not stage.problem
    return stage
