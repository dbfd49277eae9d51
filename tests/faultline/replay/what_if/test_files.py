from xml.etree import ElementTree

import orjson
import pytest

from faultline.replay.what_if.budget import exceeded
from faultline.replay.what_if.check_files import junit, sarif
from faultline.replay.what_if.page import MAX_COMMENT, html_of, markdown_of
from tests.faultline.replay.what_if.made import held, made, many

ONE, OTHER = many(2)
FOUND = made([ONE, OTHER], [held(ONE), OTHER])
OVER = exceeded(FOUND.summary, {"pages": 0, "culprits": 0})


def test_each_difference_names_the_edits_that_can_have_led_to_it() -> None:
    (pair,) = FOUND.differing
    assert {one.what: one.causes for one in pair.differences} == {
        "cordon_node Node n1": tuple(map(str, FOUND.edits)),
        "cordon_node Node n1: deadline": (str(FOUND.edits[1]),),
        "page": (str(FOUND.edits[1]),),
    }


def test_markdown_has_the_summary_first_and_escapes_what_comes_from_outside() -> None:
    text = markdown_of(FOUND, OVER)
    assert text.index("Over budget:") < text.index("| pages | 0 | 1 |") < text.index("## GPU fell")
    assert "<b>" not in text
    assert "blast radius: 1 of 40 nodes" in text


@pytest.mark.parametrize("number", [1, 300, 3000])
def test_markdown_fits_a_comment_however_many_incidents_differ(number: int) -> None:
    before = many(number)
    text = markdown_of(made(before, [held(one) for one in before]))
    assert len(text) <= MAX_COMMENT
    shown = text.count("## GPU fell")
    assert 0 < shown <= number
    assert (f"{number - shown} more incidents differ" in text) is (shown < number)


def test_html_is_one_file_that_loads_nothing_and_knows_light_and_dark() -> None:
    text = html_of(FOUND)
    assert "color-scheme: light dark" in text
    assert "prefers-color-scheme: dark" in text
    assert "<script" not in text
    assert "src=" not in text
    assert "<b>off</b>" not in text


def test_junit_fails_the_incidents_that_exceed_a_budget_and_no_other() -> None:
    suite = ElementTree.fromstring(junit(FOUND, OVER))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    failed = [case.get("name", "").split(" ")[0] for case in suite if case.find("failure") is not None]
    assert failed == ["pages:", "inc-1"]


def test_junit_without_a_budget_shows_what_differs_and_fails_nothing() -> None:
    suite = ElementTree.fromstring(junit(FOUND))[0]
    assert suite.get("failures") == "0"
    (told,) = (text for case in suite if (text := case.findtext("system-out")))
    assert "cordon_node Node n1: would (keep pods off) → needs_approval" in told
    strict = ElementTree.fromstring(junit(FOUND, fail_all=True))[0]
    assert strict.get("failures") == "1"


def test_sarif_points_at_the_edited_file_and_is_an_error_over_budget() -> None:
    document = orjson.loads(sarif(FOUND, OVER))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        (location,) = result["locations"]
        assert location["logicalLocations"] == [{"name": "inc-1", "kind": "incident"}]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "runbooks/gpu.yaml"
    assert {(one["ruleId"], one["level"]) for one in run["results"]} == {
        ("whatif/verdict", "note"), ("whatif/step", "note"), ("whatif/page", "error"),
    }  # fmt: skip
    prints = [result["partialFingerprints"]["faultlineWhatIf/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
