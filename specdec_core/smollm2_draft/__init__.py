"""A draft for SmolLM2-135M-Instruct, distilled from text that SmolLM2 writes itself."""

from .network import FILE, draft_network

__all__ = ["FILE", "draft_network"]
