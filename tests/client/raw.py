"""A client written byte by byte, which may say what no client of this package would."""

from __future__ import annotations

import json
import os
import socket
import uuid

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.client_messages import CLIENT_SCHEMA


class RawClient:
    def __init__(self, path, *, hello=True, client_id="raw", timeout=20.0):
        self.client_id = client_id
        self.events = []
        self._rest = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        if hello:
            self.send(self.hello())
            self.greeting = self.line()

    def hello(self):
        return {
            "clientId": self.client_id,
            "kind": "test",
            "pid": os.getpid(),
            "schema": CLIENT_SCHEMA,
            "type": "hello",
        }

    def frame(self, operation, payload=None, run_id=None, **other):
        request_id = uuid.uuid4().hex
        return {
            "clientId": self.client_id,
            "expectedRevision": None,
            "idempotencyKey": request_id,
            "operation": operation,
            "payload": payload or {},
            "requestId": request_id,
            "runId": run_id,
            "schema": CLIENT_SCHEMA,
            "type": "request",
            **other,
        }

    def send(self, frame):
        self.write(canonical_json.encode(frame) + b"\n")

    def write(self, data):
        self.socket.sendall(data)

    def line(self):
        """The next frame, None at the end of the connection."""
        while b"\n" not in self._rest:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        assert len(line) <= 1 << 20
        canonical_json.check(line)
        return json.loads(line)

    def ask(self, operation, payload=None, run_id=None, **other):
        """The response to one request; events on the way are kept."""
        frame = self.frame(operation, payload, run_id, **other)
        self.send(frame)
        return self.answer(frame["requestId"])

    def answer(self, request_id):
        while (frame := self.line()) is not None:
            if frame["type"] == "response":
                assert frame["requestId"] == request_id
                return frame
            self.events.append(frame)
        raise AssertionError("the connection ended before the answer")

    def event(self):
        """The next event."""
        if self.events:
            return self.events.pop(0)
        frame = self.line()
        assert frame is not None
        assert frame["type"] == "event", frame
        return frame

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
