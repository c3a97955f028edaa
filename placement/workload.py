"""A workload: a model, how it is split over ranks, and the batch it is trained with."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from .errors import InvalidInput
from .explained import Explained
from .models import Model
from .models.sizes import Count, CountOrZero
from .strategies.division import piece_layers
from .strategies.order import dimension_order
from .strategies.rules import broken_rules

Recompute = Literal["none", "selective", "full"]
Precision = Literal["bf16", "fp16", "fp8"]
Software = Literal["megatron-2021", "megatron", "fsdp"]
Fusion = Literal["none", "elementwise", "attention"]
Schedule = Literal["1f1b", "interleaved", "zero-bubble"]
"""Pipeline schedules: one forward, one backward (Narayanan 2019); with several stages a rank
(Narayanan 2021); with weight gradients put off into the gaps (ZB-H1, Qi 2023)."""
ContextForm = Literal["ring", "all-to-all"]
"""How context-parallel ranks attend: keys and values go round (Liu 2023), or heads and sequence
change places before and after attention (Jacobs 2023, Ulysses)."""


class Parallelism(Explained):
    """Degrees of parallelism: tensor, pipeline, data, context and expert.

    ep: experts are spread over this many ranks of a pipeline stage, so it does not add ranks.
    etp: ranks that share out the matrices of an expert; tp by default.
    virtual_pp: pipeline stages a rank (interleaved schedule).
    schedule: "interleaved" where virtual_pp is above 1, else "1f1b", by default.
    stage_layers: layers of each of the pp x virtual_pp stages in the model's order, where they are
        not equally many. embedding_as_layer, head_as_layer: the embedding, and the output head,
        count as a layer when layers are divided evenly.
    zero: what the data-parallel ranks share out: 0 nothing, 1 the optimizer state, 2 gradients
        too, 3 parameters too.
    shard: how many neighbouring ranks of the dp x cp with the same parameters share it out (hybrid
        sharding: gradients are then summed over the replicas of such groups); all by default.
    sequence_parallel: the tensor-parallel ranks split the rest of a layer along the sequence.
    vocabulary_parallel: they split embedding and output head by vocabulary, rather than
        each having the whole.
    context_form: how context-parallel ranks attend to each other's tokens.
    reshard_parameters: with zero 3, parameters are shared out again after every micro-batch, so
        that each gathers them anew; without it they are gathered once a step and direction.
    """

    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    cp: Count = 1
    ep: Count = 1
    etp: Count | None = None
    virtual_pp: Count = 1
    schedule: Schedule | None = None
    stage_layers: tuple[CountOrZero, ...] | None = None
    embedding_as_layer: bool = False
    head_as_layer: bool = False
    zero: Annotated[int, Field(ge=0, le=3)] = 1
    shard: Count | None = None
    sequence_parallel: bool = True
    vocabulary_parallel: bool = True
    context_form: ContextForm = "ring"
    reshard_parameters: bool = False

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def stages(self) -> int:
        """Pipeline stages, virtual ones too; stage k in the model's order is on rank k mod pp."""
        return self.pp * self.virtual_pp

    @property
    def pipeline_schedule(self) -> Schedule:
        """The schedule given, or the one that virtual_pp stands for."""
        return self.schedule or ("interleaved" if self.virtual_pp > 1 else "1f1b")

    @property
    def expert_tp(self) -> int:
        """Ranks that share out the matrices of an expert."""
        return self.tp if self.etp is None else self.etp

    @property
    def expert_dp(self) -> int:
        """Ranks with the same experts."""
        return self.tp * self.cp * self.dp // (self.expert_tp * self.ep)

    @property
    def shard_size(self) -> int:
        """Ranks that share out the state of what is not an expert, where zero is above 0."""
        return self.dp * self.cp if self.shard is None else self.shard

    @property
    def expert_shard_size(self) -> int:
        """Ranks that share out the state of an expert, where zero is above 0."""
        return max(1, self.shard_size * self.tp // (self.expert_tp * self.ep))

    @property
    def exchanges_tokens(self) -> bool:
        """Whether tokens travel to their experts, rather than being summed over tp like a layer."""
        return self.ep > 1 or self.expert_tp != self.tp

    @property
    def vocabulary_tp(self) -> int:
        """Ranks that share out embedding and output head."""
        return self.tp if self.vocabulary_parallel else 1


class Workload(Explained):
    """What is trained and how: becomes a PCG.

    global_batch, micro_batch: samples a step, and samples a rank works on at a time.
    sequence: tokens a sample; the model's own by default.
    tower_inputs: inputs of each of the model's towers a sample (images of a vision tower), which
        are then trained on the first stage; 0 leaves them out.
    fp32_gradients: gradients are summed in 4 bytes instead of the 2 of the precision.
    fp8_dispatch: tokens, and gradients, go to their experts in 1 byte an element; they come back
        in 2.
    regather_inputs: with sequence parallelism, inputs of divided matrices are gathered once more in
        the backward pass instead of being kept (Korthikanti 2022, section 4.2.2).
    rank_order: which dimension's ranks are next to each other, nearest first; `mesh_order` makes it
        of the names of a torch DeviceMesh.
    software: the training program whose habits a step's time follows; by default the one that such
        steps were measured with on these accelerators (`cost.software.software_name`).
    fusion: what its kernels fuse: "none" each operation a kernel of its own, "elementwise" chains
        of element-wise ones, "attention" attention too; by default what the program does.

    Making one checks every rule that the split must meet; InvalidInput lists all that are broken.
    `check` adds those that depend on the cluster.
    """

    model: Model
    parallelism: Parallelism
    global_batch: Count
    micro_batch: Count = 1
    sequence: Count
    tower_inputs: CountOrZero = 0
    recompute: Recompute = "none"
    precision: Precision = "bf16"
    fp32_gradients: bool = False
    fp8_dispatch: bool = False
    regather_inputs: bool = False
    rank_order: str = "tp-cp-ep-dp-pp"
    software: Software | None = None
    fusion: Fusion | None = None

    @model_validator(mode="before")
    @classmethod
    def _sequence_of_model(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("sequence") is None:
            model = data.get("model")
            own = model.get("sequence") if isinstance(model, dict) else None
            own = model.sequence if isinstance(model, Model) else own
            return {key: value for key, value in data.items() if key != "sequence"} | (
                {} if own is None else {"sequence": own}
            )
        return data

    @model_validator(mode="after")
    def _rules(self) -> Self:
        problems = broken_rules(self)
        if problems:
            raise InvalidInput("Workload", problems)
        return self

    @property
    def micro_batches(self) -> int:
        """Micro-batches a step that each data-parallel replica works on."""
        return self.global_batch // (self.parallelism.dp * self.micro_batch)

    @property
    def piece_layers(self) -> tuple[int, ...]:
        """Layers of each pipeline stage, virtual ones included, in the model's order."""
        return piece_layers(self.model.layers, self.parallelism)

    @property
    def encoder_sequence(self) -> int:
        """Tokens a sample in the encoder: its own, or as many as the decoder has."""
        encoder = self.model.encoder
        own = None if encoder is None else encoder.sequence
        return self.sequence if own is None else own

    @property
    def dimension_order(self) -> tuple[str, ...]:
        """All five dimensions, those of neighbouring ranks first."""
        return dimension_order(self.rank_order)
