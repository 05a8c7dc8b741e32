"""Small mutating programs: situations that people reported in public, and adversarial ones.

Each is one function with the data that a test needs beside it; `CASES` maps ids to them. The
themes are files: buffers, inputs, layouts, parallel (swaps, shifts, shared values), control_flow.
"""

from cases import buffers, control_flow, inputs, layouts, parallel  # noqa: F401  they register
from cases._case import CASES, Case

__all__ = ["CASES", "Case"]
