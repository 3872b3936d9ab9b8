"""``report.html``: self-contained, well-formed, complete; drawings without overlaps."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import pytest
from schedules import small_schedule

from moec.ir.graph import Graph, Module
from moec.ir.symbol import sym
from moec.ir.types import F32, TensorType
from moec.ops.build import Builder
from moec.report.drawing import FULL_NODES, MOST_RANKS, draw
from moec.report.html import quantity, report
from moec.report.layout import Box, layered
from moec.report.summary import op_counts, summary
from moec.report.timeline import timeline
from moec.target import Schedule


def chain(length: int, name: str = "x", wide: int = 1) -> Module:
    """``wide`` chains of ``length`` alternating silu and neg nodes from one input, summed up."""
    module = Module()
    graph = module.add(Graph("main"))
    x = graph.add_input(name, TensorType(F32, (sym("T"), 8)))
    b = Builder(graph)
    total = None
    for _ in range(wide):
        v = x
        for i in range(length):
            v = b.silu(v) if i % 2 else b.neg(v)
        total = v if total is None else b.add(total, v)
    graph.set_outputs([total], ["y"])
    return module


def page(module: Module, schedule: Schedule | None = None, file: str = "layer.moe") -> str:
    counts = op_counts(module)
    document = summary(
        {"file": file, "kind": "moe"},
        ["a warning of the input"],
        {"name": "ascend910b1", "title": "Ascend910B1"},
        {"T": 4},
        {},
        {"T": (1, 8)},
        [{"pass": "cse", "applied": {"cse": 2}, "near_misses": [], "nodes": 3}],
        counts,
        counts,
        schedule,
        [] if schedule else ["op 'sort' has no kernel"],
        [],
    )
    return report(document, module, module, schedule)


class Balance(HTMLParser):
    """Collects unbalanced tags and everything that would be fetched."""

    VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [f"{tag} {k}" for k, _ in attrs if k in ("src", "href", "xlink:href", "data")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [f"{tag} {k}" for k, _ in attrs if k in ("src", "href", "xlink:href", "data")]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.mark.parametrize("lowered", [True, False])
def test_the_page_is_well_formed_and_fetches_nothing(lowered: bool) -> None:
    text = page(chain(5), small_schedule() if lowered else None)
    balance = Balance()
    balance.feed(text)
    assert not balance.open and not balance.wrong
    assert not balance.fetched
    assert "url(" not in text and "@import" not in text and "<script" not in text


def test_the_page_names_kernels_passes_and_what_bounds_each() -> None:
    text = page(chain(5), small_schedule())
    for part in (
        "a warning of the input",
        "router_matmul",
        "gating",
        "MTE2",
        "launch",
        "cse",
        "5.5 µs",
        "prefers-color-scheme: dark",
    ):
        assert part in text
    assert "has no kernel" in page(chain(5))


def test_names_from_the_input_are_escaped() -> None:
    text = page(chain(3, name='<script>alert("x")</script>'))
    assert "<script" not in text and "&lt;script&gt;" in text
    assert "<img" not in page(chain(3), file="<img src=x>.moe")


def test_a_small_graph_is_drawn_node_by_node() -> None:
    svg = draw(chain(4).main).svg
    assert svg.count('<g class="box') == 4 + 2
    assert svg.count('class="edge"') == 5


def test_a_large_graph_is_drawn_by_op_and_rank() -> None:
    module = chain(6, wide=FULL_NODES)
    svg = draw(module.main).svg
    assert svg.count('<g class="box') < len(module.main) / 2
    assert f"neg × {FULL_NODES}" in svg and "and 40 more" in svg


def test_a_deep_graph_is_cut_and_says_so() -> None:
    drawing = draw(chain(3 * MOST_RANKS).main)
    assert str(MOST_RANKS) in drawing.note and drawing.height < 70 * MOST_RANKS


def test_boxes_of_a_rank_do_not_overlap_and_edges_go_down() -> None:
    boxes = [Box(0, 50)] + [Box(1 + i % 3, 30 + 7 * (i % 5)) for i in range(12)] + [Box(4, 60)]
    edges = [(0, i) for i in range(1, 13)] + [(i, 13) for i in range(1, 13)]
    layout = layered(boxes, edges, 10)
    for row in layout.ranks:
        for a, b in itertools.pairwise(row):
            left, right = layout.boxes[a], layout.boxes[b]
            assert right.x - left.x >= (left.width + right.width) / 2 + 10 - 1e-6
    assert min(b.x - b.width / 2 for b in layout.boxes) == pytest.approx(0)
    for path, (a, b) in zip(layout.paths, edges, strict=True):
        assert (path[0], path[-1]) == (a, b)
        assert [layout.boxes[i].rank for i in path] == list(range(layout.boxes[a].rank, layout.boxes[b].rank + 1))


def test_a_chain_is_straight() -> None:
    layout = layered([Box(i, 20 + i) for i in range(6)], [(i, i + 1) for i in range(5)], 10)
    assert max(b.x for b in layout.boxes) - min(b.x for b in layout.boxes) < 1.0


def test_the_timeline_is_to_scale() -> None:
    svg = timeline(small_schedule())
    rects = re.findall(r'class="kernel k\d" x="([\d.]+)" width="([\d.]+)"', svg)
    (x0, w0), (x1, w1) = ((float(x), float(w)) for x, w in rects)
    assert w0 == pytest.approx(2 * w1, rel=0.02)  # 1 us and 0.5 us of work
    assert x1 - x0 == pytest.approx(3 * (w0 + 0.6), rel=0.02)  # 3 us from start to start
    assert timeline(Schedule("t", {}, ())) == ""


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1234567, "1.23 MB"), (5.1e17, "510 PB")]
)
def test_quantities(value: float, text: str) -> None:
    assert quantity(value, "B") == text
