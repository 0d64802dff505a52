"""Tests leave nothing behind in the user's home, and are the same each time; test cases bring their graphs."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# for the package benchmarks; at the end, so that pykeen_nonsampling is the one that is installed
sys.path.append(str(Path(__file__).parents[1]))

# read by PyKEEN when it is imported, here and in subprocesses
os.environ["PYKEEN_HOME"] = os.environ["PYSTOW_HOME"] = tempfile.mkdtemp(prefix="pykeen-nonsampling-")

# the same examples each time, on a slow machine, too
hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("reproducible")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that asks for a graph on all graphs of its class."""
    graphs = getattr(metafunc.cls, "graphs", None)
    if graphs is not None and "graph" in metafunc.fixturenames:
        metafunc.parametrize("graph", graphs)


@pytest.fixture(params=["closed", "local"])
def world(request: pytest.FixtureRequest) -> Any:
    """Provide a training loop under test."""
    from worlds import WORLDS

    return WORLDS[request.param]
