"""What a long call tells while it runs, and how Ctrl-C reaches it."""
from __future__ import annotations

import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from ._library import K, S, lib, log


@dataclass(frozen=True)
class Progress:
    """A moment of a long call, as a progress callback gets it."""

    phase: str  #: what is being done
    done: int
    total: int  #: 0: not known
    note: str  #: key=value pairs, such as the loss
    queries: int  #: questions asked so far
    seconds: float  #: since the call began


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class _Line:
    """One line that is written over: on a terminal, or in a notebook's cell."""

    def __init__(self) -> None:
        self._last = 0.0
        self._width = 0
        self._display: Any = None
        self._told: Optional[Progress] = None

    def __call__(self, p: Progress) -> None:
        now = time.monotonic()
        self._told = p
        if now - self._last < 0.2:
            return
        self._last = now
        share = f"{100 * p.done // p.total:3d} %" if p.total else f"{p.done}"
        line = f"keyhole: {p.phase} {share}, {p.queries} questions, {p.seconds:.0f} s"
        if _in_notebook():
            self._cell(line)
        else:
            self._width = max(self._width, len(line))
            print("\r" + line.ljust(self._width), end="", file=sys.stderr, flush=True)

    def _cell(self, line: str) -> None:
        from IPython.display import display  # type: ignore

        if self._display is None:
            self._display = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._display.update({"text/plain": line}, raw=True)

    def close(self, how: str) -> None:
        """A terminal's line goes; a cell keeps its own, which must not look as if work went on."""
        if self._display is not None and self._told is not None:
            self._cell(f"keyhole: {how}, {self._told.queries} questions, {self._told.seconds:.0f} s")
        if self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)


Callback = Callable[[Progress], Any]
Wanted = Union[None, bool, str, Callback]


def _shower(wanted: Wanted) -> Optional[Callback]:
    if callable(wanted):
        return wanted
    if wanted is True or (wanted == "auto" and (_in_notebook() or sys.stderr.isatty())):
        return _Line()
    return None


class Watch:
    """Hooks for one long call. As a context it turns SIGINT into a request to stop.

    Python runs signal handlers between its own instructions only, which during a call of the
    library means: inside a callback. An exception raised there could not pass through C; so the
    handler only remembers, the callback asks the library to stop, and the caller raises
    KeyboardInterrupt when the library has put everything away (``rethrow``).
    """

    def __init__(self, wanted: Wanted = None, box: Any = None) -> None:
        self.box = box
        self.interrupted = False
        self.exception: Optional[BaseException] = None
        self._show = _shower(wanted)
        self._began = time.monotonic()
        self._before: Any = None
        hooks, run = dict(S.kh_hooks._fields_), dict(S.kh_run_opts._fields_)
        self._progress = hooks["progress"](self._on_progress)
        self._log = hooks["log"](self._on_log)
        self._stop = hooks["stop"](lambda user: self._wants_stop())
        self.run_stop = run["stop"](lambda user: self._wants_stop())
        self.hooks = S.kh_hooks(progress=self._progress, log=self._log, stop=self._stop)

    def _wants_stop(self) -> int:
        return 1 if self.interrupted or self.exception else 0

    def _on_progress(self, user: Any, p: Any) -> int:
        try:
            if self._show:
                queries = lib.kh_plm_meter(self.box).queries if self.box else 0
                told = p.contents
                self._show(
                    Progress(
                        (told.phase or b"").decode(),
                        told.done,
                        told.total,
                        (told.note or b"").decode(),
                        queries,
                        time.monotonic() - self._began,
                    )
                )
        except BaseException as e:  # it cannot pass through C
            self.exception = self.exception or e
        return self._wants_stop()

    def _on_log(self, user: Any, level: int, line: Any) -> None:
        write = log.warning if level == K.KH_WARN else log.info
        write("%s", (line or b"").decode("utf-8", "replace"))

    def __enter__(self) -> "Watch":
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # who ignores SIGINT, as jobs in the background do, goes on to
                self._before = before
                signal.signal(signal.SIGINT, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: Any) -> None:
        self.interrupted = True

    def __exit__(self, *exc: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if isinstance(self._show, _Line):
            self._show.close("ended" if exc[0] or self._wants_stop() else "done")

    def rethrow(self, kept: str = "") -> None:
        """Raises what ended the call, if it was a callback or Ctrl-C."""
        if self.exception:
            raise self.exception
        if self.interrupted:
            raise KeyboardInterrupt(kept)
