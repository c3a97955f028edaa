"""NCCL's graph XML: channels, patterns and rates, and what of it is of no use elsewhere."""

from __future__ import annotations

import pytest
from railweave.placement.errors import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source
from railweave.placement.importers.source import Source


def channel(*gpus: int, nets: tuple[int | str, ...] = ()) -> str:
    inside = "".join(f'<gpu dev="{gpu}" rank="{gpu}"/>' for gpu in gpus)
    if nets:
        inside = f'<net dev="{nets[0]}"/>{inside}<net dev="{nets[-1]}"/>'
    return f"<channel>{inside}</channel>"


def graph(number: int, *channels: str, pattern: int = 4, count: int | None = None) -> str:
    promised = len(channels) if count is None else count
    return (
        f'<graph id="{number}" pattern="{pattern}" crossnic="0" nchannels="{promised}" '
        'speedintra="20" speedinter="12.5" typeintra="NVL" typeinter="PIX" samechannels="1">'
        + "".join(channels)
        + "</graph>"
    )


def graphs(*each: str) -> str:
    return '<graphs version="1">\n' + "\n".join(each) + "\n</graphs>\n"


def read(text: str) -> Facts:
    return read_source(Source.of_text("graph.xml", text))


def test_channels_keep_their_order_and_their_nets() -> None:
    facts = read(graphs(graph(0, channel(1, 0, nets=(3, 2)), channel(0, 1, nets=("0x2", 3)))))
    only = facts.summary["graphs"][0]
    assert [path["gpus"] for path in only["paths"]] == [[1, 0], [0, 1]]
    assert (only["pattern_name"], only["nets_in"], only["nets_out"]) == ("ring", [2, 3], [2, 3])
    assert (only["gbyte_per_s_intra"], only["gbyte_per_s_inter"]) == (20.0, 12.5)
    assert only["latency_inter_us"] is None
    assert facts.summary["gpus"] == 2
    assert facts.machines == {}
    assert facts.not_alone is not None


def test_what_breaks_or_slows_other_runs_is_warned_of_by_line() -> None:
    facts = read(
        graphs(graph(0, *[channel(0, 1, nets=(3, 3))] * 2, pattern=3), graph(1, pattern=9))
    )
    text = " | ".join(facts.warnings)
    assert "line 1: these graphs apply to exactly 2 GPUs" in text
    assert "line 2: graph 0: all traffic on one net (3)" in text
    assert "line 3: graph 1 has no channels: not usable" in text
    assert facts.summary["graphs"][1]["pattern_name"] == "pattern 9"
    assert facts.summary["single_node_only"] is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (graphs(), "line 1: graphs without a graph"),
        (graphs(graph(0, channel(0, 1), count=4)), "promises 4 channels and has 1"),
        (graphs(graph(0, channel(0, 0))), "goes over one GPU twice"),
        (graphs(graph(0, channel(0, 1), channel(0, 2))), "go over different GPUs"),
        (graphs(graph(0, channel(0)), graph(0, channel(0))), "two graphs have one id"),
        (graphs(graph(0, channel(-1))), "has the number '-1'"),
        (graphs(graph(0)).replace('id="0"', ""), "a graph without id"),
    ],
)
def test_damage_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match="problem") as caught:
        read(text)
    assert reason in str(caught.value)
