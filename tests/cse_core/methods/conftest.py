"""The encoder that tests of methods share: reset what a test changes."""

import pytest

from cse_core.models.encoder import Encoder
from tests.support.encoders import wiki_tiny


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny(dropout=0.3)
