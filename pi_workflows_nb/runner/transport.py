"""The runner's end of its channel: proposals out, answers in, in one order.

Whichever thread holds the engine's baton sends, and reads answers when it has to: while compute nodes run ahead they
wait in the socket, and many are read at once. Each answer belongs to the oldest message that has none yet. Another
thread only watches for the end of the stream. Three things end the process on the spot, since whatever it still did
would be for nothing: a refusal, the loss of its claim, and that end. `unavailable` (a full disk) is no refusal: that
message and all sent after it are sent again, as they were.
"""

from __future__ import annotations

import base64
import hashlib
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from os import _exit
from time import monotonic, sleep
from typing import Final, NoReturn

import msgspec
from msgspec import Raw

from pi_workflows_nb.wire.canonical_json import decode as decode_json
from pi_workflows_nb.wire.decoding import decoded
from pi_workflows_nb.wire.errors import ProtocolError
from pi_workflows_nb.wire.identities import new_id
from pi_workflows_nb.wire.lines import Lines
from pi_workflows_nb.wire.resource_messages import (
    RESOURCE_LAUNCH_SCHEMA,
    RESOURCE_MESSAGE_SCHEMA,
    ResourceEnvelope,
    ResourceMessage,
)
from pi_workflows_nb.wire.runner_messages import (
    LAUNCH_SCHEMA,
    MAX_FRAME_BYTES,
    MESSAGE_SCHEMA,
    PART_BYTES,
    RESPONSE_SCHEMA,
    ContentRead,
    ContentRef,
    ContentWrite,
    Kind,
    LaunchEnvelope,
    RunnerMessage,
    RunnerResponse,
    Value,
    encode,
    fits_inline,
)

EXIT_GONE: Final = 74
"""The stream ended: the server is gone."""

EXIT_REFUSED: Final = 75
"""The run is no longer this process's to change."""

EXIT_PROTOCOL: Final = 76
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
TICK_MILLISECONDS: Final = 1000
_READ_BYTES: Final = 1 << 18
_response: Final = msgspec.json.Decoder(RunnerResponse)


class _Sent:
    __slots__ = ("at", "frame", "message_id", "refusable", "response")

    def __init__(self, message_id: str, frame: bytes, *, refusable: bool) -> None:
        self.message_id = message_id
        self.frame = frame
        self.refusable = refusable
        self.at = 0.0
        self.response: RunnerResponse | None = None


