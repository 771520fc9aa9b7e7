"""Where resource managers are found, and those that come with the package."""

from __future__ import annotations

from typing import Final

from ..workflows.discovery import Kind

SCHEDULE: Final = "schedule"

MANAGERS: Final = Kind(
    "resource manager",
    "resource managers",
    ".resource_manager.py",
    "resource-managers",
    {SCHEDULE: "from pi_workflows_nb.resource_managers.schedule import schedule\n"},
)
