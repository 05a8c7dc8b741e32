"""canonicalize, canonicalize_ and analyze on programs built for one question each."""

from __future__ import annotations

import copy
import io
import json
import operator
import re

import pytest
import torch
from torch import nn
from torch.export.graph_signature import OutputKind, TensorArgument
from torch.utils._sympy.value_ranges import ValueRanges

import mutcanon
import oracle
from build import Builder, aten
from cases import CASES
from mutcanon import errors
from programs import FORMS, canonical, own, program, trace

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
in_forms = pytest.mark.parametrize("form", FORMS)


def code_of_the_only_copy(ep, form="portable"):
    """The code for which the only copy of a program stays; the program must not change."""
    assert mutcanon.canonicalize(ep, form=form) is ep
    assert mutcanon.canonicalize_(ep, form=form) is ep
    (kept,) = mutcanon.analyze(ep, form=form).kept
    return kept.code


def decomposed(module, args, times=2, **options):
    ep = torch.export.export(module, args, **options)
    with torch.no_grad():
        for _ in range(times):
            ep = ep.run_decompositions({})
    return ep


# The three kinds of mutation


@in_forms
@pytest.mark.parametrize("kind", ["user", "buffer", "parameter"])
def test_copy_of_every_kind_of_mutation_collapses(kind, form):
    b = Builder()
    target = b.input("p", 3, kind=kind)
    x = b.input("x", 3)
    value = b.call(aten.add.Tensor, target, x)
    ep = b.program({target: b.copy(target, b.copy(target, value))}, (b.call(aten.neg.default, x),))
    result = mutcanon.canonicalize(ep, form=form)
    assert oracle.count_copies(result) == 0
    (spec, node), *_ = oracle.mutations(result)
    assert (spec.target, spec.arg.name, node.name) == ("p", "add", "add")
    assert spec.kind is oracle.mutations(ep)[0][0].kind
    oracle.require_invariants(ep, result)
    assert mutcanon.analyze(ep, form=form).mutations[0].kind == kind.replace("user", "user_input")


@in_forms
def test_interior_copy_collapses(form):
    b = Builder()
    a, x = b.input("a", 4, 3), b.input("x", 3)
    y = b.call(aten.mul.Tensor, x, 2)
    row = b.copy(b.call(aten.select.int, a, 0, 1), y)
    value = b.call(aten.select_scatter.default, a, row, 0, 1)
    result = mutcanon.canonicalize(b.program({a: value}), form=form)
    assert oracle.count_copies(result) == 0
    (scatter,) = result.graph.find_nodes(op="call_function", target=aten.select_scatter.default)
    assert scatter.args[1].name == y.name


def test_destination_does_not_matter():
    b = Builder()
    a, other, x = b.input("a", 3), b.input("other", 3), b.input("x", 3)
    value = b.copy(other, b.call(aten.neg.default, x))
    assert oracle.count_copies(mutcanon.canonicalize(b.program({a: value}))) == 0


def test_copy_with_keywords():
    b = Builder()
    a, x = b.input("a", 3), b.input("x", 3)
    value = b.call(aten.copy.default, self=a, src=b.call(aten.neg.default, x))
    assert oracle.count_copies(mutcanon.canonicalize(b.program({a: value}))) == 0


def test_copy_that_nobody_reads_goes():
    b = Builder()
    a, x = b.input("a", 3), b.input("x", 3)
    b.copy(a, b.call(aten.neg.default, x))
    result = mutcanon.canonicalize(b.program({a: b.call(aten.exp.default, x)}))
    assert oracle.count_copies(result) == 0


def test_what_only_a_collapsed_copy_read_goes_with_it():
    b = Builder()
    a, x = b.input("a", 3), b.input("x", 3)
    zero = b.call(aten.zero.default, a)
    result = mutcanon.canonicalize(b.program({a: b.copy(zero, b.call(aten.neg.default, x))}))
    assert [n.name for n in result.graph.nodes if n.op == "call_function"] == ["neg"]


