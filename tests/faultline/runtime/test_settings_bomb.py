"""A settings file of a few hundred bytes that stands for billions of values is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from faultline.runtime.settings import load
from faultline.runtime.yaml_size import expanded_size
from streams.model.errors import ConfigError

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize("text", [BOMB, BOMB + "kafka: *a11\n", "kafka: &a {b: *a}\n"])
def test_aliases_that_multiply_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="once its aliases are followed"):
        load(file)


def test_ordinary_aliases_count_as_what_they_stand_for() -> None:
    root = yaml.compose("{a: &a [1, 2], b: *a}", yaml.SafeLoader)
    assert root is not None
    assert expanded_size(root) == 1 + 2 + 3 + 3
