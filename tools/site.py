"""Makes pages of the site from the files at the root: README, CONTRIBUTING, CHANGELOG, LICENSE.

They are written for the repository, so their links are turned, and those that lead to them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text()
        if name == "LICENSE":
            text = f"# License\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Turns the links between the two kinds of pages."""

    def turn(link: re.Match[str]) -> str:
        return f"]({PAGES.get(link[1], link[1])}"

    return re.sub(r"\]\((?:\.\./|docs/)*([\w.-]+(?:/[\w./-]+)?)(?=[#)])", turn, markdown)
