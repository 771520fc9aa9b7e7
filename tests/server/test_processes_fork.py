"""A forked child of the kernel holds none of our sockets open and knows that it is a copy."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import socket
import stat

from pi_workflows_nb.server import processes
from tests.runner.nurseries import FOREVER, heard, nursery, spawn


def in_child(act) -> bytes:
    """What a forked child says about itself."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, repr(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 65536)
    os.close(reading)
    os.waitpid(pid, 0)
    return said


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def is_socket(descriptor: int) -> bool:
    return is_open(descriptor) and stat.S_ISSOCK(os.fstat(descriptor).st_mode)


def test_a_forked_child_closes_what_was_registered():
    ours, theirs = socket.socketpair()
    kept, other = socket.socketpair()
    with ours, theirs, kept, other:
        processes.close_after_fork(ours, theirs)
        numbers = [one.fileno() for one in (ours, theirs, kept)]
        assert in_child(lambda: [is_open(number) for number in numbers]) == b"[False, False, True]"
        assert [is_open(number) for number in numbers] == [True, True, True]


def test_what_was_closed_before_is_forgotten():
    ours, theirs = socket.socketpair()
    processes.close_after_fork(ours, theirs)
    number = ours.fileno()
    ours.close()
    theirs.close()
    del ours, theirs
    gc.collect()
    with open(os.devnull) as file:
        assert file.fileno() == number
        assert in_child(lambda: is_open(number)) == b"True"


def test_a_child_knows_that_it_is_one():
    home = os.getpid()
    assert not processes.forked_child()
    assert not processes.forked_child(home)
    assert in_child(
        lambda: (processes.forked_child(), processes.forked_child(home), processes.forked_child(os.getpid()))
    ) == (b"(True, True, False)")


def test_a_multiprocessing_child_harms_no_nursery_and_no_runner():
    async def check() -> None:
        async with nursery() as made:
            child = await spawn(made, FOREVER)
            assert await heard(child) == "here"
            numbers = [child.socket.fileno(), made._control.fileno()]
            context = multiprocessing.get_context("fork")
            process = context.Process(target=lambda: os._exit(any(is_socket(number) for number in numbers)))
            process.start()
            process.join()
            assert process.exitcode == 0
            process.close()
            assert not child.exited.done()
            assert (await child.stop()) == -15
            child.socket.close()

    asyncio.run(check())
