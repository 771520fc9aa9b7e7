"""LangGraph with its own SQLite saver and `durability="sync"`: a checkpoint is on disk before the next step starts.

    python langgraph_sync.py DB steps|runs|cold N

The saver turns WAL on by itself and leaves `synchronous` at FULL; both are asserted.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class Count(TypedDict):
    value: int
    goal: int


def application(connection: sqlite3.Connection):
    saver = SqliteSaver(connection)
    saver.setup()
    graph = StateGraph(Count)
    graph.add_node("add", lambda state: {"value": state["value"] + 1})
    graph.add_edge(START, "add")
    graph.add_conditional_edges("add", lambda state: "add" if state["value"] < state["goal"] else END)
    return graph.compile(checkpointer=saver)


def main(path: str, mode: str, number: int) -> None:
    connection = sqlite3.connect(path, check_same_thread=False)
    app = application(connection)

    def run(name: str, steps: int) -> None:
        options = {"configurable": {"thread_id": name}, "recursion_limit": steps + 5}
        result = app.invoke({"value": 0, "goal": steps}, options, durability="sync")
        assert result["value"] == steps

    run("warm", 1)
    if mode == "cold":
        print(json.dumps({"finished": time.monotonic()}))
        return
    started = time.perf_counter()
    if mode == "steps":
        run("only", number)
    else:
        for index in range(number):
            run(f"run-{index}", 5)
    seconds = time.perf_counter() - started
    assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
    assert connection.execute("pragma synchronous").fetchone() == (2,)
    print(json.dumps({"value": number / seconds}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
