"""`faultline completion SHELL`: the script that completes commands, options and ids in a shell."""

from __future__ import annotations

import click

from faultline.cli.groups import examples


@click.command(
    "completion",
    epilog=examples(
        ("faultline completion bash", "the script on stdout"),
        ("source <(faultline completion bash)", "in ~/.bashrc"),
        ("source <(faultline completion zsh)", "in ~/.zshrc, after compinit"),
        ("faultline completion fish > ~/.config/fish/completions/faultline.fish", "once"),
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes commands, options, runbooks and incidents in SHELL.

    Incidents are completed where Kafka answers within a second.
    """
    from click.shell_completion import get_completion_class

    from faultline.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None  # click has all three
    click.echo(found(cli, {}, "faultline", "_FAULTLINE_COMPLETE").source())
