"""`python -m benchmarks.repairs`: repairs of large jobs against a long search, equally free.

For each family and seed a job is placed, something of it is lost, and the repair is timed. The long
search is simulated annealing written here on its own, on the ranks' nodes and with `evaluate()`'s
accounting, many times as long and begun from the repair, so that what it finds is never worse.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from railweave.placement import PCG, Cluster, Placement, Repair, evaluate, place, repair, warm_up
from railweave.placement.loops.compiled import compiled

from . import families

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FAMILIES = ("b", "c", "d", "e", "d-experts", "e-experts", "d-context", "e-context", "mesh")
Lost = str | tuple[str, int]
LOSSES = ("1 node", "8 nodes", "64 nodes", "20 devices", "a rack", "a pod")


@dataclass(frozen=True)
class Row:
    """One repair: seconds of processor time, ranks, and bytes of the spine against the best."""

    family: str
    seed: int
    loss: str
    max_moves: int
    cpu_s: float
    forced: int
    moved: int
    bytes: float
    best_bytes: float

    @property
    def ratio(self) -> float:
        """Cross-spine bytes over the best known with the same freedom."""
        return self.bytes / self.best_bytes if self.best_bytes else 1.0


def lost_of(
    cluster: Cluster, placement: Placement, loss: str, seed: int
) -> list[str | tuple[str, int]]:
    """Nodes or devices of the job that are lost."""
    chance = random.Random(f"{loss} {seed}")
    nodes = sorted({name for name, _ in placement.devices})
    if loss.endswith("devices"):
        return list(chance.sample(placement.devices, int(loss.split()[0])))
    if loss in ("a rack", "a pod"):
        tier = cluster.tiers[0 if loss == "a rack" else -2].name
        domain = {node.name: node.domains[tier] for node in cluster.nodes}
        held = sorted({domain[name] for name in nodes})
        gone = chance.choice(held)
        return [name for name in nodes if domain[name] == gone]
    return list(chance.sample(nodes, min(int(loss.split()[0]), len(nodes))))


class Long:
    """Annealing of where the ranks of nodes lie among the outermost domains, spine bytes alone.

    Items are all ranks of a node; an item stands for itself in every group, whose ranks are counted
    by domain. Written without the repair's own code.
    """

    def __init__(self, pcg: PCG, cluster: Cluster, before: Placement, forced: set[int]) -> None:
        tier = cluster.tiers[-2].name
        self.domain = {node.name: node.domains[tier] for node in cluster.nodes}
        self.number = {d: i for i, d in enumerate(sorted(set(self.domain.values())))}
        homes: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for rank, (name, _) in enumerate(before.devices):
            homes[name, rank in forced].append(rank)
        self.items = list(homes)
        item_of = {rank: i for i, name in enumerate(self.items) for rank in homes[name]}
        self.size = np.array([len(homes[name]) for name in self.items])
        self.forced = np.array([lost for _, lost in self.items])
        self.lead = [ranks[0] for ranks in homes.values()]
        kinds = {"ring": 0, "tree": 1, "pairs": 2}
        merged: dict[tuple[int, tuple[tuple[int, int], ...]], float] = defaultdict(float)
        for group in pcg.groups:
            n, size = len(group.ranks), group.bytes
            algorithm = group.resolved_algorithm.value
            count: dict[int, int] = defaultdict(int)
            for rank in group.ranks:
                count[item_of[rank]] += 1
            if len(count) == 1 or not size:
                continue
            form, weight = kinds["pairs"], size / 2
            if group.op.value in ("all_reduce", "all_gather", "reduce_scatter"):
                passes = 2 if group.op.value == "all_reduce" else 1
                form, weight = kinds["ring"], passes * (n - 1) / n * size
                if algorithm == "tree":
                    form, weight = kinds["tree"], 2 * size
            elif group.op.value == "all_to_all":
                weight = size / n
            elif group.op.value == "broadcast":
                form, weight = kinds["tree"], size
            merged[form, tuple(sorted(count.items()))] += weight
        self.form = np.array([form for form, _ in merged], dtype=np.int64)
        self.weight = np.array(list(merged.values()))
        self.start = np.cumsum([0, *(len(members) for _, members in merged)])
        flat = [pair for _, members in merged for pair in members]
        self.member = np.array([item for item, _ in flat], dtype=np.int64)
        self.count = np.array([count for _, count in flat], dtype=np.int64)
        order = np.argsort(self.member, kind="stable")
        self.of_item = np.searchsorted(self.member[order], np.arange(len(self.items) + 1))
        group_of = np.repeat(np.arange(len(self.form)), np.diff(self.start))
        self.item_group, self.item_count = group_of[order], self.count[order]

    def where(self, devices: list[tuple[str, int]]) -> Ints:
        """Domain of each item in a placement that keeps its ranks in one domain."""
        at = [self.number[self.domain[devices[rank][0]]] for rank in self.lead]
        return np.array(at, dtype=np.int64)

    def best(self, start: Ints, room: Ints, most: int, moves: int, seed: int) -> float:
        """The least bytes found, from `start`."""
        home = np.array([self.number[self.domain[name]] for name, _ in self.items])
        held = np.zeros((len(self.form), len(self.number)), dtype=np.int64)
        groups = np.repeat(np.arange(len(self.form)), np.diff(self.start))
        np.add.at(held, (groups, start[self.member]), self.count)
        return _anneal(
            start.copy(), home, self.forced, self.size, room.copy(), held, self.form, self.weight,
            self.of_item, self.item_group, self.item_count, most, moves, seed,
        )  # fmt: skip


@compiled
def _group_bytes(held: Ints, form: int, weight: float) -> float:
    parts, total, squares = 0, 0, 0
    for count in held:
        parts += count > 0
        total += count
        squares += count * count
    if form == 0:
        return weight * (parts if parts > 1 else 0)
    if form == 1:
        return weight * max(0, parts - 1)
    return weight * (total * total - squares)


@compiled
def _moved(
    item: int, to: int, at: Ints, held: Ints, form: Ints, weight: Floats,
    of_item: Ints, item_group: Ints, item_count: Ints,
) -> float:  # fmt: skip
    change = 0.0
    for k in range(of_item[item], of_item[item + 1]):
        g = item_group[k]
        change -= _group_bytes(held[g], form[g], weight[g])
        held[g, at[item]] -= item_count[k]
        held[g, to] += item_count[k]
        change += _group_bytes(held[g], form[g], weight[g])
    at[item] = to
    return change


@compiled
def _anneal(
    at: Ints, home: Ints, forced: Ints, size: Ints, room: Ints, held: Ints, form: Ints,
    weight: Floats, of_item: Ints, item_group: Ints, item_count: Ints, most: int, moves: int,
    seed: int,
) -> float:  # fmt: skip
    np.random.seed(seed)
    must = np.flatnonzero(forced)
    total = 0.0
    for g in range(len(form)):
        total += _group_bytes(held[g], form[g], weight[g])
    away = 0
    for i in range(len(at)):
        if not forced[i] and at[i] != home[i]:
            away += size[i]
    best, scale = total, 1e-9
    for step in range(moves):
        temperature = scale * 0.5 * (0.004 ** (step % (moves // 4) / (moves / 4.0)))
        item = must[np.random.randint(len(must))]
        if most > 0 and np.random.random() < 0.5:
            item = np.random.randint(len(at))
        here, other = at[item], -1
        there = np.random.randint(held.shape[1])
        if there == here:
            continue
        if room[there] < size[item] or np.random.random() < 0.5:
            for _ in range(30):
                pick = (
                    np.random.randint(len(at)) if most > 0 else must[np.random.randint(len(must))]
                )
                if at[pick] == there and size[pick] == size[item]:
                    other = pick
                    break
            if other < 0:
                continue
        spent = away
        for i, to in ((item, there), (other, here)):
            if i >= 0 and not forced[i]:
                spent += size[i] * ((to != home[i]) - 1 * (at[i] != home[i]))
        if spent > most:
            continue
        change = _moved(item, there, at, held, form, weight, of_item, item_group, item_count)
        if other >= 0:
            change += _moved(other, here, at, held, form, weight, of_item, item_group, item_count)
        scale = 0.99 * scale + 0.01 * abs(change) if step < 3000 else scale
        if change <= 0 or np.random.random() < np.exp(-change / max(temperature, 1e-9)):
            total += change
            away = spent
            if other < 0:
                room[here] += size[item]
                room[there] -= size[item]
            best = min(best, total)
        else:
            if other >= 0:
                _moved(other, there, at, held, form, weight, of_item, item_group, item_count)
            _moved(item, here, at, held, form, weight, of_item, item_group, item_count)
    return best


def measured(family: str, seed: int, losses: list[str], moves: list[int], steps: int) -> list[Row]:
    """Repairs of one instance, each beside what the long search finds."""
    made = families.instance(family, seed)
    before = place(made.pcg, made.cluster, 1.0, seed=seed)
    rows = []
    for loss in losses:
        lost = lost_of(made.cluster, before, loss, seed)
        for most in moves:
            began = time.process_time()
            try:
                found = repair(before, made.pcg, made.cluster, lost, max_moves=most)
            except ValueError as error:
                print(f"{family} {seed} {loss}: {str(error)[:90]}", flush=True)
                break
            cpu_s = time.process_time() - began
            assert most or found.moved == found.forced
            assert len(found.moved) - len(found.forced) <= most
            spine = evaluate(made.pcg, made.cluster, found.placement.devices).cross_spine_bytes
            best = _long(made.pcg, made.cluster, before, found, lost, most, steps)
            row = Row(
                family, seed, loss, most, cpu_s, len(found.forced), len(found.moved), spine, best
            )
            rows.append(row)
            print(
                f"{family:10} {seed} {loss:10} +{most:<3} {cpu_s:.3f} s, {row.moved} of "
                f"{row.forced} moved, {row.ratio:.4f} of the best",
                flush=True,
            )
    return rows


def _long(
    pcg: PCG,
    cluster: Cluster,
    before: Placement,
    after: Repair,
    lost: list[Lost],
    most: int,
    steps: int,
) -> float:
    gone = {item for item in lost if isinstance(item, str)}
    search = Long(pcg, cluster, before, set(after.forced))
    start = search.where(after.placement.devices)
    room = np.zeros(len(search.number), dtype=np.int64)
    held = set(after.placement.devices) | {item for item in lost if not isinstance(item, str)}
    whole = int(search.size.min())
    for node in cluster.nodes:
        if node.name not in gone:
            free = sum((node.name, index) not in held for index in node.usable_devices)
            room[search.number[search.domain[node.name]]] += free // whole * whole
    return min(search.best(start, room, most, steps, seed) for seed in (1, 2))


def main() -> None:
    """Print a row for each repair, then a table by loss and moves."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repairs", description=__doc__)
    parser.add_argument("--family", nargs="+", default=list(FAMILIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[101])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES))
    parser.add_argument("--moves", nargs="+", type=int, default=[0, 16, 64])
    parser.add_argument("--steps", type=int, default=2_000_000, help="of the long search")
    options = parser.parse_args()
    warm_up()
    rows = [
        row
        for seed in options.seeds
        for family in options.family
        for row in measured(family, seed, options.losses, options.moves, options.steps)
    ]
    print(
        "\n| lost | others may move | repairs | processor time at most | "
        "of the best, mean | at most |"
    )
    print("|---|---|---|---|---|---|")
    for loss in options.losses:
        for most in options.moves:
            part = [row for row in rows if (row.loss, row.max_moves) == (loss, most)]
            if part:
                ratios = [row.ratio for row in part]
                print(
                    f"| {loss} | {most} | {len(part)} | {max(r.cpu_s for r in part):.2f} s | "
                    f"{sum(ratios) / len(ratios):.3f} | {max(ratios):.3f} |"
                )


if __name__ == "__main__":
    main()
