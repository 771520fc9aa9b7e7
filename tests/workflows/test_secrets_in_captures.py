"""A captured variable that looks like a secret is named by `check`."""

from __future__ import annotations

import base64
import hashlib

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.workflows.suspicion import looks_like_a_secret

API_KEY = "abc"
RANDOM = base64.b64encode(hashlib.sha256(b"seed").digest() + hashlib.sha256(b"more").digest()).decode()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_KEY", "abc"),
        ("db_password", b"hunter2"),
        ("config", {"service": {"access_token": "x"}}),
        ("value", "ghp_" + "a1B2" * 9),
        ("value", "-----BEGIN RSA PRIVATE KEY-----\nMII"),
        ("url", "postgres://me:pass@localhost/db"),
        ("value", RANDOM),
        ("several", ["fine", "AKIAIOSFODNN7EXAMPLE"]),
    ],
)
def test_what_looks_like_a_secret(name, value):
    assert looks_like_a_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_KEY", ""),
        ("tokenizer", "words"),
        ("keys", ["a", "b"]),
        ("path", "/srv/projects/some_long_folder_name/with_several_parts/file.py"),
        ("url", "https://example.org/a/b?c=d"),
        ("text", "The quick brown fox jumps over the lazy dog and goes home"),
        ("digest", "0" * 64),
        ("number", 12345678901234567890),
        ("identifier", "a_rather_long_identifier_of_some_function_name"),
    ],
)
def test_what_does_not(name, value):
    assert not looks_like_a_secret(name, value)


def test_check_names_it_and_the_way_out():
    wf = pw.Workflow("calls", start_at="call")

    @wf.compute
    def call(ctx):
        return len(API_KEY)

    told = repr(wf.check())
    assert "API_KEY looks like a secret" in told
    assert 'os.environ["API_KEY"]' in told
    assert "abc" not in told
