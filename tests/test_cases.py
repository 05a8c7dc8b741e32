"""Every case, after 1, 2 and 3 decompositions, in both forms: right, minimal, and left alone."""

import pytest
import torch
from torch._export.verifier import SpecViolationError

import mutcanon
import oracle
from cases import CASES
from programs import DEPTHS, FORMS, canonical, existing, own, program, trace

STOPS = (AssertionError, RuntimeError, ValueError, SpecViolationError)
on_programs = pytest.mark.parametrize(("name", "depth"), existing())
in_forms = pytest.mark.parametrize("form", FORMS)
torch_213 = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="what torch 2.13 gets wrong"
)


def meaning(ep, name):
    """What a program computes, or the error with which it fails."""
    case = CASES[name]
    try:
        return oracle.interpret(ep, case.arguments, trace(name).mutated)
    except RuntimeError as error:
        return type(error)


def assert_same(want, got):
    if isinstance(want, oracle.Trace) and isinstance(got, oracle.Trace):
        assert oracle.difference(want, got) == ""
    else:
        assert want == got


@in_forms
@on_programs
def test_keeps_the_meaning(name, depth, form):
    lost = depth in CASES[name].lost
    want = meaning(program(name, depth), name) if lost else trace(name)
    assert_same(want, meaning(canonical(name, depth, form), name))


@on_programs
def test_portable_is_right_under_a_stock_write_back(name, depth):
    case, ep = CASES[name], canonical(name, depth, "portable")
    want = meaning(program(name, depth), name) if depth in case.lost else trace(name)
    try:
        got = oracle.unlifted(ep, case.arguments, trace(name).mutated)
    except RuntimeError as error:
        got = type(error)
    assert_same(want, got)


@in_forms
@on_programs
def test_leaves_the_fewest_copies(name, depth, form):
    case = CASES[name]
    left = case.left if form == "portable" or case.left_minimal is None else case.left_minimal
    assert oracle.count_copies(canonical(name, depth, form)) == left[depth - 1]


@on_programs
def test_says_why_copies_stay(name, depth):
    report = mutcanon.analyze(program(name, depth))
    codes = {copy.code for copy in (*report.kept, *report.inserted)}
    assert codes == CASES[name].reasons


@in_forms
@on_programs
def test_report_foretells_the_result(name, depth, form):
    before, after = program(name, depth), canonical(name, depth, form)
    report = mutcanon.analyze(before, form=form)
    assert report.changes_nothing == (after is before)
    assert len(report.collapsed) + len(report.kept) == oracle.count_copies(before)
    assert len(report.kept) + len(report.inserted) == oracle.count_copies(after)


@in_forms
@on_programs
def test_second_application_changes_nothing(name, depth, form):
    once = canonical(name, depth, form)
    assert mutcanon.canonicalize(once, form=form) is once
    assert mutcanon.analyze(once, form=form).changes_nothing


@in_forms
@on_programs
def test_result_is_a_valid_program(name, depth, form):
    oracle.require_invariants(program(name, depth), canonical(name, depth, form))


@in_forms
@on_programs
def test_argument_is_left_alone(name, depth, form):
    ep = own(name, depth)
    before = oracle.fingerprint(ep)
    mutcanon.canonicalize(ep, form=form)
    mutcanon.analyze(ep, form=form)
    assert oracle.fingerprint(ep) == before


@in_forms
@on_programs
def test_in_place_gives_the_same_program(name, depth, form):
    ep = own(name, depth)
    assert mutcanon.canonicalize_(ep, form=form) is ep
    want = canonical(name, depth, form)
    assert str(ep.graph) == str(want.graph)
    assert str(ep.graph_signature) == str(want.graph_signature)
    oracle.require_invariants(program(name, depth), ep)
    assert_same(meaning(want, name), meaning(ep, name))


@in_forms
@on_programs
def test_results_share_no_storage_that_they_did_not_share(name, depth, form):
    arguments, before = CASES[name].arguments, program(name, depth)
    if isinstance(meaning(before, name), oracle.Trace):
        after = oracle.sharing(canonical(name, depth, form), arguments)
        assert after <= oracle.sharing(before, arguments)


@pytest.mark.parametrize("name", CASES)
def test_program_that_writes_in_place_is_returned_as_it_is(name):
    ep = program(name, 0)
    assert mutcanon.canonicalize(ep) is ep
    assert mutcanon.canonicalize_(ep) is ep
    assert mutcanon.analyze(ep).changes_nothing


# What the cases say of stock torch.


@torch_213
@pytest.mark.parametrize("name", [c.id for c in CASES.values() if c.stops])
def test_stock_torch_stops_where_the_case_says(name):
    ep = program(name, CASES[name].stops - 1)
    with torch.no_grad(), pytest.raises(STOPS):
        ep.run_decompositions({})


@torch_213
@pytest.mark.parametrize(("name", "depth"), [(c.id, d) for c in CASES.values() for d in c.lost])
def test_stock_torch_loses_what_the_case_says(name, depth):
    got = meaning(program(name, depth), name)
    assert not isinstance(got, oracle.Trace) or oracle.difference(trace(name), got)


@pytest.mark.parametrize("name", CASES)
def test_interpreter_agrees_with_eager_on_the_exported_program(name):
    assert_same(trace(name), meaning(program(name, 0), name))


def test_ids_and_losses_are_well_formed():
    for case in CASES.values():
        assert case.title
        assert set(case.lost) <= set(DEPTHS)
        assert case.stops in (None, *DEPTHS)


# What mutcanon makes of the programs that stock torch gets wrong.

# Aliased inputs and constants that are mutated: torch refuses to trace these at all.
NOT_TRACED = {
    "pt166572-buffer-two-names",
    "pt166572-same-tensor-twice",
    "adv-aliased-caller-inputs",
    "adv-cond-branch-mutates",
    "pt197096-plain-attribute",
}


@pytest.mark.parametrize("name", sorted(CASES.keys() - NOT_TRACED))
def test_our_decompositions_and_our_module_are_eager(name):
    case, want, ep = CASES[name], trace(name), program(name, 0)
    for depth in DEPTHS:
        with torch.no_grad():
            ep = mutcanon.run_decompositions(ep, {})
        assert_same(want, meaning(ep, name))
        assert mutcanon.canonicalize(ep) is ep, depth
    got = oracle.unlifted(ep, case.arguments, want.mutated, unlift=mutcanon.module)
    assert_same(want, got)


@pytest.mark.parametrize("name", sorted(NOT_TRACED))
def test_what_torch_does_not_trace_is_refused_by_torch(name):
    with torch.no_grad(), pytest.raises(STOPS):
        mutcanon.run_decompositions(program(name, 0), {})
