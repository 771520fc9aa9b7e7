"""What an action declares about itself before it may touch the world.

The declaration answers one question: a crash came between the start of the action and its recorded end; may it run
again? `idempotent_effect` says yes, with the same key; `manual_effect` says that a person has to look first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from pi_workflows_nb.wire.errors import WorkflowDefinitionError

Recovery = Literal["idempotent", "manual"]

EFFECT_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


@dataclass(frozen=True, eq=False)
class Effect:
    """The declared effect of an action: its `type`, its `recovery`, and what is recorded as its `request`.

    `request` is None, a JSON value, or a callable of the context that gives a JSON value.
    """

    type: str
    recovery: Recovery
    request: Any = None


def idempotent_effect(type: str, request: Any = None) -> Effect:
    """Declare that the action may run again under the same key without doing its work twice.

    Takes the effect's type (`"tracker.create"`; letters, digits and `._:/-`, at most 128) and, optionally, what is
    recorded as the request: a JSON value or a callable of the context. Pass `ctx.effect.idempotency_key` on to the
    system that is changed, or do something that is the same when done twice. Reading counts as idempotent.
    Raises WorkflowDefinitionError for a type of another form.
    """
    return _effect(type, "idempotent", request)


def manual_effect(type: str, request: Any = None) -> Effect:
    """Declare that only a person can tell whether the action may run again.

    Takes the same as `idempotent_effect`. When a crash leaves it open whether the action happened, the run stops as
    ambiguous until somebody confirms the effect or asks for a new try.
    Raises WorkflowDefinitionError for a type of another form.
    """
    return _effect(type, "manual", request)


def _effect(name: object, recovery: Recovery, request: Any) -> Effect:
    if not isinstance(name, str) or not EFFECT_TYPE.fullmatch(name):
        raise WorkflowDefinitionError(
            f"{recovery}_effect({name!r}): the type of an effect is a short text such as 'tracker.create' "
            "(letters, digits and ._:/-, at most 128 characters)"
        )
    return Effect(name, recovery, request)
