"""Archives of every case: decided as the torch path decides, and right once torch loads them."""

from __future__ import annotations

import pytest
import torch

import mutcanon
import oracle
from cases import CASES
from mutcanon import archive
from programs import FORMS, existing, program, trace

on_programs = pytest.mark.parametrize(("name", "depth"), existing())
in_forms = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(name, depth) -> the archive of a case after some decompositions, each written once."""
    folder = tmp_path_factory.mktemp("saved")

    def path(name, depth):
        file = folder / f"{name}-{depth}.pt2"
        if not file.exists():
            torch.export.save(program(name, depth), file)
        return file

    return path


def meaning(ep, name, run):
    """What a program computes, or the error with which it fails."""
    try:
        return run(ep, CASES[name].arguments, trace(name).mutated)
    except RuntimeError as error:
        return type(error)


def assert_same(want, got):
    if isinstance(want, oracle.Trace) and isinstance(got, oracle.Trace):
        assert oracle.difference(want, got) == ""
    else:
        assert want == got


@in_forms
@on_programs
def test_same_plan_and_same_reasons_as_the_torch_path(saved, name, depth, form):
    want = mutcanon.analyze(program(name, depth), form=form)
    (model,) = archive.analyze(saved(name, depth), form=form).models
    assert model.model == "model"
    assert model.report == want


@in_forms
@on_programs
def test_rewritten_archive_is_right_in_torch(saved, tmp_path, name, depth, form):
    before, after = saved(name, depth), tmp_path / "after.pt2"
    outcome = archive.rewrite(before, after, form=form, verify=True, check=True)
    assert archive.verify(before, after, outcome.certificate).is_right
    (model,) = outcome.report.models
    ep = torch.export.load(after)
    oracle.require_invariants(torch.export.load(before), ep, same_metadata=False)
    canonical = mutcanon.canonicalize(program(name, depth), form=form)
    assert oracle.count_copies(ep) == oracle.count_copies(canonical) == model.copies_after
    run = oracle.unlifted if form == "portable" else oracle.interpret
    lost = depth in CASES[name].lost
    want = meaning(program(name, depth), name, oracle.interpret) if lost else trace(name)
    assert_same(want, meaning(ep, name, run))


@in_forms
@on_programs
def test_second_rewrite_changes_nothing(saved, tmp_path, name, depth, form):
    once, twice = tmp_path / "once.pt2", tmp_path / "twice.pt2"
    first = archive.rewrite(saved(name, depth), once, form=form)
    assert first.action == ("copied" if first.report.changes_nothing else "rewritten")
    assert archive.rewrite(once, twice, form=form).action == "copied"
    assert archive.rewrite(once, once, form=form).action == "untouched"
    assert once.read_bytes() == twice.read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_program_that_writes_in_place_is_left_alone(saved, tmp_path, name):
    copy = tmp_path / "copy.pt2"
    assert archive.rewrite(saved(name, 0), copy).action == "copied"
    assert copy.read_bytes() == saved(name, 0).read_bytes()
