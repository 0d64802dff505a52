"""PyKEEN knows the plugin, whatever is imported first, in a process that imports nothing of ours."""

from __future__ import annotations

import os
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
import venv
from ast import literal_eval
from pathlib import Path

import pytest
from commands import ROOT, run

import pykeen_nonsampling

FIRST_IMPORTS = """
pykeen pykeen.ablation pykeen.cli pykeen.contrib pykeen.datasets pykeen.datasets.base pykeen.datasets.cli
pykeen.evaluation pykeen.hpo pykeen.hpo.hpo pykeen.losses pykeen.models pykeen.models.nbase pykeen.nn pykeen.nn.modules
pykeen.nn.representation pykeen.pipeline pykeen.pipeline.api pykeen.predict pykeen.regularizers pykeen.sampling
pykeen.stoppers pykeen.trackers
pykeen.training pykeen.training.callbacks pykeen.training.lcwa pykeen.training.training_loop pykeen.triples
pykeen_nonsampling pykeen_nonsampling.factorizations.features pykeen_nonsampling.graph.index
pykeen_nonsampling.losses.weights pykeen_nonsampling.sweeps.plain pykeen_nonsampling.distributed.group
pykeen_nonsampling.distributed.state pykeen_nonsampling.training.closed_world pykeen_nonsampling.ranking.evaluator
pykeen_nonsampling.ranking.predict pykeen_nonsampling.ranking.candidates pykeen_nonsampling.ranking.ranks
pykeen_nonsampling.memory.room pykeen_nonsampling.cli.train
""".split()
FIRST_IMPORTS += [
    f"pykeen_nonsampling.{module.name}"
    for module in pkgutil.iter_modules(pykeen_nonsampling.__path__)
    if module.name != "__main__"
]

#: Imports a module first, with nothing of PyKEEN or ours imported before, and then uses PyKEEN
IMPORT_FIRST = """
import importlib.machinery, sys, types
importlib.import_module(argument)
from pykeen.training import training_loop_resolver
from pykeen.losses import loss_resolver
from pykeen.datasets import dataset_resolver
from pykeen.evaluation import evaluator_resolver
from pykeen.pipeline import pipeline
from pykeen.hpo import hpo_pipeline
import pykeen.hpo.hpo, pykeen.pipeline.api
names = [
    training_loop_resolver.lookup("nonsampling").__name__,
    loss_resolver.lookup("nonsampling").__name__,
    dataset_resolver.lookup("syntheticgraph").__name__,
    evaluator_resolver.lookup("factorized").__name__,
]
assert names == ["NonSamplingTrainingLoop", "NonSamplingLoss", "SyntheticGraph", "FactorizedRankBasedEvaluator"], names
# every reference to the pipelines knows the defaults
api, hpo = pykeen.pipeline.api, pykeen.hpo.hpo
for function in (pipeline, hpo_pipeline, api.pipeline, hpo.pipeline, hpo.hpo_pipeline):
    assert function.__wrapped__.__module__ == function.__module__, function
# the arrangements for it are gone again
assert {type(sys.modules[name]) for name in sys.modules if name.startswith("pykeen")} == {types.ModuleType}
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("pykeen")]
assert type(sys.modules[argument].__spec__.loader) is importlib.machinery.SourceFileLoader
"""


