"""`verify` accepts what `rewrite` makes, and nothing else.

That it accepts every result is looked at where archives of every case and model are made
(`test_archive_cases.py`, `test_archive_zoo.py`); here results are tampered with, one by one.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archives import CHANGES, archive
from mutcanon import archive as archives
from mutcanon.errors import MutcanonError

Program = dict[str, Any]
GRAPH = "archive/models/model.json"
SAMPLE = "archive/data/sample_inputs/model.pt"


def graph(program: Program) -> dict[str, Any]:
    return program["graph_module"]["graph"]


def outputs(program: Program) -> list[Any]:
    return program["graph_module"]["signature"]["output_specs"]


def node(program: Program, operator: str) -> dict[str, Any]:
    """The first call of an operator."""
    return next(n for n in graph(program)["nodes"] if f".{operator}." in n["target"])


def rename(part: Any, old: str, new: str) -> Any:
    """The same with one name for another, as a value wherever it stands."""
    if isinstance(part, dict):
        return {new if k == old else k: rename(v, old, new) for k, v in part.items()}
    if isinstance(part, list):
        return [rename(v, old, new) for v in part]
    return new if part == old else part


# Each takes the JSON of a right result and makes a wrong one.


def drop_the_copy_that_casts(p: Program) -> None:
    source = node(p, "copy")["inputs"][1]["arg"]["as_tensor"]["name"]
    name = node(p, "copy")["name"]
    graph(p)["nodes"].remove(node(p, "copy"))
    p["graph_module"] = rename(p["graph_module"], name, source)


def permute_outputs(p: Program) -> None:
    graph(p)["outputs"].reverse()
    outputs(p).reverse()


def permute_graph_outputs_alone(p: Program) -> None:
    graph(p)["outputs"].reverse()


def confuse_the_target(p: Program) -> None:
    outputs(p)[0]["user_input_mutation"]["user_input_name"] = "args_1"


def mutate_what_does_not_exist(p: Program) -> None:
    outputs(p)[0]["user_input_mutation"]["user_input_name"] = "args_7"


def drop_the_mutation(p: Program) -> None:
    del graph(p)["outputs"][0], outputs(p)[0]


def make_the_mutation_an_output(p: Program) -> None:
    arg = graph(p)["outputs"][0]
    outputs(p)[0] = {"user_output": {"arg": arg}}


def write_the_old_value_back(p: Program) -> None:
    for place in (graph(p)["outputs"][0]["as_tensor"], outputs(p)[0]["user_input_mutation"]["arg"]):
        place["name"] = "args_0"


def return_the_other_value(p: Program) -> None:
    name = graph(p)["outputs"][0]["as_tensor"]["name"]
    for place in (graph(p)["outputs"][1], outputs(p)[1]["user_output"]["arg"]):
        place["as_tensor"]["name"] = name


def change_a_shape(p: Program) -> None:
    graph(p)["tensor_values"]["add"]["sizes"][0]["as_int"] = 5


def change_a_type(p: Program) -> None:
    graph(p)["tensor_values"]["add"]["dtype"] = 6


def change_strides(p: Program) -> None:
    graph(p)["tensor_values"]["args_0"]["strides"][0]["as_int"] = 2


def change_a_device(p: Program) -> None:
    graph(p)["tensor_values"]["add"]["device"] = {"type": "cuda", "index": 0}


def forget_a_type(p: Program) -> None:
    del graph(p)["tensor_values"]["add"]


def change_an_argument(p: Program) -> None:
    node(p, "add")["inputs"][1]["arg"] = {"as_int": 2}


def swap_arguments(p: Program) -> None:
    first, second = node(p, "add")["inputs"]
    first["arg"], second["arg"] = second["arg"], first["arg"]


def replace_an_operator(p: Program) -> None:
    node(p, "add")["target"] = "torch.ops.aten.sub.Tensor"


def make_an_operator_write(p: Program) -> None:
    node(p, "add")["target"] = "torch.ops.aten.add_.Tensor"


def use_before_definition(p: Program) -> None:
    graph(p)["nodes"].reverse()


def define_twice(p: Program) -> None:
    graph(p)["nodes"].append(copy.deepcopy(node(p, "add")))


def add_a_random_call(p: Program) -> None:
    new = copy.deepcopy(node(p, "sum"))
    new["target"], new["name"] = "torch.ops.aten.rand_like.default", "noise"
    new["outputs"][0]["as_tensor"]["name"] = "noise"
    graph(p)["tensor_values"]["noise"] = graph(p)["tensor_values"]["add"]
    graph(p)["nodes"].append(new)


def change_an_input(p: Program) -> None:
    graph(p)["inputs"].reverse()


def change_input_kinds(p: Program) -> None:
    spec = p["graph_module"]["signature"]["input_specs"][0]
    arg = spec.pop("user_input")["arg"]
    spec["buffer"] = {"arg": arg["as_tensor"], "buffer_name": "cache", "persistent": True}


def widen_a_range(p: Program) -> None:
    for constraint in p["range_constraints"].values():
        constraint["max_val"] = 1 << 20


def forget_ranges(p: Program) -> None:
    p["range_constraints"] = {}


def change_a_symbolic_size(p: Program) -> None:
    size = graph(p)["tensor_values"]["add"]["sizes"][0]
    expr = size["as_expr"]["expr_str"] if "as_expr" in size else None
    assert expr
    size["as_expr"]["expr_str"] = f"2*{expr}"


def bring_the_copies_back_wrongly(p: Program) -> None:
    """A copy of the input's old value instead of the new one."""
    new = copy.deepcopy(node(p, "add"))
    new["target"], new["name"] = "torch.ops.aten.copy.default", "copy"
    new["inputs"][1]["arg"] = {"as_tensor": {"name": "args_0"}}
    new["inputs"][1]["name"] = "src"
    new["outputs"][0]["as_tensor"]["name"] = "copy"
    graph(p)["tensor_values"]["copy"] = graph(p)["tensor_values"]["add"]
    graph(p)["nodes"].append(new)
    for place in (graph(p)["outputs"][0]["as_tensor"], outputs(p)[0]["user_input_mutation"]["arg"]):
        place["name"] = "copy"


