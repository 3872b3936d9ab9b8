"""Sizes that a file derives from those left open may be given too: the open ones follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from moec.diagnostics import Refusal
from moec.sources import Loaded, read

TEXT = """
group tp = 4
dim p in [1, 100] = 5
dim B in [1, 8] = 2
s = tp * p
padded = 2 * s + 3
T = B * s
blocks = ceildiv(p, 2)
width = 16
input x: f32[p, B, width], z: i64[padded]
y = x * 2.0
H = width * blocks
n = size(to_host(reduce_sum(z, axes = [0], keepdims = false)), at_most = s)
many = 2 * n
output y, first = iota(size = many, dtype = i32)
"""


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    path = tmp_path_factory.mktemp("layer") / "layer.moe"
    path.write_text(TEXT)
    return read(path)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, {"p": 5, "B": 2}),
        ({"s": 24}, {"p": 6, "B": 2}),
        ({"B": 3, "padded": 43}, {"p": 5, "B": 3}),
        ({"T": 96, "B": 3}, {"p": 8, "B": 3}),
        ({"s": 40, "T": 80}, {"p": 10, "B": 2}),
        ({"s": 40, "p": 10}, {"p": 10, "B": 2}),
    ],
)
def test_the_open_sizes_follow(layer: Loaded, given: dict[str, int], sizes: dict[str, int]) -> None:
    assert layer.sizes(given) == sizes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"s": 22}, r"s=22, and s is 4\*p.*choose a multiple of 4"),
        ({"padded": 4}, r"choose a size from 11 to 803"),
        ({"padded": 12}, r"a multiple of 8, plus 3"),
        ({"s": 404}, r"with p in \[1, 100\].*choose a size from 4 to 400"),
        ({"T": 80}, r"T is 4\*B\*p.*give B, p instead"),
        ({"s": 40, "p": 9}, r"here 36.*give only one"),
        ({"blocks": 3}, r"blocks is .*give p instead"),
        ({"many": 4}, r"no dim 'many'"),
        ({"width": 4}, r"no dim 'width'"),
        ({"pad": 4}, r"did you mean 'padded'"),
        ({"s": 22, "T": 80}, r"s=22(.|\n)*T=80"),
    ],
)
def test_what_gives_no_open_size_is_refused(layer: Loaded, given: dict[str, int], words: str) -> None:
    with pytest.raises(Refusal, match=words.replace(".*", r"(?:.|\n)*")):
        layer.sizes(given)


def test_the_sizes_that_are_published_fit_the_rank_of_pangu() -> None:
    rank = read(Path(__file__).parents[2] / "examples" / "pangu_ultra_moe_rank.moe")
    assert rank.sizes({"mbs": 4, "s": 4096}) == {"mbs": 4, "p": 512}
