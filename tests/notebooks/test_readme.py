"""The lines of the README run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_ten_lines_run(tmp_path):
    (block,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    program = tmp_path / "ten_lines.py"
    program.write_text(f"{block}\nassert run.output == 6\nassert run.steps()['node_id'].tolist() == ['add']\n")
    for _ in range(2):
        result = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
