"""Groups and bytes of any split: against a slow count, rank by rank and layer by layer."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from railweave.placement import (
    PCG,
    InvalidInput,
    Kind,
    Model,
    Op,
    Parallelism,
    Workload,
    build_pcg,
    mesh_order,
    stage_parameters,
)
from railweave.placement.strategies.grid import Grid

H, HEADS, KV, DIM, FFN, VOCAB, SEQ, LAYERS, EXPERT_FFN = 16, 8, 4, 2, 32, 12, 32, 4, 8
EXPERTS, TOP = 4, 2
ORDERS = ["-".join(order) for order in permutations(("tp", "cp", "ep", "dp", "pp"))]


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Small gated models, dense or mixtures, split in any way that the rules allow."""
    experts = draw(st.booleans())
    mixture = {
        "experts": EXPERTS,
        "experts_per_token": TOP,
        "expert_ffn": EXPERT_FFN,
        "shared_experts": draw(st.integers(0, 1)),
        "dense_layers": draw(st.integers(0, 2)),
    }
    model = Model.transformer(
        hidden=H,
        layers=LAYERS,
        heads=HEADS,
        kv_heads=KV,
        head_dim=DIM,
        ffn=FFN,
        vocab=VOCAB,
        sequence=SEQ,
        gated_mlp=True,
        tied_embeddings=draw(st.booleans()),
        **(mixture if experts else {}),
    )
    two = st.sampled_from((1, 2))
    pp, dp, cp, tp = draw(two), draw(st.sampled_from((1, 2, 4))), draw(two), draw(two)
    uneven = draw(st.booleans()) and pp == 2
    zero = draw(st.integers(0, 3))
    split: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "cp": cp,
        "ep": draw(st.sampled_from((1, 2, 4))) if experts else 1,
        "etp": draw(st.sampled_from((None, 1, 2))) if experts else None,
        "virtual_pp": 1 if uneven else draw(two),
        "stage_layers": (1, 3) if uneven else None,
        "zero": zero,
        "shard": draw(st.sampled_from((None, 1, 2))) if zero else None,
        "sequence_parallel": draw(st.booleans()),
        "context_form": draw(st.sampled_from(("ring", "all-to-all"))),
        "reshard_parameters": zero == 3 and draw(st.booleans()),
    }
    try:
        return Workload(
            model=model,
            parallelism=Parallelism(**split),
            global_batch=16,
            micro_batch=draw(two),
            recompute=draw(st.sampled_from(("none", "selective", "full"))),
            fp32_gradients=draw(st.booleans()),
            fp8_dispatch=draw(st.booleans()),
            regather_inputs=draw(st.booleans()),
            rank_order=draw(st.sampled_from(ORDERS)),
        )
    except InvalidInput:
        assume(False)
        raise


def coordinates(workload: Workload, rank: int) -> dict[str, int]:
    """A rank's place in each dimension: digits of its number, the first of the order fastest."""
    split, found = workload.parallelism, {}
    for dimension in workload.rank_order.split("-"):
        if dimension != "ep":
            rank, found[dimension] = divmod(rank, getattr(split, dimension))
    return found


