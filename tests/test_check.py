"""The independent checker on programs of torch and executorch: it accepts ours and refuses others.

Every other test of this directory checks the results that it makes (`conftest.py`); here are what
it objects to, and what becomes of a result that it objects to.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.export.graph_signature import OutputKind, TensorArgument

import mutcanon
import oracle
from build import Builder, aten
from mutcanon import _apply, _canonicalize, _check, _core, errors
from mutcanon._check_facts import facts_of
from mutcanon._check_types import Types, word


@pytest.fixture(autouse=True)
def _unchecked(monkeypatch):
    """What is checked is said in each test."""
    monkeypatch.setattr(_check, "_always", False)


class Swap(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 2.0]))
        self.register_buffer("b", torch.tensor([3.0, 4.0]))

    def forward(self, x, y):
        old = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(old)
        x.add_(1)
        y.copy_(x * 3)
        return x * 2, self.a + y


class Delay(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("newer", torch.ones(2))
        self.register_buffer("older", torch.zeros(2))

    def forward(self, x):
        self.older.copy_(self.newer)
        self.newer.copy_(x)
        return self.older + 1


def codes(result):
    return {remark.code for remark in result.objections}


def program():
    """Two buffers swapped and two inputs mutated, without a copy."""
    ep = torch.export.export(Swap(), (torch.ones(2), torch.zeros(2)))
    with torch.no_grad():
        return mutcanon.run_decompositions(ep, {}, form="minimal")


def with_copies(ep):
    """What `run_decompositions` of torch adds: a copy of each mutation's value."""
    ep = copy.deepcopy(ep)
    names = {n.name: n for n in ep.graph.find_nodes(op="placeholder")}
    inputs = {s.target or s.arg.name: names[s.arg.name] for s in ep.graph_signature.input_specs}
    output = ep.graph.output_node()
    values = list(output.args[0])
    for i, spec in enumerate(ep.graph_signature.output_specs):
        if spec.kind is not OutputKind.USER_OUTPUT:
            with ep.graph.inserting_before(output):
                target = inputs[spec.target]
                values[i] = ep.graph.call_function(aten.copy.default, (target, values[i]))
                values[i].meta["val"] = target.meta["val"]
            spec.arg = TensorArgument(name=values[i].name)
    output.args = (tuple(values),)
    ep.graph_module.recompile()
    return ep


# Whom it accepts and whom it refuses


@pytest.mark.parametrize("consumer", ["torch", "executorch"])
def test_accepts_the_portable_form_under_stock_consumers(consumer):
    ep = with_copies(with_copies(program()))
    result = mutcanon.check(ep, mutcanon.canonicalize(ep), consumer=consumer)
    assert result.is_right
    assert str(result) == "right"
    assert result.warnings == ()


def test_accepts_the_minimal_form_with_its_own_steps_only():
    b = Builder()
    p, q = b.input("p", 3, kind="buffer"), b.input("q", 3, kind="buffer")
    ep = b.program({p: b.copy(p, q), q: b.copy(q, p)}, ())
    minimal = mutcanon.canonicalize(ep, form="minimal")
    assert oracle.count_copies(minimal) == 0
    steps = mutcanon.analyze(minimal, form="minimal").write_backs
    assert mutcanon.check(ep, minimal, consumer="mutcanon", write_backs=steps).is_right
    # A swap has no order that is right, and executorch takes either buffer for the other.
    for consumer in ("torch", "executorch"):
        assert codes(mutcanon.check(ep, minimal, consumer=consumer)) == {"write_back"}
    in_signature_order = [("write", 0), ("write", 1)]
    result = mutcanon.check(ep, minimal, consumer="mutcanon", write_backs=in_signature_order)
    assert codes(result) == {"write_back"}


