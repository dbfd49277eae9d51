"""The closed vocabularies of the tables. A word of none of them is refused: nothing would act on it, and nobody would be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from streams.config.plain_faults import none_of, one_of
from streams.model.gpu_actions import GpuAction
from streams.model.kinds import IncidentFamily, SignalKind

FamilyName = Annotated[str, one_of(IncidentFamily)]
KindName = Annotated[str, one_of(SignalKind)]
ActionName = Annotated[str, one_of(GpuAction)]
KindOrGroup = Annotated[
    str, one_of((*SignalKind, *sorted({f"{kind.partition('.')[0]}.*" for kind in SignalKind if "." in kind})))
]
"""A kind, or all kinds of a group (`nccl.*`)."""
DeviceFamily = Annotated[str, one_of((*IncidentFamily, "nvswitch"))]
"""The family of a device's error: that of the incident, or the switch, whose errors have a place of their own."""

M = TypeVar("M", bound=Mapping[str, Any])

_OF_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {"family": tuple(IncidentFamily), "action": tuple(GpuAction)}


def _known_words(attributes: M) -> M:
    for name, known in _OF_ATTRIBUTES.items():
        if name in attributes and attributes[name] not in known:
            raise PydanticCustomError(
                "words", "{what}", {"what": f"{name}: {none_of(str(attributes[name]), known)}"}
            )
    return attributes


KnownWords = AfterValidator(_known_words)
"""Attributes that a row sets: what correlation reads of them is one of its words."""
