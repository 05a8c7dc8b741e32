"""Archives compared, and certificates replayed, without torch: ours are accepted, tampered refused.

Each tampered archive is the right result with one thing changed, so what is refused is the change.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import zipfile

import pytest
from click.testing import CliRunner

from archives import CHANGES, DATA
from mutcanon import archive, errors
from mutcanon.cli import main

FORMS = ("portable", "minimal")


def source(name):
    return DATA / f"{name}.pt2"


def rewritten(tmp_path, name="redundant", **options):
    """The archive, its result, and the certificate."""
    after = tmp_path / f"{name}-after.pt2"
    outcome = archive.rewrite(source(name), after, check=True, **options)
    return source(name), after, outcome.certificate


def edited(path, graph=None, entries=None):
    """The archive with its graph changed by `graph`, and its entries, a dict, by `entries`."""
    with zipfile.ZipFile(path) as file:
        contents = [(info.filename, file.read(info)) for info in file.infolist()]
    if graph is not None:
        for i, (name, data) in enumerate(contents):
            if name.endswith("models/model.json"):
                model = json.loads(data)
                graph(model)
                contents[i] = name, json.dumps(model).encode()
    if entries is not None:
        contents = entries(contents)
    result = path.with_name("edited.pt2")
    with zipfile.ZipFile(result, "w") as file:
        for name, data in contents:
            file.writestr(name, data)
    return result


def codes(verification):
    return {remark.code for model in verification.models for remark in model.objections}


# What is ours


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHANGES)
def test_accepts_our_results_with_their_certificates(tmp_path, name, form):
    before, after, certificate = rewritten(tmp_path, name, form=form)
    result = archive.verify(before, after, certificate)
    assert codes(result) == set()
    assert result.is_right
    assert result.certificate == certificate
    assert [m["model"] for m in certificate["models"]] == [m.model for m in result.models]


def test_certificate_says_what_went_and_why(tmp_path):
    *_, certificate = rewritten(tmp_path)
    (model,) = certificate["models"]
    assert [c["node"] for c in model["collapsed"]] == ["copy", "copy_1"]
    assert {c["reads"] for c in model["collapsed"]} == {"add"}
    assert all(c["copy_type"] == c["read_type"] for c in model["collapsed"])
    assert model["before"] != model["after"]
    assert model["before"].startswith("sha256:")


def test_certificate_names_the_hazards_of_a_write_back(tmp_path):
    *_, certificate = rewritten(tmp_path, "delay-line-right")
    (model,) = certificate["models"]
    assert {h["resolved"] for h in model["hazards"]} <= {"order", "parallel"}


def test_embedded_certificate_is_checked_too(tmp_path):
    before, after, certificate = rewritten(tmp_path, embed=True)
    with zipfile.ZipFile(after) as file:
        assert file.testzip() is None
        name = next(n for n in file.namelist() if n.endswith("extra/mutcanon_certificate.json"))
        assert json.loads(file.read(name)) == certificate
    assert archive.verify(before, after).is_right

    def stale(entries):
        claims = copy.deepcopy(certificate)
        claims["models"][0]["collapsed"].pop()
        return [*entries[:-1], (entries[-1][0], json.dumps(claims).encode())]

    assert codes(archive.verify(before, edited(after, entries=stale))) == {"certificate"}
    twice = tmp_path / "twice.pt2"
    assert archive.rewrite(after, twice, embed=True).action == "copied"
    assert archive.verify(after, twice).is_right


# Tampered graphs


def graph_of(model):
    return model["graph_module"]["graph"]


def signature_of(model):
    return model["graph_module"]["signature"]


def node(model, name):
    return next(n for n in graph_of(model)["nodes"] if n["name"] == name)


def drop_node(model):
    graph_of(model)["nodes"].pop(0)


def swap_outputs(model):
    outputs = graph_of(model)["outputs"]
    outputs[0], outputs[1] = outputs[1], outputs[0]


def swap_values(model):
    swap_outputs(model)
    specs = [s["buffer_mutation"]["arg"] for s in signature_of(model)["output_specs"][:2]]
    specs[0]["name"], specs[1]["name"] = specs[1]["name"], specs[0]["name"]


def confuse_targets(model):
    specs = [s["buffer_mutation"] for s in signature_of(model)["output_specs"][:2]]
    specs[0]["buffer_name"], specs[1]["buffer_name"] = (s["buffer_name"] for s in specs[::-1])


def unlinked_target(model):
    signature_of(model)["output_specs"][0]["user_input_mutation"]["user_input_name"] = "args_1"


def drop_mutation(model):
    signature_of(model)["output_specs"].pop(0)
    graph_of(model)["outputs"].pop(0)


def tensor(model, name, field, value):
    graph_of(model)["tensor_values"][name][field] = value


def other_shape(model):
    tensor(model, "add", "sizes", [{"as_int": 5}])


def other_dtype(model):
    tensor(model, "add", "dtype", 8)


def other_stride(model):
    tensor(model, "add", "strides", [{"as_int": 2}])


def other_input_type(model):
    tensor(model, "args_0", "dtype", 8)


def swap_arguments(model):
    first, second = node(model, "add")["inputs"][:2]
    first["arg"], second["arg"] = second["arg"], first["arg"]


def other_argument(model):
    arguments = node(model, "add")["inputs"]
    arguments[1]["arg"] = copy.deepcopy(arguments[0]["arg"])


def other_operator(model):
    node(model, "add")["target"] = "torch.ops.aten.sub.Tensor"


def wider_range(model):
    for limits in model["range_constraints"].values():
        limits["max_val"] = 1 << 20


def no_range(model):
    model["range_constraints"].clear()


def use_before_definition(model):
    graph_of(model)["nodes"].reverse()


def mutation_as_output(model):
    spec = signature_of(model)["output_specs"][0]
    spec["user_output"] = {"arg": {"as_tensor": spec.pop("user_input_mutation")["arg"]}}


def renamed_input(model):
    text = json.dumps(model["graph_module"]).replace('"args_0"', '"args_9"')
    model["graph_module"] = json.loads(text)


def duplicate_node(model):
    graph_of(model)["nodes"].append(copy.deepcopy(graph_of(model)["nodes"][0]))


def mismatched_signature(model):
    first = next(iter(signature_of(model)["output_specs"][0].values()))
    first["arg"]["name"] = signature_of(model)["input_specs"][0]["user_input"]["arg"]["as_tensor"][
        "name"
    ]


def lost_buffer(model):
    signature_of(model)["input_specs"][0]["buffer"]["buffer_name"] = "b"


def not_persistent(model):
    signature_of(model)["input_specs"][0]["buffer"]["persistent"] = False


def other_guards(model):
    model["guards_code"] = ["False"]


def other_opset(model):
    model["opset_version"]["aten"] = 9


def repeated_name(model):
    for place in ("inputs", "input_specs"):
        holder = graph_of(model) if place == "inputs" else signature_of(model)
        holder[place].append(copy.deepcopy(holder[place][-1]))


GRAPHS = [
    ("redundant", drop_node),
    ("redundant", swap_outputs),
    ("swap", swap_values),
    ("swap", swap_outputs),
    ("swap", confuse_targets),
    ("redundant", unlinked_target),
    ("redundant", drop_mutation),
    ("redundant", other_shape),
    ("redundant", other_dtype),
    ("redundant", other_stride),
    ("redundant", other_input_type),
    ("redundant", swap_arguments),
    ("redundant", other_argument),
    ("redundant", other_operator),
    ("dynamic", wider_range),
    ("dynamic", no_range),
    ("redundant", use_before_definition),
    ("redundant", mutation_as_output),
    ("redundant", renamed_input),
    ("redundant", duplicate_node),
    ("redundant", mismatched_signature),
    ("swap", lost_buffer),
    ("swap", not_persistent),
    ("redundant", other_guards),
    ("redundant", other_opset),
    ("redundant", repeated_name),
]


def refuses(before, after, certificate=None):
    try:
        return not archive.verify(before, after, certificate).is_right
    except errors.MutcanonError:
        return True


@pytest.mark.parametrize(("name", "tamper"), GRAPHS, ids=lambda v: getattr(v, "__name__", v))
def test_refuses_a_tampered_graph(tmp_path, name, tamper):
    before, after, certificate = rewritten(tmp_path, name)
    untouched = edited(after, lambda model: None)
    # Written by another writer of JSON it is right, though not what the certificate names.
    assert archive.verify(before, untouched).is_right
    assert codes(archive.verify(before, untouched, certificate)) <= {"certificate"}
    assert refuses(before, edited(after, tamper))


#: Those whose results hold a copy or a clone.
KEEPING = ("cast", "delay-line", "swap", "stale-output", "returned")


@pytest.mark.parametrize("name", KEEPING)
def test_refuses_a_kept_or_added_copy_that_is_gone(tmp_path, name):
    before, after, _ = rewritten(tmp_path, name)
    gone = []

    def bypass(model):
        graph = graph_of(model)
        copying = ("copy.default", "clone.default")
        copies = [n for n in graph["nodes"] if n["target"].endswith(copying)]
        for copied in copies[:1]:
            given = [a["arg"] for a in copied["inputs"]]
            arguments = [a["as_tensor"]["name"] for a in given if "as_tensor" in a]
            graph["nodes"].remove(copied)
            text = json.dumps(model["graph_module"])
            text = text.replace(f'{{"name": "{copied["name"]}"}}', f'{{"name": "{arguments[-1]}"}}')
            model["graph_module"] = json.loads(text)
            gone.append(copied["name"])

    tampered = edited(after, bypass)
    assert gone
    assert refuses(before, tampered)


# Tampered archives


def with_entry(suffix, change):
    def entries(contents):
        assert any(name.endswith(suffix) for name, _ in contents)
        return [(n, change(d) if n.endswith(suffix) else d) for n, d in contents]

    return entries


def without_entry(suffix):
    return lambda contents: [(n, d) for n, d in contents if not n.endswith(suffix)]


ENTRIES = {
    "a weight": with_entry("weights/weight_0", lambda d: bytes([d[0] ^ 1]) + d[1:]),
    "a longer weight": with_entry("weights/weight_0", lambda d: d + b"\0"),
    "no weight": without_entry("weights/weight_0"),
    "the weights' names": with_entry("weights_config.json", lambda d: d.replace(b"a", b"b", 1)),
    "constants": with_entry("constants_config.json", lambda d: d + b" "),
    "no model": without_entry("models/model.json"),
    "an entry more": lambda contents: [*contents, ("archive/extra/more", b"more")],
    "entries moved": lambda contents: contents[::-1],
    "byte order": with_entry("byteorder", lambda d: b"big"),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_refuses_other_contents(tmp_path, name):
    before, after, _ = rewritten(tmp_path, "swap")
    assert refuses(before, edited(after, entries=ENTRIES[name]))


@pytest.mark.parametrize("size", [0, 10, 1000, -1])
def test_refuses_a_truncated_archive(tmp_path, size):
    before, after, _ = rewritten(tmp_path)
    after.write_bytes(after.read_bytes()[:size])
    with pytest.raises(errors.MutcanonError):
        archive.verify(before, after)


# Tampered certificates


def claim_less(claims):
    claims["models"][0]["collapsed"].pop()


def claim_twice(claims):
    claims["models"][0]["collapsed"] *= 2


def other_reader(claims):
    claims["models"][0]["collapsed"][0]["reads"] = "args_0"


def other_type(claims):
    claims["models"][0]["collapsed"][0]["copy_type"] = "f16"


def other_hash(claims):
    claims["models"][0]["after"] = claims["models"][0]["before"]


def other_form(claims):
    claims["form"] = "minimal"


def other_version(claims):
    claims["schema_version"] = 2


def no_models(claims):
    claims["models"] = []


CLAIMS = (
    claim_less,
    claim_twice,
    other_reader,
    other_type,
    other_hash,
    other_form,
    other_version,
    no_models,
)


@pytest.mark.parametrize("tamper", CLAIMS)
def test_refuses_a_tampered_certificate(tmp_path, tamper):
    before, after, certificate = rewritten(tmp_path)
    tamper(certificate)
    result = archive.verify(before, after, certificate, form="portable")
    assert codes(result) == {"certificate"}


def test_refuses_the_certificate_of_another_archive(tmp_path):
    *_, other = rewritten(tmp_path, "cast")
    before, after, _ = rewritten(tmp_path)
    assert codes(archive.verify(before, after, other)) == {"certificate"}


def test_refuses_what_is_no_certificate(tmp_path):
    before, after, _ = rewritten(tmp_path)
    with pytest.raises(errors.InvalidProgramError) as caught:
        archive.verify(before, after, {"models": 3})
    assert caught.value.code == "bad_json"


# The command line


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_command_line_writes_and_replays_a_certificate(tmp_path):
    result = run("rewrite", source("redundant"), "-o", tmp_path, "--certificate")
    assert result.exit_code == 0, result.output
    after, claims = tmp_path / "redundant.pt2", tmp_path / "redundant.certificate.json"
    result = run("verify", source("redundant"), after, "--certificate", claims, "--json")
    assert result.exit_code == 0, result.output
    fields = json.loads(result.stdout)
    assert fields["is_right"]
    assert fields["certificate"] == json.loads(claims.read_bytes())
    result = run("verify", source("redundant"), edited(after, other_argument))
    assert result.exit_code == 1
    assert "objection" in result.stdout
    assert run("verify", source("redundant"), tmp_path / "none.pt2").exit_code == 2
    claims.write_text("{")
    assert run("verify", source("redundant"), after, "--certificate", claims).exit_code == 2


def test_command_line_puts_the_certificate_into_the_archive(tmp_path):
    result = run("rewrite", source("redundant"), "-o", tmp_path, "--embed-certificate")
    assert result.exit_code == 0, result.output
    with zipfile.ZipFile(tmp_path / "redundant.pt2") as file:
        assert "archive/extra/mutcanon_certificate.json" in file.namelist()
    assert run("verify", source("redundant"), tmp_path / "redundant.pt2").exit_code == 0


def test_needs_no_torch(tmp_path):
    before, after, _ = rewritten(tmp_path)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from mutcanon.cli import main\n"
        f"main(['verify', {str(before)!r}, {str(after)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "model: right\n")