def expert_coordinates(workload: Workload, rank: int) -> dict[str, int]:
    """A rank's place among the experts' ranks of its stage, in the same order without cp."""
    split, here = workload.parallelism, coordinates(workload, rank)
    stage = [
        other
        for other in range(split.world_size)
        if coordinates(workload, other)["pp"] == here["pp"]
    ]
    etp = split.tp if split.etp is None else split.etp
    sizes = {"tp": etp, "ep": split.ep, "dp": len(stage) // (etp * split.ep)}
    place, found = stage.index(rank), {"pp": here["pp"]}
    for dimension in workload.rank_order.split("-"):
        if dimension in sizes:
            place, found[dimension] = divmod(place, sizes[dimension])
    return found


def alike(workload: Workload, rank: int, of: Any, *free: str) -> tuple[int, ...]:
    """The ranks that differ from a rank in these dimensions alone."""
    own = of(workload, rank)
    return tuple(
        other
        for other in range(workload.parallelism.world_size)
        if all(at == own[name] for name, at in of(workload, other).items() if name not in free)
    )


@settings(max_examples=examples(30), deadline=None)
@given(workloads())
def test_every_group_is_the_ranks_that_differ_in_its_dimension_alone(workload: Workload) -> None:
    pcg = build_pcg(workload)
    split = workload.parallelism
    for group in pcg.groups:
        first, members = group.ranks[0], tuple(sorted(group.ranks))
        if group.kind in (Kind.TP, Kind.SP):
            assert members == alike(workload, first, coordinates, "tp")
        elif group.kind is Kind.CP:
            assert members == alike(workload, first, coordinates, "cp")
        elif group.kind is Kind.DP:
            whole = alike(workload, first, coordinates, "dp", "cp")
            shards = [
                whole[i : i + split.shard_size] for i in range(0, len(whole), split.shard_size)
            ]
            if "replicas" in group.name:
                assert members in list(zip(*shards, strict=True))
            else:
                assert members in (shards if split.zero else [whole])
        elif group.kind is Kind.EP:
            assert members == alike(workload, first, expert_coordinates, "ep")
        elif group.kind is Kind.ETP:
            assert members == alike(workload, first, expert_coordinates, "tp")
        elif group.kind is Kind.EDP:
            assert set(members) <= set(alike(workload, first, expert_coordinates, "dp"))
        else:
            assert members == alike(workload, first, coordinates, "pp")


@settings(max_examples=examples(30), deadline=None)
@given(workloads())
def test_groups_that_do_the_same_never_share_a_rank_and_leave_none_out(workload: Workload) -> None:
    seen: defaultdict[tuple[str, Op], Counter[int]] = defaultdict(Counter)
    pcg = build_pcg(workload)
    for group in pcg.groups:
        if group.op is not Op.SEND_RECV:
            seen["/".join(group.name.split("/")[:2]), group.op].update(group.ranks)
    stages = [set(stage.ravel().tolist()) for stage in Grid.of(workload).dense]
    for ranks in seen.values():
        assert set(ranks.values()) == {1}
        for stage in stages:
            assert stage <= set(ranks) or not stage & set(ranks)


@settings(max_examples=examples(30), deadline=None)
@given(workloads())
def test_all_ranks_of_a_replica_see_the_same_samples(workload: Workload) -> None:
    replica = Grid.of(workload).replica_of
    for group in build_pcg(workload).groups:
        if group.kind in (Kind.TP, Kind.SP, Kind.CP, Kind.PP, Kind.EMBEDDING):
            assert len({int(replica[rank]) for rank in group.ranks}) == 1
    assert Counter(replica.tolist()) == dict.fromkeys(
        range(workload.parallelism.dp), workload.parallelism.world_size // workload.parallelism.dp
    )


def slow_count(workload: Workload, rank: int) -> dict[str, float]:
    """Bytes by kind and operation that a rank takes part in, one event after the other."""
    split, found = workload.parallelism, defaultdict(float)
    here, sp = coordinates(workload, rank), workload.parallelism.sequence_parallel
    tp, cp, stage = split.tp, split.cp, coordinates(workload, rank)["pp"]
    etp = tp if split.etp is None else split.etp
    travels = split.ep > 1 or etp != tp
    tokens = workload.micro_batch * SEQ // cp
    full = 2 * tokens * H
    layers, start = [], 0
    for piece, count in enumerate(workload.piece_layers):
        if piece % split.pp == stage:
            layers += range(start, start + count)
        start += count
    first, last = stage == 0, stage == split.pp - 1

    def gather(size: float) -> None:
        found["sp all_gather" if sp else "nothing"] += size if tp > 1 else 0

    def scatter(size: float) -> None:
        found["sp reduce_scatter" if sp else "tp all_reduce"] += size if tp > 1 else 0

    def half(backward: bool) -> None:
        """A part of a layer between its two borders: gathered before, summed after."""
        gather(full)
        scatter(full)
        if backward and workload.regather_inputs:
            gather(full)

    def attention(backward: bool) -> None:
        if cp == 1:
            return
        if split.context_form == "ring":
            keys = 2 * workload.micro_batch * SEQ * 2 * KV // tp * DIM
            found["cp all_gather"] += keys
            found["cp reduce_scatter"] += keys if backward else 0
        else:
            for heads in (HEADS, KV, KV, HEADS):
                found["cp all_to_all"] += 2 * tokens * heads // tp * DIM

    def experts() -> None:
        sent = tokens // tp * TOP * H
        for size in ((1 if workload.fp8_dispatch else 2) * sent, 2 * sent):
            found["ep all_to_all"] += size if split.ep > 1 else 0
        if etp > 1:
            found["etp all_gather"] += etp * (1 if workload.fp8_dispatch else 2) * sent
            found["etp reduce_scatter"] += etp * 2 * sent

    def layer(index: int, backward: bool, core: bool = True) -> None:
        mixture = workload.model.block(index).mixture
        half(backward)
        if core:
            attention(backward)
        if mixture is None or not travels or mixture.shared is not None:
            half(backward)
        if mixture is not None and travels:
            experts()

    for _ in range(workload.micro_batches):
        if first:
            scatter(full)  # the look-up of a divided vocabulary
            gather(full)
        for index in layers:
            layer(index, backward=False)
            if workload.recompute == "full":
                layer(index, backward=False)
            elif workload.recompute == "selective":
                attention(backward=False)
            layer(index, backward=True)
        if last:
            gather(full)
            scatter(full)
            if workload.regather_inputs:
                gather(full)
            found["tp all_reduce"] += 3 * 4 * tokens if tp > 1 else 0
        for piece in range(stage, split.pp * split.virtual_pp, split.pp):
            neighbours = (piece > 0) + (piece < split.pp * split.virtual_pp - 1)
            if split.pp > 1:  # forward and backward, with each neighbour
                found["pp send_recv"] += 2 * neighbours * full / (tp if sp else 1)
    gradient = 4 if workload.fp32_gradients else 2
    embedding = -(-VOCAB // tp) * H
    if split.pp > 1 and workload.model.tied_embeddings and (first or last):
        found["embedding all_reduce"] += gradient * embedding
    replicated = matrices = routed = 0
    for index in layers:
        mixture = workload.model.block(index).mixture
        replicated += 2 * H
        matrices += (2 * H * HEADS * DIM + 2 * H * KV * DIM) // tp
        if mixture is None:
            matrices += 3 * H * FFN // tp
        else:
            replicated += H * EXPERTS
            routed += EXPERTS // split.ep * 3 * H * EXPERT_FFN // etp
            matrices += 3 * H * EXPERT_FFN // tp if mixture.shared is not None else 0
    replicated += H if last else 0
    if tp > 1 and sp:
        found["tp all_reduce"] += gradient * replicated
    held = replicated + matrices + (embedding if first else 0)
    if last and not (first and workload.model.tied_embeddings):
        held += embedding
    assert stage_parameters(workload, here["pp"]) == held + routed
    copies = {"dp": (held, cp * split.dp, split.shard or cp * split.dp)}
    if travels:
        ranks = tp * cp * split.dp
        inside = max(1, copies["dp"][2] * tp // (etp * split.ep))
        copies["edp"] = (routed, ranks // (etp * split.ep), inside)
    else:
        copies["dp"] = (held + routed, *copies["dp"][1:])
    for kind, (count, ranks, shard) in copies.items():
        if ranks == 1 or not count:
            continue
        if split.zero == 0:
            found[f"{kind} all_reduce"] += gradient * count
            continue
        rounds = workload.micro_batches if split.reshard_parameters else 1
        if shard > 1:
            found[f"{kind} reduce_scatter"] += rounds * gradient * count
            found[f"{kind} all_gather"] += rounds * (2 if split.zero == 3 else 1) * 2 * count
        if shard < ranks:
            found[f"{kind} all_reduce"] += gradient * count / shard
    return {name: size for name, size in found.items() if size and name != "nothing"}


@settings(max_examples=examples(50), deadline=None)
@given(workloads())
def test_bytes_of_every_rank_are_those_of_a_count_event_by_event(workload: Workload) -> None:
    pcg = build_pcg(workload)
    counted: list[defaultdict[str, float]] = [
        defaultdict(float) for _ in range(workload.parallelism.world_size)
    ]
    for group in pcg.groups:
        for rank in group.ranks:
            counted[rank][f"{group.kind} {group.op}"] += group.bytes
    for rank, sizes in enumerate(counted):
        assert sizes == pytest.approx(slow_count(workload, rank)), rank


@settings(max_examples=examples(30), deadline=None)
@given(workloads())
def test_what_is_built_is_a_valid_file_that_tells_calls_and_overlap(workload: Workload) -> None:
    pcg = build_pcg(workload)
    assert PCG.parse(pcg.to_data()) == pcg
    for group in pcg.groups:
        assert group.kind is not None
        assert group.count is not None and group.count >= 1
        assert group.overlap is not None and 0 <= group.overlap <= 1
        assert group.bytes > 0


def megatron_groups(sizes: dict[str, int], order: str, along: set[str]) -> list[list[int]]:
    """Ranks by groups, from the rule that Megatron Core states: of an order, the ranks of a group
    are sums over its dimensions of index x stride, the stride of a dimension being the product of
    the sizes before it."""
    dims = order.split("-")
    stride = {dim: int(np.prod([sizes[d] for d in dims[:at]])) for at, dim in enumerate(dims)}
    fixed = [dim for dim in dims if dim not in along]
    moving = [dim for dim in dims if dim in along]
    groups = []
    for place in product(*(range(sizes[dim]) for dim in fixed)):
        start = sum(at * stride[dim] for at, dim in zip(place, fixed, strict=True))
        groups.append(
            sorted(
                start + sum(at * stride[dim] for at, dim in zip(inside, moving, strict=True))
                for inside in product(*(range(sizes[dim]) for dim in moving))
            )
        )
    return sorted(groups)


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"])
def test_groups_are_megatrons_in_its_two_orders(order: str) -> None:
    split = Parallelism(tp=2, cp=2, dp=4, pp=2, ep=4, etp=1)
    grid = Grid(split, order)
    dense = {"tp": 2, "cp": 2, "ep": 1, "dp": 4, "pp": 2}
    experts = {"tp": 1, "cp": 1, "ep": 4, "dp": 4, "pp": 2}
    for family, sizes, along in (
        (grid.tp, dense, {"tp"}),
        (grid.cp, dense, {"cp"}),
        (grid.dp, dense, {"dp", "cp"}),
        (grid.ep, experts, {"ep"}),
        (grid.edp, experts, {"dp"}),
    ):
        found = sorted(sorted(row) for row in family.ranks.tolist())
        assert found == megatron_groups(sizes, order, along)
    assert sorted(grid.hops(0, 1).ranks.tolist()) == megatron_groups(dense, order, {"pp"})


def test_orders_of_a_device_mesh_are_its_rows() -> None:
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    mesh = np.arange(2 * 2 * 4 * 2 * 2).reshape(2, 2, 4, 2, 2)  # as init_device_mesh makes it
    split = Parallelism(tp=2, cp=2, dp=8, pp=2, ep=4, zero=3, shard=8)
    assert mesh_order(names) == "tp-cp-ep-dp-pp"
    grid = Grid(split, mesh_order(names))
    assert grid.tp.ranks.tolist() == mesh.reshape(-1, 2).tolist()
    assert grid.dense.tolist() == mesh.reshape(2, 8, 2, 2).tolist()
    # Experts are spread over the innermost ranks of the flattened dp_shard and cp.
    flat = np.moveaxis(mesh.reshape(2, 16, 2), 2, 1)
    assert sorted(grid.ep.ranks.tolist()) == sorted(flat.reshape(-1, 4).tolist())
    assert mesh_order(("dp", "pp", "tp")) == "tp-pp-ep-dp"
    assert mesh_order(("tp", "pp")) == "pp-tp-ep"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("pp", "data"), r"names\[1\]: found 'data'; use tp, cp, ep, dp"),
        (("tp", "pp", "tp"), r"names\[0\]: 'tp' where tp is named already"),
        (("dp_replicate", "tp", "dp_shard"), "dp_replicate stands just before dp_shard"),
        (("dp_shard", "dp_replicate"), "dp_replicate stands just before dp_shard"),
    ],
)
def test_a_mesh_of_other_names_is_refused(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        mesh_order(names)
