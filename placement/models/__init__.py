"""Models: layers by their parts, exact parameter counts, and what a layer computes for a token."""

from .attention import Attention, LatentAttention
from .block import Block, Run, Stack
from .capture import capture
from .captured import CapturedLayer, CapturedModel, CapturedOperator
from .ends import Embedding, Head, Prediction, Projection, Tower
from .feed_forward import FeedForward, Mixture
from .model import Model
from .recurrent import DeltaNet, KimiDelta, Mamba, Mamba2
from .transformer import Dimensions
from .work import AttentionCore, MatMul, ScanCore

__all__ = [
    "Attention",
    "AttentionCore",
    "Block",
    "CapturedLayer",
    "CapturedModel",
    "CapturedOperator",
    "DeltaNet",
    "Dimensions",
    "Embedding",
    "FeedForward",
    "Head",
    "KimiDelta",
    "LatentAttention",
    "Mamba",
    "Mamba2",
    "MatMul",
    "Mixture",
    "Model",
    "Prediction",
    "Projection",
    "Run",
    "ScanCore",
    "Stack",
    "Tower",
    "capture",
]
