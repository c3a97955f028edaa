"""Model FLOPs: what a step must compute whatever the program repeats or the device wastes."""

from __future__ import annotations

from ..models import Block, Model


def training_flops_per_token(model: Model, sequence: int) -> float:
    """FLOPs of a training step for each token: three times those of the forward pass.

    Matrix products with weights (experts that a token uses alone), logits, and the attention core;
    causal attention counts the keys that a query sees, half the square. Without recomputation,
    softmax, norms and look-ups. It is the convention of `StepEstimate.mfu`.
    """
    forward = sum(count * _block_flops(block, sequence) for count, block in model.kinds)
    heads = 1
    if model.prediction is not None:
        ahead = model.prediction
        forward += sum(n * _block_flops(block, sequence) for n, block in ahead.stack.kinds)
        forward += ahead.tokens * sum(m.flops_per_token for m in ahead.matmuls())
        heads += ahead.tokens
    if model.head is not None:
        forward += heads * sum(m.flops_per_token for m in model.head.matmuls())
    if model.encoder is not None:
        forward += sum(n * _block_flops(block, sequence) for n, block in model.encoder.stack.kinds)
    return 3.0 * forward


def _block_flops(block: Block, sequence: int) -> float:
    return sum(m.flops_per_token for m in block.matmuls()) + sum(
        core.flops_per_token(sequence) for core in block.cores()
    )
