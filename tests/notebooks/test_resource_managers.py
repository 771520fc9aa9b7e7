"""The notebook about resource managers keeps its folder, cleans up, and can be run again and again."""

from __future__ import annotations

import pi_workflows_nb as pw
from tests.notebooks.books import cell_with, client_of, run_all, shown_by

NAME = "05_resource_managers.ipynb"


def test_it_keeps_a_folder_and_cleans_up(book, state_folder):
    done = client_of(book).execute()
    assert "managed resource folder kept-folder" in shown_by(cell_with(done, "resource = server.apply"))
    assert "left-behind.txt" in shown_by(cell_with(done, "while drift"))
    assert "not inside the folder" in shown_by(cell_with(done, "bad = files"))
    assert [path.name for path in book.parent.iterdir()] == [NAME], "the folder is gone"
    with pw.open_state(state_folder / "state.sqlite") as file:
        assert file.verify().empty
        assert file.resources().empty
        effects = file.effects()
        assert effects["status"].tolist() == ["applied"] * 3, "the first time, the drift, the other spec"
        assert file.runs()["status"].tolist() == ["completed"] * 3, "a check of each generation"
        assert "reconcile_failed" not in set(file.events()["event_type"])


def test_run_all_again_makes_another_life(book, state_folder):
    """In the same kernel, and after a restart."""
    client = client_of(book)
    with client.setup_kernel():
        run_all(client)
        run_all(client)
    client_of(book).execute()
    with pw.open_state(state_folder / "state.sqlite") as file:
        assert file.verify().empty
        events = file.events()
        assert events[events["event_type"] == "resource.deleted"]["aggregate_id"].nunique() == 3
        assert len(file.effects()) == 9


def test_a_folder_that_somebody_else_made_is_left_alone(book):
    (book.parent / "kept-folder").mkdir()
    (book.parent / "kept-folder" / "mine.txt").write_text("mine")
    client = client_of(book)
    with client.setup_kernel():
        for index, cell in enumerate(client.nb.cells):
            if ".wait_for(" in cell.source:
                break
            client.execute_cell(cell, index)
        look = "print(server.apply(keeper, NAME, files).wait_settled(timeout=60).conditions['Ready'].message)"
        end = "resource = server.resources.get(keeper, NAME)\nresource.delete().wait_deleted(timeout=60)\nserver.stop()"
        shown = []
        for source in (look, end):
            cell.source = source
            client.execute_cell(cell, index)
            shown.append(shown_by(cell))
    assert shown[0] == "somebody else made this folder\n"
    assert (book.parent / "kept-folder" / "mine.txt").read_text() == "mine"