def claim_another_schema(p: Program) -> None:
    p["schema_version"]["major"] = 9


def add_a_field(p: Program) -> None:
    p["opset_version"]["aten"] = 11


def add_a_field_to_a_node(p: Program) -> None:
    node(p, "add")["metadata"]["custom"] = "{}"


def write_in_another_order(p: Program) -> None:
    """Right all at once, and wrong in the order of the signature: a delay line loses its copy."""
    name = node(p, "copy")["name"]
    source = node(p, "copy")["inputs"][1]["arg"]["as_tensor"]["name"]
    graph(p)["nodes"].remove(node(p, "copy"))
    p["graph_module"] = rename(p["graph_module"], name, source)


EDITS: list[tuple[str, Callable[[Program], None]]] = [
    ("cast", drop_the_copy_that_casts),
    *(
        ("redundant", edit)
        for edit in (
            permute_outputs,
            permute_graph_outputs_alone,
            confuse_the_target,
            mutate_what_does_not_exist,
            drop_the_mutation,
            make_the_mutation_an_output,
            write_the_old_value_back,
            return_the_other_value,
            change_a_shape,
            change_a_type,
            change_strides,
            change_a_device,
            forget_a_type,
            change_an_argument,
            swap_arguments,
            replace_an_operator,
            make_an_operator_write,
            use_before_definition,
            define_twice,
            add_a_random_call,
            change_an_input,
            change_input_kinds,
            bring_the_copies_back_wrongly,
            claim_another_schema,
            add_a_field,
            add_a_field_to_a_node,
        )
    ),
    ("dynamic", widen_a_range),
    ("dynamic", forget_ranges),
    ("dynamic", change_a_symbolic_size),
    ("delay-line-right", write_in_another_order),
]


def rewritten(name: str, folder: Path) -> tuple[Path, Path]:
    """One of tests/data and its canonical form, as files."""
    before, after = folder / "before.pt2", folder / "after.pt2"
    before.write_bytes(archive(name))
    archives.rewrite(before, after)
    return before, after


