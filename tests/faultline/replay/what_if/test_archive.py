from pathlib import Path

from faultline.replay.archived import open_archive
from faultline.replay.what_if.result import what_if
from faultline.replay.what_if.sides import Given, sides
from faultline.runtime.settings import Settings
from tests.faultline.replay.test_archived import DAY, END, archived, inventory
from tests.faultline.replay.test_replay import NOON, decided_once


def test_an_archive_is_decided_again_with_an_edit(tmp_path: Path) -> None:
    archived(tmp_path, inventory())
    capture = open_archive(str(tmp_path), "east", NOON - DAY, END)
    found = what_if("archive", sides(capture, Settings(), Given(settings=("responder.mode=approve",))))
    assert found.before.decision_hash == decided_once().decision_hash
    assert found.summary.incidents.before == len(found.differing) == 1
    assert (found.summary.modes, found.summary.cordons.removed, found.summary.pages.added) == (1, 1, 1)
