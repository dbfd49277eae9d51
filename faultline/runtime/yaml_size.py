"""How large a YAML document is once its aliases are followed: a few lines can stand for more values than memory holds."""

from __future__ import annotations

import yaml

MAX_NODES = 100_000
"""Far above what settings need; a document with as many is read in under a second."""


def expanded_size(root: yaml.Node) -> float:
    """How many nodes the document has with every alias written out; infinite when one contains itself."""
    sizes: dict[int, float] = {}

    def size(node: yaml.Node) -> float:
        if id(node) not in sizes:
            sizes[id(node)] = float("inf")  # what an alias to a node that is not complete yet stands for
            sizes[id(node)] = 1 + sum(map(size, _children(node)))
        return sizes[id(node)]

    return size(root)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
