"""Vision towers of a config, beside a text decoder or in a contrastive pair."""

from __future__ import annotations

from typing import Any

from .block import Stack
from .ends import Embedding, Head, Projection, Tower
from .hf_decoder import HIDDEN, SEQUENCE, VOCAB
from .hf_encoder import heads_of, image_embedding, layer_of, layers_of
from .hf_families import Family
from .hf_feed_forward import FFN
from .hf_keys import Keys

_LAYERS = ("num_hidden_layers", "depth", "num_layers", "layers", "n_layers")
_WIDTH = ("hidden_size", "embed_dim", "width")


def vision_tower(keys: Keys, wrapper: Keys, text_hidden: int) -> Tower:
    """The tower of a `vision_config`, and what its result passes on its way to the text."""
    kind = keys.text("model_type") or wrapper.text("model_type") or ""
    outer = wrapper.text("model_type") or ""
    if kind.startswith("qwen3") or outer.startswith("qwen3"):
        return _qwen3(keys, text_hidden)
    if kind.startswith("llama4") or outer.startswith("llama4"):
        return _llama4(keys, text_hidden)
    siglip = "siglip" in kind
    hidden = keys.need("the width of the tower", *_WIDTH)
    embedding, tokens = image_embedding(keys, hidden, 0 if siglip else 1, bias=siglip)
    if not siglip:
        # CLIP norms the sum of patches and positions.
        embedding = embedding.model_copy(update={"norm": "layer"})
    stack = _plain(keys, hidden)
    if outer.startswith("gemma3"):
        projector: tuple[Projection, ...] = (
            Projection(name="projector", inputs=hidden, outputs=text_hidden, extra=hidden),
        )
        tokens = wrapper.count("mm_tokens_per_image") or tokens
    elif outer.startswith("paligemma"):
        projector = (_biased("projector", hidden, text_hidden),)
    else:
        if not (siglip or "clip" in kind) or not outer.startswith("llava"):
            unlike = f"the vision tower {kind}".strip()
            keys.note(f"{unlike} is read as a plain one with a projector of two layers")
        projector = (
            _biased("projector_1", hidden, text_hidden),
            _biased("projector_2", text_hidden, text_hidden),
        )
    return Tower(
        name="vision",
        embedding=embedding,
        stack=stack,
        sequence=embedding.positions,
        outputs=tokens,
        projector=projector,
    )


def _biased(name: str, inputs: int, outputs: int, extra: int = 0) -> Projection:
    return Projection(name=name, inputs=inputs, outputs=outputs, bias=True, extra=extra)


def _plain(keys: Keys, hidden: int) -> Stack:
    ffn = keys.need("the width of the feed-forward", *FFN)
    block = layer_of(hidden, heads_of(keys, hidden), ffn)
    return Stack.of([(layers_of(keys, *_LAYERS), block)], final_norm="layer")


def _qwen3(keys: Keys, text_hidden: int) -> Tower:
    """Qwen3-VL: patches over two frames, merged four to one, with mergers at some layers too."""
    hidden = keys.need("the width of the tower", *_WIDTH)
    patch = keys.need("the side of a patch in pixels", "patch_size")
    frames = keys.count("temporal_patch_size") or 2
    merged = hidden * (keys.count("spatial_merge_size") or 2) ** 2
    outputs = keys.count("out_hidden_size") or text_hidden
    inputs = (keys.count("in_channels", "in_chans") or 3) * frames * patch**2
    positions = keys.need("the number of positions", "num_position_embeddings")
    stack = _plain(keys, hidden).model_copy(update={"final_norm": None})
    deep = len(keys.items("deepstack_visual_indexes") or [])
    if deep > stack.layers:
        keys.fault("deepstack_visual_indexes", f"{deep} of {stack.layers} layers", "give fewer")
        deep = 0
    projector = [
        _biased("merger_1", merged, merged, extra=2 * hidden),
        _biased("merger_2", merged, outputs),
    ]
    for index in range(deep):
        projector.append(_biased(f"deep_merger_{index}_1", merged, merged, extra=2 * merged))
        projector.append(_biased(f"deep_merger_{index}_2", merged, outputs))
    return Tower(
        name="vision",
        embedding=Embedding(
            hidden=hidden,
            positions=positions,
            position_kind="learned",
            front=(_biased("patches", inputs, hidden),),
        ),
        stack=stack,
        projector=tuple(projector),
    )


def _llama4(keys: Keys, text_hidden: int) -> Tower:
    """Llama 4: norms before and after the layers, and an adapter over four shuffled patches."""
    hidden = keys.need("the width of the tower", *_WIDTH)
    embedding, tokens = image_embedding(keys, hidden, 1, bias=False)
    shuffled = keys.need("the adapter's input", "intermediate_size")
    inputs = keys.count("projector_input_dim") or 4096
    outputs = keys.count("projector_output_dim", "vision_output_dim") or inputs
    return Tower(
        name="vision",
        embedding=embedding.model_copy(update={"norm": "layer"}),
        stack=_plain(keys, hidden),
        sequence=tokens,
        outputs=max((tokens - 1) // 4, 1),
        projector=(
            Projection(name="adapter_1", inputs=shuffled, outputs=inputs),
            Projection(name="adapter_2", inputs=inputs, outputs=outputs),
            Projection(name="projector", inputs=outputs, outputs=text_hidden),
        ),
    )


def contrastive_parts(keys: Keys, name: str, family: Family) -> dict[str, Any]:
    """The fields of a Model for CLIP and SigLIP: the text tower, and a vision tower beside it."""
    text = keys.section("text_config") or Keys({}, "text_config", keys.problems, keys.notes)
    vision = keys.section("vision_config") or Keys({}, "vision_config", keys.problems, keys.notes)
    hidden = text.need("the width of the text tower", *HIDDEN)
    width = vision.need("the width of the vision tower", *HIDDEN)
    clip = name == "clip"
    joint = (
        keys.count("projection_dim") or text.count("projection_dim", "projection_size") or hidden
    )
    embedding, tokens = image_embedding(vision, width, 1 if clip else 0, bias=not clip)
    stack = _plain(vision, width)
    if clip:
        embedding = embedding.model_copy(update={"norm": "layer"})
        projector: tuple[Projection, ...] = (
            Projection(name="visual_projection", inputs=width, outputs=joint),
        )
    else:
        # Attention pooling: a learned query, its attention and a feed-forward with one norm.
        ffn = vision.need("the width of the feed-forward", *FFN)
        pooling = layer_of(width, heads_of(vision, width), ffn, norms=1, extra=width)
        stack = stack.model_copy(update={"extra": pooling.parameters()})
        projector = ()
    positions = text.need("the number of positions", *SEQUENCE)
    vocab = text.need("the size of the vocabulary", *VOCAB)
    block = layer_of(
        hidden,
        heads_of(text, hidden),
        text.need("the width of the feed-forward", *FFN),
        causal=clip,
    )
    return {
        "sequence": positions,
        "embedding": Embedding(
            hidden=hidden, vocab=vocab, positions=positions, position_kind="learned"
        ),
        "stack": Stack.of([(layers_of(text, "num_hidden_layers"), block)], final_norm="layer"),
        "head": Head(inputs=hidden, outputs=joint, bias=not clip),
        "towers": (
            Tower(
                name="vision",
                embedding=embedding,
                # The scale (and the bias) of the similarity are counted here.
                stack=stack.model_copy(update={"extra": stack.extra + (1 if clip else 2)}),
                sequence=tokens,
                projector=projector,
            ),
        ),
        "dropout": False,
    }