def test_finds_what_stock_torch_made_of_a_delay_line():
    ep = torch.export.export(Delay(), (torch.ones(2),))
    with torch.no_grad():
        stock = ep.run_decompositions({})
    assert codes(mutcanon.check(stock, stock)) == {"write_back"}
    # And so it is: the older one gets the new value of the newer one.
    arguments = lambda step: ((torch.full((2,), 7.0 + step),), {})  # noqa: E731
    right = oracle.eager(Delay(), arguments)
    assert oracle.difference(right, oracle.unlifted(stock, arguments, frozenset())) != ""
    portable = mutcanon.canonicalize(stock, check=True)
    assert oracle.difference(right, oracle.unlifted(portable, arguments, frozenset())) == ""


def test_compares_a_program_that_writes_in_place_with_its_functional_form():
    class Row(nn.Module):
        def forward(self, cache, x, i):
            cache.index_put_((i,), x)
            return cache * 2

    ep = torch.export.export(Row(), (torch.zeros(4, 2), torch.ones(1, 2), torch.tensor([1])))
    functional = ep.run_decompositions({})
    value = next(n for n in functional.graph.nodes if n.target is aten.index_put.default)
    assert mutcanon.check(functional, functional).is_right
    in_place = copy.deepcopy(functional)
    node = next(n for n in in_place.graph.nodes if n.name == value.name)
    node.target = aten.index_put_.default
    assert mutcanon.check(functional, in_place).is_right
    # One reader of the old value, and it is wrong.
    cache = node.args[0]
    reader = next(n for n in in_place.graph.nodes if n.target is aten.mul.Tensor)
    reader.args = (cache, 2)
    old = copy.deepcopy(functional)
    reader = next(n for n in old.graph.nodes if n.target is aten.mul.Tensor)
    reader.args = (next(n for n in old.graph.nodes if n.name == cache.name), 2)
    assert mutcanon.check(functional, in_place).is_right
    assert codes(mutcanon.check(old, in_place)) == {"value"}


def test_warns_of_inputs_that_are_one_tensor():
    b = Builder()
    x, y = b.input("x", 3, kind="user"), b.input("y", 3, kind="user")
    a = b.input("a", 3, kind="buffer")
    value = b.call(aten.sin.default, x)
    ep = b.program({x: value, a: b.copy(a, y)}, ())
    result = mutcanon.check(ep, mutcanon.canonicalize(ep, form="portable"))
    assert result.is_right
    (warning,) = result.warnings
    assert str(warning) == "buffer a: wrong if y and x were one tensor [one_tensor]"


def test_symbols_are_equal_when_torch_can_show_it():
    class Grow(nn.Module):
        def forward(self, cache, x):
            cache.copy_(torch.cat([x, x])[: cache.shape[0]] * 2)
            return cache.sum()

    n = torch.export.Dim("n", min=2, max=8)
    ep = torch.export.export(
        Grow(),
        (torch.zeros(4, 2), torch.ones(4, 2)),
        dynamic_shapes=({0: n}, {0: n}),
    )
    with torch.no_grad():
        ep = ep.run_decompositions({}).run_decompositions({})
    result = mutcanon.canonicalize(ep, check=True)
    assert result is not ep


def test_bodies_of_control_flow_are_part_of_the_program():
    class Branch(nn.Module):
        def forward(self, p, x):
            y = torch.cond(p, lambda t: t.sin(), lambda t: t.cos(), (x,))
            x.copy_(y)
            return x + 1

    args = (torch.tensor(True), torch.ones(2))
    ep = torch.export.export(Branch(), args).run_decompositions({}).run_decompositions({})
    result = mutcanon.canonicalize(ep, check=True)
    assert oracle.count_copies(result) < oracle.count_copies(ep)
    body = result.graph_module.true_graph_0
    node = next(n for n in body.graph.nodes if n.target is aten.sin.default)
    node.target = aten.tan.default
    assert codes(mutcanon.check(ep, result)) == {"value"}


# Results that it objects to


def _outputs_rotated(monkeypatch):
    stock = _apply._set_output

    def rotated(output, args):
        users = args[-2:]
        stock(output, [*args[:-2], *reversed(users)])

    monkeypatch.setattr(_apply, "_set_output", rotated)


