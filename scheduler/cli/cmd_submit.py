"""`railweave submit -- COMMAND...`: queue a job."""

from __future__ import annotations

import os

import click

from ...placement.constraints import Constraints
from ...placement.errors import InvalidInput, Problem
from ...placement.pcg import PCG
from ...placement.workload import Workload
from ...placement.workload_file import load_workload
from ..job import Job
from ..lifecycle import JobState
from ..typical import typical_workload
from .constraint_options import constraint_options
from .data import job_data
from .main import Failed
from .output import console, json_option, print_json
from .session import connected


@click.command("submit")
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True)
@click.option("--name", help="The job's name; the command's by default.")
@click.option("--devices", type=click.IntRange(min=1), help="Ranks of a job that is one ring.")
@click.option("--tp", type=click.IntRange(min=1), help="Tensor-parallel degree.")
@click.option("--pp", type=click.IntRange(min=1), help="Pipeline stages.")
@click.option("--dp", type=click.IntRange(min=1), help="Data-parallel replicas.")
@click.option(
    "--min-dp",
    "least",
    type=click.IntRange(min=1),
    metavar="N",
    help="Go on with so many replicas at least while devices are lost and none are free.",
)
@click.option("--workload", "workload_path", help="A workload file, such as `plan` saves.")
@click.option("--pcg", "pcg_path", help="A communication graph file, instead of degrees.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher starts first.")
@click.option("--checkpoint-dir", help="Folder or URL that every node reaches.")
@click.option("--max-restarts", type=click.IntRange(min=0), default=3, show_default=True)
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="For every rank.")
@click.option("--working-dir", default=os.getcwd, show_default="here")
@click.option("--wait", is_flag=True, help="Return when the job is over; 1 unless it succeeded.")
@constraint_options
@json_option
def command(
    words: tuple[str, ...],
    name: str | None,
    devices: int | None,
    tp: int | None,
    pp: int | None,
    dp: int | None,
    least: int | None,
    workload_path: str | None,
    pcg_path: str | None,
    priority: int,
    checkpoint_dir: str | None,
    max_restarts: int,
    variables: tuple[str, ...],
    working_dir: str,
    wait: bool,
    constraints: Constraints | None,
    as_json: bool,
) -> None:
    """Queue a job that runs COMMAND in every rank. Options go before `--`, the command after it:

        railweave submit --tp 2 --pp 2 --dp 2 -- python train.py --steps 100

    How ranks talk decides where they are placed. With --tp, --pp and --dp the volumes are those of
    a typical transformer, the ranks numbered tensor-parallel first, then data, then pipeline; with
    --workload those of its model and split; with --pcg they are what the file says; with --devices
    the ranks are one ring.
    """
    split = tp is not None or pp is not None or dp is not None
    _check_one_size(devices, split, workload_path, pcg_path)
    job = Job(
        name=name or os.path.basename(words[-1] if len(words) == 1 else _script(words)),
        entrypoint=words,
        workload=typical_workload(tp or 1, pp or 1, dp or 1) if split else _workload(workload_path),
        pcg=PCG.load(pcg_path) if pcg_path else None,
        devices=devices,
        min_data_parallel=least,
        priority=priority,
        checkpoint_dir=_absolute(checkpoint_dir),
        max_restarts=max_restarts,
        env=_environment(variables),
        working_dir=os.path.abspath(working_dir),
        constraints=constraints,
    )
    with connected() as client:
        handle = client.submit(job)
        if not as_json:
            console().print(handle.id)
        state = handle.wait() if wait else None
        record = handle.record
    if as_json:
        print_json(job_data(record))
    elif wait:
        console().print(f"{record.job_id} is {record.state}")
    if state is not None and state is not JobState.SUCCEEDED:
        raise Failed(f"{record.job_id} is {state}: {record.reason}")


def _check_one_size(
    devices: int | None, degrees: bool, workload_path: str | None, pcg_path: str | None
) -> None:
    sizes = {
        "--devices": devices,
        "--tp/--pp/--dp": degrees,
        "--workload": workload_path,
        "--pcg": pcg_path,
    }
    given = [name for name, value in sizes.items() if value]
    if len(given) != 1:
        raise click.UsageError(
            "a job has its size from one of --devices, --tp/--pp/--dp, --workload and --pcg; "
            f"found {' and '.join(given) or 'none of them'}"
        )


def _workload(path: str | None) -> Workload | None:
    return load_workload(path) if path else None


def _script(words: tuple[str, ...]) -> str:
    """The script of a command such as `python -u train.py`, else its first word."""
    return next((word for word in words[1:] if word.endswith((".py", ".sh"))), words[0])


def _absolute(checkpoint_dir: str | None) -> str | None:
    if checkpoint_dir is None or "://" in checkpoint_dir:
        return checkpoint_dir
    return os.path.abspath(checkpoint_dir)


def _environment(variables: tuple[str, ...]) -> dict[str, str]:
    environment: dict[str, str] = {}
    for text in variables:
        name, equals, value = text.partition("=")
        if not equals:
            problem = Problem("--env", f"found {text!r}", "write NAME=VALUE")
            raise InvalidInput("submit", [problem])
        environment[name] = value
    return environment
