"""The end of a managed resource: after its clean-up, or by force with a warning."""

from __future__ import annotations

import warnings

import pytest

import pi_workflows_nb as pw

CLEANS = """
    m = pw.ResourceManager("box")

    @m.reconcile
    def reconcile(ctx, resource):
        mark = here / f"made-{resource.key}"
        if resource.deletion_timestamp is not None:
            if (here / "stuck").exists():
                return ctx.requeue_after(1000)
            mark.unlink()
            return ctx.settled(finalizers=[])
        mark.touch()
        return ctx.settled(finalizers=["remove"], conditions=[pw.condition_true("Ready", "Yes")])
"""


def test_a_finalizer_holds_it_until_it_is_cleaned_up(server, write, types, rows):
    write("box", CLEANS)
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    assert (server.project / "made-one").exists()
    assert resource.delete() is resource
    resource.wait_deleted(60)
    assert not (server.project / "made-one").exists()
    assert not resource.exists
    history = [
        name for (name,) in rows("SELECT event_type FROM events WHERE resource_id LIKE 'controller-%' ORDER BY 1")
    ]
    assert {"deletion_requested", "resource.deletion_requested", "resource_deleted", "resource.deleted"} <= set(history)
    assert "deleted" in repr(resource) or "gone" in repr(resource)
    with pytest.raises(pw.ManagedResourceNotFoundError):
        resource.spec  # noqa: B018
    with pytest.raises(pw.ManagedResourceNotFoundError):
        resource.delete()


def test_a_key_made_again_is_another_life(server, write, rows):
    write("box", CLEANS)
    first = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    count = len(first.events())
    first.delete().wait_deleted(60)
    second = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    assert second.uid != first.uid
    assert second.generation == 1
    assert "resource.deleted" not in set(second.events()["event_type"])
    assert len(second.events()) == count
    assert not first.exists


def test_a_second_request_changes_nothing(server, write, types):
    write("box", CLEANS)
    (server.project / "stuck").touch()
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    resource.delete()
    since = resource.deletion_timestamp
    assert since is not None
    resource.delete()
    assert resource.deletion_timestamp == since
    assert types(resource).count("deletion_requested") == 1
    (server.project / "stuck").unlink()
    resource.reconcile()
    resource.wait_deleted(60)


def test_force_drops_stuck_finalizers_with_a_warning_and_says_who_did_it(server, write, rows, until):
    write("box", CLEANS)
    (server.project / "stuck").touch()
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    resource.delete()
    with pytest.warns(UserWarning, match="past its finalizers \\(remove\\)"):
        resource.delete(force=True)
    assert not resource.exists
    assert (server.project / "made-one").exists(), "nobody has cleaned up"
    found = rows(
        "SELECT e.actor_type, CAST(b.content AS TEXT) FROM events e JOIN blobs b ON b.blob_hash = e.payload_hash"
        " WHERE e.event_type = 'resource.deletion_forced'"
    )
    assert len(found) == 1
    assert '"finalizers":["remove"]' in found[0][1]
    assert '"clientId":"' in found[0][1]
    assert server.resource_queue().empty
    again = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    assert again.uid != resource.uid


def test_force_ends_a_pass_under_way_and_nothing_of_it_is_written(server, write, until):
    write(
        "box",
        """
        m = pw.ResourceManager("box")

        @m.reconcile
        def reconcile(ctx, resource):
            (here / "begun").write_text(str(os.getpid()))
            time.sleep(1000)
        """,
    )
    resource = server.resources.apply("box", "one")
    pid = until(lambda: (server.project / "begun").exists() and (server.project / "begun").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resource.delete(force=True)
    from pathlib import Path

    until(lambda: not Path(f"/proc/{pid}").exists())
    assert server.resources().empty
    assert server.verify().empty


def test_an_event_of_effects_and_children_stays_after_the_end(server, until):
    manager = pw.ResourceManager("box")

    @manager.reconcile
    def reconcile(ctx, resource):
        if resource.deletion_timestamp is None:
            ctx.effects.ensure("once", "touch", {}, observe=pw.not_applied, apply=lambda: None)
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])

    resource = server.apply(manager, "one").wait_for("Ready", timeout=60)
    resource.delete().wait_deleted(60)
    assert list(server.effects(project="*")["status"]) == ["applied"]
    assert server.verify().empty
