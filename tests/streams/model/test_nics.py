"""Names of NICs: which of them are a card's own, and which stand for a part of it that is handed to a pod or a guest."""

from __future__ import annotations

import pytest

from streams.model.nics import is_virtual


@pytest.mark.parametrize(
    "name",
    [
        "ens4v14", "ens2f0v7", "enp154s0f0r3", "enp154s0f0_12", "en3f0pf0", "enp3s0f0npf0", "enp154s0f0npf0vf3", "en3f0pf0sf88",
        "pf0vf3", "pf0sf88", "c1pf0vf2", "pf0hpf",
    ],
)  # fmt: skip
def test_a_function_that_is_handed_out_and_the_port_that_stands_for_it_are_virtual(name: str) -> None:
    assert is_virtual(name)


@pytest.mark.parametrize(
    "name",
    [
        "enp154s0f0np0",
        "enP22p1s0f1np1",
        "ibp12s0f0",
        "eth0",
        "rail3",
        "p0",
        "mlx5_0",
        "bond0",
        "hpf",
        "pf0",
        "",
    ],
)
def test_a_cards_own_port_is_not(name: str) -> None:
    assert not is_virtual(name)
