"""A NIC's interface may have another name when its link comes back than when it went: its PCI address is the same."""

from __future__ import annotations

from streams.detect import Detector
from streams.model.signal import SignalState
from tests.streams.detect.lines import record

DOWN = b"Nov 21 07:13:13 gpu-7 kernel: [12.1] mlx5_core 0000:5b:00.0 eth2: Link down"


def states(*lines: bytes) -> list[tuple[str | None, SignalState]]:
    detector = Detector("c1")
    found = [
        s for offset, line in enumerate(lines) for s in detector.detect(record(line, offset=offset)).signals
    ]
    return [(s.entity.nic, s.state) for s in found]


def test_a_link_is_up_again_under_another_name() -> None:
    up = b"Nov 21 07:13:19 gpu-7 kernel: [18.1] mlx5_core 0000:5b:00.0 ens1f0np0: Link up"
    assert states(DOWN, up) == [("eth2", SignalState.FIRING), ("ens1f0np0", SignalState.CLEARED)]
    assert states(up, DOWN)[0] == ("eth2", SignalState.FIRING), "also when its lines come in another order"


def test_the_other_port_of_the_card_is_another_link() -> None:
    other = b"Nov 21 07:13:19 gpu-7 kernel: [18.1] mlx5_core 0000:5b:00.1 ens1f1np1: Link up"
    assert states(DOWN, other) == [("eth2", SignalState.FIRING)]


def test_a_link_is_up_again_in_another_partition_where_some_lines_have_no_key() -> None:
    """Some of a host's lines come with its name as their key, others without one: these lie in any partition."""
    detector = Detector("c1")
    detector.set_partitions({"raw.node-logs": 4})
    up = [
        record(
            f"Nov 21 07:13:{19 + i} gpu-7 kernel: [18.1] mlx5_core 0000:5b:00.0 eth2: Link up",
            key=b"gpu-7",
            offset=i,
        )
        for i in (0, 2)
    ]
    assert not detector.detect(up[0]).signals, "a link comes up at every boot"
    detector.detect(record(DOWN.replace(b"gpu-7", b"gpu-8"), offset=1))
    (over,) = detector.detect(up[1]).signals
    assert over.state is SignalState.CLEARED
