"""The memory that a process takes."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling.cli.stopwatch import time_epochs
from pykeen_nonsampling.datasets import SyntheticGraph

from .subject import EPOCHS, make_loop

T = TypeVar("T")


def in_new_process(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a new process, which has nothing of this one's memory.

    :param function: the function, of a module
    :param arguments: its arguments
    :return: what it returns
    """
    # fork would inherit the threads' locks and the memory of this process
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure_peak(triples_factory: CoreTriplesFactory, model: str, dim: int) -> int:
    """Measure how much memory training takes beyond parameters, gradients and the optimizer's state, in bytes.

    A new process trains on a tiny graph first, so that what exists once per process (libraries, threads) is there. Then
    it creates the model and trains for a few epochs. The result is the peak of its resident memory in these epochs, less the
    resident memory just before them, less three times the parameters: the gradient, and the two moments of Adam. It includes
    the index of the triples, and is 0 if memory that the process already had suffices.
    """
    arguments = triples_factory.num_entities, triples_factory.num_relations, model, dim, torch.get_num_threads()
    return in_new_process(_peak_of_training, triples_factory.mapped_triples.numpy(), *arguments)


def _peak_of_training(triples: Any, num_entities: int, num_relations: int, model: str, dim: int, threads: int) -> int:
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    tiny = SyntheticGraph(100, 4, 500).training
    time_epochs(make_loop(model, tiny, dim), tiny, EPOCHS)
    factory = CoreTriplesFactory(torch.as_tensor(triples), num_entities=num_entities, num_relations=num_relations)
    loop = make_loop(model, factory, dim)
    before = reset_peak()
    time_epochs(loop, factory, EPOCHS)
    parameters = sum(x.numel() * x.element_size() for x in loop.model.get_grad_params())
    return max(0, resident_bytes("VmHWM") - before - 3 * parameters)


def reset_peak() -> int:
    """Forget the peak of this process's resident memory, where that is possible: loading libraries may have taken more.

    :return: its resident memory
    """
    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident_bytes("VmRSS")


def resident_bytes(name: str) -> int:
    """Return the resident memory of this process: now (VmRSS), or its peak (VmHWM), which is all that some systems report.

    On Linux, the peak that getrusage reports includes that of the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(name))
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
