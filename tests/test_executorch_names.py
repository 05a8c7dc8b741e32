"""Fails when a private name of ExecuTorch moves."""

from __future__ import annotations

import importlib

import pytest
import torch

from mutcanon import _executorch
from mutcanon._patch import Site
from mutcanon.errors import VersionError

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]
exir = pytest.importorskip("executorch.exir")

SITES = [_executorch.generate_edge_program, _executorch.to_executorch]


@pytest.mark.parametrize("site", SITES, ids=lambda s: s.__name__)
def test_site_is_known(site: object) -> None:
    found = site()
    assert isinstance(found, Site)
    assert found.is_known(getattr(found.owner, found.attribute))


@pytest.mark.parametrize("site", SITES, ids=lambda s: s.__name__)
def test_a_site_that_moved_is_named(site: object, monkeypatch: pytest.MonkeyPatch) -> None:
    found = site()
    monkeypatch.delattr(found.owner, found.attribute)
    with pytest.raises(VersionError, match=found.attribute) as error:
        site()
    assert error.value.code == "moved_name"


def test_the_loader_is_where_we_look(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = importlib.import_module("executorch.extension.pybindings.portable_lib")
    assert callable(runtime._load_for_executorch_from_buffer)
    monkeypatch.delattr(runtime, "_load_for_executorch_from_buffer")
    with pytest.raises(VersionError, match="_load_for_executorch_from_buffer"):
        _executorch.load(b"no program")


def test_somebody_elses_function_is_not_known() -> None:
    found = _executorch.generate_edge_program()
    assert not found.is_known(lambda config, program: program)


def test_importing_patches_nothing() -> None:
    importlib.import_module("mutcanon.executorch")
    program = importlib.import_module("executorch.exir.program._program")
    assert program._generate_edge_program.__qualname__ == "_generate_edge_program"
    assert not hasattr(program._generate_edge_program, "__wrapped__")


class Viewed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1).view(-1).sum()


def emitted(**options: object) -> tuple[object, list[object]]:
    """The edge manager, and the nodes of the program that stock makes of it."""
    edge = exir.to_edge(torch.export.export(Viewed(), (torch.ones(2, 2),)))
    program = edge.to_executorch(exir.ExecutorchBackendConfig(**options))
    return edge, list(program.exported_program().graph.nodes)


def test_a_manager_can_be_given_other_programs() -> None:
    edge, _ = emitted()
    program = edge.exported_program()
    other = _executorch.with_programs(edge, {"forward": program})
    assert type(other) is exir.EdgeProgramManager
    assert other.exported_program() is program
    with pytest.raises(VersionError, match="_edge_programs"):
        _executorch.with_programs(edge, {"backward": program})


def test_views_and_places_of_results_are_known() -> None:
    _, nodes = emitted()
    (view,) = [n for n in nodes if _executorch.is_view(n)]
    (base, *_) = view.all_input_nodes
    place = base.kwargs["out"]
    assert _executorch.is_allocation(place)
    assert base.meta["spec"] is place.meta["spec"]
    assert not _executorch.may_share_memory(view.meta["spec"], base.meta["spec"])
    assert _executorch.may_share_memory(place.meta["spec"], base.meta["spec"])
    old, new = view.meta["spec"], place.meta["spec"].__class__.from_tensor(torch.ones(2, 2))
    _executorch.rebase_view(old, new)
    new.mem_offset = 12345
    assert old.mem_offset == 12345


def test_a_spec_without_a_base_is_no_view() -> None:
    with pytest.raises(VersionError, match="_base"):
        _executorch.rebase_view(object(), object())


def test_edge_operators_are_known() -> None:
    ops = _executorch.edge_ops()
    assert _executorch.becomes_view(ops.aten.view_copy.default)
    assert not _executorch.becomes_view(ops.aten.permute_copy.default)
    assert _executorch.is_clone(torch.ops.aten.clone.default)
    assert ops.aten.index_put_.default._schema.name == "aten::index_put_"


@pytest.mark.parametrize(
    ("tensor", "is_default"),
    [
        (torch.ones(2, 3), True),
        (torch.ones(3, 2).t(), False),
        (torch.ones(1).expand(3), False),
        (torch.ones(()), True),
    ],
)
def test_dim_orders(tensor: torch.Tensor, is_default: bool) -> None:
    assert _executorch.has_default_dim_order(tensor) == is_default


def test_what_can_be_emitted() -> None:
    assert _executorch.can_be_emitted(torch.ops.aten.add.Tensor)
    assert _executorch.can_be_emitted(torch.ops.aten.add_.Tensor)
    assert not _executorch.can_be_emitted(torch.ops.aten._local_scalar_dense.default)


def test_quantization_is_fused_by_executorchs_own_pass() -> None:
    edge = exir.to_edge(torch.export.export(Viewed(), (torch.ones(2, 2),)))
    assert _executorch.fuse_quantization(edge.exported_program()) is not None
