"""How many threads compiled loops may use, beside PyTorch."""

from __future__ import annotations

import functools
import logging
import os
import threading

import torch

logger = logging.getLogger(__name__)

_forked = False

#: Two trainings that start at once would each find the settings of the other one
_launching = threading.Lock()


def _note_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def warn_if_forked() -> None:
    """Warn in a forked process that PyTorch itself may wait forever for threads of its parent."""
    if _forked and torch.get_num_threads() > 1:
        logger.warning(
            "This process was forked. If PyTorch had several threads before, it now waits for them forever. Start processes "
            "with multiprocessing.get_context('spawn'), or call torch.set_num_threads(1) before the fork."
        )


def num_threads() -> int:
    """Return the number of threads to use: PyTorch's, or one, if there is no way to share them.

    A forked process has none of the threads that OpenMP started in its parent, and would wait for them forever.
    """
    threads = torch.get_num_threads()
    if threads == 1 or _forked:
        return 1
    with _launching:
        return threads if _launch() else 1


@functools.cache
def _launch() -> bool:
    """Let Numba start its threads, unless it already has, and return whether they can work beside PyTorch's.

    With OpenMP, they are PyTorch's own. Others would have to wait for these, which keep a core busy for some time after each
    product, in case there is another one.
    """
    import numba

    before, threads = numba.config.THREADING_LAYER, torch.get_num_threads()
    if before == "default":
        numba.config.THREADING_LAYER = "omp"
    try:
        # the first thing that needs threads
        numba.get_num_threads()
        return numba.threading_layer() in ("omp", "tbb")
    except ValueError:
        # there is no OpenMP
        return False
    finally:
        numba.config.THREADING_LAYER = before
        # which Numba sets for all
        torch.set_num_threads(threads)