def test_long_chain_collapses_at_once():
    b = Builder()
    a, x = b.input("a", 3), b.input("x", 3)
    value = b.call(aten.neg.default, x)
    for _ in range(2000):
        value = b.copy(a, value)
    result = mutcanon.canonicalize(b.program({a: value}))
    assert oracle.count_copies(result) == 0


def test_link_that_must_stay_ends_its_part_of_the_chain():
    b = Builder()
    a, h, x = b.input("a", 3), b.input("h", 3, dtype=torch.half), b.input("x", 3)
    value = b.copy(a, b.call(aten.neg.default, x))
    cast = b.copy(h, b.copy(a, value))
    value = b.copy(a, b.copy(h, b.copy(h, cast)))
    result = mutcanon.canonicalize(b.program({a: b.copy(a, value)}))
    assert oracle.count_copies(result) == 2
    assert {c.code for c in mutcanon.analyze(result).kept} == {"cast"}


# What keeps a copy by its type


def keep_by_type(b, destination, source):
    """The code for which a copy stays between two inputs with this metadata."""
    d, s = b.given("d", destination), b.given("s", source)
    return code_of_the_only_copy(b.program({d: b.copy(d, s, val=destination)}))


def fake_complex(b):
    return b.fake(3, dtype=torch.complex64)


def quantized(scale, zero_point=0):
    return torch.quantize_per_tensor(torch.ones(2, 2), scale, zero_point, torch.quint8)


class Subclass(torch.Tensor):
    pass


KEPT = {
    "cast": (lambda b: (b.fake(3), b.fake(3, dtype=torch.half)), "cast"),
    "narrowing": (lambda b: (b.fake(3, dtype=torch.uint8), b.fake(3, dtype=torch.int32)), "cast"),
    "device": (lambda b: (b.fake(3), b.fake(3, device="meta")), "device"),
    "fewer dimensions": (lambda b: (b.fake(2, 3), b.fake(3)), "broadcast"),
    "a size of one": (lambda b: (b.fake(2, 3), b.fake(1, 3)), "broadcast"),
    "a scalar": (lambda b: (b.fake(2, 3), b.fake(())), "broadcast"),
    "transposed": (lambda b: (b.fake(2, 3), b.fake(3, 2).t()), "strides"),
    "expanded": (lambda b: (b.fake(2, 3), b.fake(3).expand(2, 3)), "strides"),
    "every second": (lambda b: (b.fake(2, 3), b.fake(2, 6)[:, ::2]), "strides"),
    "scale": (lambda b: (quantized(0.5), quantized(0.25)), "quantizer"),
    "zero point": (lambda b: (quantized(0.5), quantized(0.5, 7)), "quantizer"),
    "conjugated": (lambda b: (fake_complex(b), fake_complex(b).conj()), "lazy_bits"),
    "negated": (lambda b: (b.fake(3), torch._neg_view(b.fake(3))), "lazy_bits"),
    "sparse source": (lambda b: (torch.eye(3), torch.eye(3).to_sparse()), "tensor_layout"),
    "sparse": (lambda b: (torch.eye(3).to_sparse(), torch.eye(3).to_sparse()), "tensor_layout"),
    "subclass": (lambda b: (b.fake(3), torch.ones(3).as_subclass(Subclass)), "tensor_layout"),
    "unknown": (lambda b: (b.fake(3), None), "no_metadata"),
}


@pytest.mark.parametrize("name", KEPT)
def test_keeps_what_is_not_proved_equal(name):
    values, code = KEPT[name]
    b = Builder()
    assert keep_by_type(b, *values(b)) == code


def test_keeps_copies_that_may_be_asynchronous():
    b = Builder()
    a, x = b.input("a", 3), b.input("x", 3)
    value = b.copy(a, b.call(aten.neg.default, x), non_blocking=True)
    assert code_of_the_only_copy(b.program({a: value})) == "non_blocking"


def test_keeps_copies_without_metadata_of_their_own():
    b = Builder()
    a, x = b.input("a", 3), b.input("x", 3)
    value = b.copy(a, b.call(aten.neg.default, x))
    ep = b.program({a: value})
    del value.meta["val"]
    assert code_of_the_only_copy(ep) == "no_metadata"


