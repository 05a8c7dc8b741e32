"""A test for each finding: it runs the archive's program as a stock consumer does, and fails.

What it compares with is the program's meaning (semantics 1): all values are computed from the state
on entry, then all targets receive theirs at once. The files need pytest, torch and, for its
findings, executorch, but not mutcanon, so that they can go into a report to those projects.
"""

from __future__ import annotations

import os
import re
import textwrap
from typing import TYPE_CHECKING, Any

from mutcanon import _store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutcanon._batch import Outcome


def write_tests(outcome: Outcome, directory: str) -> int:
    """Writes a test for each finding about a file, over older ones; returns how many."""
    os.makedirs(directory, exist_ok=True)
    count = 0
    for name, text in _tests(outcome):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)
        count += 1
    return count


def _tests(outcome: Outcome) -> Iterator[tuple[str, str]]:
    for model in outcome.models:
        for number, finding in enumerate(model["report"]["findings"]):
            parts = (outcome.name.removesuffix(_store.SUFFIX), model["model"], finding["code"])
            slug = re.sub(r"\W+", "_", "-".join(parts), flags=re.ASCII).strip("_")
            yield f"test_{slug}_{number}.py", _test(outcome, model["model"], finding)


def _test(outcome: Outcome, model: str, finding: dict[str, Any]) -> str:
    is_remote = _store.is_url(outcome.source)
    because = f" because of {finding['other']}" if finding["other"] else ""
    where = f"Model {model}, {finding['output']}{because}."
    title = f"{finding['code']}: {finding['sentence']}."
    todo = f"To mend it: {finding['advice']}."
    paragraphs = [_wrapped(title), _wrapped(where), _wrapped(todo), _NOTE]
    docstring = "\n\n".join(paragraphs).replace("\\", "\\\\").replace('"""', "'''")
    head = _HEAD.format(
        docstring=docstring,
        archive=outcome.source if is_remote else os.path.abspath(outcome.source),
        model=model,
        open='fsspec.open(ARCHIVE, "rb")' if is_remote else 'open(ARCHIVE, "rb")',
        fsspec="import fsspec\n" if is_remote else "",
    )
    if finding["code"] == "already_lost":
        return head + _ALREADY_LOST.format(target=finding["output"])
    tests = {**CONSUMERS, **_SPECIAL.get(finding["code"], {})}
    return head + "".join(tests[consumer] for consumer in finding["consumers"])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 98, break_long_words=False, break_on_hyphens=False)


_NOTE = "Written by `mutcanon check --repro`. It fails as long as the consumer gets it wrong."

_HEAD = '''\
"""{docstring}
"""

import copy

{fsspec}import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.export.pt2_archive._package import load_pt2
from torch.utils import _pytree as pytree

ARCHIVE = {archive!r}
MODEL = {model!r}
STEPS = 3
MUTATIONS = {{
    OutputKind.USER_INPUT_MUTATION: InputKind.USER_INPUT,
    OutputKind.BUFFER_MUTATION: InputKind.BUFFER,
    getattr(OutputKind, "PARAMETER_MUTATION", None): InputKind.PARAMETER,
}}


def load():
    """The program, with numbers in its state that tell right from wrong."""
    with {open} as file:
        program = load_pt2(file).exported_programs[MODEL]
    torch.manual_seed(0)
    for spec in program.graph_signature.output_specs:
        if spec.kind in MUTATIONS and spec.kind != OutputKind.USER_INPUT_MUTATION:
            stored = program.state_dict if spec.target in program.state_dict else program.constants
            scramble(stored[spec.target])
    return program


def scramble(tensor):
    """Indices stay what they are."""
    if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
        with torch.no_grad():
            tensor.copy_(torch.randn(tensor.shape).to(tensor.dtype))


def make_inputs(program, step):
    """The flat inputs of a step."""
    torch.manual_seed(step + 1)
    if program.example_inputs is not None:
        flat = copy.deepcopy(pytree.tree_leaves(program.example_inputs))
    else:
        specs = program.graph_signature.input_specs
        names = [spec.arg.name for spec in specs if spec.kind == InputKind.USER_INPUT]
        nodes = {{node.name: node for node in program.graph.nodes}}
        flat = [pytree.tree_map(concrete, nodes[name].meta["val"]) for name in names]
    for value in flat:
        scramble(value)
    return flat


def concrete(val):
    if isinstance(val, torch.Tensor):
        sizes = [int(getattr(getattr(s, "node", s), "hint", s)) for s in val.shape]
        return torch.zeros(sizes, dtype=val.dtype)
    return getattr(getattr(val, "node", val), "hint", val)


def by_meaning(program):
    """All values are computed first, then all targets receive theirs."""
    stored = copy.deepcopy({{**program.state_dict, **program.constants}})
    signature = program.graph_signature

    def call(inputs):
        given, values, places = iter(inputs), [], {{}}
        for spec in signature.input_specs:
            value = next(given) if spec.kind == InputKind.USER_INPUT else stored[spec.target]
            values.append(value)
            places[spec.kind, spec.target or spec.arg.name] = value
        results = torch.fx.Interpreter(program.graph_module).run(
            *values, enable_io_processing=False
        )
        outputs = []
        for spec, result in zip(signature.output_specs, copy.deepcopy(results), strict=True):
            if spec.kind in MUTATIONS:
                places[MUTATIONS[spec.kind], spec.target].detach().copy_(result)
            elif spec.kind == OutputKind.USER_OUTPUT:
                outputs.append(result)
        return outputs

    return call, lambda: stored


def as_module(program):
    """One target after another receives its value."""
    module = program.module()

    def call(inputs):
        args, kwargs = pytree.tree_unflatten(inputs, program.call_spec.in_spec)
        return pytree.tree_leaves(module(*args, **kwargs))

    return call, lambda: dict([*module.named_buffers(), *module.named_parameters()])


def compare(program, right, other, tolerance=0.0):
    """Runs both for some steps, each on the state that it left."""
    (call, state), (other_call, other_state) = right, other
    mutated = mutated_inputs(program)
    old = other_old = None
    for step in range(STEPS):
        inputs = make_inputs(program, step)
        other_inputs = copy.deepcopy(inputs)
        for i in mutated if step else ():
            inputs[i], other_inputs[i] = old[i], other_old[i]
        with torch.no_grad():
            outputs = copy.deepcopy(call(inputs))
            other_outputs = copy.deepcopy(list(other_call(other_inputs)))
        for i, (a, b) in enumerate(zip(outputs, other_outputs, strict=True)):
            require_equal(a, b, tolerance, f"step {{step}}, output {{i}}")
        for i in mutated:
            require_equal(inputs[i], other_inputs[i], tolerance, f"step {{step}}, input {{i}}")
        for name in state().keys() & other_state().keys():
            a, b = state()[name], other_state()[name]
            require_equal(a, b, tolerance, f"step {{step}}, {{name}}")
        old, other_old = inputs, other_inputs


def mutated_inputs(program):
    """Positions of the mutated inputs, in signature order."""
    signature = program.graph_signature
    names = [s.arg.name for s in signature.input_specs if s.kind == InputKind.USER_INPUT]
    specs = [s for s in signature.output_specs if s.kind == OutputKind.USER_INPUT_MUTATION]
    return [names.index(spec.target) for spec in specs]


def require_equal(a, b, tolerance, what):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(
            b, a, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{{what}}: {{m}}"
        )
    else:
        assert a == b, what
'''

