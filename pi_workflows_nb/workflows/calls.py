"""The two threads of a run: one works, one watches.

The *worker* walks the graph and calls user code right where it stands; between two nodes nothing has to change
threads, which would cost more than most nodes do. The *watcher* is whoever started the run. It sleeps until a deadline
passes, the run is cancelled, the store wants attention, or async code asks for something, and it can do all of that
while user code is busy, because one lock, the baton, is free exactly while user code runs.

Code that has not stopped a moment after its deadline is left behind: the watcher ends its attempt in its place, and the
walk goes on on a new worker, if the process goes on at all.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from os import _exit, getpid
from queue import Empty, SimpleQueue
from sys import getrecursionlimit, gettrace, setrecursionlimit, settrace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from pi_workflows_nb.wire.errors import PiWorkflowsError, StoppedByServer, WorkflowDefinitionError
from pi_workflows_nb.workflows.active_time import ActiveTime

if TYPE_CHECKING:
    import asyncio

GRACE_SECONDS: Final = 1.0
"""How long code may take to stop after its deadline, or after the run was cancelled."""

JOIN_SECONDS: Final = 1.0
_LONGEST_WAIT: Final = 1e6
_PLAIN: Final = frozenset((dict, list, str, int, float, bool, type(None), tuple, bytes))

Drive = Callable[[], Any]


class Call:
    """One call of user code and, once it has come back, its end.

    `deadline` and `finished` are seconds of active time; `error` is whatever was raised; `stopping` says why the code
    was told to stop, and `abandoned` that it did not.
    """

    __slots__ = ("abandoned", "deadline", "error", "finished", "stopping", "task", "until", "value")

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.value: Any = None
        self.error: BaseException | None = None
        self.finished: float | None = None
        self.stopping: Literal["timed_out", "cancelled"] | None = None
        self.until: float | None = deadline
        self.abandoned = False
        self.task: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None


class _Question:
    __slots__ = ("about", "answer", "work")

    def __init__(self, about: object, work: Callable[[], None], answer: Callable[[BaseException | None], None]) -> None:
        self.about = about
        self.work = work
        self.answer = answer


class _End:
    __slots__ = ("error", "value")

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self.value = value
        self.error = error


class _LeftBehindError(BaseException):
    """Ends a worker whose attempt was ended without it."""


_LOOK_AGAIN: Final = object()
_ATTEND: Final = object()
_CANCEL: Final = object()


class Callbacks:
    """Calls user code on a worker and watches over it.

    `attend` is called (with the baton) when `wake` was; `abandon` is called (with the baton) for a call that did not
    stop, and gives what a new worker shall do. `about` is what questions must be about to be answered now.
    """

    def __init__(self, attend: Callable[[], None], abandon: Callable[[Call], Drive]) -> None:
        self.baton = threading.Lock()
        self.cancelled = threading.Event()
        self.cancel_asked = False
        self.about: object = None
        self.time = ActiveTime()
        self._attend = attend
        self._abandon = abandon
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._nudges: SimpleQueue[None] = SimpleQueue()
        self._now: Call | None = None
        self._watching_until: float | None = None
        self._over = False
        self._mine = threading.local()
        self._worker: threading.Thread | None = None
        self._pid = getpid()

    # -- on the worker ------------------------------------------------------------------------------------------------

    def call(self, function: Callable[[], Any], deadline: float | None) -> Call:
        """Call user code without the baton. The worker holds it before and after."""
        call = Call(deadline)
        self._mine.call = call
        self._now = call
        if deadline is not None:
            watching = self._watching_until
            if watching is None or deadline < watching:
                self._watching_until = deadline
                self._events.put(_LOOK_AGAIN)
        depth, trace = getrecursionlimit(), gettrace()
        self.baton.release()
        try:
            call.value = function()
        except BaseException as error:  # SystemExit and KeyboardInterrupt of a node are the node's
            call.error = error
        if gettrace() is not trace:
            # What the code had called at each line is not called for ours.
            settrace(trace)
        if getpid() != self._pid:
            # The code forked, and its child came back as well: the run is its parent's alone.
            _end_a_copy(call.error)
        call.finished = self.time.now()
        if getrecursionlimit() < depth:
            # It holds for all threads, and for what comes next.
            setrecursionlimit(depth)
        self.baton.acquire()
        if call.abandoned or self._over:
            raise _LeftBehindError
        self._now = None
        if call.stopping is None and deadline is not None and call.finished > deadline:
            call.stopping = "timed_out"
        return call

    def pause(self, seconds: float) -> None:
        """Wait without the baton; a cancellation ends the wait."""
        end = monotonic() + seconds
        self.baton.release()
        try:
            while not (self.cancel_asked or self._over) and (left := end - monotonic()) > 0:
                try:
                    self._nudges.get(True, min(left, _LONGEST_WAIT))
                except Empty:
                    pass
        finally:
            self.baton.acquire()
        if self._over:
            raise _LeftBehindError

    def invoke(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a sync or async function of the user, on this thread, and give its value.

        A sync function that gives a coroutine or a generator has forgotten something: `WorkflowDefinitionError`.
        """
        value = function(*arguments)
        if type(value) in _PLAIN:
            return value
        if inspect.iscoroutine(value):
            if is_async(function):
                return self._run(value)
            value.close()
            raise WorkflowDefinitionError(
                f"{_named(function)} returned a coroutine and is not async: write `async def`, or `await` what it calls"
            )
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            raise WorkflowDefinitionError(
                f"{_named(function)} gave a generator, of which nothing has run: return a value, as list(…), no `yield`"
            )
        return value

    def ask(self, about: object, work: Callable[[], None]) -> Any:
        """Do something that needs the baton for user code: blocks in sync code, is to be awaited in async code."""
        loop = running_loop()
        if loop is None:
            with self.baton:
                self._perform(about, work)
            return None
        future: asyncio.Future[None] = loop.create_future()

        def answer(error: BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(_resolve, future, error)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        self._events.put(_Question(about, work, answer))
        return future

    def _perform(self, about: object, work: Callable[[], None]) -> None:
        call = self._now
        if self._over or about != self.about or call is None or call.stopping is not None:
            raise PiWorkflowsError("the node that asked for this has ended; nothing of it is accepted any more")
        try:
            self.time.leave_out(work)
        except StoppedByServer as error:
            self._over = True
            self._events.put(_End(None, error))
            raise

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        mine = self._mine
        runner: asyncio.Runner | None = getattr(mine, "runner", None)
        if runner is None:
            mine.runner = runner = asyncio.Runner()
            asyncio.set_event_loop(runner.get_loop())
        loop = runner.get_loop()
        task = loop.create_task(coroutine)
        call: Call = mine.call
        call.task = (loop, task)
        if call.stopping is not None:
            task.cancel()
        try:
            return loop.run_until_complete(task)
        finally:
            call.task = None
            if not task.done():
                # The loop itself broke, as when its descriptors were closed: the next node gets another.
                mine.runner = None

    def _work(self, drive: Drive) -> None:
        end: _End | None = None
        self.baton.acquire()
        try:
            end = _End(drive(), None)
        except _LeftBehindError:
            pass
        except BaseException as error:
            end = _End(None, error)
        finally:
            if self.baton.locked():
                # It is free when code of the user broke what `call` itself is made of.
                self.baton.release()
            if end is not None:
                self._events.put(end)
            runner = getattr(self._mine, "runner", None)
            if runner is not None:
                runner.close()

    # -- on the watcher -----------------------------------------------------------------------------------------------

    def watch(self, drive: Drive) -> Any:
        """Have a worker do `drive`, look after it, and give its value or raise its error."""
        try:
            self.time.start()
            self._spawn(drive)
            while True:
                event = self._next_event()
                if event is None:
                    self._look_at_the_clock()
                elif type(event) is _End:
                    if event.error is not None:
                        raise event.error
                    return event.value
                elif type(event) is _Question:
                    self._answer(event)
                elif event is _ATTEND:
                    with self.baton:
                        self._attend()
                elif event is _CANCEL:
                    self._cancel()
        except KeyboardInterrupt:
            self._break_off()
            raise
        finally:
            self._leave()

    def wake(self) -> None:
        """Have `attend` called soon. Any thread may call."""
        self._events.put(_ATTEND)

    def cancel(self) -> None:
        """Have the code that runs told to stop, and what follows not begun. Any thread may call."""
        self._events.put(_CANCEL)

    def interrupt(self) -> Call | None:
        """Tell the code that runs to stop and propose nothing more; gives its call.

        For the end of the process, in a handler of a signal on the watcher, which may hold the baton just then.
        """
        self._over = True
        call = self._now
        if call is not None and call.stopping is None:
            self._stop(call, "cancelled")
        return call

    def _spawn(self, drive: Drive) -> None:
        self._worker = threading.Thread(target=self._work, args=(drive,), name="workflow", daemon=True)
        self._worker.start()

    def _next_event(self) -> Any:
        """The next event, None when it is time to look at the clock."""
        while True:
            call = self._now
            if call is not None:
                self._watching_until = call.until
            elif self._watching_until is not None and self._watching_until <= self.time.now():
                self._watching_until = None
            until = self._watching_until
            if self._now is not call:  # a call began meanwhile and may have trusted the time before
                continue
            try:
                if until is None:
                    return self._events.get()
                return self._events.get(True, min(max(0.0, until - self.time.now()), _LONGEST_WAIT))
            except Empty:
                return None

    def _look_at_the_clock(self) -> None:
        with self.baton:
            call = self._now
            if call is None or call.until is None or self.time.now() < call.until:
                return
            if call.stopping is None:
                self._stop(call, "timed_out")
                return
            call.abandoned = True
            self._now = None
            self._spawn(self._abandon(call))

    def _cancel(self) -> None:
        self.cancel_asked = True
        self._nudges.put(None)
        with self.baton:
            call = self._now
            if call is not None and call.stopping is None:
                self._stop(call, "cancelled")

    def _stop(self, call: Call, why: Literal["timed_out", "cancelled"]) -> None:
        call.stopping = why
        call.until = self.time.now() + GRACE_SECONDS
        event, self.cancelled = self.cancelled, threading.Event()
        event.set()
        if call.task is not None:
            loop, task = call.task
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:
                pass  # the loop is closed: the task is over

    def _answer(self, question: _Question) -> None:
        try:
            with self.baton:
                self._perform(question.about, question.work)
        except PiWorkflowsError as error:
            question.answer(error)
        else:
            question.answer(None)

    def _break_off(self) -> None:
        """Tell the code that runs to stop, and raise in it what was raised here if it looks at nothing.

        A runner would end with it; a kernel lives on.
        """
        self.interrupt()
        worker = self._worker
        if worker is None or worker.ident is None:
            return
        worker.join(GRACE_SECONDS)
        if worker.is_alive():
            import ctypes

            interrupt = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), interrupt)

    def _leave(self) -> None:
        self.interrupt()
        self._nudges.put(None)
        gone = PiWorkflowsError("the run is over; nothing of it is accepted any more")
        while not self._events.empty():
            event = self._events.get()
            if type(event) is _Question:
                event.answer(gone)
        if self._worker is not None and self._now is None:
            self._worker.join(JOIN_SECONDS)
        self.time.stop()


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether a function, or the call of an object, is written with `async def`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _end_a_copy(error: BaseException | None) -> NoReturn:
    if error is not None:
        import traceback

        traceback.print_exception(error)
    _exit(0 if error is None else 1)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, if any."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio

    return asyncio._get_running_loop()


def _resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _named(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', None) or type(function).__name__}()"
