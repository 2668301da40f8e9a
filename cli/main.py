"""The `stragglar` command: its subcommands, each loaded only when used, and how errors end it.

Exit codes: 0 ok, 1 invalid schedule or wrong result, 2 usage, 3 infeasible or nothing found in time,
4 something missing on this machine.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module, metadata

import click

from ..schedules.errors import StragglarError

COMMANDS = {
    "synth": "Make a schedule.",
    "import": "Read a schedule that the published synthesizers printed.",
    "check": "Validate a schedule or an MSCCL XML file, and compare it with the lower bound.",
    "lower": "Turn a schedule into a program for a runtime.",
    "load": "Put an MSCCL XML file where a runtime looks for it.",
    "run": "Run a schedule and check the result of every rank.",
    "show": "Draw a schedule's steps.",
    "cost": "Model how long a schedule takes.",
    "plan": "Choose the best schedule for a cluster, a size and a delay.",
    "tune": "Plan a table of sizes and delays to be looked up at call time.",
    "calibrate": "Measure alpha and bandwidth of this machine.",
    "trace": "Make and report traces of arrivals.",
    "report": "Say what is in a file that a run left: `report trace FILE`.",
    "bench": "Measure on shaped links between network namespaces.",
}
"""Command -> one line of help. The command `x` is the object `x` of the module `cli.x` (`import_`)."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called: start-up time is what most calls take."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of a user's work, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one command."""
        if cmd_name not in COMMANDS:
            return None
        module = "import_" if cmd_name == "import" else cmd_name
        command = getattr(import_module(f".{module}", __package__), "command")  # noqa: B009
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help from the table above, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(metadata.version("stragglar"), prog_name="stragglar")
def cli() -> None:
    """AllReduce schedules that do not wait for a late GPU: make, prove, lower and run them.

    \b
    Example:
      stragglar synth -n 8 --late 3 -o s.json
      stragglar check s.json
      stragglar lower s.json --to msccl-xml -o s.xml
      stragglar run s.json --on mpi --bytes 64MiB --late-by 200ms
    """


def main() -> None:
    """Entry point: runs a command; every expected failure is one line on stderr and an exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs a command line and returns its exit code."""
    try:
        code = cli.main(args=arguments, prog_name="stragglar", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except click.Abort:
        return _fail("interrupted", 130)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except StragglarError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader went away (`| head`): not an error, and nothing more can be written there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _fail(message: str, code: int) -> int:
    click.echo(f"stragglar: {' '.join(message.split())}", err=True)
    return code
