import threading

import httpx

from faultline.runtime.health import health_server
from faultline.runtime.serve import show_process
from streams.model.pulse import PARTITIONS, WAIT_S, Pulse
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics
from tests.clocks import Watch
from tests.testbed.children import free_port


def test_a_process_that_does_not_move_on_is_neither_alive_nor_ready() -> None:
    clock = Watch()
    pulse = Pulse(silence_s=10, clock=clock)
    pulse.ready()
    clock.now = 10
    assert (pulse.is_alive, pulse.is_ready) == (True, True)
    clock.now = 11
    assert (pulse.is_alive, pulse.is_ready) == (False, False)
    pulse.beat()
    assert pulse.is_ready


def test_a_process_that_waits_for_its_group_is_given_longer_and_not_for_ever() -> None:
    clock = Watch()
    pulse = Pulse(silence_s=10, clock=clock)
    with pulse.waiting(PARTITIONS):
        clock.now = WAIT_S
        assert pulse.is_alive
        assert pulse.states == {"waits_for": "its group's partitions"}
        clock.now = WAIT_S + 1
        assert (
            pulse.stalled
            == f"main loop: no progress for {WAIT_S + 1:.0f} s, waiting for its group's partitions"
        )
    assert (pulse.is_alive, pulse.states) == (True, {})
    clock.now += 11
    assert pulse.stalled == "main loop: no progress for 11 s"


def test_a_process_that_has_waited_for_long_is_alive_and_not_ready() -> None:
    clock = Watch()
    pulse = Pulse(silence_s=10, clock=clock)
    pulse.ready()
    with pulse.waiting(PARTITIONS):
        clock.now = 10
        assert (pulse.is_alive, pulse.is_ready) == (True, True)
        clock.now = 11
        assert (pulse.is_alive, pulse.is_ready) == (True, False)
    assert pulse.is_ready


def test_a_loop_that_hangs_is_reported_while_the_main_one_waits_for_its_group() -> None:
    clock = Watch()
    pulse = Pulse(silence_s=10, clock=clock)
    with pulse.part("runs of partition 3"), pulse.waiting(PARTITIONS):
        clock.now = 11
        assert pulse.stalled == "runs of partition 3: no progress for 11 s"


async def test_the_probes_answer_from_the_pulse() -> None:
    pulse = Pulse()
    async with (
        health_server(pulse, host="127.0.0.1", port=free_port()) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert (await client.get("/live")).status_code == 200
        assert (await client.get("/ready")).status_code == 503
        pulse.ready()
        assert (await client.get("/ready")).status_code == 200


async def test_ready_says_how_things_stand_that_do_not_keep_a_process_from_its_work() -> None:
    pulse = Pulse()
    pulse.ready()
    pulse.state("kinds_not_served", ["example.com/v1/Training"])
    async with (
        health_server(pulse, host="127.0.0.1", port=free_port()) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/ready")
    assert (answer.status_code, answer.json()["kinds_not_served"]) == (200, ["example.com/v1/Training"])


async def test_metrics_are_served_beside_the_probes_in_the_format_that_is_asked_for() -> None:
    pulse, metrics = Pulse(), Metrics("detector")
    show_process(metrics, pulse)
    async with (
        health_server(pulse, host="127.0.0.1", port=free_port(), metrics=metrics) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        plain = await client.get("/metrics")
        pulse.ready()
        newer = await client.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
        assert (await client.get("/metrics/more")).status_code == 404
    assert plain.headers["content-type"].startswith("text/plain")
    assert "\nfaultline_ready 0.0\n" in plain.text
    assert newer.headers["content-type"].startswith("application/openmetrics-text")
    assert "\nfaultline_ready 1.0\n" in newer.text
    assert 'component="detector"' in newer.text
    assert 'faultline_last_progress_timestamp_seconds{loop="main loop"} 1' in newer.text


def test_a_partition_that_is_stuck_makes_the_process_dead_and_the_metrics_say_so() -> None:
    pulse, metrics = Pulse(), Metrics("detector")
    show_process(metrics, pulse)
    pulse.ready()
    assert (pulse.is_alive, metrics.value(shown.STALLED)) == (True, 0)
    pulse.stuck = lambda: "raw.node-logs[3]: records wait and none was processed for 125 s"
    assert (pulse.is_alive, pulse.is_ready) == (False, False)
    assert "raw.node-logs[3]" in pulse.stalled
    assert (metrics.value(shown.STALLED), metrics.value(shown.READY)) == (1, 0)


async def test_the_probes_answer_while_the_event_loop_is_busy() -> None:
    answers: list[int] = []
    answered = threading.Event()

    def ask(port: int) -> None:
        answers.append(httpx.get(f"http://127.0.0.1:{port}/live", timeout=20).status_code)
        answered.set()

    async with health_server(Pulse(), host="127.0.0.1", port=free_port()) as port:
        asking = threading.Thread(target=ask, args=(port,))
        asking.start()
        # As a long computation would, this keeps the loop from doing anything else until the answer is there.
        assert answered.wait(timeout=20)
        asking.join()
    assert answers == [200]


def test_a_loop_beside_the_main_one_that_hangs_is_told_of_and_one_that_has_ended_is_not() -> None:
    clock = Watch()
    pulse = Pulse(silence_s=10, clock=clock)
    with pulse.part("runs of partition 3") as moves_on:
        clock.now = 9
        moves_on()
        pulse.beat()
        clock.now = 19
        pulse.beat()
        assert pulse.is_alive
        clock.now = 20
        assert pulse.stalled == "runs of partition 3: no progress for 11 s"
        assert not pulse.is_alive
    assert pulse.is_alive


async def test_who_asks_for_something_else_is_told_what_there_is() -> None:
    async with (
        health_server(Pulse(), host="127.0.0.1", port=free_port()) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert (await client.get("/metrics")).status_code == 404
        assert (await client.head("/live")).status_code == 200
        assert (await client.get("/live?verbose")).json() == {"ok": True}


async def test_port_0_means_no_server() -> None:
    async with health_server(Pulse(), host="127.0.0.1", port=0) as port:
        assert port == 0
