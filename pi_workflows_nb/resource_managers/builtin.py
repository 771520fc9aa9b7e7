"""Where resource managers are found, and those that come with the package."""

from __future__ import annotations

from typing import Final

from ..wire.resource_messages import SCHEDULE
from ..workflows.discovery import Kind

MANAGERS: Final = Kind(
    "resource manager",
    "resource managers",
    ".resource_manager.py",
    "resource-managers",
    {SCHEDULE: "from pi_workflows_nb.resource_managers.schedule import schedule\n"},
)
