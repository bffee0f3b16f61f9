"""Draws docs/demo.svg from what `dgmark demo` prints; `make docs/demo.svg` runs it. The picture loads no fonts."""

import io
import re
import sys

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

console = Console(record=True, width=112, file=io.StringIO())
console.print(Text.from_ansi(sys.stdin.read()))
code_format = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
console.save_svg("docs/demo.svg", title="dgmark demo", code_format=code_format)
