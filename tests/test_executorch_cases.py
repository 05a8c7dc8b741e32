"""Every case through the drop-in to a .pte: both memory modes, in place or not, three steps.

`REFUSED` names what executorch 1.5.1 cannot do with a program, whoever lowers it, and the message
in which it says so.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import oracle
from cases import CASES
from programs import export, trace

pytestmark = [pytest.mark.slow, pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

exir = pytest.importorskip("executorch.exir")
from executorch.exir.passes import MemoryPlanningPass  # noqa: E402
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass  # noqa: E402
from executorch.extension.pybindings.portable_lib import (  # noqa: E402
    _load_for_executorch_from_buffer,
)

from mutcanon.executorch import to_edge_transform_and_lower  # noqa: E402
from pte import mutated_inputs  # noqa: E402

REFUSED = {
    # Our own refusals.
    "et3788-custom-op-buffer": "no_out_variant",
    "pt138221-custom-op-input": "no_out_variant",
    "pt138221-custom-op-view": "no_out_variant",
    "adv-strided-buffer-viewed": "strided_state",
    # torch's, for programs whose inputs or buffers are the same tensor, or that it cannot express.
    "adv-aliased-caller-inputs": "expected compiled_fn to be GraphModule",
    "pt166572-buffer-two-names": "expected compiled_fn to be GraphModule",
    "pt166572-same-tensor-twice": "expected compiled_fn to be GraphModule",
    "pt197096-plain-attribute": "Constant c is mutated",
    "adv-cond-branch-mutates": "'aten.copy_.default' is not functional",
    # executorch's: no operator, no control flow, no kernel for the type or dim order.
    "et19980-bn-tracked": "Missing out variants",
    "pt115106-bn-user-stats": "Missing out variants",
    "pt143379-noise": "Missing out variants",
    "adv-while-loop-cache": "Unsupported control flow operator: while_loop",
    "adv-transposed-input": "should be contiguous or channels-last",
    "adv-complex-input": "error: 0x12",
    "adv-size1-odd-strides": "error: 0x12",
    "adv-symint-input": "error: 0x12",
    "et9930-channels-last-cache": "error: 0x12",
}
#: Kernels round otherwise than eager.
TOLERANCE = {"adv-bf16-input": 5e-2, "et4042-half-state": 1e-2}
EXPORTED = [c.id for c in CASES.values() if not c.not_exported]


@functools.cache
def edge(name: str) -> Any:
    with torch.no_grad():
        return to_edge_transform_and_lower(
            export(CASES[name]), compile_config=exir.EdgeCompileConfig(_check_ir_validity=False)
        )


def run_pte(name: str, *, own: bool, reinplace: bool) -> oracle.Trace:
    manager = edge(name)
    targets = mutated_inputs(manager.exported_program())
    config = exir.ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(["b_"])],
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=not own),
    )
    # The runtime reads the program's own bytes, which must outlive it.
    buffer = manager.to_executorch(config, reinplace=reinplace).buffer
    runtime = _load_for_executorch_from_buffer(buffer)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        flat = pytree.tree_leaves((args, kwargs))
        results = runtime.run_method("forward", tuple(flat))
        if not own:
            for target, new in zip(targets, results, strict=False):
                flat[target].copy_(new)
        return results[len(targets) :]

    mutated = trace(name).mutated
    return oracle.Trace(oracle.run(call, CASES[name].arguments, 3, mutated), mutated)


@pytest.mark.parametrize("name", [n for n in EXPORTED if n not in REFUSED])
@pytest.mark.parametrize(("own", "reinplace"), itertools.product((False, True), repeat=2))
def test_pte_is_eager(name: str, own: bool, reinplace: bool) -> None:
    got = run_pte(name, own=own, reinplace=reinplace)
    assert oracle.difference(trace(name), got, TOLERANCE.get(name, 1e-5)) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused(name: str) -> None:
    with pytest.raises(Exception) as error:
        run_pte(name, own=True, reinplace=True)
    assert REFUSED[name] in str(error.value)
