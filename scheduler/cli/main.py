"""The command `railweave`: finds the verb, and turns what went wrong into text and an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Final, NoReturn

import click

DONE: Final = 0
FAILED: Final = 1
WRONG_INPUT: Final = 2
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

# The help of each verb stands here, so that listing them loads none.
VERBS: Final = {
    "up": "Start the daemon and an agent on every node of a Ray cluster.",
    "down": "Stop the daemon, the agents, and an embedded cluster.",
    "status": "Show the daemon, the nodes and the queue.",
    "nodes": "List the nodes and what is held against them, set one aside, release one.",
    "probe": "Measure the network between the nodes.",
    "import": "Make a cluster file of files that a site already has.",
    "topology": "Draw the cluster and its state.",
    "plan": "Find the fastest way to split a training over a cluster.",
    "place": "Place a communication graph on a cluster.",
    "repair": "Give the ranks of a placement that lost their devices other ones.",
    "ports": "Plan source ports that spread a placement's connections over equal paths.",
    "submit": "Queue a job.",
    "jobs": "List jobs.",
    "show": "Show a job: attempts, placement, events.",
    "explain": "Say why a job is where it is or cannot be, and where its traffic comes from.",
    "logs": "Print the output of a rank.",
    "ranks": "Show how a job's ranks look now: steps, times, activity.",
    "checkpoints": "List a job's checkpoints, check them, take one out.",
    "cancel": "Stop a job.",
    "chaos": "Break one's own jobs on purpose, and see what Railweave notices.",
    "demo": "Watch a job being placed, losing a node, and finishing.",
}


class Failed(Exception):
    """What was asked for did not succeed; the text says why and what to do."""


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f".cmd_{cmd_name}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="railweave", message="%(version)s")
def railweave() -> None:
    """Place large-model training jobs so that they stay off the spine of the network, launch them,
    and bring them back from their last checkpoint when something breaks.

    Exit codes: 0 done, 1 the thing asked for failed, 2 wrong usage or input.
    """


def main() -> NoReturn:
    """Entry point of the `railweave` command."""
    # As Ctrl-C does, so that whatever was started is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code. Errors are text on standard error."""
    try:
        # Not click's own main, which ends the process itself when an output pipe breaks.
        with railweave.make_context("railweave", list(arguments)) as context:
            railweave.invoke(context)
        sys.stdout.flush()
        return DONE
    except click.exceptions.Exit as asked:
        return asked.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return WRONG_INPUT
    except click.UsageError as error:
        error.show()
        return WRONG_INPUT
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not flush into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        return _told(error)


def _told(error: Exception) -> int:
    """Print what went wrong; the exit code. An error that nobody foresaw says how to report it."""
    from ...placement.errors import Infeasible, InvalidInput

    if os.environ.get("RAILWEAVE_DEBUG"):
        raise error
    if isinstance(error, InvalidInput):
        print(f"railweave: {error}", file=sys.stderr)
        return WRONG_INPUT
    foreseen = isinstance(error, Failed | Infeasible | OSError) or _is_ours(error)
    if foreseen:
        print(f"railweave: {error}", file=sys.stderr)
    else:
        print(
            f"railweave: this should not happen: {type(error).__name__}: {error}\n"
            "Run it again with RAILWEAVE_DEBUG=1 to see where, and report it.",
            file=sys.stderr,
        )
    return FAILED


def _is_ours(error: Exception) -> bool:
    """Whether the error was raised as one of Railweave's own kinds, which explain themselves."""
    return any(kind.__module__.startswith("railweave.") for kind in type(error).__mro__)
