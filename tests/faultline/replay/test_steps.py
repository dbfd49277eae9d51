from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.cli.step_view import walk
from faultline.replay.capture import read
from faultline.replay.replay import replay_capture
from faultline.replay.steps import Pace, Steps
from runbooks.language.loader import load
from streams.model.errors import BadInput
from tests.faultline.replay.test_replay import NOON, capture, decided_once

EXAMPLE = "docs/examples/gpu-off-bus"


@pytest.fixture(scope="module")
def steps() -> Steps:
    """The steps of a dead GPU."""
    found = Steps()
    replay_capture(capture(), runbooks=load(), watcher=found)
    return found


def walked(steps: Steps, *commands: str) -> list[str]:
    lines: list[str] = []
    walk(steps, commands, lines.append)
    return lines


def test_watching_a_replay_does_not_change_what_it_decides(steps: Steps) -> None:
    watched = replay_capture(capture(), runbooks=load(), watcher=Steps())
    assert watched.decision_hash == decided_once().decision_hash
    assert steps.state_after(len(steps)).incidents == decided_once().incidents


def test_the_inventory_at_the_begin_is_one_step(steps: Steps) -> None:
    assert len(steps[1].came) > 40
    assert len(steps) < 60


def test_a_step_shows_what_came_what_was_weighed_what_opened_and_what_was_planned(steps: Steps) -> None:
    shown = "\n".join(walked(steps, "u"))
    for text in (
        "came       gpu.xid",
        "weighed    gpu_off_bus",
        "opened     inc-",
        "responder  run.planned",
        "1 open",
    ):
        assert text in shown


def test_going_back_shows_exactly_what_was_shown_before(steps: Steps) -> None:
    forward = walked(steps, "u")
    there = steps.next_about("", 1)
    assert there is not None
    back = walked(steps, "u", "n", "n", "p", "p")
    at = [number for number, line in enumerate(back) if line.startswith(f"[{there}/")]
    length = len(forward) - forward.index(next(line for line in forward if line.startswith(f"[{there}/")))
    assert back[at[0] : at[0] + length] == back[at[1] : at[1] + length]


def test_every_point_is_reached_by_its_number_and_its_state_is_that_of_a_replay_until_then(
    steps: Steps,
) -> None:
    for number in (1, len(steps) // 2, len(steps)):
        assert walked(steps, str(number))[-1].startswith("  now")
        until = replay_capture(capture(), runbooks=load(), until=steps[number].at)
        known = steps.state_after(number).incidents
        later = {name: one.revision for name, one in until.incidents.items()}
        assert all(one.revision <= later[name] for name, one in known.items())


def test_what_is_no_step_and_no_command_is_answered_and_nothing_is_lost(steps: Steps) -> None:
    lines = walked(steps, "99999", "what", "u inc-nothere", "s inc-nothere", "l", "q", "n")
    text = "\n".join(lines)
    assert f"there are the steps 1 to {len(steps)}" in text
    assert "q quit" in text
    assert "no later step changes inc-nothere" in text
    assert "no incident inc-nothere" in text
    assert "no incidents yet" in text
    assert sum(line.startswith("[") for line in lines) == 1


def test_an_incident_is_explained_with_the_plan_of_the_step_where_one_stands(steps: Steps) -> None:
    planned = next(
        n for n in range(1, len(steps) + 1) if any(e.event == "run.planned" for e in steps[n].entries)
    )
    incident = next(iter(steps.state_after(planned).incidents))
    shown = "\n".join(walked(steps, str(planned), f"s {incident}"))
    assert "runbook gpu-off-bus revision" in shown
    assert "cordon: cordon_node Node node-01" in shown
    assert not steps.state_after(planned - 1).runs


def test_commands_may_be_piped() -> None:
    result = CliRunner().invoke(cli, ["replay", EXAMPLE, "--step"], input="u\nl\np\nq\n")
    assert result.exit_code == 0, result.output
    assert "opened     inc-" in result.output


def test_one_incident_alone_is_printed_by_the_beginning_of_its_id() -> None:
    every = CliRunner().invoke(cli, ["replay", EXAMPLE, "-o", "json"]).output
    name = every.partition('"id":"')[2].partition('"')[0]
    one = CliRunner().invoke(cli, ["replay", EXAMPLE, "--incident", name[:7], "-o", "json"])
    assert one.exit_code == 0
    assert one.output.splitlines()
    *told, summary = one.output.splitlines()
    assert told
    assert all(name in line for line in told)
    assert '"record":"summary"' in summary
    unknown = CliRunner().invoke(cli, ["replay", EXAMPLE, "--incident", "inc-zz"])
    assert isinstance(unknown.exception, BadInput)
    assert f"no incident inc-zz (there are {name}" in str(unknown.exception)


def test_a_replay_stops_so_long_before_the_captures_end() -> None:
    replayed = CliRunner().invoke(cli, ["replay", EXAMPLE, "--until", "1m", "-o", "json"])
    assert replayed.exit_code == 0, replayed.output
    end = read(Path(EXAMPLE)).meta.end
    exact = CliRunner().invoke(
        cli, ["replay", EXAMPLE, "--until", (end - timedelta(minutes=1)).isoformat(), "-o", "json"]
    )
    assert replayed.output == exact.output


def test_a_replay_until_before_the_begin_says_what_the_capture_holds() -> None:
    early = CliRunner().invoke(cli, ["replay", EXAMPLE, "--until", "2020-01-01T00:00:00Z"])
    assert "--until 2020-01-01 00:00:00Z is before anything happens: the source holds" in str(early.exception)


def test_a_replay_at_ten_times_real_time_waits_a_tenth_of_a_second_each_second() -> None:
    waited: list[float] = []
    clock = iter(count(0.0, 0.01))
    pace = Pace(10, clock=lambda: next(clock), sleep=waited.append)
    for second in range(4):
        pace.passes(NOON + timedelta(seconds=second))
    assert waited == pytest.approx([0.08, 0.17, 0.26])


def test_a_slow_machine_is_not_made_slower() -> None:
    clock = iter(count(0.0, 100.0))
    pace = Pace(10, clock=lambda: next(clock), sleep=lambda seconds: pytest.fail(f"waits {seconds} s"))
    for second in range(4):
        pace.passes(NOON + timedelta(seconds=second))


def test_a_watched_replay_tells_what_happens_as_it_goes_and_the_decisions_in_the_end() -> None:
    result = CliRunner().invoke(cli, ["replay", EXAMPLE, "--speed", "100000"])
    assert result.exit_code == 0, result.output
    assert result.output.index("runbook gpu-off-bus with") < result.output.index("decision hash")