def rebuild(path: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    """Changes the entries of an archive; None leaves one out."""
    with zipfile.ZipFile(path) as old:
        entries = [(info.filename, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        for name, data in entries:
            if (changed := change(name, data)) is not None:
                new.writestr(name, changed)


def is_refused(before: Path, after: Path, **options: Any) -> bool:
    try:
        return not archives.verify(before, after, **options).is_right
    except MutcanonError:
        return True


@pytest.mark.parametrize("name", list(CHANGES))
@pytest.mark.parametrize("form", ["portable", "minimal"])
def test_a_result_is_accepted_with_its_certificate(name: str, form: Any, tmp_path: Path) -> None:
    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    before.write_bytes(archive(name))
    outcome = archives.rewrite(before, after, form=form, check=True)
    assert outcome.certificate is not None
    found = archives.verify(before, after, certificate=outcome.certificate)
    assert found.is_right
    assert found.certificate == outcome.certificate
    gone = sum(m.copies_before - m.copies_after for m in outcome.report.models)
    listed = list(outcome.certificate["models"])
    assert sum(len(m["collapsed"]) - len(m["added"]) for m in listed) == gone
    for copy_ in (c for m in listed for c in m["collapsed"]):
        assert copy_["copy_type"] == copy_["read_type"]


@pytest.mark.parametrize(("name", "edit"), EDITS, ids=lambda v: getattr(v, "__name__", v))
def test_a_tampered_program_is_refused(
    name: str, edit: Callable[[Program], None], tmp_path: Path
) -> None:
    before, after = rewritten(name, tmp_path)

    def change(entry: str, data: bytes) -> bytes:
        if not entry.startswith("archive/models/"):
            return data
        program = json.loads(data)
        edit(program)
        changed = json.dumps(program).encode()
        assert json.loads(changed) != json.loads(data)
        return changed

    assert archives.verify(before, after).is_right
    rebuild(after, change)
    assert is_refused(before, after)


def test_json_that_is_only_spelled_otherwise_is_accepted(tmp_path: Path) -> None:
    before, after = rewritten("redundant", tmp_path)
    rebuild(after, lambda n, d: json.dumps(json.loads(d)).encode() if n == GRAPH else d)
    assert archives.verify(before, after).is_right


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda n, d: d + b"x" if n == SAMPLE else d, id="another entry's bytes"),
        pytest.param(lambda n, d: None if n == SAMPLE else d, id="an entry is missing"),
        pytest.param(lambda n, d: None if n == GRAPH else d, id="the program is missing"),
        pytest.param(lambda n, d: b"2" if n.endswith("/archive_version") else d, id="version"),
        pytest.param(lambda n, d: b"{" if n == GRAPH else d, id="no JSON"),
    ],
)
def test_a_tampered_archive_is_refused(change: Any, tmp_path: Path) -> None:
    before, after = rewritten("redundant", tmp_path)
    rebuild(after, change)
    assert is_refused(before, after)


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    before, after = rewritten("redundant", tmp_path)
    after.write_bytes(after.read_bytes()[:-200])
    assert is_refused(before, after)


def test_models_that_changed_places_are_refused(tmp_path: Path) -> None:
    before, after = rewritten("two-models", tmp_path)
    with zipfile.ZipFile(after) as file:
        one, two = (n for n in file.namelist() if "/models/" in n)
        data = {one: file.read(two), two: file.read(one)}
    rebuild(after, lambda name, old: data.get(name, old))
    assert is_refused(before, after)


def stale(certificate: dict[str, Any]) -> None:
    certificate["models"][0]["before"] = "sha256:" + 64 * "0"


def of_another_result(certificate: dict[str, Any]) -> None:
    certificate["models"][0]["after"] = "sha256:" + 64 * "0"


def of_no_form(certificate: dict[str, Any]) -> None:
    certificate["form"] = "any"


def with_a_copy_less(certificate: dict[str, Any]) -> None:
    certificate["models"][0]["collapsed"].pop()


def with_another_source(certificate: dict[str, Any]) -> None:
    certificate["models"][0]["collapsed"][0]["source"] = "row"


def without_models(certificate: dict[str, Any]) -> None:
    certificate["models"].clear()


def of_another_version(certificate: dict[str, Any]) -> None:
    certificate["schema_version"] = 2


def that_is_none(certificate: dict[str, Any]) -> None:
    certificate.clear()


@pytest.mark.parametrize(
    "change",
    [
        stale,
        of_another_result,
        of_no_form,
        with_a_copy_less,
        with_another_source,
        without_models,
        of_another_version,
        that_is_none,
    ],
)
def test_a_certificate_that_claims_something_else_is_refused(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    before.write_bytes(archive("redundant"))
    certificate = archives.rewrite(before, after, check=True).certificate
    change(certificate)
    assert is_refused(before, after, certificate=certificate)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from mutcanon.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_the_command(tmp_path: Path) -> None:
    before, out = tmp_path / "model.pt2", tmp_path / "out"
    before.write_bytes(archive("redundant"))
    done = run("rewrite", before, "-o", out, "--certificate")
    assert done.returncode == 0, done.stderr
    after, certificate = out / "model.pt2", out / "model.pt2.certificate.json"
    found = run("verify", before, after, "--certificate", certificate)
    assert (found.returncode, found.stderr) == (0, "")
    assert "proved right" in found.stdout
    assert run("rewrite", before, "-o", out, "--certificate").returncode == 0

    found = run("verify", before, after, "--json")
    assert json.loads(found.stdout)["certificate"] == json.loads(certificate.read_text())

    rebuild(after, lambda n, d: d.replace(b"aten.add.Tensor", b"aten.sub.Tensor"))
    found = run("verify", before, after)
    assert found.returncode == 1
    assert "not proved" in found.stdout
    assert json.loads(run("verify", before, after, "--json").stdout)["is_right"] is False

    certificate.write_text("{")
    found = run("verify", before, after, "--certificate", certificate)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    assert "certificate" in found.stderr
    assert run("verify", before, tmp_path / "nothing.pt2").returncode == 2


def test_the_command_needs_no_torch(tmp_path: Path) -> None:
    before, after = rewritten("redundant", tmp_path)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.argv = ['mutcanon', 'verify', {str(before)!r}, {str(after)!r}]\n"
        "from mutcanon.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
