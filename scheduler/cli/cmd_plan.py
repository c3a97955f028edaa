"""`railweave plan --model M --cluster FILE`: the fastest way to split a training over a cluster."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ...placement.cluster import Cluster
from ...placement.drawing.svg import bytes_text, plural
from ...placement.models import Model
from ...placement.planning.limits import Limits
from ...placement.planning.plan import plan
from ...placement.planning.planned import Plan, PlannedStrategy, Run
from ...placement.planning.why import seconds_text
from ...placement.workload_file import save_workload as write_workload
from .output import check_outputs, console, json_option, print_json, table
from .plan_options import limit_options

_REASONS = {
    "considered": "considered",
    "estimated": "worked out and fit",
    "memory": "do not fit into memory",
    "bound": "no better by a bound",
}


@click.command("plan")
@click.option("--model", "model_name", required=True, help="A config.json, or a catalog name.")
@click.option("--cluster", "cluster_path", required=True, help="The cluster file.")
@click.option("--global-batch", type=click.IntRange(min=1), required=True, help="Samples a step.")
@click.option(
    "--sequence", type=click.IntRange(min=1), help="Tokens a sample; the model's longest."
)
@click.option("--precision", type=click.Choice(["bf16", "fp16", "fp8"]), default="bf16")
@click.option("--devices", type=click.IntRange(min=1), help="How many to use; all free ones.")
@click.option("--keep", type=click.IntRange(min=1), default=10, show_default=True, help="Told.")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="Seconds the solver may take to place the best.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--software", type=click.Choice(["megatron-2021", "megatron", "fsdp"]))
@click.option("--fp32-gradients", is_flag=True, help="Gradients are summed in 4 bytes.")
@click.option(
    "--mix-kinds/--no-mix-kinds",
    default=None,
    help="Pipelines over several kinds of accelerator; by default up to 64 devices.",
)
@click.option("--tokens", type=click.FloatRange(min=0, min_open=True), help="Of the training.")
@click.option("--price", type=click.FloatRange(min=0), help="Of a device hour.")
@click.option("--pue", type=click.FloatRange(min=1), default=1.2, show_default=True)
@limit_options
@click.option("--out", type=click.Path(dir_okay=False), help="Write the HTML report here.")
@click.option("--save-workload", type=click.Path(dir_okay=False), help="Write the best strategy.")
@click.option("--save-pcg", type=click.Path(dir_okay=False), help="Write what its ranks send.")
@click.option("--save-placement", type=click.Path(dir_okay=False), help="Write where they run.")
@json_option
def command(
    model_name: str,
    cluster_path: str,
    time_limit_s: float,
    software: str | None,
    fp32_gradients: bool,
    tokens: float | None,
    price: float | None,
    pue: float,
    limits: Limits,
    out: str | None,
    save_workload: str | None,
    save_pcg: str | None,
    save_placement: str | None,
    as_json: bool,
    **task: Any,
) -> None:
    """Find the fastest way to split the training of a model over the free devices of a cluster.

    Considers every strategy within the limits that the options set, places the best few, and says
    why the others are slower. Degrees take one value or several: --tp 4,8.
    """
    if not math.isfinite(time_limit_s):
        raise click.BadParameter("give a number of seconds", param_hint="'--time-limit'")
    run = _run(tokens, price, pue)
    paths = (out, save_workload, save_pcg, save_placement)
    check_outputs(*paths)
    _check_inputs_kept(paths, model_name, cluster_path)
    model, cluster = _model(model_name), Cluster.load(cluster_path)
    training = {"software": software, "fp32_gradients": fp32_gradients}
    found = plan(
        model, cluster, limits=limits, time_limit_s=time_limit_s, training=training, **task
    )
    _save(found, *paths[1:])
    if out:
        from ..plan_report import write_plan_report

        write_plan_report(out, found, cluster, run)
    if as_json:
        print_json(found.to_data(run))
        return
    console().print(summary(found, run))
    for path in filter(None, paths):
        console().print(f"written: {path}")


def summary(found: Plan, run: Run | None) -> Group:
    """A plan for people: the ranking, rules of thumb, what is next to the best, the counts."""
    best = found.best
    lines: list[RenderableType] = [
        Text(_headline(found)),
        Text(""),
        _ranking(found),
        Text(""),
        _thumbs(found),
        Text(""),
        _neighbours(found),
        Text(""),
        *_run_lines(best, run),
        Text(_counts(found.considered)),
        *(Text(f"note: {note}") for note in found.notes),
    ]
    return Group(*lines)


def _check_inputs_kept(outputs: Iterable[str | None], *inputs: str) -> None:
    """Refuse to write over what is read."""
    read = {Path(path).resolve(): path for path in inputs if os.path.isfile(path)}
    for path in filter(None, outputs):
        if Path(path).resolve() in read:
            raise click.UsageError(f"{path} is read by this plan; write to another file")


def _model(name: str) -> Model:
    if os.path.exists(name):
        return Model.from_hf(name)
    if Path(name).suffix == ".json" or os.sep in name:
        raise click.UsageError(f"there is no file {name}; give a config.json or a catalog name")
    return Model.from_catalog(name)


def _run(tokens: float | None, price: float | None, pue: float) -> Run | None:
    if tokens is None:
        if price is not None:
            raise click.UsageError("--price needs --tokens, the length of the training")
        return None
    return Run(tokens, price, pue)


def _save(
    found: Plan, workload_path: str | None, pcg_path: str | None, placement_path: str | None
) -> None:
    best = found.best
    if workload_path:
        write_workload(best.workload, workload_path)
    if pcg_path:
        best.pcg.save(pcg_path)
    if placement_path:
        best.placement.save(placement_path)


def _headline(found: Plan) -> str:
    work = found.best.workload
    return (
        f"{work.model.name} on {found.best.estimate.devices:,} of "
        f"{plural(found.free_devices, 'free device')} of {found.cluster_name}: batch of "
        f"{work.global_batch:,} x {work.sequence:,} tokens, {work.precision}"
    )


def _ranking(found: Plan) -> RenderableType:
    rows = [
        (
            str(rank),
            str(one),
            seconds_text(one.estimate.step_s),
            f"{one.estimate.tokens_per_s:,.0f}",
            f"{one.estimate.mfu:.1%}",
            bytes_text(one.estimate.memory_bytes),
            bytes_text(one.placement.cross_spine_bytes),
            one.why,
        )
        for rank, one in enumerate(found.strategies, 1)
    ]
    numbers = ["step", "tokens/s", "MFU", "memory", f"over {found.spine}"]
    return table(["", "strategy", *numbers, "slower by"], rows, right=numbers)


def _thumbs(found: Plan) -> RenderableType:
    rows = []
    for rule in found.rules_of_thumb:
        chosen = rule.strategy
        if chosen is None:
            rows.append((rule.name, "does not fit", "", rule.why_not))
            continue
        times = f"{rule.times_as_long:.2f} x" if rule.times_as_long else ""
        what = f"{chosen}: {seconds_text(chosen.estimate.step_s)}"
        rows.append((rule.name, times, what, chosen.why))
    return table(["rule of thumb", "the best", "what it chooses", "slower by"], rows)


def _neighbours(found: Plan) -> RenderableType:
    rows = [
        (near.change, "-" if near.step_s is None else seconds_text(near.step_s), near.outcome)
        for near in found.neighbours
    ]
    return table(["instead", "step", "slower by, or ruled out by"], rows, right=["step"])


def _run_lines(best: PlannedStrategy, run: Run | None) -> list[Text]:
    if run is None:
        return []
    whole = run.of(best.estimate)
    parts = [f"{run.tokens:.3g} tokens: {whole['days']:.3g} days"]
    parts.append(f"{whole['device_hours']:,.0f} device hours")
    if whole["cost"] is not None:
        parts.append(f"cost {whole['cost']:,.0f}")
    if whole["energy_kwh"] is not None:
        parts.append(f"{whole['energy_kwh']:,.0f} kWh")
    return [Text(", ".join(parts))]


def _counts(considered: dict[str, int]) -> str:
    told = [f"{considered['considered']:,} strategies considered"]
    told += [
        f"{count:,} {_REASONS.get(name, 'break ' + name)}"
        for name, count in considered.items()
        if count and name != "considered"
    ]
    return "; ".join(told)
