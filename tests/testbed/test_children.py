"""Child processes: they start when ready, end when told, and never outlive who started them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.children import Child, ChildFailed, free_port
from tests.testbed.waiting import eventually, until

pytestmark = pytest.mark.machinery

SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)",
)


def started(command: tuple[str, ...], tmp_path: Path) -> Child:
    child = Child("child", command, log=tmp_path / "child.log")
    child.wait_until(lambda: "up" in child.tail())
    return child


def is_alive(pid: int) -> bool:
    """A process that has ended but is not yet reaped by its new parent counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("command", "ended_by"), [(SLEEPER, signal.SIGTERM), (DEAF, signal.SIGKILL)], ids=["listens", "deaf"]
)
def test_a_child_is_asked_to_end_and_made_to_if_it_does_not(
    command: tuple[str, ...], ended_by: signal.Signals, tmp_path: Path
) -> None:
    child = started(command, tmp_path)
    assert child.exit_code is None
    assert child.stop(grace_s=0.5 if command is DEAF else 60) == -ended_by
    assert child.stop() == -ended_by, "stopping twice is harmless"


def test_a_child_that_dies_at_its_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    child = Child("broken", (sys.executable, "-c", "raise SystemExit('port taken')"), log=tmp_path / "log")
    with pytest.raises(ChildFailed, match=r"broken ended with 1.*\n.*port taken"):
        child.wait_until(lambda: False)


def test_a_child_that_is_not_ready_in_time_is_ended_and_named(tmp_path: Path) -> None:
    child = Child("slow", SLEEPER, log=tmp_path / "log")
    with pytest.raises(ChildFailed, match=r"not within 0.3 s: slow listens"):
        child.wait_until(lambda: False, "listens", timeout_s=0.3)
    assert child.exit_code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent's death")
def test_a_child_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from tests.testbed.children import Child; "
        "child = Child('c', [sys.executable, '-c', 'import time; time.sleep(600)'], log=Path(sys.argv[1])); "
        "print(child.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        # What ties it to its parent is run by the same process first, with the program among its arguments.
        until(lambda: b"PDEATHSIG" not in Path(f"/proc/{child}/cmdline").read_bytes(), "it runs its program")
        parent.kill()
        parent.wait()
    until(lambda: not is_alive(child), "the child is gone")


def test_a_free_port_can_be_listened_on_and_lies_below_the_outgoing_ones() -> None:
    assert 20_000 <= free_port() < 32_000


async def test_waiting_ends_at_the_deadline_even_when_a_look_hangs() -> None:
    with pytest.raises(TimeoutError, match="the moon is blue"):
        await eventually(asyncio.Event().wait, "the moon is blue", timeout_s=0.1)


def test_a_port_that_was_given_out_is_given_to_nobody_else() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    asked = f"from tests.testbed.children import _reserved; print([p for p in {ports} if _reserved(p)])"
    assert subprocess.check_output([sys.executable, "-c", asked], text=True).strip() == "[]"
