"""An independent reference for what is structurally alive: the network written out as a graph of scalars, edge by edge."""

import itertools

import torch


class Graph:
    """Edges (source, target, parameter name, index); a weight lives where a path from an input or a constant to an output uses it.

    A bias is an edge from the constant node; an edge without a parameter is always there.
    """

    ONE = "one"

    def __init__(self):
        self.edges = []
        self.inputs = {self.ONE}
        self.outputs = set()

    def add(self, source, target, parameter=None, index=None):
        self.edges.append((source, target, parameter, index))

    def alive(self, params):
        on = [edge for edge in self.edges if edge[2] is None or bool(params[edge[2]][edge[3]] != 0)]
        comes = self._closure({(a, b) for a, b, _, _ in on}, self.inputs)
        leads = self._closure({(b, a) for a, b, _, _ in on}, self.outputs)
        masks = {name: torch.zeros_like(value, dtype=torch.bool) for name, value in params.items()}
        for source, target, parameter, index in on:
            if parameter is not None and source in comes and target in leads:
                masks[parameter][index] = True
        return masks

    @staticmethod
    def _closure(pairs, start):
        following = {}
        for a, b in pairs:
            following.setdefault(a, []).append(b)
        seen, pending = set(start), list(start)
        while pending:
            for node in following.get(pending.pop(), ()):
                if node not in seen:
                    seen.add(node)
                    pending.append(node)
        return seen


def add_linear(graph, name, source, target, shape, bias=True):
    """`source` and `target` turn a feature's index into a node."""
    for o, i in itertools.product(range(shape[0]), range(shape[1])):
        graph.add(source(i), target(o), f"{name}.weight", (o, i))
    if bias:
        for o in range(shape[0]):
            graph.add(Graph.ONE, target(o), f"{name}.bias", (o,))


def add_conv(graph, name, source, target, shape, size, padding, stride=1, bias=True):
    """Adds an edge for each tap that lies on the image; returns the size of what comes out."""
    outs, ins, height, width = shape
    out = [(size[0] + 2 * padding - height) // stride + 1, (size[1] + 2 * padding - width) // stride + 1]
    for o, y, x in itertools.product(range(outs), range(out[0]), range(out[1])):
        for i, ky, kx in itertools.product(range(ins), range(height), range(width)):
            sy, sx = y * stride + ky - padding, x * stride + kx - padding
            if 0 <= sy < size[0] and 0 <= sx < size[1]:
                graph.add(source(i, sy, sx), target(o, y, x), f"{name}.weight", (o, i, ky, kx))
        if bias:
            graph.add(Graph.ONE, target(o, y, x), f"{name}.bias", (o,))
    return out


def add_norm(graph, name, source, target, running_mean, size):
    for c, y, x in itertools.product(range(len(running_mean)), range(size[0]), range(size[1])):
        graph.add(source(c, y, x), target(c, y, x), f"{name}.weight", (c,))
        graph.add(Graph.ONE, target(c, y, x), f"{name}.bias", (c,))
        if running_mean[c] != 0:
            graph.add(Graph.ONE, target(c, y, x), f"{name}.weight", (c,))


def add_pool(graph, source, target, channels, size, kernel, stride):
    out = [(size[0] - kernel) // stride + 1, (size[1] - kernel) // stride + 1]
    for c, y, x, ky, kx in itertools.product(range(channels), range(out[0]), range(out[1]), range(kernel), range(kernel)):
        graph.add(source(c, y * stride + ky, x * stride + kx), target(c, y, x))
    return out