class Transport:
    """Speaks frames over a socket.

    `tick` is called once a second on a thread of the transport's own; so is `on_trouble` when answers are outstanding
    then, which asks for a call of `wait`.
    """

    def __init__(self, channel: socket.socket, tick: Callable[[], None]) -> None:
        self._channel = channel
        self._tick = tick
        self._stream = Lines()
        self._lines: deque[bytes] = deque()
        self._envelope: LaunchEnvelope | ResourceEnvelope | None = None
        self._unanswered: deque[_Sent] = deque()
        self._again: list[_Sent] = []
        self._pause = FIRST_PAUSE
        self._uploaded: set[str] = set()
        self.on_trouble: Callable[[], None] = lambda: None

    # -- before the first message --------------------------------------------------------------------------------------

    def receive_line(self) -> bytes:
        """The next line; ends the process when the stream does."""
        while not self._lines:
            self._lines.extend(self._receive())
        return self._lines.popleft()

    def receive_response(self, data: bytes) -> bool:
        """Take a line for an answer if it is one."""
        try:
            response = decoded(_response, data)
        except ProtocolError:
            return False
        self._take(response)
        return True

    def launched(self, envelope: LaunchEnvelope | ResourceEnvelope) -> None:
        """Know what every message must name."""
        self._envelope = envelope

    def start_watching(self) -> None:
        """End this process at once when the stream ends, whatever it is doing then."""
        threading.Thread(target=self._watch, name="channel", daemon=True).start()

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(
        self,
        kind: Kind,
        operation: str,
        payload: bytes,
        expected_revision: int,
        attempt_id: str | None = None,
        *,
        refusable: bool = False,
    ) -> _Sent:
        """Send a message and give what its answer will be found in."""
        envelope = self._envelope
        assert envelope is not None
        message_id = new_id()
        message: RunnerMessage | ResourceMessage
        if isinstance(envelope, ResourceEnvelope):
            message = ResourceMessage(
                envelope.claim_generation,
                envelope.key,
                kind,
                RESOURCE_LAUNCH_SCHEMA,
                message_id,
                operation,
                Raw(payload),
                envelope.resource_manager,
                envelope.runner_epoch,
                RESOURCE_MESSAGE_SCHEMA,
                envelope.uid,
            )
        else:
            message = RunnerMessage(
                attempt_id,
                expected_revision,
                envelope.generation,
                kind,
                LAUNCH_SCHEMA,
                message_id,
                operation,
                Raw(payload),
                envelope.run_id,
                envelope.runner_epoch,
                MESSAGE_SCHEMA,
            )
        frame = encode(message) + b"\n"
        if len(frame) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a message of {len(frame):,} bytes does not fit into a frame ({operation})")
        sent = _Sent(message_id, frame, refusable=refusable)
        self._post(sent)
        return sent

    def ask(
        self,
        kind: Kind,
        operation: str,
        payload: bytes,
        expected_revision: int,
        attempt_id: str | None = None,
        *,
        refusable: bool = False,
    ) -> RunnerResponse:
        """Send a message and wait for its answer; a refusal is given back only where `refusable` says so."""
        sent = self.send(kind, operation, payload, expected_revision, attempt_id, refusable=refusable)
        self.wait(0)
        assert sent.response is not None
        return sent.response

    def wait(self, most: int, age: float | None = None) -> None:
        """Wait until at most `most` messages have no answer, the oldest of them younger than `age` seconds.

        Once it has to wait it waits for half of that, so that answers are read, and the next messages sent, in batches.
        """
        unanswered, goal = self._unanswered, most
        while True:
            if self._again:
                if not unanswered:
                    self._send_again()
                    continue
            elif not unanswered or (len(unanswered) <= goal and (age is None or monotonic() - unanswered[0].at <= age)):
                return
            else:
                goal = most // 2
            self._hear(self.receive_line())
            while self._lines:
                self._hear(self._lines.popleft())

    def value(self, data: bytes, expected_revision: int) -> Value:
        """A value for a message: inline, or, when it is large, transferred first and named by its digest."""
        if fits_inline(data):
            return Value(inline=Raw(data))
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._uploaded:
            self.wait(0)
            for offset in range(0, len(data), PART_BYTES):
                part = base64.b64encode(memoryview(data)[offset : offset + PART_BYTES]).decode("ascii")
                written = ContentWrite(part, len(data), "application/json", offset, digest)
                self.ask("runner.progress", "content.write", encode(written), expected_revision)
            self._uploaded.add(digest)
        return Value(content=ContentRef(len(data), "application/json", digest))

    def bytes_of(self, value: Value | None, expected_revision: int) -> bytes:
        """The bytes of a value that was received, fetched in parts when it was too large for its frame."""
        if value is None:
            raise ProtocolError("an answer lacks its result")
        if not isinstance(value.content, ContentRef):
            if not isinstance(value.inline, Raw):
                raise ProtocolError("a value holds neither bytes nor a reference")
            return bytes(value.inline)
        wanted, have, digest = value.content, 0, hashlib.sha256()
        parts: list[bytes] = []
        while have < wanted.bytes:
            wish = ContentRead(have, wanted.sha256)
            answer = self.ask("runner.progress", "content.read", encode(wish), expected_revision).result
            if answer is None or not isinstance(answer.inline, Raw):
                raise ProtocolError("a part of a value did not come inline")
            part = base64.b64decode(decode_json(bytes(answer.inline))["base64"])
            if not part:
                break
            have += len(part)
            digest.update(part)
            parts.append(part)
        if have != wanted.bytes or digest.hexdigest() != wanted.sha256:
            raise ProtocolError("a transferred value does not have the length and digest that were promised")
        return b"".join(parts)

    def _post(self, sent: _Sent) -> None:
        sent.at = monotonic()
        self._unanswered.append(sent)
        try:
            self._channel.sendall(sent.frame)
        except OSError:
            _exit(EXIT_GONE)

    def _send_again(self) -> None:
        sleep(self._pause)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        again, self._again = self._again, []
        for sent in again:
            self._post(sent)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _receive(self) -> list[bytes]:
        while True:
            try:
                data = self._channel.recv(_READ_BYTES)
            except OSError:
                data = b""
            if not data:
                _exit(EXIT_GONE)
            if lines := self._stream.cut(data):
                return lines

    def _watch(self) -> NoReturn:
        ended = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
        poll = select.poll()
        poll.register(self._channel, ended)
        while True:
            if any(events & ended for _, events in poll.poll(TICK_MILLISECONDS)):
                _exit(EXIT_GONE)
            self._tick()
            if self._unanswered or self._again:
                self.on_trouble()

    def _hear(self, line: bytes) -> None:
        try:
            self._take(decoded(_response, line))
        except ProtocolError as error:
            sys.stderr.write(f"the server sent something else than an answer: {error}\n")
            sys.stderr.flush()
            _exit(EXIT_PROTOCOL)

    def _take(self, response: RunnerResponse) -> None:
        unanswered = self._unanswered
        if response.schema != RESPONSE_SCHEMA or not unanswered or unanswered[0].message_id != response.message_id:
            raise ProtocolError("an answer that belongs to no message, or not to the oldest one")
        sent = unanswered[0]
        if response.outcome in ("accepted", "adopted"):
            self._pause = FIRST_PAUSE
            sent.response = response
        elif response.outcome == "rejected" and (self._again or (response.error or "").startswith("unavailable")):
            # Whatever was sent after a message that was not stored is refused as its consequence.
            self._again.append(sent)
        elif response.outcome == "rejected" and sent.refusable:
            sent.response = response
        else:
            _exit(EXIT_REFUSED)
        unanswered.popleft()
