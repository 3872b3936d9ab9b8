"""A library call as C++ of the host program: what its arguments are made of, the two calls, what is destroyed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from moec.codegen.operator_call import Argument, Integers, Number, OperatorCall, View, Views
from moec.ir.symbol import Dim

ENUMERATORS = {
    "f32": "ACL_FLOAT",
    "f16": "ACL_FLOAT16",
    "bf16": "ACL_BF16",
    "i64": "ACL_INT64",
    "i32": "ACL_INT32",
    "i16": "ACL_INT16",
    "i8": "ACL_INT8",
    "u64": "ACL_UINT64",
    "u32": "ACL_UINT32",
    "u16": "ACL_UINT16",
    "u8": "ACL_UINT8",
    "bool": "ACL_BOOL",
}
"""The kernel IR's dtypes, and truth values, as the vendor's enumerators."""


def call_lines(call: OperatorCall, dim: Callable[[Dim], str]) -> list[str]:
    """The statements of a call, each a line; ``dim`` prints a dimension."""
    made: list[str] = []
    gone: list[str] = []
    given: list[str] = []
    for name, argument in call.arguments:
        given.append(_argument(name, argument, dim, made, gone))
    first = f"{call.function}GetWorkspaceSize({', '.join([*given, '&workspaceSize', '&executor'])})"
    return [
        *made,
        "uint64_t workspaceSize = 0;",
        "aclOpExecutor *executor = nullptr;",
        f'Check({first}, "{call.function}GetWorkspaceSize");',
        f'Check({call.function}(workspace.Of(workspaceSize), workspaceSize, executor, stream), "{call.function}");',
        *gone,
    ]


def _argument(name: str, argument: Argument, dim: Callable[[Dim], str], made: list[str], gone: list[str]) -> str:
    """The expression for an argument; ``made`` gets what makes it, ``gone`` what ends it."""
    if argument is None:
        return "nullptr"
    if isinstance(argument, str):
        made.append(f"char {name}[] = {json.dumps(argument)};")
        return name
    if isinstance(argument, Number):
        return _number(argument, dim)
    if isinstance(argument, Integers):
        made.append(f"aclIntArray *{name} = library::Integers({_list(argument.items, dim)});")
        gone.append(f"aclDestroyIntArray({name});")
    elif isinstance(argument, Views):
        items = ", ".join(_tensor(v, dim) for v in argument.items)
        made.append(f"aclTensorList *{name} = library::List({{{items}}});")
        gone.append(f"aclDestroyTensorList({name});")
    else:
        made.append(f"aclTensor *{name} = {_tensor(argument, dim)};")
        gone.append(f"aclDestroyTensor({name});")
    return name


def _number(number: Number, dim: Callable[[Dim], str]) -> str:
    value = number.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    return value if isinstance(value, str) else dim(value)


def _list(dims: Sequence[Dim], dim: Callable[[Dim], str]) -> str:
    return f"{{{', '.join(map(dim, dims))}}}"


def _tensor(view: View, dim: Callable[[Dim], str]) -> str:
    strides = f", {_list(view.strides, dim)}" if view.strides else ""
    return f"library::Tensor(dev_{view.tensor}, {ENUMERATORS[view.dtype]}, {_list(view.shape, dim)}{strides})"
