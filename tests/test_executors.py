"""Work elsewhere: any executor and dask's scheduler give the numbers of this process, also where a
worker is killed in the middle."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.elsewhere import Draws, OtherCode
from tests.processes import kill_when_there
from toreqprop import executors
from toreqprop.cli import app
from toreqprop.errors import InvalidInputError
from toreqprop.evidence import Listener, Record, Store, run_jobs
from toreqprop.executors import executor_of

JOBS = [Draws(seed) for seed in range(6)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    found = run_jobs(JOBS, Store(tmp_path_factory.mktemp("here")))
    return [found.records[job] for job in JOBS]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="needs the extra 'distributed'")
    import dask

    # On a busy machine a worker takes long to start and to answer; nothing here is about that.
    patient = dict.fromkeys(
        ("distributed.comm.timeouts.connect", "distributed.comm.timeouts.tcp"), "600s"
    )
    # Workers end with this process: a nanny restarts one that is killed, as on a real cluster.
    with (
        dask.config.set({**patient, "distributed.scheduler.worker-ttl": None}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as running,
    ):
        yield running


def test_threads_of_one_process_do_not_draw_each_others_numbers(
    expected: list[Record], tmp_path: Path
) -> None:
    """Torch has one generator: done at the same time, the jobs would change each other's draws."""
    with ThreadPoolExecutor(4) as executor:
        found = run_jobs(JOBS, Store(tmp_path), executor=executor)
    assert [found.records[job] for job in JOBS] == expected
    again = run_jobs(JOBS, Store(tmp_path), executor=ThreadPoolExecutor(1))
    assert again.reused == len(JOBS)


class Told(Listener[Draws]):
    """Which jobs had to be repeated, and which were finished."""

    def __init__(self) -> None:
        self.again: list[Draws] = []
        self.over: list[Draws] = []

    def repeated(self, jobs: Sequence[Draws]) -> None:
        self.again.extend(jobs)

    def finished(self, job: Draws, record: Record) -> None:
        self.over.append(job)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_pool_that_breaks_is_finished_here(expected: list[Record], tmp_path: Path) -> None:
    """A pool of processes is useless once one of them is killed; the jobs are still done."""
    jobs = [*JOBS[:5], Draws(5, str(tmp_path))]
    told = Told()
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        killer = kill_when_there(tmp_path / "worker")
        found = run_jobs(jobs, Store(tmp_path / "kept"), executor=executor, listener=told)
        killer.result()
    assert [found.records[job] for job in jobs] == expected
    assert jobs[-1] in told.again
    assert sorted(told.over, key=lambda job: job.seed) == jobs


def test_a_worker_with_other_code_is_refused(tmp_path: Path) -> None:
    job = OtherCode(1)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(InvalidInputError, match="other code, versions or data"),
    ):
        run_jobs([job], Store(tmp_path), executor=executor)
    assert not list(tmp_path.glob("draws*"))


def test_what_is_no_executor_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "PATIENCE", "0.1s")
    with pytest.raises(InvalidInputError, match="Executor or the address"), executor_of(3):  # type: ignore[arg-type]
        pass
    pytest.importorskip("distributed")
    for address in ("nowhere", "tcp://127.0.0.1:9"):
        with pytest.raises(InvalidInputError, match="No dask scheduler"), executor_of(address):
            pass


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_dask_worker_loses_nothing_and_changes_no_number(
    cluster: Any, expected: list[Record], tmp_path: Path
) -> None:
    jobs = [*JOBS[:5], Draws(5, str(tmp_path))]
    told = Told()
    killer = kill_when_there(tmp_path / "worker")
    address = cluster.scheduler_address
    found = run_jobs(jobs, Store(tmp_path / "kept"), executor=address, listener=told)
    assert killer.result() != os.getpid()
    assert [found.records[job] for job in jobs] == expected
    assert not told.again  # the scheduler itself gave the job to another worker
    assert sorted(told.over, key=lambda job: job.seed) == jobs
    assert run_jobs(jobs, Store(tmp_path / "kept")).reused == len(jobs)


