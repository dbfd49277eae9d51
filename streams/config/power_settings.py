"""Settings of what is done to a node from outside it: its power by a BMC, and the operator's own tool behind a signed hook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from streams.config.post_settings import HookSecret, HookUrl
from streams.config.section import Contradiction, Section
from streams.config.setting_types import LabelKey

HookAction = Literal["power_cycle_node", "replace_node"]
Way = Literal["PowerCycle", "off-on", "ForceRestart"]


def _bmc_address(value: str) -> str:
    if value and ("{node}" not in value or not value.startswith("https://") or "@" in value):
        raise ValueError(f"{value!r} is not https://…{{node}}…, without a user or password")
    return value


class RedfishSettings(Section):
    """Power by the BMCs of the nodes: the action power_cycle_node. One of address, annotation and addresses_file says where they
    are."""

    address: Annotated[str, AfterValidator(_bmc_address)] = Field(
        "", description="https address of a node's BMC; {node} is the node's name"
    )
    annotation: LabelKey | None = Field(
        None, description="annotation of a node with the address of its BMC; needs hosts"
    )
    addresses_file: Path | None = Field(
        None, description="YAML mapping of node names to the addresses of their BMCs"
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="name patterns of the hosts that an annotation may name: whoever may annotate a node chooses where the "
        "password goes",
    )
    user_file: str = Field(
        "", description="file with the user's name, read for each request; {node} may be in it"
    )
    password_file: str = Field("", description="file with the password, likewise")
    auth: Literal["basic", "session"] = Field(
        "basic", description="session: log in, and log out after each call"
    )
    ca_file: Path | None = Field(
        None, description="authorities of the BMCs' certificates; the system's when not set"
    )
    system: str = Field("", description="id of the system behind the BMC; its only one when not set")
    way: Literal["auto", "PowerCycle", "off-on", "ForceRestart"] = Field(
        "auto",
        description="auto: PowerCycle where the BMC allows it, else ForceOff and On. ForceRestart takes no power from the GPUs",
    )
    match_uuid: bool = Field(
        True,
        description="nothing is done unless the BMC's system has the UUID that the node reports (systemUUID)",
    )
    timeout_s: float = Field(15.0, gt=0, le=300, description="timeout of one request")
    no_effect_s: float = Field(
        600.0,
        ge=60,
        le=86_400,
        description="a reset that was taken and shows no effect for so long has failed",
    )

    @property
    def is_set(self) -> bool:
        """Whether any way to find a BMC is set."""
        return bool(self.address or self.annotation or self.addresses_file)

    def contradictions(self) -> Iterator[Contradiction]:
        """No login, two places for an address, or one that anybody can choose."""
        if not self.is_set:
            return
        places = [name for name in ("address", "annotation", "addresses_file") if getattr(self, name)]
        if len(places) > 1:
            yield (places[0], *places[1:]), f"{' and '.join(places)} are set: one of them says where a BMC is"
        if self.annotation is not None and not self.hosts:
            yield ("hosts", "annotation"), "not set, and an annotation may name any host"
        for name in ("user_file", "password_file"):
            if not getattr(self, name):
                yield (name, places[0]), f"not set, and {places[0]} needs a login"


class WorkHookSettings(Section):
    """The operator's own tool, asked by a signed POST and then polled. Without a URL nothing is asked."""

    url: HookUrl = Field(None, description="where requests are posted to; URL/ID tells how far one is")
    secret: HookSecret = Field(None, description="signing secret: whsec_ and base64 of 24 to 64 bytes")
    actions: tuple[HookAction, ...] = Field((), description="what it is asked for")
    timeout_s: float = Field(15.0, gt=0, le=300, description="timeout of one request")

    def contradictions(self) -> Iterator[Contradiction]:
        """A tool that could not tell our requests from others', or that is asked for nothing."""
        if self.url is not None and self.secret is None:
            yield ("secret", "url"), "not set, and every request is signed"
        if self.url is not None and not self.actions:
            yield ("actions", "url"), "empty, and nothing would be asked of the tool"
        if self.url is None and self.actions:
            yield ("url", "actions"), "not set, and actions needs it"
