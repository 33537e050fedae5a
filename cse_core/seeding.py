"""One seed per run, split into named streams, so that no part of a run can shift another part's random numbers.

A stream's seed depends only on the run's seed and a name (`dropout/17` is step 17's dropout), never on earlier draws.
A resumed run therefore needs no saved generator: the step number is enough.
"""

import hashlib

import torch


def seed_for(seed: int, stream: str) -> int:
    """Return the 63-bit seed of a named stream of a run."""
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(seed: int, stream: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a torch generator at the start of a named stream."""
    return torch.Generator(device).manual_seed(seed_for(seed, stream))
