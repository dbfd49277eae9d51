"""Assembles a runbook from several files: fragments that it includes, and an override with which an installation changes it.

This is done on the YAML trees, before anything is validated: every value keeps the file, line and column it came from, so a fault
that an override causes is reported at its place in the override.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import yaml
from pydantic import Discriminator, Field, Tag

from runbooks.language.parameters import Name, Parameters, Value
from runbooks.language.schema import Runbook, Step
from runbooks.language.values import Id, Include, StepChange, StrictModel
from runbooks.language.yaml_source import at, child, did_you_mean, plain, validated, where
from streams.model.errors import ConfigError
from streams.model.run import Mode

MAX_STEPS = 30
MAX_NESTING = 8

OVERRIDES = 1000
"""A runbook of revision 3 with an override of revision 2 has revision 3002, so that no two such pairs share a revision."""


def _keys(item: object) -> Mapping[Any, Any]:
    return item if isinstance(item, Mapping) else {}


_Item = Annotated[
    Annotated[Step, Tag("plain")] | Annotated[Include, Tag("computed")],
    Discriminator(
        lambda item: "computed" if isinstance(item, Include) or "include" in _keys(item) else "plain"
    ),
]


class RunbookFile(Runbook):
    """A runbook as in its file, with fragments in place of steps. Only used for the JSON schema."""

    steps: tuple[_Item, ...] = Field(min_length=1, max_length=MAX_STEPS)  # type: ignore[assignment]


class Fragment(StrictModel):
    """Steps that several runbooks share, and the parameters that these steps use."""

    fragment: Id
    revision: int = Field(1, ge=1, lt=OVERRIDES)
    description: str = Field(min_length=10)
    parameters: Parameters = Field(default_factory=dict)
    steps: tuple[_Item, ...] = Field(min_length=1, max_length=MAX_STEPS)


class Override(StrictModel):
    """What an installation changes of a runbook without copying it. Raise `revision` with every change."""

    override: Id
    base: int | None = Field(None, ge=1, description="the revision it was written for; any other is refused")
    revision: int = Field(ge=1, lt=OVERRIDES)
    owner: str | None = None
    mode: Mode | None = None
    priority: int | None = Field(None, ge=0, le=1000)
    parameters: Mapping[Name, Value] = Field(default_factory=dict, description="new defaults")
    escalation: Mapping[Literal["to", "after", "within_s", "per"], Any] | None = None
    steps: Mapping[Id, StepChange] = Field(default_factory=dict)


def included(root: yaml.MappingNode, fragments: Mapping[str, yaml.MappingNode]) -> yaml.MappingNode:
    """The document with its fragments expanded: their steps in place, their parameters beside its own.

    Raises:
        ConfigError: a fragment is unknown, of another revision, or includes itself, or there are too many steps.
    """
    steps = child(root, "steps")
    if not isinstance(steps, yaml.SequenceNode) or not any(map(_include, steps.value)):
        return root
    brought: list[tuple[yaml.Node, yaml.Node]] = []
    root = _with_steps(root, steps, _expanded(steps, fragments, (), brought, [0]))
    own = child(root, "parameters")
    pairs = list(own.value) if isinstance(own, yaml.MappingNode) else []
    if not brought or (own is not None and not isinstance(own, yaml.MappingNode)):
        return root
    known = {key.value: key for key, _ in pairs}
    for key, value in brought:
        if (other := known.setdefault(key.value, key)) is not key:
            raise ConfigError(f"{where(key)}: parameters.{key.value}: it is also in {where(other)}")
        pairs.append((key, value))
    first = own or brought[0][1]
    return _with(
        root, "parameters", yaml.MappingNode("tag:yaml.org,2002:map", pairs, first.start_mark, first.end_mark)
    )


def overridden(base: yaml.MappingNode, change: yaml.MappingNode) -> yaml.MappingNode:
    """The document, which is valid by itself, with the override's values in place of its own.

    Raises:
        ConfigError: with a line for each step, parameter or base revision of the override that the document does not have.
    """
    override = validated(Override, change)
    faults = list(_unknown(base, change, override))
    if faults:
        raise ConfigError("\n".join(faults))
    root = base
    for key in ("owner", "mode", "priority"):
        if (value := child(change, key)) is not None:
            root = _with(root, key, value)
    if (escalation := child(change, "escalation")) is not None:
        root = _with(root, "escalation", _merged(child(root, "escalation"), escalation))
    for name in override.parameters:
        declared, value = at(root, ("parameters", name)), at(change, ("parameters", name))
        assert isinstance(declared, yaml.MappingNode)
        parameters = child(root, "parameters")
        assert isinstance(parameters, yaml.MappingNode)
        root = _with(root, "parameters", _with(parameters, name, _with(declared, "default", value)))
    steps = child(root, "steps")
    assert isinstance(steps, yaml.SequenceNode)
    root = _with_steps(root, steps, _changed_steps(steps.value, change))
    return _with(root, "revision", _revision(base, change, override))


def _expanded(
    steps: yaml.SequenceNode,
    fragments: Mapping[str, yaml.MappingNode],
    trail: tuple[str, ...],
    brought: list[tuple[yaml.Node, yaml.Node]],
    count: list[int],
) -> Iterator[yaml.Node]:
    for item in steps.value:
        if not _include(item):
            count[0] += 1
            if count[0] > MAX_STEPS:
                raise ConfigError(f"{where(item)}: steps: more than {MAX_STEPS} with what is included")
            yield item
            continue
        include = validated(Include, item)
        here = where(at(item, ("include",)))
        if include.include in trail:
            loop = " → ".join((*trail[trail.index(include.include) :], include.include))
            raise ConfigError(f"{here}: include: a fragment includes itself: {loop}")
        if len(trail) >= MAX_NESTING:
            raise ConfigError(f"{here}: include: nested in more than {MAX_NESTING} fragments")
        fragment = fragments.get(include.include)
        if fragment is None:
            similar = did_you_mean(include.include, fragments)
            raise ConfigError(f"{here}: include: there is no fragment {include.include}{similar}")
        found = validated(Fragment, fragment)
        if include.revision not in (None, found.revision):
            what = f"{include.include} is now at revision {found.revision}, not {include.revision}"
            raise ConfigError(f"{where(at(item, ('revision',)))}: include: {what}: review what has changed")
        inner, parameters = child(fragment, "steps"), child(fragment, "parameters")
        assert isinstance(inner, yaml.SequenceNode)
        if isinstance(parameters, yaml.MappingNode):
            brought += [pair for pair in parameters.value if pair not in brought]
        expanded = list(_expanded(inner, fragments, (*trail, include.include), brought, count))
        if faults := list(_unknown_steps(expanded, item, include.include)):
            raise ConfigError("\n".join(faults))
        yield from _changed_steps(expanded, item)


def _include(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) and child(node, "include") is not None


def _unknown(base: yaml.MappingNode, change: yaml.MappingNode, override: Override) -> Iterator[str]:
    """The base revision, parameters and steps of the override that the runbook does not have."""
    written_for, now = override.base, plain(at(base, ("revision",)))
    if written_for not in (None, now):
        what = f"{override.override} is now at revision {now}, this was written for {written_for}"
        yield f"{where(at(change, ('base',)))}: base: {what}: compare the two, then set base: {now}"
    known = [key.value for key, _ in getattr(child(base, "parameters"), "value", ())]
    for name in override.parameters:
        if name not in known:
            place = where(_key(change, ("parameters",), name))
            yield f"{place}: parameters.{name}: {override.override} has no such parameter{did_you_mean(name, known)}"
    yield from _unknown_steps(getattr(child(base, "steps"), "value", ()), change, override.override)


def _unknown_steps(steps: Sequence[yaml.Node], change: yaml.MappingNode, owner: str) -> Iterator[str]:
    """The steps of `change` that are not among those of `owner`."""
    known = [_id(step) for step in steps]
    for key, _ in getattr(child(change, "steps"), "value", ()):
        if key.value not in known:
            yield f"{where(key)}: steps.{key.value}: {owner} has no such step{did_you_mean(key.value, known)}"


def _changed_steps(steps: Sequence[Any], change: yaml.MappingNode) -> Iterator[yaml.Node]:
    """The steps with the changes to them that `change` has under `steps`."""
    wanted = {key.value: value for key, value in getattr(child(change, "steps"), "value", ())}
    for step in steps:
        for key, value in getattr(wanted.get(_id(step)), "value", ()):
            if key.value in ("params", "retry", "waves"):
                value = _merged(child(step, key.value), value)
            step = _with(step, key.value, value)
        yield step


def _revision(base: yaml.MappingNode, change: yaml.MappingNode, override: Override) -> yaml.ScalarNode:
    given = at(change, ("revision",))
    value = str(plain(at(base, ("revision",))) * OVERRIDES + override.revision)
    return yaml.ScalarNode("tag:yaml.org,2002:int", value, given.start_mark, given.end_mark)


def _merged(base: yaml.Node | None, change: yaml.Node) -> yaml.Node:
    """The keys of both, the change's where both have one."""
    if not isinstance(base, yaml.MappingNode) or not isinstance(change, yaml.MappingNode):
        return change
    for key, value in change.value:
        base = _with(base, key.value, value)
    return base


def _with(node: yaml.MappingNode, key: str, value: yaml.Node) -> yaml.MappingNode:
    """A copy with one key set: several runbooks share the nodes of a fragment, so those are never changed."""
    name = yaml.ScalarNode("tag:yaml.org,2002:str", key, value.start_mark, value.end_mark)
    pairs = [(k, v) for k, v in node.value]
    for number, (known, _) in enumerate(pairs):
        if known.value == key:
            pairs[number] = (known, value)
            break
    else:
        pairs.append((name, value))
    return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)


def _with_steps(root: yaml.MappingNode, old: yaml.SequenceNode, new: Iterable[yaml.Node]) -> yaml.MappingNode:
    return _with(root, "steps", yaml.SequenceNode(old.tag, list(new), old.start_mark, old.end_mark))


def _id(step: yaml.Node) -> str:
    return str(getattr(child(step, "id"), "value", ""))


def _key(root: yaml.Node, path: tuple[str, ...], name: str) -> yaml.Node:
    """The node of a key itself, not of its value."""
    parent = at(root, path)
    return next((key for key, _ in getattr(parent, "value", ()) if key.value == name), parent)
