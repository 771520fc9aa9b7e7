"""The queue of managed resources in the order in which it is worked off.

The file has no index that holds it: times stand in the queue, names and projects in the resources. To sort for each
claim costs as much as the queue is long, and so does going past what nobody here works off. So the connection that
claims keeps the order in a temporary table, by triggers that are its own. Its rollbacks take back what they did; when
another connection has committed, the order is made anew.
"""

from __future__ import annotations

import sqlite3
from typing import Final

_MAKE: Final = (
    # The version of the file, as this connection counts it, for which the order holds.
    "CREATE TEMP TABLE resource_queue_order_state(version INTEGER)",
    """CREATE TEMP TABLE resource_queue_order(
         project_id TEXT, manager TEXT, available_at INTEGER, key TEXT,
         PRIMARY KEY (project_id, manager, available_at, key)) WITHOUT ROWID""",
    """CREATE TEMP TRIGGER resource_queue_order_insert AFTER INSERT ON main.controller_queue BEGIN
         INSERT OR IGNORE INTO resource_queue_order
         SELECT project_id, controller_name, NEW.available_at, resource_key FROM controller_resources
         WHERE controller_resource_id = NEW.controller_resource_id AND project_id IS NOT NULL; END""",
    """CREATE TEMP TRIGGER resource_queue_order_delete AFTER DELETE ON main.controller_queue BEGIN
         DELETE FROM resource_queue_order WHERE (project_id, manager, available_at, key) = (
           SELECT project_id, controller_name, OLD.available_at, resource_key FROM controller_resources
           WHERE controller_resource_id = OLD.controller_resource_id); END""",
    """CREATE TEMP TRIGGER resource_queue_order_move AFTER UPDATE OF available_at ON main.controller_queue
       WHEN NEW.available_at <> OLD.available_at BEGIN
         DELETE FROM resource_queue_order WHERE (project_id, manager, available_at, key) = (
           SELECT project_id, controller_name, OLD.available_at, resource_key FROM controller_resources
           WHERE controller_resource_id = OLD.controller_resource_id);
         INSERT OR IGNORE INTO resource_queue_order
         SELECT project_id, controller_name, NEW.available_at, resource_key FROM controller_resources
         WHERE controller_resource_id = NEW.controller_resource_id AND project_id IS NOT NULL; END""",
)
_FILL: Final = """
    INSERT INTO temp.resource_queue_order
    SELECT c.project_id, c.controller_name, q.available_at, c.resource_key
    FROM controller_queue q JOIN controller_resources c USING (controller_resource_id)
    WHERE c.project_id IS NOT NULL
"""


def keep(connection: sqlite3.Connection) -> None:
    """See to it that `temp.resource_queue_order` holds the present order of the queue; in a writing transaction."""
    made = "SELECT 1 FROM sqlite_temp_schema WHERE name = 'resource_queue_order'"
    if connection.execute(made).fetchone() is None:
        for statement in _MAKE:
            connection.execute(statement)
    (version,) = connection.execute("PRAGMA main.data_version").fetchone()
    if connection.execute("SELECT version FROM temp.resource_queue_order_state").fetchone() == (version,):
        return
    connection.execute("DELETE FROM temp.resource_queue_order")
    connection.execute(_FILL)
    connection.execute("DELETE FROM temp.resource_queue_order_state")
    connection.execute("INSERT INTO temp.resource_queue_order_state VALUES (?)", (version,))
