"""Pages of jobs for the server: all jobs of a folder, one job, its datasets and its runs."""

from __future__ import annotations

from collections import Counter

import msgspec

from distcommit.app.inspection.dataset_list import DatasetRow
from distcommit.app.inspection.job_status import status_of
from distcommit.app.inspection.problems.catalogue import PROBLEMS
from distcommit.app.inspection.recorded_runs import RunsResult
from distcommit.app.jobs.stored_job import StoredJob
from distcommit.cli.web.html_pages import EVERY_S, rendered
from distcommit.cli.web.job_summaries import MOST_JOBS, JobState, JobSummary, ServedJobs, list_with_lag
from distcommit.core.errors import ConfigurationError
from distcommit.protocol.paths.output import REJECTED_FOLDER

DATASETS_PER_PAGE = 200
_MOST_RUNS = 500
_RUNS_SHOWN, _DATASETS_SHOWN, _REJECTED_SHOWN, _PROBLEMS_SHOWN = 10, 20, 20, 100
"""Rows on the page of a job; further ones are counted."""
_JOBS_EVERY_S = 15


def jobs_page(jobs: ServedJobs) -> str:
    """Return the index page: a row for each job of a folder, the worst state first."""
    names = sorted(jobs.files())
    rows = jobs.summaries(names[:MOST_JOBS])
    ranks = list(JobState)
    rows.sort(key=lambda row: ranks.index(row.state))
    return rendered(
        "jobs.html",
        served=True,
        every_s=_JOBS_EVERY_S,
        folder=str(jobs.path),
        rows=rows,
        omitted=max(0, len(names) - MOST_JOBS),
        states=Counter(row.state.value for row in rows),
        asks_lag=jobs.asks_lag,
    )


def job_page(jobs: ServedJobs, name: str, job: StoredJob) -> str:
    """Return the page of a job: its problems, newest runs, datasets and rejected records."""
    lag = jobs.lags([name]).get(name)
    status, runs, datasets = job.status(idle=False), job.runs(), list_with_lag(job, lag)
    rejected = sorted((row for row in datasets.datasets if _rejected(row)), key=lambda row: -_rejected(row))
    summary = JobSummary(name, status, lag)
    newest = summary.newest_run
    return rendered(
        "job.html",
        served=True,
        every_s=EVERY_S,
        name=name,
        home="/" if jobs.is_folder else "",
        summary=summary,
        status=status,
        problems=status.problems[:_PROBLEMS_SHOWN],
        problems_omitted=max(0, len(status.problems) - _PROBLEMS_SHOWN),
        causes={kind.id: kind.cause for kind in PROBLEMS.values()},
        runs=msgspec.structs.replace(runs, runs=runs.runs[:_RUNS_SHOWN]),
        runs_omitted=max(0, len(runs.runs) - _RUNS_SHOWN),
        counts=Counter(status_of(row.state) for row in datasets.datasets).most_common(),
        datasets=datasets,
        shown=datasets.datasets[:_DATASETS_SHOWN],
        rejected=[(row.state.dataset, _rejected(row)) for row in rejected[:_REJECTED_SHOWN]],
        rejected_omitted=max(0, len(rejected) - _REJECTED_SHOWN),
        rejected_total=max(sum(map(_rejected, rejected)), newest.records_rejected if newest is not None else 0),
        rejected_folder=f"{job.roots()[1].output}/{REJECTED_FOLDER}",
        reprocess=job.command("dataset reprocess"),
    )


def datasets_page(jobs: ServedJobs, name: str, job: StoredJob, number: int) -> str:
    """Return a page of the datasets of a job; the first page has number 1.

    Raises:
        ConfigurationError: if there is no such page.
    """
    result = list_with_lag(job, jobs.lags([name]).get(name))
    pages = max(1, -(-len(result.datasets) // DATASETS_PER_PAGE))
    if not 1 <= number <= pages:
        raise ConfigurationError(
            "there is no such page of datasets", id="ARGUMENT_INVALID", expected=f"1 to {pages}", found=f"{number}"
        )
    first = (number - 1) * DATASETS_PER_PAGE
    return rendered(
        "datasets.html",
        served=True,
        every_s=0,
        name=name,
        result=result,
        rows=result.datasets[first : first + DATASETS_PER_PAGE],
        first=first,
        number=number,
        pages=pages,
        asks_lag=jobs.asks_lag,
    )


def runs_page(name: str, result: RunsResult) -> str:
    """Return the page of the recorded runs of a job, the newest first."""
    omitted = max(0, len(result.runs) - _MOST_RUNS)
    newest = msgspec.structs.replace(result, runs=result.runs[:_MOST_RUNS])
    return rendered("runs.html", served=True, every_s=EVERY_S, name=name, result=newest, omitted=omitted)


def _rejected(row: DatasetRow) -> int:
    return row.last_run.counts.records_rejected if row.last_run is not None else 0
