"""The step in a line about a checkpoint is the one that was saved, or not known: never a smaller one."""

from __future__ import annotations

import orjson
import pytest

from streams.ingest.records import MAX_LINE
from tests.streams.detect.lines import signals


def steps(text: str) -> list[object]:
    """The step of each checkpoint that the line of a pod tells, None where it is not known."""
    pod = {"pod_name": "llm-0", "namespace_name": "ml", "host": "gpu-1"}
    raw = orjson.dumps({"@timestamp": 1795245200.5, "log": text + "\n", "kubernetes": pod})
    return [one.attributes.get("step") for one in signals(raw) if one.kind == "job.checkpoint"]


@pytest.mark.parametrize(
    ("written", "step"),
    [
        ("1000", 1000),
        ("1000.", 1000),
        ("1000, loss 2.31", 1000),
        ("1,000", 1000),
        ("1,234,567 to /ckpt", 1234567),
        ("1_000", 1000),
        ("1'000 (5.2 s)", 1000),
        ("1\u00a0000", 1000),
        ("12\u202f500 to /ckpt", 12500),
        ("12 000 to /ckpt", 12000),
        ("1 250 000", 1250000),
        ("500 in 12.5 s", 500),
        ("500 123.4 s", 500),
        ("500 120s", 500),
        ("1000,200", 1000),
        # Two numbers, a fraction or a number: not known.
        ("12 500 to /ckpt", None),
        ("1.000", None),
        ("12,5", None),
        ("1,0000", None),
        ("1_00", None),
        ("1,000_000", None),
        ("12345678901234", 12345678901234),
        ("12345678901234567890123", None),
        # Cut within the number, or another line glued to it.
        ("10…", None),
        ("10... [truncated]", None),
        ("10saved nothing", None),
        ("10[rank1]: step", None),
        ("102026-11-21 07:13:13 INFO", None),
        ("1007:13:13 INFO", None),
        ("1,02026-11-21 07:13:13 INFO", None),
        ("1,", None),
    ],
)
def test_the_step_of_a_checkpoint_is_read_as_it_was_meant(written: str, step: int | None) -> None:
    assert steps(f"saved a checkpoint at step {written}") == [step]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Checkpoint saved to /ckpt/step-1000", 1000),
        ("Checkpoint saved to /ckpt/step2_model/step-1000", 1000),
        ("Checkpoint saved to /ckpt/step-1_000", None),
        ("Checkpoint saved to /ckpt/last step=40 loss: 2.31", None),
        ("Checkpoint saved to /ckpt/last reading /data/step-5", None),
        ("[Torch] Checkpoint last is ready now! Loading /ckpt/global_step40/x.pt", None),
        ("INFO:accelerate.checkpointing:Random states saved in out/last/states.pkl step_40/", None),
        ("Saving model checkpoint to ./out/checkpoint-500[rank1]: x", None),
        ("  successfully saved checkpoint from iteration    100", 100),
    ],
)
def test_a_step_of_another_line_is_not_the_checkpoints(text: str, step: int | None) -> None:
    assert steps(text) == [step]


def test_two_checkpoints_in_one_line_are_two() -> None:
    saved = "successfully saved checkpoint from iteration"
    assert steps(f"  {saved}    1000 to /ckpt  {saved}    2000 to /ckpt") == [1000, 2000]
    assert steps(f"{saved} 10{saved} 2000 to /ckpt") == [None, 2000]


def test_the_step_in_a_line_that_is_cut_where_it_stands_is_not_known() -> None:
    before = "saved a checkpoint at step 10"
    long = "x" * (MAX_LINE - len(before) - 1) + " " + before
    assert steps(f"{long}00 to /ckpt") == [None]
    cut = b'{"@timestamp": 1795245200.5, "kubernetes": {"pod_name": "llm-0", "namespace_name": "ml", "host": "gpu-1"}, "log": "'
    found = [one for one in signals(cut + before.encode()) if one.kind == "job.checkpoint"]
    assert [one.attributes.get("step") for one in found] == [None]
