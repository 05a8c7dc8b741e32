"""mutcanon behind the stock names."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import mutcanon
from mutcanon.errors import MutcanonError, VersionError

pytestmark = pytest.mark.executorch

exir = pytest.importorskip("executorch.exir")
from executorch.exir.program import _program  # noqa: E402

from pte import check_pte, config, mutated_inputs  # noqa: E402

EdgeProgramManager = _program.EdgeProgramManager


class DelayLine(nn.Module):
    """Wrong after the first step with stock torch and stock executorch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(3.0))
        self.register_buffer("b", torch.arange(3.0) + 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.b * 2 + x
        self.b.copy_(self.a)
        self.a.copy_(x)
        return y


def inputs(step: int) -> tuple[torch.Tensor, ...]:
    return (torch.full((3,), float(step)),)


def lower() -> object:
    """What a library does that knows nothing of mutcanon."""
    edge = exir.to_edge(torch.export.export(DelayLine(), inputs(0)))
    return edge.to_executorch(config())


def is_right(program: object) -> bool:
    try:
        check_pte(DelayLine(), inputs, program, [])
    except AssertionError:
        return False
    return True


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    before = stock_functions()
    yield
    assert stock_functions() == before


def stock_functions() -> tuple[object, ...]:
    from torch.export import ExportedProgram, _unlift

    return (
        _program._generate_edge_program,
        EdgeProgramManager.to_executorch,
        ExportedProgram.run_decompositions,
        _unlift._insert_copy_for_mutations,
    )


def test_stock_is_wrong_and_enabled_is_right() -> None:
    assert not is_right(lower())
    with mutcanon.enabled():
        assert is_right(lower())
    assert not is_right(lower())


def test_to_edge_transform_and_lower() -> None:
    ep = torch.export.export(DelayLine(), inputs(0))
    with pytest.raises(
        Exception, match="not in the correct order"
    ):  # torch rejects what it made itself
        exir.to_edge_transform_and_lower(ep)
    with mutcanon.enabled():
        assert is_right(exir.to_edge_transform_and_lower(ep).to_executorch(config()))


def test_names_imported_earlier_are_reached() -> None:
    from executorch.exir import to_edge_transform_and_lower as imported_before

    with mutcanon.enabled():
        edge = imported_before(torch.export.export(DelayLine(), inputs(0)))
        assert is_right(edge.to_executorch(config()))


def test_module_and_run_decompositions() -> None:
    def states(ep: torch.export.ExportedProgram) -> list[float]:
        module = ep.run_decompositions({}).module()
        for step in range(3):
            module(*inputs(step))
        return [float(b[0]) for _, b in sorted(module.named_buffers())]

    wrong = states(torch.export.export(DelayLine(), inputs(0)))
    with mutcanon.enabled():
        right = states(torch.export.export(DelayLine(), inputs(0)))
    assert wrong != right
    assert right == [2.0, 1.0]


def test_it_nests_with_itself_and_with_the_drop_in() -> None:
    import mutcanon.executorch as drop_in

    with mutcanon.enabled():
        with mutcanon.enabled():
            edge = drop_in.to_edge_transform_and_lower(torch.export.export(DelayLine(), inputs(0)))
        assert is_right(edge.to_executorch(config()))
        assert is_right(lower())


def test_it_is_undone_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), mutcanon.enabled():
        raise ZeroDivisionError


def test_another_thread_sees_stock() -> None:
    found: list[bool] = []
    with mutcanon.enabled():
        thread = threading.Thread(target=lambda: found.append(is_right(lower())))
        thread.start()
        thread.join()
    assert found == [False]


def test_stock_lowers_while_another_thread_holds_it() -> None:
    found: dict[str, bool] = {}
    held, lowered = threading.Event(), threading.Event()

    def ours() -> None:
        with mutcanon.enabled():
            held.set()
            assert lowered.wait(300)
            found["ours"] = is_right(lower())

    thread = threading.Thread(target=ours)
    thread.start()
    assert held.wait(300)
    found["stock"] = is_right(lower())
    lowered.set()
    thread.join()
    assert found == {"ours": True, "stock": False}


def test_enable_is_for_all_threads_and_counts() -> None:
    mutcanon.enable()
    mutcanon.enable()
    mutcanon.disable()
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(is_right(lower())))
    thread.start()
    thread.join()
    mutcanon.disable()
    assert found == [True]


def test_disable_without_enable_is_an_error() -> None:
    with pytest.raises(MutcanonError, match="not enabled") as error:
        mutcanon.disable()
    assert error.value.code == "not_enabled"


def test_a_function_that_is_not_the_stock_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_program, "_generate_edge_program", lambda config, program: program)
    with pytest.raises(VersionError, match="_generate_edge_program"), mutcanon.enabled():
        pass
    with pytest.raises(VersionError, match="_generate_edge_program"):
        mutcanon.enable()
    monkeypatch.undo()
    with pytest.raises(MutcanonError):
        mutcanon.disable()


def test_a_manager_made_before_is_carried_out_right() -> None:
    args = (torch.arange(4.0), torch.tensor([1]), torch.tensor([9.0]))

    class Scale(nn.Module):
        def forward(self, k: torch.Tensor, pos: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            k.index_put_([pos], v)
            return k * 2

    edge = exir.to_edge(torch.export.export(Scale(), args))
    targets = mutated_inputs(edge.exported_program())
    with mutcanon.enabled():
        program = edge.to_executorch(config(run_reinplace_pass=True))
    check_pte(Scale(), lambda step: args, program, targets)