@pytest.mark.filterwarnings("ignore:The loss was still falling")
def test_a_search_of_scikit_learn_is_the_same_by_threads_and_by_dask(cluster: Any) -> None:
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV

    from toreqprop.sklearn import EqPropClassifier, searching_on

    x, y = load_iris(return_X_y=True)
    x = x.astype("float32")  # the type kernels are compiled for already

    def scores(**more: Any) -> list[float]:
        search = GridSearchCV(
            EqPropClassifier(8, max_iter=3, random_state=0), {"beta": [0.02, 0.1]}, cv=2, **more
        )
        return [*search.fit(x[::3], y[::3]).cv_results_["mean_test_score"], search.best_index_]

    here = scores(n_jobs=1)
    with ThreadPoolExecutor(3) as executor, searching_on(executor):
        assert scores() == here
    with searching_on(cluster.scheduler_address):
        assert scores(n_jobs=-1) == here


@pytest.mark.filterwarnings("ignore")  # Ray's, about itself
def test_a_search_of_scikit_learn_is_the_same_on_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it writes into the home folder
    ray = pytest.importorskip("ray", reason='pip install "toreqprop[ray]"')
    import joblib
    from ray.util.joblib import register_ray
    from sklearn.datasets import load_iris
    from sklearn.model_selection import cross_val_score

    from toreqprop.sklearn import EqPropClassifier

    x, y = load_iris(return_X_y=True)
    x, y = x[::3].astype("float32"), y[::3]
    model = EqPropClassifier(8, max_iter=3, random_state=0)
    here = cross_val_score(model, x, y, cv=2).tolist()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with joblib.parallel_config(backend="ray"):
            assert cross_val_score(model, x, y, cv=2, n_jobs=2).tolist() == here
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    "command",
    [
        ["benchmark"],
        ["verify", "--track", "9"],
        ["tune", "digits"],
        ["depth"],
        ["tables"],
        ["hardware", "sweep"],
    ],
)
def test_every_command_that_does_jobs_takes_a_scheduler(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there: the command says so, and does not do the work here instead."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "PATIENCE", "0.1s")
    name = "h.json" if command[0] == "tune" else "d.json" if command[0] == "depth" else ""
    more = ["--scheduler", "tcp://127.0.0.1:9", "--output", str(tmp_path / name)]
    result = CliRunner().invoke(app, [*command, *more])
    assert "No dask scheduler answers at tcp://127.0.0.1:9" in str(result.exception)


def test_a_verification_by_dask_is_that_of_this_process(cluster: Any, tmp_path: Path) -> None:
    from toreqprop.verify.runner import run_verification

    here = run_verification([9], output=tmp_path / "here")
    there = run_verification([9], output=tmp_path / "there", executor=cluster.scheduler_address)
    assert [r["hash"] for r in there.records.values()] == [r["hash"] for r in here.records.values()]
    assert there.report["timing"]["jobs"] == "elsewhere"


def test_a_sweep_of_faults_by_dask_is_that_of_this_process(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toreqprop.bench.hardware import methods, plan
    from toreqprop.bench.hardware.cell import Cell

    monkeypatch.setitem(methods.RECIPES, "digits", methods.Recipe(hidden=6, epochs=1))
    monkeypatch.setitem(plan.RATES, "digits", (0.03,))
    monkeypatch.setitem(plan.TIMES, "digits", (1,))
    monkeypatch.setattr(plan, "SEARCH_SEEDS", {"digits": (100,)})

    def swept(name: str, *more: str) -> dict[str, Any]:
        words = ["hardware", "sweep", "--fault", "stuck weights 20 %", "--method", "in situ"]
        words += ["--seeds", "2", "--jobs", "1", "--output", str(tmp_path / name), "--json", *more]
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    here = swept("here")
    monkeypatch.setattr(Cell, "perform", None)  # here alone: workers are processes of their own
    there = swept("there", "--scheduler", cluster.scheduler_address)
    assert here["rows"][0]["scores"]["in situ"]["n"] == 2
    assert (there["rows"], there["keys"]) == (here["rows"], here["keys"])