#: Does the same in a process for each argument, forked from one that has imported what takes long and does not matter
FORKS = """
import os, sys, traceback
import optuna, pandas, requests, scipy.stats, sklearn.metrics, torch, torch._dynamo
assert not any(name.startswith("pykeen") for name in sys.modules)
for argument in sys.argv[2:]:
    if os.fork():
        assert os.wait()[1] == 0, argument
        continue
    try:
        exec(sys.argv[1])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")


@needs_fork
def test_whatever_is_imported_first() -> None:
    assert {"pykeen", "pykeen_nonsampling.datasets", "pykeen_nonsampling.cli"} < set(FIRST_IMPORTS)
    command = [sys.executable, "-W", "ignore", "-c", FORKS, IMPORT_FIRST, *FIRST_IMPORTS]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert not process.stderr


#: Uses PyKEEN, of which nothing should be missing, and prints what the plugin has added to it, and what it warns about
PYKEENS_OWN = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    from pykeen.pipeline import pipeline
    from pykeen.hpo import hpo_pipeline
from pykeen.datasets import dataset_resolver
from pykeen.evaluation import evaluator_resolver
from pykeen.losses import loss_resolver
from pykeen.training import training_loop_resolver
result = pipeline(dataset="nations", model="DistMult", training_loop="lcwa", epochs=1, random_seed=0, use_tqdm=False)
assert len(result.losses) == 1
added = {function.__name__ for function in (pipeline, hpo_pipeline) if hasattr(function, "__wrapped__")}
for resolver in (dataset_resolver, evaluator_resolver, loss_resolver, training_loop_resolver):
    classes = {*resolver.lookup_dict.values(), *resolver.synonyms.values()}
    added |= {cls.__name__ for cls in classes if cls.__module__.startswith("pykeen_nonsampling")}
print(sorted(added))
print(*{str(w.message) for w in caught if "pykeen-nonsampling" in str(w.message)}, sep="\\n")
"""


@needs_fork
def test_pykeen_works_although_the_plugin_is_broken(tmp_path: Path) -> None:
    reasons = {
        ("losses/base.py", "def broken(:"): "SyntaxError: invalid syntax (base.py, line 1)",
        ("datasets.py", "import not_installed"): "ModuleNotFoundError: No module named 'not_installed'",
        ("training/loop.py", "import pykeen\npykeen.gone"): "AttributeError: module 'pykeen' has no attribute 'gone'",
    }
    installed = Path(pykeen_nonsampling.__file__).parent
    for module, code in reasons:
        package = tmp_path / module / installed.name
        shutil.copytree(installed, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / module).write_text(code)
    directories = [str(tmp_path / module) for module, _ in reasons]
    # which come before what is installed
    code = "sys.path.insert(0, argument)" + PYKEENS_OWN
    printed = run(sys.executable, "-c", FORKS, code, *directories, cwd=tmp_path).splitlines()
    for added, message, reason in zip(printed[::2], printed[1::2], reasons.values(), strict=True):
        assert not {"NonSamplingTrainingLoop", "pipeline", "hpo_pipeline"} & set(literal_eval(added))
        assert f"failed to load and was skipped: {reason}. If `pip check` finds" in message
        assert "`pip install --force-reinstall --no-deps pykeen-nonsampling`" in message


@pytest.mark.skipif(os.name == "nt", reason="needs a system where anyone may make links")
def test_nothing_is_left_after_uninstalling(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="builds the wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=ROOT)
    # an environment with everything that is installed here, but this package
    packages, environment = tmp_path / "packages", tmp_path / "environment"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "pykeen_nonsampling" not in path.name:
            (packages / path.name).symlink_to(path)
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    site = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (site / "packages.pth").write_text(f"{packages}\n")
    before = sorted(environment.rglob("*"))

    def pip(*arguments: str) -> list[str]:
        run(sys.executable, "-m", "pip", "--python", str(python), *arguments, cwd=tmp_path)
        return literal_eval(run(str(python), "-B", "-c", PYKEENS_OWN, cwd=tmp_path).splitlines()[0])

    (wheel,) = tmp_path.glob("*.whl")
    assert {"NonSamplingTrainingLoop", "pipeline", "hpo_pipeline"} < set(
        pip("install", "--no-deps", "--no-index", str(wheel))
    )
    assert pip("uninstall", "--yes", "pykeen-nonsampling") == []
    assert sorted(environment.rglob("*")) == before


@pytest.mark.parametrize("name", ["Factorization", "NonSamplingTrainingLoop", "factorization_resolver"])
def test_public_names(name: str) -> None:
    assert name in dir(pykeen_nonsampling)
    assert getattr(pykeen_nonsampling, name).__class__


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = pykeen_nonsampling.Nothing