_EXECUTORCH = '''

def test_executorch():
    """The lowered program does what the program means."""
    from executorch.exir import {names}
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass{imports}
    from executorch.runtime import Runtime

    program = load()
    config = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["b_", "p_"])]){lower}
    method = Runtime.get().load_program(lowered.buffer).load_method("forward")
    mutated = mutated_inputs(program)

    def call(inputs):
        results = method.execute(inputs)
        for i, result in zip(mutated, results):
            inputs[i].copy_(result)
        return results[len(mutated) :]

    compare(program, by_meaning(program), (call, dict), tolerance=1e-4)
'''

#: For each consumer that a finding may name, the test that it fails.
CONSUMERS = {
    "torch.module": '''

def test_module():
    """ExportedProgram.module() does what the program means."""
    program = load()
    compare(program, by_meaning(program), as_module(copy.deepcopy(program)))
''',
    "torch.run_decompositions": '''

def test_run_decompositions():
    """ExportedProgram.run_decompositions() leaves what the program does as it is."""
    program = load()
    decomposed = copy.deepcopy(program).run_decompositions({})
    compare(program, by_meaning(program), as_module(decomposed))
''',
    "executorch": _EXECUTORCH.format(
        names="ExecutorchBackendConfig, to_edge_transform_and_lower",
        imports="",
        lower="""
    lowered = to_edge_transform_and_lower(copy.deepcopy(program)).to_executorch(config)""",
    ),
}

#: What the ordinary lowering hides: it begins with a decomposition, which makes a copy.
_SPECIAL = {
    "overlap": {"executorch": ""},
    "permuted_outputs": {
        "executorch": _EXECUTORCH.format(
            names="EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig",
            imports="""
    from executorch.exir.program._program import _generate_edge_program""",
            lower="""
    # As it is: a decomposition would put a copy where it hurts.
    options = EdgeCompileConfig(_check_ir_validity=False)
    edge = EdgeProgramManager({"forward": _generate_edge_program(options, copy.deepcopy(program))})
    lowered = edge.to_executorch(config)""",
        )
    },
}

# What an earlier decomposition removed is not there to compare with; that it did can be seen.
_ALREADY_LOST = '''

def test_value_has_the_type_of_its_target():
    """What is written to a buffer, and read besides, is what the buffer will hold."""
    program = load()
    signature = program.graph_signature
    (target,) = (s.arg.name for s in signature.input_specs if s.target == {target!r})
    (value,) = (s.arg.name for s in signature.output_specs if s.target == {target!r})
    vals = {{node.name: node.meta.get("val") for node in program.graph.nodes}}
    for fact in ("dtype", "shape"):
        assert getattr(vals[value], fact) == getattr(vals[target], fact)
    assert vals[value].stride() == vals[target].stride()
'''
