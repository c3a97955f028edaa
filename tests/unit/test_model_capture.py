"""Tracing real torch modules: exact parameters, FLOPs as torch counts them, equal layers once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from railweave.placement import CapturedModel, InvalidInput, Model, capture
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode


def counted(module: nn.Module, inputs: tuple[Any, ...]) -> int:
    """FLOPs of a forward pass by torch's own counter."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.to("meta")(*(value.to("meta") for value in inputs))
    return int(counter.get_total_flops())


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class Layer(nn.Module):
    """A GPT layer: causal attention and a feed-forward, each after a norm."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """A small GPT with tied embeddings."""

    def __init__(self, hidden: int, layers: int, heads: int, vocab: int, sequence: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(sequence, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def test_an_mlp_has_the_flops_of_its_products() -> None:
    module = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4, bias=False))
    found = capture(module, (torch.randn(5, 8),))
    assert found.parameters == 8 * 32 + 32 + 32 * 4
    assert found.flops == 2 * 5 * (8 * 32 + 32 * 4) == counted(module, (torch.randn(5, 8),))
    first, gelu, last = found.layers
    assert (first.name, first.repeat, first.parameters) == ("0", 1, 8 * 32 + 32)
    assert first.operators[-1].inputs == ((32,), (5, 8), (8, 32))
    assert first.operators[-1].outputs == ((5, 32),)
    assert first.operators[-1].parameters == first.parameters
    assert gelu.moved_bytes == 2 * 4 * 5 * 32
    assert last.flops == 2 * 5 * 32 * 4


def test_layers_of_a_gpt_are_one_and_its_tied_weights_count_once() -> None:
    module = GPT(hidden=32, layers=6, heads=4, vocab=50, sequence=16)
    tokens = torch.randint(0, 50, (2, 16))
    found = capture(module, (tokens,))
    assert found.parameters == size(module)
    assert found.flops == counted(module, (tokens,))
    [repeated] = [layer for layer in found.layers if layer.repeat > 1]
    assert (repeated.name, repeated.repeat) == ("layers.0", 6)
    assert repeated.parameters == size(module.layers[0])
    assert {layer.name for layer in found.layers} >= {"tokens", "norm", "head"}


def test_a_captured_gpt_equals_the_model_of_its_dimensions() -> None:
    sizes = {"hidden": 32, "layers": 6, "heads": 4, "vocab": 50, "sequence": 16}
    module, model = GPT(**sizes), Model.transformer(**sizes)
    found = capture(module, (torch.randint(0, 50, (2, 16)),))
    assert found.parameters == model.parameters
    [layer] = [layer for layer in found.layers if layer.repeat > 1]
    [(count, block)] = model.kinds
    assert (layer.repeat, layer.parameters) == (count, block.parameters())
    products = sum(matrix.flops_per_token for matrix in block.matmuls())
    # torch counts the whole square of scores, causal or not.
    square = 2 * 16 * 4 * (8 + 8)
    assert layer.flops == 2 * 16 * (products + square)


@pytest.mark.parametrize("training", [True, False])
def test_torchs_own_encoder_is_captured_in_either_mode(training: bool) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    module = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).train(training)
    x = torch.randn(2, 5, 32)
    found = capture(module, (x,))
    assert found.parameters == size(module)
    assert found.flops == counted(module.train(), (x,))
    assert [(part.name, part.repeat) for part in found.layers] == [("layers.0", 3)]


def test_a_convolutional_network_is_captured() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=4, bias=False),
        nn.ConvTranspose2d(8, 6, 2, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 10),
    )
    x = torch.randn(2, 3, 17, 17)
    found = capture(module, (x,))
    assert found.parameters == size(module)
    assert found.flops == counted(module, (x,))
    assert set(found.flops_by_operator) == {"convolution", "addmm"}


def test_a_recurrent_network_and_einsum_are_products_too() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 16, batch_first=True)
            self.weight = nn.Parameter(torch.randn(16, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("bsh,hk->bsk", self.lstm(x)[0], self.weight)

    x = torch.randn(2, 3, 8)
    found = capture(Net(), (x,))
    assert found.parameters == size(Net())
    assert found.flops == counted(Net(), (x,))


def test_layers_of_two_kinds_are_folded_by_kind_inside_a_wrapper() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kinds = [Layer(16, 2), nn.Linear(16, 16), Layer(16, 2), nn.Linear(16, 16)]
            self.model = nn.ModuleDict({"stack": nn.Sequential(*kinds)})
            self.unused = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model["stack"](x)

    x = torch.randn(2, 4, 16)
    found = capture(Wrapper(), (x,))
    assert [(part.repeat, part.parameters) for part in found.layers] == [
        (2, size(Layer(16, 2))),
        (2, 16 * 16 + 16),
        (1, 12),
    ]
    assert found.parameters == size(Wrapper())
    assert found.flops == counted(Wrapper(), (x,))


def test_a_layer_that_shares_its_weights_is_counted_without_them() -> None:
    module = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    for layer in module[1:]:
        layer.weight = module[0].weight
    found = capture(module, (torch.randn(2, 8),))
    assert found.parameters == size(module) == 64 + 4 * 8
    assert [(part.repeat, part.parameters) for part in found.layers] == [(1, 72), (3, 8)]
    assert found.flops == 4 * 2 * 2 * 64


def test_a_module_larger_than_memory_is_captured() -> None:
    sizes = {"hidden": 12288, "layers": 4, "heads": 96, "vocab": 50257, "sequence": 2048}
    with torch.device("meta"):
        module = GPT(**sizes)
    found = capture(module, (torch.zeros(1, 2048, dtype=torch.long),))
    assert found.parameters == Model.transformer(**sizes).parameters > 7e9
    assert [layer.repeat for layer in found.layers].count(4) == 1


def test_a_captured_model_is_read_back_from_its_json() -> None:
    found = capture(nn.Linear(4, 4), (torch.randn(2, 4),))
    assert CapturedModel.model_validate_json(found.model_dump_json()) == found


def test_what_cannot_be_traced_says_why() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(InvalidInput, match="module: Branches cannot be traced"):
        capture(Branches(), (torch.randn(2),))
    with pytest.raises(InvalidInput, match="module: Linear cannot be traced"):
        capture(nn.Linear(4, 4), (torch.randn(2, 5),))
    with pytest.raises(InvalidInput, match=r"module: a dict instead of a torch\.nn\.Module"):
        capture({}, ())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="inputs: a Tensor instead of a tuple"):
        capture(nn.Linear(4, 4), torch.randn(2, 4))  # type: ignore[arg-type]


def test_without_torch_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from railweave.placement import capture\n"
        "try:\n    capture(None, ())\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install it with `pip install railweave[torch]`" in done.stdout
