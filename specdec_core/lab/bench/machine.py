"""On what the numbers were measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch
import transformers

from specdec_core.lab.bench.peers import flashspec_version
from specdec_core.lab.bench.plan import Subject


def describe(subject: Subject) -> dict:
    """Processor, threads, software and dtype."""
    device = subject.target.device
    return {
        "device": str(device),
        "device_name": device_name(device),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "flashspec": flashspec_version(),
        "specdec": version("specdec-core"),
        "dtype": str(subject.target.dtype).removeprefix("torch."),
    }


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    """The processor's name, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
