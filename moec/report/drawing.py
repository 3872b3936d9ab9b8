"""A function of the layer IR as an SVG drawing.

Constants, weights and sizes are left out (they would be most of the boxes). In a graph of many nodes, those of the
same op and rank are drawn as one box with their number: the eight unrolled experts of a block stand as ``matmul x
8``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from moec.ir.graph import Graph, Node, Value
from moec.ops.registry import OPS
from moec.report.layout import Box, layered

FULL_NODES = 48
"""Up to this many nodes, each is drawn as a box of its own."""
MOST_RANKS = 300
"""A drawing ends after this many ranks and says so."""

ROW, HEIGHT, GAP, CHARACTER = 62.0, 38.0, 18.0, 7.2
HIDDEN = ("source",)
LEAST_SCALE = 0.6
"""A drawing wider than the page shrinks this far, then scrolls."""


@dataclass
class _Group:
    """One box: nodes of one op and rank, or one input or output."""

    label: str
    kind: str
    rank: int
    below: str = ""
    members: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True)
class Drawing:
    """An SVG text, its size in pixels, and how many of the ranks it shows."""

    svg: str
    width: int
    height: int
    note: str


def draw(graph: Graph) -> Drawing:
    """The drawing of ``graph``."""
    nodes = [n for n in graph if not _hidden(n)]
    ranks = _ranks(graph, nodes)
    single = len(nodes) <= FULL_NODES
    groups: list[_Group] = []
    place: dict[Value, int] = {}
    index: dict[tuple[int, str, str], int] = {}
    for v in graph.inputs:
        place[v] = len(groups)
        groups.append(_Group(v.name, "input", 0, str(v.type), [f"input {v.name}: {v.type}"], 1))
    edges: dict[tuple[int, int], int] = {}
    for n in nodes:
        label = _label(n)
        key = (ranks[n], label, str(len(groups)) if single else "")
        at = index.setdefault(key, len(groups))
        if at == len(groups):
            kind = OPS[n.op].cost if n.op in OPS else "opaque"
            groups.append(_Group(label, kind, ranks[n], str(n.results[0].type) if n.results else ""))
        group = groups[at]
        group.count += 1
        if len(group.members) < 8:
            group.members.append(_describe(n))
        for v in n.results:
            place[v] = at
        for operand in dict.fromkeys(n.operands):
            if operand in place and place[operand] != at:
                edge = place[operand], at
                edges[edge] = edges.get(edge, 0) + 1
    last = max((g.rank for g in groups), default=0) + 1
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        if v in place:
            edges[place[v], len(groups)] = 1
        groups.append(_Group(name, "output", last, str(v.type), [f"output {name}: {v.type}"], 1))
    return _svg(groups, edges, last + 1)


def _hidden(node: Node) -> bool:
    return node.op in OPS and any(t in OPS[node.op].traits for t in HIDDEN)


def _ranks(graph: Graph, nodes: list[Node]) -> dict[Node, int]:
    """Longest paths from the inputs; what depends on constants only stands just above its first reader."""
    ranks: dict[Node, int] = {}
    inputs = set(graph.inputs)
    afloat: dict[Node, int] = {}
    for n in nodes:
        operands = [v for v in n.operands if v is not None]
        above = [ranks[v.producer] for v in operands if v.producer in ranks]
        ranks[n] = max(above, default=0) + 1
        if not any(v in inputs or (v.producer in ranks and v.producer not in afloat) for v in operands):
            afloat[n] = ranks[n]
    for n in reversed(afloat):
        readers = [ranks[user] for v in n.results for user in v.uses if user in ranks]
        ranks[n] = max(ranks[n], min(readers, default=1) - 1)
    return ranks


def _label(node: Node) -> str:
    called = node.attrs.get("fn")
    return str(called) if isinstance(called, str) else node.op


def _describe(node: Node) -> str:
    attrs = ", ".join(f"{k}={v}" for k, v in node.attrs.items())
    types = ", ".join(str(v.type) for v in node.results)
    return f"{node.op}({attrs[:160]}) : {types}" + (f" — {node.origin}" if node.origin.sources else "")


def _svg(groups: list[_Group], edges: dict[tuple[int, int], int], ranks: int) -> Drawing:
    shown = [i for i, g in enumerate(groups) if g.rank < MOST_RANKS]
    number = {i: k for k, i in enumerate(shown)}
    kept = {(number[a], number[b]): n for (a, b), n in edges.items() if a in number and b in number}
    boxes = [Box(groups[i].rank, _width(groups[i])) for i in shown]
    layout = layered(boxes, list(kept), GAP)
    parts: list[str] = []
    y = [r * ROW + 4 for r in range(len(layout.ranks))]
    for path, count in zip(layout.paths, kept.values(), strict=True):
        points = [(layout.boxes[i].x + 4, y[layout.boxes[i].rank]) for i in path]
        weight = min(4.0, 1.0 + count / 4)
        parts.append(f'<path class="edge" stroke-width="{weight:.1f}" d="{_curve(points)}"/>')
    for k, i in enumerate(shown):
        parts.append(_box(groups[i], layout.boxes[k], y[groups[i].rank]))
    width, height = int(layout.width + 8), int(len(layout.ranks) * ROW - (ROW - HEIGHT) + 8)
    note = f"the first {MOST_RANKS} of {ranks} ranks" if ranks > MOST_RANKS else ""
    shrink = f"width:min({width}px,max(100%,{width * LEAST_SCALE:.0f}px))"
    head = f'<svg class="graph" viewBox="0 0 {width} {height}" style="{shrink}" role="img">'
    return Drawing(head + "".join(parts) + "</svg>", width, height, note)


def _title(group: _Group) -> str:
    return group.label + (f" × {group.count}" if group.count > 1 else "")


def _width(group: _Group) -> float:
    return max(64.0, CHARACTER * len(_title(group)) + 18, CHARACTER * 0.82 * len(group.below) + 14)


def _curve(points: list[tuple[float, float]]) -> str:
    """A path from the bottom of the first box to the top of the last through the bends between."""
    x, y = points[0]
    text, y = f"M{x:.1f} {y + HEIGHT:.1f}", y + HEIGHT
    for k, (nx, ny) in enumerate(points[1:], 1):
        middle = (y + ny) / 2
        text += f"C{x:.1f} {middle:.1f} {nx:.1f} {middle:.1f} {nx:.1f} {ny:.1f}"
        x, y = nx, ny
        if k < len(points) - 1:
            y = ny + HEIGHT
            text += f"L{nx:.1f} {y:.1f}"
    return text


def _box(group: _Group, box: Box, y: float) -> str:
    left = box.x + 4 - box.width / 2
    more = group.count - len(group.members)
    lines = [*group.members, *([f"and {more} more"] if more > 0 else [])]
    radius = HEIGHT / 2 if group.kind in ("input", "output") else 6
    x = box.x + 4
    return (
        f'<g class="box {group.kind}"><title>{escape(chr(10).join(lines))}</title>'
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{HEIGHT:.0f}" rx="{radius:.0f}"/>'
        f'<text x="{x:.1f}" y="{y + 16:.1f}">{escape(_title(group))}</text>'
        f'<text class="type" x="{x:.1f}" y="{y + 30:.1f}">{escape(group.below)}</text></g>'
    )