COLLAPSED = {
    "a stride of a size of one": lambda b: (b.fake(3, 1), torch.empty_strided((3, 1), (1, 7))),
    "empty": lambda b: (b.fake(0, 3), b.fake(3, 0).t()),
    "scalar": lambda b: (b.fake(()), b.fake(())),
    "storage offset": lambda b: (b.fake(3), b.fake(5)[2:]),
    "complex": lambda b: (fake_complex(b), fake_complex(b)),
    "channels last": lambda b: [b.fake(1, 3, 4, 4).to(memory_format=torch.channels_last)] * 2,
}


@pytest.mark.parametrize("name", COLLAPSED)
def test_meaningless_differences_do_not_matter(name):
    b = Builder()
    destination, source = COLLAPSED[name](b)
    d = b.given("d", destination)
    s = b.call(aten.neg.default, d, val=source)
    result = mutcanon.canonicalize(b.program({d: b.copy(d, s, val=destination)}))
    assert oracle.count_copies(result) == 0


def test_equal_quantizers_collapse():
    b = Builder()
    d, x = b.given("d", quantized(0.5)), b.given("x", quantized(0.5))
    s = b.call(aten.clone.default, x, val=quantized(0.5))
    result = mutcanon.canonicalize(b.program({d: b.copy(d, s, val=quantized(0.5))}))
    assert oracle.count_copies(result) == 0


@pytest.mark.parametrize("inherited", [True, False])
def test_quantizer_that_is_not_compared_must_be_inherited(inherited):
    """Of a per-channel quantizer we know nothing; an update of the destination has its own."""
    scales, zeros = torch.tensor([0.5, 0.25]), torch.zeros(2, dtype=torch.int64)
    val = torch.quantize_per_channel(torch.ones(2, 2), scales, zeros, 0, torch.quint8)
    b = Builder()
    d, other, i = b.given("d", val), b.given("other", val), b.input("i", 1, dtype=torch.int64)
    update = b.call(aten.index_put.default, d if inherited else other, [i], other, val=val)
    ep = b.program({d: b.copy(d, update, val=val)})
    if inherited:
        assert oracle.count_copies(mutcanon.canonicalize(ep)) == 0
    else:
        assert code_of_the_only_copy(ep) == "quantizer"


# Symbolic sizes


def test_equal_expressions_are_equal_sizes():
    b = Builder()
    n = b.size(3)
    a, x = b.input("a", n * 2, 3), b.input("x", 2 * n, 3)
    value = b.copy(a, b.call(aten.neg.default, x))
    assert oracle.count_copies(mutcanon.canonicalize(b.program({a: value}))) == 0


def test_expressions_that_expand_to_the_same_are_equal_sizes():
    b = Builder()
    n = b.size(3)
    a, x = b.input("a", n * (n + 1)), b.input("x", n * n + n)
    value = b.copy(a, b.call(aten.neg.default, x), val=a.meta["val"])
    assert oracle.count_copies(mutcanon.canonicalize(b.program({a: value}))) == 0


def test_range_constraints_prove_sizes():
    b = Builder()
    n = b.size(3)
    a, x = b.input("a", 3), b.input("x", n)
    value = b.copy(a, b.call(aten.neg.default, x), val=a.meta["val"])
    symbol = n.node.expr
    known = b.program({a: value}, ranges={symbol: ValueRanges(3, 3)})
    assert oracle.count_copies(mutcanon.canonicalize(known)) == 0


@pytest.mark.parametrize("strided", [False, True])
def test_what_is_not_proved_stays_and_adds_no_guard(strided):
    b = Builder()
    n, m = b.size(3), b.size(3)
    val = b.input("unused", n, m).meta["val"]
    with b.mode:
        other = val.t() if not strided else torch.empty_strided((n, m), (m + 1, 1))
    a = b.given("a", val)
    x = b.given("x", other)
    ep = b.program({a: b.copy(a, b.call(aten.neg.default, x, val=other), val=val)})
    guards, facts = len(b.shapes.guards), dict(b.shapes.axioms)
    ranges = dict(b.shapes.var_to_range)
    assert code_of_the_only_copy(ep) == ("unproved_stride" if strided else "unproved_size")
    assert (len(b.shapes.guards), b.shapes.axioms, b.shapes.var_to_range) == (guards, facts, ranges)


