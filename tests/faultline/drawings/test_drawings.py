"""Drawings: the same documents give the same picture, and nothing from outside is more than text in it.

The pictures in `golden/` are looked at when they change: `python -m tests.faultline.drawings.test_drawings` writes them anew.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from faultline.drawings import decision_svg, drawing_css, standalone, timeline_svg, topology_svg
from faultline.drawings.render import _INKS
from faultline.drawings.shapes import WIDTH
from streams.model.entity import Entity, Part
from streams.model.incident import Candidate, IncidentState
from tests.faultline.report.scenes import FAULT, SCENES, Scene, healed, incident, large, line, node, slept_on

GOLDEN = Path(__file__).with_name("golden")
SVG = "{http://www.w3.org/2000/svg}"


def pictures(scene: Scene) -> dict[str, str]:
    return {
        "timeline": timeline_svg(scene.incident, scene.runs, scene.timeline, scene.now),
        "topology": topology_svg(scene.incident, scene.nodes),
        "decision": decision_svg(scene.incident, scene.runs, scene.nodes),
    }


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_is_the_one_that_was_looked_at(name: str) -> None:
    for kind, svg in pictures(SCENES[name]()).items():
        assert svg == (GOLDEN / f"{kind}-{name}.svg").read_text(encoding="utf-8"), f"{kind} of {name} changed"


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_is_well_formed_and_holds_no_script_style_or_address(name: str) -> None:
    for svg in pictures(SCENES[name]()).values():
        for element in ET.fromstring(svg).iter():
            assert element.tag.removeprefix(SVG) in {
                "svg",
                "title",
                "desc",
                "rect",
                "line",
                "circle",
                "path",
                "text",
            }
            for attribute in element.attrib:
                assert not attribute.startswith("on")
                assert attribute not in ("style", "href", "id") or attribute == "id"
        assert "<script" not in svg
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\ufffe\uffff]", svg)


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_stays_small_and_within_its_width(name: str) -> None:
    for svg in pictures(SCENES[name]()).values():
        assert len(svg) < 60_000
        root = ET.fromstring(svg)
        for rect in root.iter(f"{SVG}rect"):
            assert float(rect.get("x", "")) >= 0
            assert float(rect.get("x", "")) + float(rect.get("width", "")) <= WIDTH
        for text in root.iter(f"{SVG}text"):
            assert 0 <= float(text.get("x", "")) <= WIDTH


def test_a_picture_is_named_and_told_in_words() -> None:
    for svg in pictures(healed()).values():
        root = ET.fromstring(svg)
        title, told = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert title is not None
        assert told is not None
        assert root.get("role") == "img"
        assert (root.get("aria-labelledby"), root.get("aria-describedby")) == (
            title.get("id"),
            told.get("id"),
        )
        assert "GPU fell off the bus" in (title.text or "")
        assert "gpu-03" in (told.text or "")


def test_a_timeline_marks_the_clocks_in_their_order() -> None:
    shown = texts(pictures(healed())["timeline"])
    clocks = ["fault", "noticed", "decided", "node closed", "job running", "first step"]
    assert [text for text in shown if text in clocks] == clocks
    assert "+3 min 32 s" in shown


def test_thousands_of_entries_and_proofs_give_no_larger_picture() -> None:
    scene = slept_on()
    seen = [
        line(scene.incident, second, "observed.node_cordoned", "cordoned") for second in range(0, 9000, 3)
    ]
    proofs = tuple(
        replace(proof, occurred_at=FAULT + timedelta(seconds=second))
        for second in range(500)
        for proof in scene.incident.proofs
    )
    svg = timeline_svg(replace(scene.incident, proofs=proofs), scene.runs, seen, scene.now)
    assert len(svg) < 60_000
    assert "and 2994 before that" in texts(svg)


def test_documents_in_another_order_give_the_same_timeline() -> None:
    scene = slept_on()
    turned = timeline_svg(scene.incident, scene.runs[::-1], scene.timeline[::-1], scene.now)
    assert turned == pictures(scene)["timeline"]


def test_a_night_is_compressed_and_named_while_seconds_stay_apart() -> None:
    svg = pictures(slept_on())["timeline"]
    assert "6 h 22 min" in texts(svg)
    bars = [r for r in ET.fromstring(svg).iter(f"{SVG}rect") if r.get("fill") == _INKS["good"]]
    suspend = next(r for r in bars if 15 < float(r.get("width", "")) < 30)
    assert float(suspend.get("x", "")) < WIDTH / 4


def test_what_is_still_going_on_reaches_to_now() -> None:
    scene = healed()
    open_ = replace(scene, incident=incident(state=IncidentState.OPEN, closed_at=None, progress=()), runs=())
    assert "now 03:24:12" in texts(pictures(open_)["timeline"])
    assert "stopped for 20 min" in texts(pictures(open_)["timeline"])


def test_an_incident_of_one_moment_can_be_drawn() -> None:
    bare = incident(
        opened_at=FAULT,
        updated_at=FAULT,
        closed_at=FAULT,
        proofs=(),
        progress=(),
        jobs=(),
        nodes=(),
        facts={},
    )
    svg = timeline_svg(bare, (), (), FAULT)
    assert "no runbook was run" in texts(svg)


def test_a_clock_that_ran_backwards_still_gives_a_picture() -> None:
    scene = healed()
    early = replace(
        scene.incident, opened_at=FAULT - timedelta(hours=1), closed_at=FAULT - timedelta(hours=2)
    )
    assert "+0 s" in texts(timeline_svg(early, scene.runs, scene.timeline, scene.now))


def test_forty_nodes_are_named_and_a_thousand_counted() -> None:
    few, lots = texts(pictures(large(40))["topology"]), texts(pictures(large(1000))["topology"])
    assert {f"gpu-{number:03}" for number in range(40)} <= set(few)
    assert not any(text.startswith("gpu-") for text in lots)
    assert any(text.startswith("1,000 nodes") for text in lots)
    assert "and 44 more places" in lots


def test_a_leaf_that_serves_several_racks_is_one_group_and_names_them() -> None:
    nodes = {name: node(name, leaf="leaf-00", rack=f"r{name[-1]}") for name in ("gpu-01", "gpu-02", "gpu-03")}
    shown = texts(topology_svg(incident(nodes=tuple(nodes)), nodes))
    assert shown.count("leaf-00") == 1
    assert "racks r1, r2, r3 · 3 nodes" in shown


def test_nodes_of_the_part_at_fault_stand_together() -> None:
    fed = {name: node(name, parts={"power-feed": "B"}) for name in ("gpu-01", "gpu-20")}
    shown = texts(topology_svg(incident(Entity("west", part=Part("power-feed", "B")), nodes=tuple(fed)), fed))
    assert "power feed B" in shown
    assert "2 nodes" in shown
    assert shown.count("root cause") == 1


def test_nodes_whose_place_is_not_known_say_so() -> None:
    assert "place not known" in texts(topology_svg(incident(), {}))
    assert "4 nodes" in texts(topology_svg(incident(), {}))


@pytest.mark.parametrize(
    ("root", "shown"),
    [
        (Entity("west", node="gpu-03", nic="mlx5_3"), "NIC mlx5_3"),
        (Entity("west", node="gpu-03"), "the node itself"),
        (Entity("west", part=Part("power-feed", "B")), "power feed B"),
        (Entity("west", storage="fs-1"), "storage fs-1"),
        (Entity("west", switch="spine-1", port="Ethernet3"), "port Ethernet3 of spine-1"),
    ],
)
def test_the_culprit_is_named_wherever_it_is(root: Entity, shown: str) -> None:
    nodes = {name: node(name) for name in ("gpu-01", "gpu-03")}
    svg = topology_svg(incident(root, nodes=("gpu-01", "gpu-03")), nodes)
    assert shown in texts(svg)
    assert texts(svg).count("root cause") == 1


def test_the_style_sheet_has_every_colour_in_light_and_dark() -> None:
    for ink in _INKS:
        assert drawing_css().count(f"--fl-{ink}: #") == 3
        assert f".fl-f-{ink} " in drawing_css()
        assert f".fl-s-{ink} " in drawing_css()


def test_a_decision_shows_evidence_in_time_order_and_then_the_culprit() -> None:
    scene = healed()
    shown = texts(pictures(scene)["decision"])
    clocks = [text for text in shown if re.fullmatch(r"\d\d:\d\d:\d\d", text)]
    assert clocks == sorted(clocks)
    assert "root cause" in shown


def test_two_thousand_victims_are_one_picture_with_a_count() -> None:
    scene = healed()
    names = tuple(f"gpu-{number:04}" for number in range(2000))
    svg = decision_svg(
        replace(scene.incident, nodes=(*scene.incident.nodes, *names)), scene.runs, scene.nodes
    )
    assert len(svg) < 60_000
    assert any(re.fullmatch(r"2,0\d\d nodes", text) for text in texts(svg))


def test_a_rejected_candidate_is_drawn_dashed_with_its_reason_and_says_on_pointing_what_it_lacked() -> None:
    scene = healed()
    root = scene.incident.root
    one = Candidate(
        root, "nic_link", False, "one host's link", "its neighbours failed with it", "fewer than 3; 8 did"
    )
    svg = decision_svg(replace(scene.incident, candidates=(one,)), scene.runs, scene.nodes)
    assert "one host's link: its neighbours failed with it" in texts(svg)
    dashed = [r for r in ET.fromstring(svg).iter(f"{SVG}rect") if r.get("stroke-dasharray")]
    hints = [title.text for rect in dashed for title in rect.iter(f"{SVG}title")]
    assert hints == ["would have convinced: fewer than 3; 8 did"]


def test_a_drawing_as_a_file_has_its_style_and_a_background() -> None:
    svg = standalone(pictures(healed())["decision"])
    root = ET.fromstring(svg)
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
    assert root.find(f"{SVG}rect").get("class") == "fl-f-paper"  # type: ignore[union-attr]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, made in SCENES.items():
        for kind, svg in pictures(made()).items():
            (GOLDEN / f"{kind}-{name}.svg").write_text(svg, encoding="utf-8")