def _targets_confused(monkeypatch):
    stock = _canonicalize._apply.new_signature

    def confused(signature, args, order):
        new = stock(signature, args, order)
        a, b, *rest = new.output_specs
        a, b = copy.copy(a), copy.copy(b)
        a.target, b.target = b.target, a.target
        new.output_specs = [a, b, *rest]
        return new

    monkeypatch.setattr(_apply, "new_signature", confused)


def _names_stale(monkeypatch):
    monkeypatch.setattr(_apply, "new_signature", lambda signature, args, order: signature)


def _readers_forgotten(monkeypatch):
    stock = _apply.apply

    def forgetful(prepared):
        result = stock(prepared)
        for node in prepared.gm.graph.nodes:
            if node.target is aten.mul.Tensor:
                node.args = (node.args[0], 5)
        return result

    monkeypatch.setattr(_apply, "apply", forgetful)


def _output_is_an_input(monkeypatch):
    stock = _apply._set_output

    def short(output, args):
        first = next(n for n in output.graph.nodes if n.name == "x")
        stock(output, [*args[:-1], first])

    monkeypatch.setattr(_apply, "_set_output", short)


def _value_shared(monkeypatch):
    stock = _apply._set_output

    def shared(output, args):
        stock(output, [args[0], args[0], *args[2:]])

    monkeypatch.setattr(_apply, "_set_output", shared)


FAULTS = {
    "user outputs change places": (_outputs_rotated, {"signature", "value"}),
    "two mutations change targets": (_targets_confused, {"value", "write_back"}),
    "the signature keeps the names of what is gone": (_names_stale, {"signature"}),
    "a reader gets other arguments": (_readers_forgotten, {"value"}),
    "a user output is an input": (_output_is_an_input, {"signature", "value"}),
    "two mutations have one node": (_value_shared, {"shared_node"}),
}