def test_size_that_is_proved_to_be_one_makes_its_stride_meaningless():
    b = Builder()
    n, m = b.size(1), b.size(7)
    with b.mode:
        val, other = torch.empty_strided((3, n), (n, 1)), torch.empty_strided((3, n), (n, m))
    a, x = b.given("a", val), b.given("x", other)
    value = b.copy(a, b.call(aten.neg.default, x, val=other), val=val)
    ep = b.program({a: value}, ranges={n.node.expr: ValueRanges(1, 1)})
    assert oracle.count_copies(mutcanon.canonicalize(ep)) == 0


def test_bytes_of_symbolic_sizes_are_a_formula():
    report = mutcanon.analyze(program("adv-dynamic-batch", 2))
    assert report.bytes_saved is None
    assert re.fullmatch(r"12\*s\d+", report.formula)


# Control flow


def body(ep, name):
    return getattr(ep.graph_module, name)


def test_bodies_are_canonicalized_by_themselves():
    ep = program("adv-cond-branch-writes-row", 1)
    result = canonical("adv-cond-branch-writes-row", 1, "portable")
    assert "aten.copy" in str(body(ep, "true_graph_0").graph)
    assert "aten.copy" not in str(body(result, "true_graph_0").graph)
    (inside,) = [c for c in mutcanon.analyze(ep).collapsed if c.graph]
    assert inside.graph == "true_graph_0"


@in_forms
def test_copy_between_input_and_output_of_a_body_stays(form):
    report = mutcanon.analyze(program("adv-cond-branch-returns-copy", 2), form=form)
    (kept,) = report.kept
    assert (kept.graph, kept.code) == ("true_graph_0", "subgraph_boundary")


def test_only_the_top_graph_changes_and_the_bodies_stay_in_place():
    ep = program("et21490-cond-state", 2)
    assert canonical("et21490-cond-state", 2, "portable") is ep


class NestedConds(nn.Module):
    def forward(self, c, x):
        def write(c, x):
            def deep(c, x):
                new = c.clone()
                new[1] = x * 2
                return new

            return torch.cond(x.sum() > 1, deep, lambda c, x: c * 2, (c, x))

        c.copy_(torch.cond(x.sum() > 0, write, lambda c, x: c - 1, (c, x)))
        return c.sum(0)


def test_nested_bodies():
    args = (torch.zeros(3, 2), torch.ones(2))
    ep = decomposed(NestedConds(), args, times=3)
    before = oracle.fingerprint(ep)
    result = mutcanon.canonicalize(ep)
    assert oracle.count_copies(ep) == 4
    assert oracle.count_copies(result) == 0
    assert oracle.fingerprint(ep) == before
    arguments = lambda step: ((torch.zeros(3, 2), torch.full((2,), step - 0.5)), {})  # noqa: E731
    want = oracle.eager(NestedConds(), arguments)
    assert oracle.difference(want, oracle.interpret(result, arguments, want.mutated)) == ""
    oracle.require_invariants(ep, result)
    assert mutcanon.canonicalize(result) is result


# Programs that are not functional


def test_functional_copy_whose_source_is_written_later_stays():
    class Snapshot(nn.Module):
        def forward(self, x):
            value = x * 2
            kept = aten.copy(torch.empty(3), value)
            value.add_(1)
            return kept + value

    ep = torch.export.export(Snapshot(), (torch.ones(3),))
    assert oracle.count_copies(ep) == 1
    assert code_of_the_only_copy(ep) == "written_in_place"


def test_functional_copy_whose_own_storage_is_written_later_stays():
    class Scratch(nn.Module):
        def forward(self, x):
            value = x * 2
            scratch = aten.copy(torch.empty(3), value)
            scratch.add_(1)
            return scratch + value

    assert code_of_the_only_copy(torch.export.export(Scratch(), (torch.ones(3),))) == (
        "written_in_place"
    )


