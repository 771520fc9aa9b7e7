"""What the runners of these tests do: the Python text that is given as their mode."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time


def main(channel: socket.socket, mode: str, log_path: str) -> None:
    exec(
        mode,
        {
            "channel": channel,
            "log_path": log_path,
            "os": os,
            "signal": signal,
            "subprocess": subprocess,
            "sys": sys,
            "time": time,
        },
    )
