"""What the README and the docstrings promise is there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pi_workflows_nb

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = sorted(
    each.name
    for each in pkgutil.walk_packages(pi_workflows_nb.__path__, "pi_workflows_nb.")
    if "._notebooks" not in each.name and not each.name.endswith("__main__")
)


def undocumented(thing: object, name: str) -> list[str]:
    """Names without a docstring among a class or function and, of a class, its public methods and properties."""
    found = [] if inspect.getdoc(thing) else [name]
    if inspect.isclass(thing):
        for key, member in vars(thing).items():
            if key.startswith("_") or not (inspect.isroutine(member) or isinstance(member, property)):
                continue
            if not inspect.getdoc(getattr(thing, key)):
                found.append(f"{name}.{key}")
    return found


def readme_commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    return [part.strip() for line in lines for part in line.split("&&")]


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_in_a_module_has_a_docstring(name):
    module = importlib.import_module(name)
    missing = [] if module.__doc__ else [name]
    for key, thing in vars(module).items():
        if key.startswith("_") or not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        if thing.__module__ == name:
            missing += undocumented(thing, f"{name}.{key}")
    assert missing == []


def test_every_public_name_has_a_docstring():
    public = {name: getattr(pi_workflows_nb, name) for name in pi_workflows_nb.__all__}
    things = {name: thing for name, thing in public.items() if inspect.isclass(thing) or inspect.isroutine(thing)}
    assert [missing for name, thing in things.items() for missing in undocumented(thing, f"pw.{name}")] == []


def test_the_readme_prints_its_two_commands():
    commands = readme_commands()
    assert {"pip install .", "pi-workflows-nb demo", "pip install -e '.[test]'", "pytest"} <= set(commands)


@pytest.mark.parametrize("command", [each for each in readme_commands() if each.startswith("pi-workflows-nb")])
def test_commands_of_the_readme_exist(command):
    main = "from pi_workflows_nb.viewer.cli import main; main()"
    word = shlex.split(command)[1]
    result = subprocess.run([sys.executable, "-c", main, word, "--help"], cwd=ROOT, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()


def test_extras_of_the_readme_exist():
    extras = {name for group in re.findall(r"\.\[([a-z,]+)\]", README) for name in group.split(",")}
    assert extras
    assert extras <= set(PROJECT["optional-dependencies"])


def test_local_links_of_the_readme_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)", README)
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (ROOT / target).exists()] == []


def test_the_changelog_knows_the_version():
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()
