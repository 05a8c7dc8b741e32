"""Fails when a private name of ExecuTorch moves."""

from __future__ import annotations

import importlib

import pytest

from mutcanon import _executorch
from mutcanon._patch import Site
from mutcanon.errors import VersionError

pytestmark = pytest.mark.executorch

SITES = [_executorch.generate_edge_program]


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
