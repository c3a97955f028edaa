"""Files made to take all time or memory are refused or read soon; none shows what is secret."""

from __future__ import annotations

import time

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.registry import importers, read_source
from railweave.placement.importers.source import Source

MOST_CPU_S = 20.0
"""Far above what these take here, and far below what any of them took with a wrong pattern."""
LONG = 60_000

HOSTILE = {
    "deep JSON": '{"Instances": ' + "[" * LONG + "]" * LONG + ', "NetworkNodes": 1}',
    "deep YAML": "blocks: " + "[" * LONG,
    "indented YAML": "switches:\n" + "".join(f"{' ' * k}a{k}:\n" for k in range(1, 500)),
    "a chain of switches": "".join(f"SwitchName=s{k} Switches=s{k + 1}\n" for k in range(5000))
    + "SwitchName=s5000 Nodes=n1\n",
    "huge ranges": "SwitchName=a Nodes=" + ",".join(["n[0-99999999]"] * 1000),
    "huge commented ranges": "#BlockName=b Nodes=n[1-99999999]\n" * 200,
    "a huge product": "SwitchName=a Nodes=n" + "[0-99]" * 60,
    "a line of letters": "SwitchName=a " + "b" * LONG,
    "a line of blanks": "TP:\nallreduce" + " " * LONG + "x\nallgather,: 1\nalltoall,: 2\n",
    "blanks before a UUID": "n" + " " * LONG + "x\n",
    "half an arrow": "==( " * (LONG // 4),
    "many sharps": 'Switch 1 "S-1"\n[1] "H-1"[1] ' + "#" * LONG + "\n[2",
    "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n"
        for a, b in zip("abcdefg", "bcdefgh", strict=True)
    )
    + "blocks:\n- nodes: *h\n",
    "containers in a chain": "topology:\n  nodes:\n"
    + "".join(f"    n{k}: {{kind: x, network-mode: 'container:n{k + 1}'}}\n" for k in range(2000))
    + "    n2000: {kind: x}\n  links:\n    - endpoints: ['n0:e', 'n1:e']\n",
    "cells in a chain": "physicalCluster:\n  cellTypes:\n"
    + "".join(f"    t{k}: {{childCellType: t{k + 1}, childCellNumber: 9}}\n" for k in range(2000))
    + "  physicalCells:\n  - cellType: t0\n",
    "a huge header": "999999999 8 0 0 1 H100\n0 1 1Gbps 1ns 0\n",
    "a huge torus": "- topology: t\n  torus3d:\n    toruses:\n    - name: a\n"
    "      dims: {x: 99999, y: 99999, z: 99999}\n      nodes: n[1-9]\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_end_soon(text: str) -> None:
    source = Source.of_text("file", text)
    start = time.process_time()
    try:
        read_source(source)
    except InvalidInput as error:
        assert len(str(error)) < 5000
    for importer in importers():
        importer.certainty(source)
    assert time.process_time() - start < MOST_CPU_S


def test_names_that_no_cluster_file_can_hold_are_refused() -> None:
    for name in ("a\x01b", "x" * 2000):
        with pytest.raises(InvalidInput, match="is no name"):
            read_source(Source.of_text("t", f"SwitchName=s Nodes={name},other"))


DIGITS = "9" * 5000
KUEUE = (
    "apiVersion: kueue.x-k8s.io/v1beta1\nkind: {kind}\nmetadata: {{name: t}}\nspec: {spec}\n---\n"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"Instances": 7, "InstanceId": "i", "NetworkNodes": []}', "no list"),
        (
            KUEUE.format(kind="Topology", spec="{levels: [{nodeLabel: a/b}]}")
            + KUEUE.format(kind="ResourceFlavor", spec="{topologyName: [t]}"),
            "topologyName: a list of 1 is no name",
        ),
        ("\tGPU0\tNIC0\nGPU0\t X \tNV4\nNIC0\tNV4\t X \n", "NVLinks join GPUs and nothing else"),
    ],
)
def test_values_of_another_kind_are_refused_where_they_stand(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_source(Source.of_text("file", text))


@pytest.mark.parametrize(
    "text",
    [
        f'vendid=0x2c9\nSwitch 1 "S-1" # "a"\n[{DIGITS}] "H-1"[1] # "b"\n[2] "H-2"[1]\n',
        f"CA {DIGITS} 1 0x0a00000000000001 4x HDR - SW 1 1 0x0b00000000000001 ( 'n1' - 'leaf' )\n",
        f"SwitchName=a Nodes=n[1-{DIGITS}]\n",
        f"GPU 0: Tesla V100-SXM2-{DIGITS}GB (UUID: GPU-0)\n\t Link 0: 25 GB/s\n",
        f"#       size         count      type\n{DIGITS} 1 float 1e999 1 1 0\n",
    ],
)
def test_numbers_of_thousands_of_digits_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_source(Source.of_text("file", text))
