"""Alias and mutation facts are those of the operators themselves."""

from __future__ import annotations

import operator

import pytest

torch = pytest.importorskip("torch")

from mutcanon._alias import (  # noqa: E402
    ALLOCATING_COMPOSITES,
    ALLOCATING_EDGE_OPERATORS,
    REPRESENTATION_KEEPERS,
    is_copy,
    op_facts,
)
from mutcanon._torch import is_composite  # noqa: E402

aten = torch.ops.aten


def image(*shape):
    return torch.randn(shape or (1, 2, 4, 4))


def recurrent(gates):
    x, h = torch.randn(3, 1, 2), torch.zeros(1, 1, 2)
    weights = [torch.randn(2 * gates, 2), torch.randn(2 * gates, 2)]
    weights += [torch.zeros(2 * gates), torch.zeros(2 * gates)]
    hidden = [h, h.clone()] if gates == 4 else h
    return x, hidden, weights, True, 1, 0.0, False, False, False


# Arguments under which an operator would return what it is given, if it ever did.
CALLS = {
    aten.linear.default: lambda: (image(2, 2), torch.eye(2), None),
    aten.matmul.default: lambda: (image(2, 2), torch.eye(2)),
    aten.scaled_dot_product_attention.default: lambda: (image(), image(), image()),
    aten.conv1d.default: lambda: (image(1, 1, 4), torch.ones(1, 1, 1)),
    aten.conv2d.default: lambda: (image(1, 1, 4, 4), torch.ones(1, 1, 1, 1)),
    aten.conv3d.default: lambda: (image(1, 1, 2, 2, 2), torch.ones(1, 1, 1, 1, 1)),
    aten.conv1d.padding: lambda: (image(1, 1, 4), torch.ones(1, 1, 1), None, [1], "same"),
    aten.conv2d.padding: lambda: (image(1, 1, 4, 4), torch.ones(1, 1, 1, 1), None, [1, 1], "same"),
    aten.conv_transpose1d.default: lambda: (image(1, 1, 4), torch.ones(1, 1, 1)),
    aten.conv_transpose2d.input: lambda: (image(1, 1, 4, 4), torch.ones(1, 1, 1, 1)),
    aten.layer_norm.default: lambda: (image(2, 2), [2]),
    aten.rms_norm.default: lambda: (image(2, 2), [2]),
    aten.group_norm.default: lambda: (image(), 1),
    aten.batch_norm.default: lambda: (
        image(),
        None,
        None,
        torch.zeros(2),
        torch.ones(2),
        False,
        0.0,
        0.0,
        False,
    ),
    aten.instance_norm.default: lambda: (image(), None, None, None, None, True, 0.1, 1e-5, False),
    aten.softmax.int: lambda: (image(2, 1), 1),
    aten.log_softmax.int: lambda: (image(2, 1), 1),
    aten.max_pool1d.default: lambda: (image(1, 1, 4), [1]),
    aten.max_pool2d.default: lambda: (image(), [1, 1]),
    aten.avg_pool1d.default: lambda: (image(1, 1, 4), [1]),
    aten.adaptive_avg_pool2d.default: lambda: (image(), [4, 4]),
    aten.one_hot.default: lambda: (torch.tensor([0]), 1),
    aten.outer.default: lambda: (image(1), torch.ones(1)),
    aten.hstack.default: lambda: ([image(2)],),
    aten.vstack.default: lambda: ([image(1, 2)],),
    aten.cosine_similarity.default: lambda: (image(2, 2), image(2, 2)),
    aten.lstm.input: lambda: recurrent(4),
    aten.gru.input: lambda: recurrent(3),
}


def storages(values):
    leaves = torch.utils._pytree.tree_leaves(values)
    return {t.untyped_storage().data_ptr() for t in leaves if isinstance(t, torch.Tensor)}


@pytest.mark.parametrize("op", sorted(ALLOCATING_COMPOSITES, key=str), ids=str)
def test_a_composite_that_is_said_to_allocate_does(op):
    assert is_composite(op)
    args = CALLS[op]()
    with torch.no_grad():
        assert not storages(args) & storages(op(*args))
    assert op_facts(op).is_fresh


@pytest.mark.executorch
@pytest.mark.parametrize("name", sorted(ALLOCATING_EDGE_OPERATORS))
def test_an_edge_operator_that_is_said_to_allocate_does(name):
    import executorch.exir  # noqa: F401  registers them

    op = getattr(torch.ops.dim_order_ops, name.partition("::")[2]).default
    x = image(2, 3)
    args = ([2, 3],) if "empty" in name else (x,)
    assert op._schema.name == name
    assert is_composite(op)
    assert not storages(x) & storages(op(*args, dim_order=[0, 1]))
    assert op_facts(op).is_fresh


@pytest.mark.parametrize(
    "op, args",
    [
        (aten.dropout.default, lambda x: (x, 0.5, False)),
        (aten.type_as.default, lambda x: (x, x)),
        (aten.atleast_1d.default, lambda x: (x,)),
        (aten.broadcast_tensors.default, lambda x: ([x, x],)),
        (aten.conj_physical.default, lambda x: (x,)),
    ],
)
def test_a_composite_that_hides_an_alias_may_alias_everything(op, args):
    x = torch.randn(2, 2)
    assert storages(x) & storages(op(*args(x)))
    assert op_facts(op).may_alias_all


@pytest.mark.parametrize(
    "op, aliased",
    [
        (aten.view.default, ((0,),)),
        (aten.select.int, ((0,),)),
        (aten.expand.default, ((0,),)),
        (aten.detach.default, ((0,),)),
        (aten.split.Tensor, ((0,),)),
        (aten.unbind.int, ((0,),)),
        (aten.reshape.default, ((0,),)),
        (aten.add.Tensor, ((),)),
        (aten.index_put.default, ((),)),
        (aten.native_layer_norm.default, ((), (), ())),
    ],
)
def test_aliases_are_read_off_the_schema(op, aliased):
    facts = op_facts(op)
    assert facts.aliases == aliased
    assert facts.written == ()


def test_writes_are_read_off_the_schema():
    assert op_facts(aten.index_put_.default).written == (0,)
    assert op_facts(aten.copy_.default).written == (0,)
    out = op_facts(aten.add.out)
    assert [out.names[i] for i in out.written] == ["out"]


def test_control_flow_returns_new_tensors_and_unknown_callables_may_return_anything():
    assert op_facts(torch.ops.higher_order.cond).is_fresh
    assert op_facts(torch.ops.higher_order.while_loop).is_fresh
    assert op_facts(operator.getitem).may_alias_all
    assert op_facts(lambda x: x).may_alias_all


def test_only_the_functional_copy_is_a_copy():
    assert is_copy(aten.copy.default)
    assert not is_copy(aten.copy_.default)
    assert not is_copy(aten.clone.default)


@pytest.mark.parametrize("op", sorted(REPRESENTATION_KEEPERS, key=str), ids=str)
def test_what_keeps_a_representation_returns_new_storage_like_its_first_argument(op):
    facts = op_facts(op)
    assert facts.is_fresh
    assert not facts.written
    assert str(op._schema.arguments[0].type) == "Tensor"
