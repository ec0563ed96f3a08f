"""Notebooks are compared without the reader's own predictions."""

import os
import tempfile

os.environ["SPECDEC_DATA"] = tempfile.mkdtemp(prefix="specdec-")
