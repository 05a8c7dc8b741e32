"""A plain Python editor of archives: json and zipfile, and none of the rules.

It collapses chains of copies on user inputs whose types are spelled alike. What it leaves out
(aliases, shared values, order, symbols, bodies, readers other than outputs in lists) would only
make it slower.
"""

from __future__ import annotations

import json
import os
import zipfile
from typing import Any

COPY = "torch.ops.aten.copy.default"


def collapse(source: str, destination: str) -> None:
    """Writes the archive without its redundant copies."""
    with (
        zipfile.ZipFile(source) as old,
        zipfile.ZipFile(destination, "w") as new,
    ):
        for name in old.namelist():
            data = old.read(name)
            if "/models/" in name:
                program = json.loads(data)
                _edit(program["graph_module"])
                data = json.dumps(program).encode()
            new.writestr(zipfile.ZipInfo(name), data)
    with open(destination, "rb") as out:
        os.fsync(out.fileno())


def _edit(module: dict[str, Any]) -> None:
    graph = module["graph"]
    types = graph["tensor_values"]
    new_name: dict[str, str] = {}
    nodes = []
    for node in graph["nodes"]:
        for argument in node["inputs"]:
            tensor = argument["arg"].get("as_tensor")
            if tensor and tensor["name"] in new_name:
                tensor["name"] = new_name[tensor["name"]]
        if node["target"] == COPY:
            name = node["outputs"][0]["as_tensor"]["name"]
            value = node["inputs"][1]["arg"]["as_tensor"]["name"]
            same = ("dtype", "sizes", "strides", "device", "layout")
            if all(types[name][key] == types[value][key] for key in same):
                new_name[name] = value
                del types[name]
                continue
        nodes.append(node)
    graph["nodes"] = nodes
    for output in graph["outputs"]:
        tensor = output.get("as_tensor")
        if tensor:
            tensor["name"] = new_name.get(tensor["name"], tensor["name"])
    for spec in module["signature"]["output_specs"]:
        (body,) = spec.values()
        tensor = body["arg"].get("as_tensor", body["arg"])
        if "name" in tensor:
            tensor["name"] = new_name.get(tensor["name"], tensor["name"])