# Programs that are refused


def swapped_names(ep):
    first, second = ep.graph_signature.output_specs[:2]
    first.arg, second.arg = second.arg, first.arg


def missing_output(ep):
    output = ep.graph.output_node()
    output.args = (output.args[0][:-1],)


def unknown_target(ep):
    ep.graph_signature.output_specs[0].target = "nobody"


def unknown_name(ep):
    ep.graph_signature.output_specs[0].arg = TensorArgument(name="nobody")


def mutated_twice(ep):
    first, second = ep.graph_signature.output_specs[:2]
    second.target = first.target


def mutation_after_user_output(ep):
    specs, output = ep.graph_signature.output_specs, ep.graph.output_node()
    specs.reverse()
    output.args = (output.args[0][::-1],)


def malformed_copy(ep):
    (node, *_) = oracle.copies(ep)
    node.args = (node.args[0], 1.0)


INVALID = {
    swapped_names: "signature_mismatch",
    missing_output: "signature_mismatch",
    unknown_target: "unknown_target",
    unknown_name: "signature_mismatch",
    mutated_twice: "invalid_problem",
    mutation_after_user_output: "invalid_problem",
    malformed_copy: "malformed_node",
}


@pytest.mark.parametrize(
    "function", [mutcanon.canonicalize, mutcanon.canonicalize_, mutcanon.analyze]
)
@pytest.mark.parametrize("spoil", INVALID)
def test_invalid_program_is_refused_and_left_alone(spoil, function):
    ep = own("et19482-mixed-inputs", 2)
    spoil(ep)
    before = oracle.fingerprint(ep)
    with pytest.raises(errors.InvalidProgramError) as caught:
        function(ep)
    assert caught.value.code == INVALID[spoil]
    assert caught.value.code in str(caught.value)
    assert isinstance(caught.value, errors.MutcanonError)
    assert oracle.fingerprint(ep) == before


@pytest.mark.parametrize(
    "function", [mutcanon.canonicalize, mutcanon.canonicalize_, mutcanon.analyze]
)
def test_other_arguments_are_refused(function):
    with pytest.raises(errors.UnsupportedError) as caught:
        function(nn.Linear(1, 1))
    assert caught.value.code == "not_a_program"
    with pytest.raises(errors.UnsupportedError) as caught:
        function(program("et4850-input-kv", 1), form="fast")
    assert caught.value.code == "unknown_form"


# Failure is atomic


class Injected(Exception):
    pass


FRAGILE = (
    "mutcanon._apply.prepare",
    "mutcanon._apply.apply",
    "mutcanon._canonicalize._decide",
    "mutcanon._canonicalize.extract_program",
    "mutcanon._canonicalize.extract_body",
)


@pytest.mark.parametrize("where", FRAGILE)
@pytest.mark.parametrize("name", ["adv-cond-branch-writes-row", "adv-swap-buffers"])
def test_failure_leaves_the_program_as_it_was(name, where, monkeypatch):
    ep = own(name, 2)
    before = oracle.fingerprint(ep)

    def fail(*args, **kwargs):
        raise Injected

    monkeypatch.setattr(where, fail)
    failed = False
    try:
        mutcanon.canonicalize_(ep)
    except Injected:
        failed = True
    monkeypatch.undo()
    if failed:
        assert oracle.fingerprint(ep) == before
        mutcanon.canonicalize_(ep)
    assert str(ep.graph) == str(canonical(name, 2, "portable").graph)


# What else holds names, code and state


class Inner(nn.Module):
    def forward(self, a, x):
        a.copy_(x * 2)
        return a


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, a, x):
        return self.inner(a, x) + 1


def test_names_of_preserved_module_calls_follow():
    args = (torch.ones(2), torch.ones(2))
    ep = decomposed(Outer(), args, preserve_module_call_signature=("inner",))
    before = oracle.fingerprint(ep)
    result = mutcanon.canonicalize(ep)
    (inner,) = [e.signature for e in result.module_call_graph if e.fqn == "inner"]
    names = {node.name for node in result.graph.nodes}
    assert {a.name for a in (*inner.inputs, *inner.outputs)} <= names
    assert [a.name for a in inner.outputs] == ["mul"]
    assert oracle.fingerprint(ep) == before