@pytest.mark.parametrize("form", ["portable", "minimal"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_edit_is_caught(name, form, monkeypatch):
    ep = with_copies(with_copies(program()))
    before = oracle.fingerprint(ep)
    seed, expected = FAULTS[name]
    seed(monkeypatch)
    wrong = mutcanon.canonicalize(ep, form=form)
    steps = [("write", i) for i in range(4)]
    consumer = "mutcanon" if form == "minimal" else "torch"
    assert codes(mutcanon.check(ep, wrong, consumer=consumer, write_backs=steps)) & expected
    for function in (mutcanon.canonicalize, mutcanon.canonicalize_):
        with pytest.raises(errors.InternalError) as info:
            function(ep, form=form, check=True)
        assert info.value.code == "check_failed"
        # The problem is in the message, ready to be replayed.
        problem = str(info.value).partition("layout L0")
        assert _core.plan_text("layout L0" + problem[2].rpartition(" [")[0], form)
        assert oracle.fingerprint(ep) == before


@pytest.mark.executorch
def test_a_fault_in_the_write_back_is_caught(monkeypatch):
    executorch = pytest.importorskip("mutcanon.executorch")
    from mutcanon import _write_back

    stock = _write_back._Editor.write_back

    def forgetful(self, steps):
        stock(self, steps[:-1])

    edge = executorch.to_edge(torch.export.export(Delay(), (torch.ones(2),)))
    edge.to_executorch(check=True)
    monkeypatch.setattr(_write_back._Editor, "write_back", forgetful)
    with pytest.raises(errors.InternalError, match=r"newer|older"):
        edge.to_executorch(check=True)


@pytest.mark.executorch
@pytest.mark.parametrize("reinplace", [True, False])
def test_the_final_graph_means_what_the_edge_program_meant(reinplace):
    executorch = pytest.importorskip("mutcanon.executorch")

    class Everything(Swap):
        def forward(self, x, y):
            first, second = super().forward(x, y)
            return first.view(1, 2) + 1, second, x.sum()

    ep = torch.export.export(Everything(), (torch.ones(2), torch.zeros(2)))
    edge = executorch.to_edge(mutcanon.run_decompositions(ep, {}))
    before = copy.deepcopy(edge.exported_program())
    made = edge.to_executorch(reinplace=reinplace, check=True)
    after = made.exported_program()
    result = mutcanon.check(before, after, consumer="nobody")
    assert result.is_right, result
    # A write too few, and the state is stale.
    write = next(n for n in after.graph.nodes if n.target is aten.copy_.default)
    write.replace_all_uses_with(write.args[0])
    after.graph.erase_node(write)
    assert codes(mutcanon.check(before, after, consumer="nobody"))


# The calls


def test_everything_is_checked_inside_always(monkeypatch):
    ep = with_copies(program())
    _names_stale(monkeypatch)
    mutcanon.canonicalize(ep)
    with _check.always():
        assert _check.is_always()
        with pytest.raises(errors.InternalError):
            mutcanon.canonicalize(ep)
        with pytest.raises(errors.InternalError):
            mutcanon.canonicalize_(ep)
    assert not _check.is_always()


def test_canonicalize_in_place_checks_and_edits():
    ep = with_copies(program())
    assert mutcanon.canonicalize_(ep, check=True) is ep
    assert mutcanon.analyze(ep).changes_nothing


@pytest.mark.parametrize(
    ("options", "code"),
    [({"consumer": "somebody"}, "unknown_consumer"), ({"consumer": "mutcanon"}, "no_write_backs")],
)
def test_a_consumer_that_nobody_knows_is_refused(options, code):
    ep = program()
    with pytest.raises(errors.UnsupportedError) as info:
        mutcanon.check(ep, ep, **options)
    assert info.value.code == code


def test_a_program_that_contradicts_itself_is_refused():
    ep = with_copies(program())
    short = copy.deepcopy(ep)
    short.graph.output_node().args = (short.graph.output_node().args[0][:-1],)
    with pytest.raises(errors.InvalidProgramError, match="5 outputs, of which the signature names"):
        mutcanon.check(ep, short)


def test_a_case_is_replayed_from_its_text():
    ep = with_copies(program())
    result = mutcanon.check(ep, mutcanon.canonicalize(ep, form="minimal"))
    objections, warnings = _core.check(result.case)
    assert tuple(_check.Remark(*o) for o in objections) == result.objections
    assert tuple(_check.Remark(*w) for w in warnings) == result.warnings
    with pytest.raises(_core.CoreError, match="line 1"):
        _core.check("nonsense")


# What is said of operators


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (aten.add_.Tensor, "aten.add.Tensor"),
        (aten.add.out, "aten.add.Tensor"),
        (aten.copy_.default, "aten.copy.default"),
        (aten.index_put_.default, "aten.index_put.default"),
        (aten.sum.IntList_out, "aten.sum.dim_IntList"),
        (aten.max.dim_max, "aten.max.dim"),
        (aten.add.Tensor, "aten.add.Tensor"),
    ],
)
def test_an_operator_that_writes_is_named_after_the_one_that_does_not(op, name):
    assert facts_of(op).name == name


def test_a_view_is_a_view_and_a_composite_may_be_one():
    assert facts_of(aten.view.default).views == ((0, 0),)
    assert facts_of(aten.split.Tensor).views == ((None, 0),)
    assert facts_of(aten.reshape.default).may == ((0, (0,)),)
    assert facts_of(aten.dropout.default).may_share_all
    assert facts_of(aten.dropout.default).impure
    assert not facts_of(aten.linear.default).may_share_all
    assert facts_of(aten._assert_async.msg).is_assertion


@pytest.mark.parametrize("text", ["", "a b", 'say "x"', "back\\slash", "%v", "=", "a\nb", "plain"])
def test_words_survive_the_textual_form(text):
    case = (
        f"{Types().text()}type T0 = other x\nconsumer torch\n"
        f"before\n%a : T0 = call {word('f' + text)} {word(text)}\noutput {word(text)}\n"
        f"after\n%a : T0 = call {word('f' + text)} {word(text)}\noutput {word(text)}\n"
    )
    assert _core.check(case) == ([], [])
