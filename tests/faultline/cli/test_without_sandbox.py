"""An installation without the sandbox, as the production image is: two commands say so, all others work."""

import sys

import pytest
from click.testing import CliRunner

from faultline.cli.main import COMMANDS, NEEDS_SANDBOX, cli

PACKAGES = NEEDS_SANDBOX["demo"]


@pytest.fixture(params=PACKAGES)
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package that cannot be imported."""
    name: str = request.param
    for module in [m for m in sys.modules if m.startswith(("sandbox", "faultline.cli.commands."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    return name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_works_without_the_sandbox_or_says_what_it_needs(name: str, missing: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    if missing in NEEDS_SANDBOX.get(name, ()):
        assert result.exit_code == 2
        assert f"needs the package '{missing}'" in result.output
    else:
        assert result.exit_code == 0