@pytest.mark.parametrize("name", ["et8781-linear-cache", "adv-cond-branch-writes-row"])
@in_forms
def test_generated_code_follows(name, form):
    ep = own(name, 2)
    mutcanon.canonicalize_(ep, form=form)
    for module in (ep.graph_module, canonical(name, 2, form).graph_module):
        assert "aten.copy.default" not in module.print_readable(print_output=False)
        inputs = [
            torch.zeros(n.meta["val"].shape).to(n.meta["val"].dtype)
            for n in ep.graph.find_nodes(op="placeholder")
        ]
        assert len(module(*inputs)) == len(ep.graph_signature.output_specs)
        assert "aten.copy.default" not in module.code


def test_modules_made_before_an_edit_in_place_go_on():
    ep = own("et4850-input-kv", 2)
    old = ep.module()
    mutcanon.canonicalize_(ep)
    a = torch.ones(3)
    assert torch.equal(old(a, torch.ones(3)), torch.full((3,), 4.0))
    assert torch.equal(a, torch.full((3,), 2.0))


def test_weights_and_constants_are_shared_not_copied():
    ep, result = program("et8781-linear-cache", 2), canonical("et8781-linear-cache", 2, "portable")
    assert result.state_dict is ep.state_dict
    assert result.constants is ep.constants
    assert result.range_constraints == ep.range_constraints
    assert result.example_inputs is ep.example_inputs
    assert type(result) is type(ep)
    assert result.dialect == ep.dialect


@pytest.mark.parametrize("name", ["et8781-linear-cache", "adv-swap-buffers", "adv-dynamic-batch"])
def test_result_can_be_saved_loaded_copied_and_decomposed(name):
    result = canonical(name, 2, "portable")
    case, want = CASES[name], trace(name)
    file = io.BytesIO()
    torch.export.save(result, file)
    file.seek(0)
    with torch.no_grad():
        again = result.run_decompositions({})
    for other in (torch.export.load(file), copy.deepcopy(result), mutcanon.canonicalize(again)):
        got = oracle.unlifted(other, case.arguments, want.mutated)
        assert oracle.difference(want, got) == ""
        assert mutcanon.canonicalize(other) is other


def test_effects_keep_their_order():
    class Printing(nn.Module):
        def forward(self, a, x):
            torch.ops.aten._print("first")
            a.add_(x)
            torch.ops.aten._print("second")
            return a * 2

    ep = decomposed(Printing(), (torch.ones(2), torch.ones(2)))
    result = mutcanon.canonicalize(ep)
    assert oracle.count_copies(result) == 0
    effects = [n.args[2] for n in result.graph.nodes if "with_effects" in str(n.target)]
    assert effects == ["first", "second"]
    assert result.graph_signature.output_specs[0].kind is OutputKind.TOKEN
    oracle.require_invariants(ep, result)


def test_swap_of_bare_placeholders_becomes_right_under_a_stock_write_back():
    """What collapsing every copy of a swap would leave: mutation outputs that are inputs."""
    b = Builder()
    a, c = b.input("a", 4), b.input("c", 4)
    ep = b.program({a: c, c: a}, (b.call(aten.sub.Tensor, a, c),))
    result = mutcanon.canonicalize(ep)
    assert {c.code for c in mutcanon.analyze(ep).inserted} == {"placeholder_value"}
    x, y = torch.arange(4.0), torch.arange(4.0) + 10
    (difference,) = result.module()(x, y)
    assert torch.equal(difference, torch.full((4,), -10.0))
    assert torch.equal(x, torch.arange(4.0) + 10)
    assert torch.equal(y, torch.arange(4.0))
    assert mutcanon.canonicalize(ep, form="minimal") is ep


def test_same_program_gives_the_same_text():
    texts = {str(mutcanon.canonicalize(own("adv-rotate3-inputs", 3)).graph) for _ in range(3)}
    assert len(texts) == 1


