"""A built-in workflow runs by its name, from the text that the package brings."""

from __future__ import annotations


def answer(request):
    return {"evidence": "green"} if request.node_id == "observe" else "stop"


def test_a_server_runs_a_monitor_by_its_name(server):
    run = server.run("monitor", {"goal": "the build is green", "interval": 0}, agent=answer)
    run.wait()
    assert run.output == {"checks": 1, "actions": 0, "evidence": "green", "reason": "decided"}
    assert server.runs()["title"].tolist() == ["Monitor: the build is green"]
    assert run.progress()["label"].tolist() == ["checks"]
