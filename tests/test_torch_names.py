"""The private names of torch that `_torch.py` uses are where we think they are."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from mutcanon import _torch  # noqa: E402


def exported():
    class Add(torch.nn.Module):
        def forward(self, x):
            return x.add_(1) * 2

    return torch.export.export(Add(), (torch.ones(2),)).run_decompositions({})


def test_the_side_table_lists_the_call_targets():
    graph = exported().graph
    walked = {n.target for n in graph.nodes if n.op == "call_function"}
    assert hasattr(graph._find_nodes_lookup_table, "table")
    assert set(_torch.call_targets(graph)) == walked


def test_composite_operators_are_told_apart():
    assert _torch.is_composite(torch.ops.aten.dropout.default)
    assert not _torch.is_composite(torch.ops.aten.add.Tensor)


def test_a_program_has_the_parts_that_we_replace():
    ep = exported()
    new = _torch.with_parts(ep, ep.graph_module, ep.graph_signature, ep.module_call_graph)
    assert new is not ep
    assert vars(new).keys() == vars(ep).keys()
    assert {"_graph_module", "_graph_signature", "_module_call_graph"} <= vars(ep).keys()


def test_a_stale_module_compiles_when_it_is_called():
    gm = exported().graph_module
    output = gm.graph.output_node()
    output.args = ((output.args[0][0],),)
    _torch.mark_stale(gm)
    assert len(gm(torch.ones(2))) == 1
    assert len(gm(torch.ones(2))) == 1


def test_the_functions_that_we_replace_are_the_ones_we_know():
    sites = (
        _torch.insert_copy_site,
        _torch.copy_removal_site,
        _torch.module_site,
        _torch.run_decompositions_site,
    )
    for find in sites:
        site = find()
        assert site.is_known(getattr(site.owner, site.attribute))


def test_erasing_many_nodes_leaves_what_erasing_each_leaves():
    def chain():
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        nodes = [x]
        for _ in range(4):
            nodes.append(graph.call_function(torch.ops.aten.copy.default, (x, nodes[-1])))
        graph.output((x,))
        return graph, nodes[:0:-1]

    one, nodes = chain()
    for node in nodes:
        one.erase_node(node)
    many, nodes = chain()
    _torch.erase_nodes(many, nodes)
    many.lint()
    assert str(many) == str(one)
    assert len(many.nodes) == len(one.nodes) == 2
    assert all(n._erased for n in nodes)
    x = next(iter(many.nodes))
    assert [u.op for u in x.users] == ["output"]
    assert not many.find_nodes(op="call_function", target=torch.ops.aten.copy.default)
