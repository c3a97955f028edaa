"""`Job`: what a user submits; it travels and is stored as JSON (`railweave.job/1`), not as code."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ..agents.checkpoint_nodes import is_node_place, node_directory
from ..placement.constraints import Constraints
from ..placement.constraints_file import FORMAT as CONSTRAINTS_FORMAT
from ..placement.constraints_file import load_constraints, parse_constraints
from ..placement.errors import InvalidInput, Problem
from ..placement.explained import Explained
from ..placement.files import parse_text, read_data, validated
from ..placement.pcg import PCG, Group, Op
from ..placement.transformer_pcg import build_pcg
from ..placement.workload import Workload

FORMAT: Final = "railweave.job/1"
# What a ring of unknown size is reckoned with; only proportions matter to its placement.
PLAIN_RING_BYTES: Final = float(2**20)
SET_BY_US: Final = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "RAILWEAVE_JOB_ID",
        "RAILWEAVE_ATTEMPT",
        "RAILWEAVE_ATTEMPT_ID",
        "RAILWEAVE_RUN_ID",
        "RAILWEAVE_CHECKPOINT_DIR",
        "RAILWEAVE_CHECKPOINT_PEERS",
        "RAILWEAVE_MTBF_S",
        "RAILWEAVE_PROGRESS",
        "RAILWEAVE_HANG_TIMEOUT_S",
        "RAILWEAVE_NAN_LOSS_LIMIT",
        "RAILWEAVE_STRAGGLER_RATIO",
        "RAILWEAVE_RESUME_FROM",
        "RAILWEAVE_NODE",
        "RAILWEAVE_DEVICE",
    }
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _as_command(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError(f"not a command line: {error}; close the quotes") from error
    return tuple(value) if isinstance(value, list) else value


def _as_pcg(value: Any) -> Any:
    if isinstance(value, str | PurePath):
        return PCG.load(value)
    return PCG.parse(value) if isinstance(value, Mapping) else value


def _as_constraints(value: Any) -> Any:
    if isinstance(value, str | PurePath):
        return load_constraints(value)
    if isinstance(value, Mapping):
        return parse_constraints({"format": CONSTRAINTS_FORMAT, **value})
    return value


def _as_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


_Location = Annotated[str, Field(min_length=1)]


class Job(Explained):
    """A training job.

    entrypoint: the command of every rank, as a list or as a line that is split like a shell would;
        no shell runs it. `python` is the interpreter that Railweave runs with on the node.
    workload: model, parallelism and batch, from which the PCG follows.
    pcg: instead of a workload, the ranks and what they send each other: a PCG, its data, or the
        path of its file.
    devices: how many ranks; enough by itself, and then they are placed as one ring.
    priority: higher starts first; equal ones start in the order of their submission.
    checkpoint_dir: folder or URL that every node of the job reaches, or `node:///folder` on each
        node's own disk; by default a folder of the job's own in the daemon's state folder, which
        only the head node is sure to have.
    max_restarts: how often a broken attempt is followed by another.
    working_dir: where the ranks start; by default where the job was made.
    env: added to the environment of every rank.
    grace_s: between SIGTERM and SIGKILL when an attempt is stopped.
    time_limit_s: for finding a placement.
    hang_timeout_s: how long without a step counts as hung; by default 10 typical steps or 3 times
        the longest, at least 5 minutes, and half an hour where no step is reported.
    nan_loss_limit: how many reported losses in a row that are NaN or infinite break an attempt; by
        default 10. With 0 it goes on whatever they are.
    straggler_ratio: how many times slower than its peers a rank must compute, as ranks report it,
        to break an attempt and have its node set aside; by default none does.
    min_data_parallel: the least data-parallel degree (of a job that gives only `devices`: number of
        ranks) with which it may go on while devices are lacking. It grows again when they are back.
        Its ranks must be able to resume from what another number of ranks has saved, for which
        `agents.checkpoint_reshard` serves. Without it a job waits for all of its devices.
    preflight: whether the nodes of a placement are checked before the ranks start on them.
    constraints: what its placements must satisfy, also after a fault: Constraints, their data
        (`railweave.constraints/1`, the format may be left out), or the path of their file.

    Raises InvalidInput listing everything that is wrong with it.
    """

    format: Literal["railweave.job/1"] = FORMAT
    name: str = Field(min_length=1, max_length=200)
    entrypoint: Annotated[tuple[str, ...], BeforeValidator(_as_command), Field(min_length=1)]
    workload: Workload | None = None
    pcg: Annotated[PCG | None, BeforeValidator(_as_pcg)] = None
    devices: int | None = Field(default=None, ge=1)
    priority: int = Field(default=0, ge=-(2**31), lt=2**31)
    checkpoint_dir: Annotated[_Location | None, BeforeValidator(_as_text)] = None
    max_restarts: int = Field(default=3, ge=0)
    working_dir: Annotated[str, BeforeValidator(_as_text)] = Field(default_factory=os.getcwd)
    env: dict[str, str] = Field(default_factory=dict)
    grace_s: float = Field(default=10.0, ge=0, le=3600, allow_inf_nan=False)
    time_limit_s: float = Field(default=1.0, gt=0, le=3600, allow_inf_nan=False)
    hang_timeout_s: float | None = Field(default=None, ge=1, le=2_592_000, allow_inf_nan=False)
    nan_loss_limit: int | None = Field(default=None, ge=0)
    straggler_ratio: float | None = Field(default=None, ge=1.2, le=1000, allow_inf_nan=False)
    min_data_parallel: int | None = Field(default=None, ge=1)
    preflight: bool = True
    constraints: Annotated[Constraints | None, BeforeValidator(_as_constraints)] = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [
            *_size_problems(self),
            *_shrink_problems(self),
            *_pin_problems(self),
            *_text_problems(self),
            *_env_problems(self.env),
        ]
        if problems:
            raise InvalidInput("Job", problems)
        return self

    @classmethod
    def parse(cls, data: Mapping[str, Any] | str, source: str = "job") -> Self:
        """A job from plain data or from text. Raises InvalidInput naming each fault's place."""
        plain = parse_text(data, source) if isinstance(data, str) else data
        return validated(cls, plain, source, FORMAT)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a job file (YAML or JSON). Raises InvalidInput naming each fault's place."""
        return validated(cls, read_data(path), os.fspath(path), FORMAT)

    def to_json(self) -> str:
        """The job as JSON text; the same job gives the same text."""
        return self.model_dump_json(exclude_none=True)

    @property
    def world_size(self) -> int:
        """How many ranks, and so devices, the job takes."""
        if self.workload is not None:
            return self.workload.parallelism.world_size
        if self.pcg is not None:
            return self.pcg.world_size
        assert self.devices is not None  # _size_problems refuses a job without a size
        return self.devices

    @property
    def data_parallel(self) -> int:
        """The data-parallel degree; of a plain ring the number of its ranks."""
        return self.workload.parallelism.dp if self.workload is not None else self.world_size

    def smaller_sizes(self) -> list[int]:
        """Numbers of devices below its own with which it may run, largest first."""
        least = self.min_data_parallel
        if least is None:
            return []
        found = []
        for degree in range(self.data_parallel - 1, least - 1, -1):
            with contextlib.suppress(InvalidInput):
                found.append(self.with_data_parallel(degree).world_size)
        return found

    def with_data_parallel(self, degree: int) -> Job:
        """The same job, the same batch too, at another degree. Raises InvalidInput."""
        data = self.model_dump(mode="json", exclude_none=True)
        if self.workload is not None:
            data["workload"]["parallelism"]["dp"] = degree
            data.pop("devices", None)
        else:
            data["devices"] = degree
        data.pop("min_data_parallel", None)
        return Job.parse(data, f"{self.name} at a data-parallel degree of {degree}")

    def with_devices(self, devices: int) -> Job:
        """The job at the size of so many devices. Raises InvalidInput."""
        if devices == self.world_size:
            return self
        return self.with_data_parallel(devices * self.data_parallel // self.world_size)

    def graph(self) -> PCG:
        """The ranks and what they send each other; one plain ring where nothing is known."""
        if self.workload is not None:
            return build_pcg(self.workload)
        if self.pcg is not None:
            return self.pcg
        ranks = tuple(range(self.world_size))
        ring = Group(name="ring", op=Op.ALL_REDUCE, ranks=ranks, bytes=PLAIN_RING_BYTES)
        return PCG(world_size=self.world_size, groups=(ring,))

    def kinds(self) -> dict[str, int]:
        """How many devices must be of one accelerator kind, by kind."""
        if self.pcg is None:
            return {}
        return dict(Counter(self.pcg.required_accelerators().values()))


def new_job_id(name: str) -> str:
    """An id for a job of that name that no other job, here or in an earlier store, has."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "job"
    return f"{slug}-{secrets.token_hex(3)}"


def _size_problems(job: Job) -> list[Problem]:
    if job.workload is not None and job.pcg is not None:
        return [Problem("pcg", "given beside a workload", "give one of them")]
    if job.workload is None and job.pcg is None and job.devices is None:
        fix = "give workload=, pcg=, or devices= for a plain ring of that many ranks"
        return [Problem("", "no size", fix)]
    if job.devices is not None and job.devices != job.world_size:
        what = "pcg" if job.workload is None else "workload"
        found = f"found {job.devices}, but the {what} has {job.world_size} ranks"
        return [Problem("devices", found, "leave devices out, or make them equal")]
    return []


def _shrink_problems(job: Job) -> list[Problem]:
    least = job.min_data_parallel
    if least is None:
        return []
    if job.pcg is not None:
        fix = "give a workload, or devices alone, from which a smaller job follows"
        return [Problem("min_data_parallel", "given beside a pcg", fix)]
    if job.workload is None and job.devices is None:
        return []
    if least > job.data_parallel:
        found = f"found {least}, but the job's own degree is {job.data_parallel}"
        return [Problem("min_data_parallel", found, "give at most that")]
    return []


def _pin_problems(job: Job) -> list[Problem]:
    if job.constraints is None or (job.workload is None and job.pcg is None and not job.devices):
        return []
    return [
        Problem(
            f"constraints.pinned[{index}].rank",
            f"rank {pin.rank} does not exist",
            f"ranks are 0 to {job.world_size - 1}",
        )
        for index, pin in enumerate(job.constraints.pinned)
        if pin.rank >= job.world_size
    ]


def _text_problems(job: Job) -> list[Problem]:
    problems = []
    if any("\0" in word for word in (*job.entrypoint, job.working_dir)):
        problems.append(Problem("entrypoint", "holds a NUL character", "remove it"))
    if not job.entrypoint[0]:
        problems.append(Problem("entrypoint[0]", "an empty command", "name a program"))
    if not PurePath(job.working_dir).is_absolute():
        found = f"found {job.working_dir!r}, a relative path"
        problems.append(Problem("working_dir", found, "give it from the root on"))
    where = job.checkpoint_dir
    if where is not None and "://" not in where and not PurePath(where).is_absolute():
        found = f"found {where!r}, a relative path"
        problems.append(Problem("checkpoint_dir", found, "give it from the root on, or a URL"))
    if where is not None and is_node_place(where):
        try:
            node_directory(where, "any")
        except ValueError as error:
            problems.append(Problem("checkpoint_dir", str(error), "name a folder of the nodes"))
    return problems


def _env_problems(env: Mapping[str, str]) -> list[Problem]:
    problems = []
    for name, value in env.items():
        place = f"env.{name}"
        if not _VARIABLE.fullmatch(name):
            fix = "use letters, digits and _, not starting with a digit"
            problems.append(Problem(place, f"{name!r} is no variable's name", fix))
        elif name in SET_BY_US:
            problems.append(Problem(place, "Railweave sets this itself", "remove it"))
        if "\0" in value:
            problems.append(Problem(place, "holds a NUL character", "remove it"))
    return problems
