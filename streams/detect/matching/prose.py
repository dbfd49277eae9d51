"""The words that tell people's lines from loggers': `catalog/prose.yaml`."""

from __future__ import annotations

from functools import cache

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog


class Prose(Strict):
    """`words` precede a quotation but never a logged message; `personal` ones tell a person's text from a program's error.

    `sources` relay what people write, `relays` what the kernel writes; `speakers` are names before a message.
    """

    words: tuple[str, ...]
    personal: tuple[str, ...]
    sources: tuple[str, ...]
    speakers: tuple[str, ...]
    relays: tuple[str, ...]


@cache
def sheet() -> Prose:
    """The file, read once."""
    return load_catalog("prose", Prose)