# The edge dialect


@pytest.mark.executorch
@pytest.mark.filterwarnings("ignore")
def test_edge_dialect():
    from executorch.exir import EdgeCompileConfig, to_edge

    config = EdgeCompileConfig(_check_ir_validity=False)
    for name in ("et8781-linear-cache", "adv-swap-inputs", "adv-expand-copy"):
        edge = to_edge(program(name, 2), compile_config=config).exported_program()
        before = oracle.fingerprint(edge)
        result = mutcanon.canonicalize(edge)
        assert oracle.count_copies(edge) > oracle.count_copies(result) == CASES[name].left[2]
        assert oracle.fingerprint(edge) == before
        assert mutcanon.canonicalize(result) is result
        assert result.dialect == "EDGE"
        want = trace(name)
        got = oracle.unlifted(result, CASES[name].arguments, want.mutated)
        assert oracle.difference(want, got, tolerance=1e-6) == ""


@pytest.mark.executorch
@pytest.mark.filterwarnings("ignore")
def test_copy_that_is_added_to_an_edge_program_is_an_edge_operator():
    from executorch.exir import EdgeCompileConfig, to_edge
    from executorch.exir.dialects.edge._ops import EdgeOpOverload

    config = EdgeCompileConfig(_check_ir_validity=False)
    edge = to_edge(program("adv-swap-buffers", 1), compile_config=config).exported_program()
    result = mutcanon.canonicalize(edge)
    (added,) = oracle.copies(result)
    assert isinstance(added.target, EdgeOpOverload)
    assert added.meta["val"].shape == (3,)


# The report


def test_report_as_json():
    report = mutcanon.analyze(program("adv-swap-then-row", 2))
    fields = json.loads(report.to_json())
    assert fields["schema_version"] == 1
    assert fields["form"] == "portable"
    assert fields["changes_nothing"] is False
    decisions = [c["decision"] for c in fields["copies"]]
    assert decisions.count("collapse") == len(report.collapsed) == 3
    assert decisions.count("keep") == len(report.kept) == 1
    assert [m["target"] for m in fields["mutations"]] == ["a", "b"]
    assert all(isinstance(c["bytes"], int) for c in fields["copies"])


def test_report_as_text_names_every_copy_and_target():
    for name in ("adv-swap-then-row", "adv-two-casts", "adv-cond-branch-writes-row"):
        report = mutcanon.analyze(program(name, 2))
        text = str(report)
        for item in report.copies:
            assert item.node in text
        for mutation in report.mutations:
            assert mutation.target in text
        for kept in report.kept:
            assert kept.code in text


def test_report_counts_bytes():
    report = mutcanon.analyze(program("et12003-kv-input", 3))
    assert report.bytes_saved == 2 * 1 * 6 * 2 * 4
    assert report.formula == str(report.bytes_saved)
    assert [m.depth for m in report.mutations] == [2]
    assert [m.new_depth for m in report.mutations] == [0]


def test_report_tells_hazards_and_the_order_of_write_backs():
    report = mutcanon.analyze(program("adv-delay-line-of-views-buffers", 1), form="minimal")
    assert report.hazards == (("b", "a"),)
    assert report.write_backs == (("write", "b"), ("write", "a"))
    assert mutcanon.analyze(program("adv-delay-line-of-views-buffers", 1)).reordered


def test_report_is_frozen():
    report = mutcanon.analyze(program("et12003-kv-input", 2))
    for record in (report, *report.copies, *report.mutations):
        with pytest.raises(AttributeError):
            record.form = record.node = record.target = "other"


def test_lists_of_results_are_told_apart():
    """Two results of one operator are two storages; the same result twice is one."""
    b = Builder()
    a, c, x = b.input("a", 2), b.input("c", 2), b.input("x", 4)
    pair = b.call(aten.split_with_sizes_copy.default, x, [2, 2])
    first, second = (b.call(operator.getitem, pair, i) for i in range(2))
    ep = b.program({a: b.copy(a, first), c: b.copy(c, second)})
    assert oracle.count_copies(mutcanon.canonicalize(ep)) == 0
