"""Archives of real models: decided as the torch path decides, and the same results once loaded."""

from __future__ import annotations

import copy

import pytest
import torch

import mutcanon
import oracle
from conftest import need
from mutcanon import archive
from zoo_models import MODELS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

#: A cache that is a pytree node of its own must be registered where its archive is loaded.
NOT_LOADED = ("llama_static_cache_pytree",)


@pytest.mark.parametrize("name", [n for n in MODELS if n not in NOT_LOADED])
def test_archives_of_a_model(name, tmp_path):
    need("transformers")
    need("executorch")
    model = MODELS[name]()
    args, _ = model.arguments(0)
    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    with torch.no_grad():
        ep = torch.export.export(
            model.module, args, dynamic_shapes=model.dynamic_shapes, strict=False
        )
        # ep.module() shares its buffers with the program, which must keep its initial state.
        want = oracle.eager(copy.deepcopy(ep).module(check_guards=False), model.arguments)
        for _ in range(3):
            ep = ep.run_decompositions({})
            torch.export.save(ep, before)
            outcome = archive.rewrite(before, after, verify=True, check=True)
            assert archive.verify(before, after, outcome.certificate).is_right
            (found,) = outcome.report.models
            assert found.report == mutcanon.analyze(ep)
            assert archive.analyze(after).changes_nothing
    loaded = torch.export.load(after)
    oracle.require_invariants(torch.export.load(before), loaded, same_metadata=False)
    assert oracle.count_copies(loaded) == found.copies_after
    got = oracle.unlifted(loaded, model.arguments, want.mutated)
    assert oracle.difference(want, got) == ""
