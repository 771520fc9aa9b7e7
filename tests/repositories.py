"""A small git repository with what makes counting hard: merges, renames, deletions, and names of every kind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

WHO = {f"GIT_{role}_{what}": "somebody@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
NAMES = ("often.txt", "with blank.txt", "täglich.txt", 'quo"te.txt', "tab\there.txt", "back\\slash.txt", "*.txt")


def make_repository(folder: Path) -> Path:
    """`often.txt` is changed by four commits, everything else by fewer."""
    folder.mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | WHO

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True)

    def commit(*names: str, note: str) -> None:
        for name in names:
            with (folder / name).open("a") as file:
                file.write(f"{note}\n")
        git("add", "--all")
        git("commit", "-m", note)

    git("init", "--initial-branch", "main")
    commit(*NAMES, note="first")
    git("checkout", "-b", "side")
    commit("often.txt", "on the side.txt", note="side")
    git("checkout", "main")
    commit("with blank.txt", note="main")
    git("merge", "side", "-m", "merged")
    git("mv", "on the side.txt", "renamed.txt")
    commit("often.txt", note="renamed")
    git("rm", "-q", 'quo"te.txt')
    commit("often.txt", note="removed")
    return folder
