"""Markers: `gpu` tests skip where there is no CUDA device; `slow` ones run in `make test-all`."""

import pytest
import torch


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True)
def _fixed_seed():
    """torch's global generator starts every test from the same state."""
    torch.manual_seed(0)
