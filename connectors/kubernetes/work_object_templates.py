"""Templates of `apply_template`: an object that another controller acts on, and how its result is read.

    template: nvsentinel-reboot
    class: reboot                        # close, move, reset, reboot, replace, or nothing: what the guardrails count it as
    does: create                         # create an object, patch one that is there, or delete it
    object:
      apiVersion: janitor.dgxc.nvidia.com/v1alpha1
      kind: RebootNode
      spec: {nodeName: "${node}", force: false}
    done:                                # any of these
      - {condition: NodeReady, status: "True"}
    failed:
      - {condition: NodeReady, status: "False", reason: "Failed|Timeout"}
    proof: new_boot                      # besides: the node has booted anew and is Ready
    timeout_s: 1800
    undo: leave                          # or delete: what Faultline created, as it created it
    rights: [{apiGroups: [janitor.dgxc.nvidia.com], resources: [rebootnodes], verbs: [get, create]}]

A rule is one of `condition` (with `status`, and `reason` as a pattern), `path` (dots; with `values` as a pattern), `label` or
`annotation` (with `values`), and `gone: true`. Placeholders stand in values only and become text, never structure, so that
nothing of an incident can add a field:

    ${node} ${gpu_uuid} ${gpu_pci} ${gpu_index} ${incident} ${run} ${effect} ${namespace} ${name} ${param.NAME} ${annotation.KEY}

`${annotation.KEY}` and `${label.KEY}` are those of the node, e.g. of Cluster API, which writes its Machine on it; `${owner.KIND}`
is the name of an object that owns it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from connectors.base import Effect
from connectors.kubernetes.annotations import annotations_of, labels_of
from connectors.kubernetes.client import Object
from connectors.kubernetes.template_files import checked, files_in, yaml_in
from connectors.kubernetes.work_templates import MAX_VALUE
from streams.config.connector_settings import NodeWorkSettings
from streams.model.digest import digest
from streams.model.errors import ConfigError
from streams.model.message import plain

MAX_TEMPLATES = 100
Class = Literal["nothing", "close", "move", "reset", "reboot", "replace"]

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_KNOWN = frozenset(
    {"node", "gpu_uuid", "gpu_pci", "gpu_index", "incident", "run", "effect", "namespace", "name"}
)
_KEYED = re.compile(r"(?:param|annotation|label|owner)\.[A-Za-z0-9][A-Za-z0-9_./-]{0,300}")
_Pattern = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Strict):
    """One sign in an object that its work is done, or has failed."""

    condition: str | None = None
    status: Literal["True", "False", "Unknown"] = "True"
    reason: _Pattern | None = None
    path: str | None = Field(None, pattern=r"^[A-Za-z][\w-]*(\.[A-Za-z][\w-]*)*$")
    label: str | None = None
    annotation: str | None = None
    values: _Pattern | None = None
    gone: bool = False

    @model_validator(mode="after")
    def _one_sign(self) -> Rule:
        places = [self.condition, self.path, self.label, self.annotation, self.gone or None]
        if sum(place is not None for place in places) != 1:
            raise ValueError("a rule is one of condition, path, label, annotation and gone")
        if (self.path or self.label or self.annotation) and self.values is None:
            raise ValueError("a path, label or annotation needs values")
        for pattern in (self.reason, self.values):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ValueError(f"{pattern} is no pattern: {error}") from error
        return self


class Right(_Strict):
    """A right that the responder needs for the template, as in a ClusterRole."""

    apiGroups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]


class ObjectTemplate(_Strict):
    """One template, checked."""

    template: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$")
    about: str = ""
    class_: Class = Field(alias="class")
    does: Literal["create", "patch", "delete"] = "create"
    object: dict[str, Any]
    done: tuple[Rule, ...] = Field(min_length=1)
    failed: tuple[Rule, ...] = ()
    proof: Literal["none", "new_boot", "node_gone"] = "none"
    timeout_s: float = Field(1800.0, gt=0, le=7 * 86400)
    undo: Literal["delete", "leave"] = "leave"
    rights: tuple[Right, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _object_fits(self) -> ObjectTemplate:
        faults = list(_faults(self))
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def kind(self) -> str:
        """`apiVersion/Kind`, as the client looks it up."""
        return f"{self.object['apiVersion']}/{self.object['kind']}"


def read_object_templates(
    folder: Path | None, setting: str = "node_work.object_templates"
) -> dict[str, ObjectTemplate]:
    """The templates of a folder by name; none without one.

    Raises:
        ConfigError: the folder or a file cannot be read, or is invalid.
    """
    if folder is None:
        return {}
    found: dict[str, ObjectTemplate] = {}
    for file in files_in(folder, setting, "templates", MAX_TEMPLATES):
        one = read_object_template(file, setting)
        if one.template in found:
            raise ConfigError(f"{setting}: {folder}: two templates are named {one.template}")
        found[one.template] = one
    return found


def objects_of(settings: NodeWorkSettings) -> dict[str, ObjectTemplate]:
    """The templates that the settings name, by name.

    Raises:
        ConfigError: one is invalid, or the one that replaces a node is not there or counts as something else.
    """
    found = read_object_templates(settings.object_templates)
    name = settings.replace_node
    if name is not None and (name not in found or found[name].class_ != "replace"):
        known = ", ".join(sorted(n for n, one in found.items() if one.class_ == "replace")) or "none"
        raise ConfigError(
            f"node_work.replace_node: {name} is no template of class replace; those are: {known}"
        )
    return found


def read_object_template(file: Path, setting: str = "node_work.object_templates") -> ObjectTemplate:
    """One template from its file.

    Raises:
        ConfigError: it cannot be read or is invalid.
    """
    where = f"{setting}: {file}"
    return checked(ObjectTemplate, yaml_in(file, where), where)


def object_name(template: ObjectTemplate, effect: Effect) -> str:
    """The name of the object of an effect: always the same, and of no other effect."""
    return f"faultline-{template.template}-{digest(effect.key, size=10)}"


def filled(template: ObjectTemplate, effect: Effect, node: Object | None, namespace: str) -> Object:
    """The template's object with every placeholder replaced.

    Raises:
        ValueError: a placeholder has no value for this effect.
    """
    values = _values(effect, node, namespace) | {"name": object_name(template, effect)}

    def one(match: re.Match[str]) -> str:
        value = values.get(match[1], "")
        if not value:
            raise ValueError(f"{template.template}: there is no {match[1]} for {effect.target}")
        return value

    def fill(thing: Any) -> Any:
        if isinstance(thing, str):
            return _PLACEHOLDER.sub(one, thing)
        if isinstance(thing, list):
            return [fill(item) for item in thing]
        return {key: fill(value) for key, value in thing.items()} if isinstance(thing, dict) else thing

    result: Object = fill(template.object)
    return result


def _values(effect: Effect, node: Object | None, namespace: str) -> dict[str, str]:
    values: dict[str, object] = {
        "incident": effect.incident,
        "run": effect.run,
        "effect": effect.key,
        "namespace": effect.target.namespace or namespace,
        **{name: effect.context.get(name, "") for name in ("gpu_uuid", "gpu_pci", "gpu_index")},
        **{f"param.{name}": value for name, value in effect.params.items()},
    }
    if effect.target.kind == "Node":
        values["node"] = effect.target.name
    if node is not None:
        values |= {f"annotation.{key}": value for key, value in annotations_of(node).items()}
        owners = node["metadata"].get("ownerReferences") or []
        values |= {f"owner.{owner.get('kind')}": owner.get("name", "") for owner in owners}
        values |= {f"label.{key}": value for key, value in labels_of(node).items()}
    return {name: " ".join(plain(str(value), MAX_VALUE).split()) for name, value in values.items()}


def _faults(template: ObjectTemplate) -> Iterator[str]:
    about = template.object
    meta = about.get("metadata") or {}
    for key in ("apiVersion", "kind"):
        if not isinstance(about.get(key), str) or "${" in str(about.get(key)):
            yield f"object.{key}: must be set, without a placeholder"
    if not isinstance(meta, Mapping):
        yield "object.metadata: must be a mapping"
        return
    if template.does == "create" and meta.get("name") is not None:
        yield "object.metadata.name: is Faultline's to set, so that it is created at most once"
    if template.does != "create" and not meta.get("name"):
        yield "object.metadata.name: must name the object"
    if template.does == "delete" and template.undo != "leave":
        yield "undo: a deletion cannot be undone"
    if template.does == "delete" and not any(rule.gone for rule in template.done):
        yield "done: a deletion is done when the object is gone"
    if template.does == "patch" and template.undo != "leave":
        yield "undo: only an object that Faultline created can be deleted"
    yield from _placeholder_faults(about, "object")


def _placeholder_faults(thing: Any, where: str) -> Iterator[str]:
    if isinstance(thing, Mapping):
        for key, value in thing.items():
            if "${" in str(key):
                yield f"{where}: a placeholder stands in a key"
            yield from _placeholder_faults(value, f"{where}.{key}")
    elif isinstance(thing, list):
        for number, item in enumerate(thing):
            yield from _placeholder_faults(item, f"{where}.{number}")
    elif isinstance(thing, str):
        for name in _PLACEHOLDER.findall(thing):
            if name not in _KNOWN and not _KEYED.fullmatch(name):
                yield f"{where}: there is no placeholder ${{{name}}}"
