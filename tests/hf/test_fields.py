"""What is refused, all at once and by name; what is left aside; what the tables of fields and families hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hf_exports import CONFIGS
from hypothesis import given, settings
from hypothesis import strategies as st

from moec.diagnostics import Refusal
from moec.frontend.hf import parse_config, read_config, read_config_text
from moec.frontend.hf.families import ARCHITECTURES, FAMILIES
from moec.frontend.hf.fields import FIELDS, IGNORED, SPELLINGS, WARNED
from moec.ir.graph import Module, Node
from moec.ops.verify import verify

QWEN = CONFIGS["qwen3_moe"]
DEEPSEEK = CONFIGS["deepseek_v3"] | {"topk_method": "noaux_tc"}


def built(*changes: dict[str, Any], base: dict[str, Any] = QWEN, without: str = "") -> Module:
    fields = dict(base)
    for change in changes:
        fields |= change
    module = parse_config(json.dumps({k: v for k, v in fields.items() if k != without}, indent=1))
    verify(module)
    return module


def refused(*changes: dict[str, Any], base: dict[str, Any] = QWEN, without: str = "") -> list[str]:
    with pytest.raises(Refusal) as caught:
        built(*changes, base=base, without=without)
    return [str(p) for p in caught.value.problems]


def only(module: Module, op: str) -> Node:
    (node,) = [n for n in module.nodes() if n.op == op]
    return node


def test_every_problem_is_told_at_once_and_at_its_line() -> None:
    texts = refused(
        {
            "index_topk": 2048,
            "hidden_act": "swish2",
            "num_experts": 0,
            "rope_scaling": {"rope_type": "ntk", "factor": 2},
        },
        {"num_hidden_layers": "48", "norm_topk_probs": True},
    )
    whole = "\n".join(texts)
    assert len(texts) == 6
    for part in (
        "the field 'index_topk' is not understood",
        "'hidden_act' is 'swish2', which is not built; known: silu, gelu",
        "'num_experts' is 0, expected a positive whole number",
        "rope_type 'ntk' is not built",
        "'num_hidden_layers' is \"48\", expected a positive whole number",
        "did you mean 'norm_topk_prob'?",
    ):
        assert part in whole
    lines = [int(re.search(r"config\.json:(\d+):", t)[1]) for t in texts]  # type: ignore[index]
    assert lines == sorted(lines)
    assert all("    ^" in t for t in texts)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_experts_per_tok": 9}, "a token takes 9 of 8 experts"),
        ({"num_key_value_heads": 3}, "4 query heads do not share 3 key heads evenly"),
        ({"partial_rotary_factor": 0.4}, "3 of a head's 8 elements cannot be rotated in pairs"),
        ({"rotary_dim": 10}, "10 of a head's 8 elements"),
        ({"clip_qkv": 8.0}, "bounds on queries, keys and values are not built"),
        ({"swiglu_limit": 7.0}, "what qwen3_moe does with it is not known"),
        ({"mlp_bias": True}, "biases in MLPs are not built"),
        ({"layer_types": ["linear_attention"]}, "layers of type 'linear_attention' are not built"),
        ({"layer_types": ["full_attention"] * 2}, "'layer_types' has 2 entries for 1 layers"),
        ({"layer_types": ["sliding_attention"]}, "nothing says 'sliding_window'"),
        ({"n_group": 4, "topk_group": 2}, "nothing says 'topk_method'"),
        ({"n_group": 3, "topk_group": 1, "topk_method": "noaux_tc"}, "8 experts do not split into 3 groups"),
        ({"n_group": 4, "topk_group": 1, "topk_method": "noaux_tc"}, "1 groups have too few experts"),
        ({"n_group": 4, "topk_method": "noaux_tc"}, "'topk_group' is missing"),
        ({"topk_group": 4, "topk_method": "noaux_tc"}, "'n_group' is missing"),
        ({"n_group": 4, "topk_group": 5, "topk_method": "noaux_tc"}, "a token chooses from 5 of 4 groups"),
        ({"q_lora_rank": 16}, "'q_lora_rank' is of MLA, but nothing says 'kv_lora_rank'"),
        ({"n_shared_experts": 1, "shared_expert_intermediate_size": 8}, "both say it"),
        ({"num_local_experts": 16}, "'num_local_experts' says 16, but 'num_experts' says 8"),
        ({"torch_dtype": "float8_e4m3fn"}, "torch_dtype 'float8_e4m3fn' is not built"),
        ({"moec_layers": [1]}, "'moec_layers' names no layers of the 1"),
        ({"moec_layers": "some"}, "expected 'kinds', 'all' or a list"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "needs a positive number 'original_max_position"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "beta": 1}}, "the field 'beta' of rope_type 'linear'"),
        ({"num_hidden_layers": 10**6}, "1000000 layers are more than"),
        ({"hidden_size": 2**31}, "expected a positive whole number"),
        ({"hidden_size": True}, "'hidden_size' is true"),
        ({"rms_norm_eps": float("inf")}, "expected a number"),
        ({"moe_norm_min": 0.6}, "a least sum of 0.6 of the weights can be reached"),
        ({"mlp_only_layers": [0], "intermediate_size": None}, "'intermediate_size' is missing"),
    ],
)
def test_refused_by_name(change: dict[str, Any], said: str) -> None:
    assert said in "\n".join(refused(change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}},
            "'rope_scaling' and 'rope_parameters' say two things",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"type": "linear", "factor": 4.0}},
            "'rope_scaling' and 'rope_parameters' say two things",
        ),
        ({"rope_parameters": {"rope_theta": 5e5}}, "'rope_theta' is 10000.0, but 'rope_parameters' says 500000.0"),
        (
            {"rope_scaling": {"type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor": 0.25},
            "'partial_rotary_factor' is 0.25, but 'rope_scaling' says 0.5",
        ),
        (
            {"rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 2.0}},
            "rope_type is 'linear', type 'yarn'",
        ),
    ],
)
def test_what_is_said_twice_must_be_said_alike(change: dict[str, Any], said: str) -> None:
    (text,) = refused(change)
    assert said in text


def test_a_head_is_as_wide_as_its_parts() -> None:
    parts = DEEPSEEK["qk_nope_head_dim"] + DEEPSEEK["qk_rope_head_dim"]
    built({"qk_head_dim": parts}, base=DEEPSEEK)
    (text,) = refused({"qk_head_dim": parts + 2}, base=DEEPSEEK)
    assert f"the parts of a query or key head make {parts}" in text


def test_the_same_said_twice_is_taken() -> None:
    twice = {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}
    built(twice, {"rope_theta": 1e4, "partial_rotary_factor": 1.0})


def test_a_short_list_of_layer_types_is_the_only_problem() -> None:
    (text,) = refused({"num_hidden_layers": 3, "layer_types": ["full_attention"]})
    assert "'layer_types' has 1 entries for 3 layers" in text


def test_what_a_family_never_does_is_refused() -> None:
    (text,) = refused({"norm_topk_prob": False}, base=CONFIGS["mixtral"])
    assert "'norm_topk_prob' is false, but the code of mixtral always has true" in text
    (text,) = refused({"use_qk_norm": True}, base=DEEPSEEK)
    assert "where deepseek_v3 norms queries and keys is not known" in text


@pytest.mark.parametrize(
    "field", [k for k in QWEN if k not in ("torch_dtype", "max_position_embeddings", "model_type")]
)
def test_a_missing_field_is_asked_for_or_changes_nothing_unsaid(field: str) -> None:
    """Without one of its fields a file is refused with the field's name, unless the family's code fills it in."""
    filled = {"num_key_value_heads", "head_dim", "norm_topk_prob"}
    if field in filled:
        built(without=field)
    else:
        assert f"'{field}'" in "\n".join(refused(without=field))


def test_a_file_of_no_known_family_must_say_everything() -> None:
    texts = refused({"model_type": "new_moe"})
    asked = [re.search(r"nothing says '(\w+)'", t)[1] for t in texts]  # type: ignore[index]
    assert sorted(asked) == ["attention_bias", "qk_norm", "rope_layout", "score_bias", "scoring_func"]
    said = {"attention_bias": False, "qk_norm": "head", "rope_layout": "half", "scoring_func": "softmax"}
    module = built({"model_type": "new_moe", "score_bias": False}, said)
    assert [n.op for n in module.nodes()] == [n.op for n in built().nodes()]


def test_a_family_is_also_known_by_its_architecture() -> None:
    """Kimi K2 has a model_type of its own and the code of DeepSeek-V3."""
    kimi = built({"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]}, base=DEEPSEEK)
    assert only(kimi, "moe").attrs == only(built(base=DEEPSEEK), "moe").attrs


def test_what_changes_nothing_is_ignored_and_quantisation_warned_of() -> None:
    fields = QWEN | dict.fromkeys(IGNORED, 0) | {"model_type": "qwen3_moe", "architectures": None, "strange": None}
    loaded = read_config_text(json.dumps(fields | {"quantization_config": {"quant_method": "fp8"}}))
    assert [n.op for n in loaded.module.nodes()] == [n.op for n in built().nodes()]
    (warning,) = loaded.warnings
    assert "'quantization_config' is left aside" in str(warning)
    (warning,) = read_config_text(json.dumps({k: v for k, v in QWEN.items() if k != "torch_dtype"})).warnings
    assert "built in float32" in str(warning)


def test_no_name_stands_in_two_tables() -> None:
    spelled = [s for f in FIELDS.values() for s in (f.name, *f.spellings)]
    assert len(spelled) == len(set(spelled)) == len(SPELLINGS)
    assert not set(SPELLINGS) & set(IGNORED) and not set(WARNED) & (set(SPELLINGS) | set(IGNORED))
    assert set(ARCHITECTURES.values()) == set(FAMILIES)
    for family in FAMILIES.values():
        assert set(family.says) | set(family.always) <= set(FIELDS)
        for name, value in {**family.says, **family.always}.items():
            assert not FIELDS[name].choices or value in FIELDS[name].choices


KINDS: list[tuple[dict[str, Any], list[str]]] = [
    ({"num_hidden_layers": 4, "mlp_only_layers": [0, 3], "intermediate_size": 64}, ["dense", "moe", "moe", "dense"]),
    ({"num_hidden_layers": 4, "decoder_sparse_step": 2, "intermediate_size": 64}, ["dense", "moe", "dense", "moe"]),
    ({"num_hidden_layers": 3, "first_k_dense_replace": 1, "intermediate_size": 64}, ["dense", "moe", "moe"]),
    ({"num_hidden_layers": 4, "moe_layer_freq": 2, "intermediate_size": 64}, ["moe", "dense", "moe", "dense"]),
    ({"num_hidden_layers": 3, "moe_layer_freq": [0, 1, 1], "intermediate_size": 64}, ["dense", "moe", "moe"]),
    ({"num_hidden_layers": 2, "mlp_layer_types": ["sparse", "dense"], "intermediate_size": 64}, ["moe", "dense"]),
    ({"num_hidden_layers": 3, "moe_layer_end_index": 1, "intermediate_size": 64}, ["moe", "moe", "dense"]),
]


@pytest.mark.parametrize(("change", "kinds"), KINDS)
def test_which_layers_are_moe(change: dict[str, Any], kinds: list[str]) -> None:
    module = built(change, {"moec_layers": "all"})
    assert [n.attrs["fn"].removesuffix("_layer") for n in module.main if n.op == "call"] == kinds
    assert len(module.functions) == 1 + len(set(kinds))
    firsts = sorted(kinds.index(k) for k in set(kinds))
    short = [n.attrs["name"] for n in built(change).main if n.op == "weight" and "input_layernorm" in n.attrs["name"]]
    assert short == [f"model.layers.{i}.input_layernorm.weight" for i in firsts]


WINDOWS: list[tuple[str, dict[str, Any], list[int | None]]] = [
    ("mixtral", {"sliding_window": 8}, [8, 8, 8, 8]),
    ("qwen3_moe", {"sliding_window": 8}, [None] * 4),
    ("qwen3_moe", {"sliding_window": 8, "use_sliding_window": True}, [8, 8, 8, 8]),
    ("qwen2_moe", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}, [None, None, 8, 8]),
    (
        "qwen3_moe",
        {"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"] * 2},
        [None, 8, None, 8],
    ),
]


@pytest.mark.parametrize(("family", "change", "windows"), WINDOWS)
def test_which_layers_have_a_window(family: str, change: dict[str, Any], windows: list[int | None]) -> None:
    module = built({"num_hidden_layers": 4, "moec_layers": "all"}, change, base=CONFIGS[family])
    calls = [module.functions[n.attrs["fn"]] for n in module.main if n.op == "call"]
    assert [next(n for n in fn if n.op == "attention").attrs["window"] for fn in calls] == windows


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"hidden_size": 8}', "[" * 100_000, '{"model_type": 1e999}'])
def test_what_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        parse_config(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{")
    (tmp_path / "large.json").write_bytes(b" " * (1 << 21))
    for name in ("config.json", "large.json", "missing.json", "."):
        with pytest.raises(Refusal):
            read_config(tmp_path / name)


def test_the_same_text_gives_the_same_module_twice() -> None:
    from moec.ir.text import print_module

    assert print_module(built(base=DEEPSEEK)) == print_module(built(base=DEEPSEEK))


ODD: list[Any] = [
    None,
    0,
    1,
    -1,
    True,
    False,
    "x",
    [],
    {},
    [1],
    ["a"],
    1.5,
    10**30,
    10**400,
    1e308,
    1e-308,
    float("nan"),
]
ODD_ROPES: list[Any] = [
    {"rope_type": kind, "factor": factor, "original_max_position_embeddings": length, "beta_fast": beta}
    | ({"low_freq_factor": 1, "high_freq_factor": high} if kind == "llama3" else {})
    for kind in ("yarn", "llama3", "linear", [])
    for factor, length, beta, high in ((0.5, 1, "q", 1), (2, 1e300, 1e-300, 0), (1, 4096, None, 4))
]


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_odd_values_are_refused_or_built_and_nothing_else(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([QWEN, DEEPSEEK, *CONFIGS.values()]))
    values = st.sampled_from(ODD) | st.sampled_from(ODD_ROPES)
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(SPELLINGS)), values, min_size=1, max_size=3))
    try:
        verify(parse_config(json.dumps(base | changes)))
    except Refusal as refusal:
        assert refusal.problems
