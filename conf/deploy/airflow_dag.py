"""A DAG that runs one job every five minutes; the worker needs distcommit, Java and the job file."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.standard.operators.bash import BashOperator

with DAG(
    dag_id="distcommit_clicks",
    schedule="*/5 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,  # one run reads all that is new, whatever was missed
    max_active_runs=1,  # a second one would find the job's lock held
    dagrun_timeout=timedelta(hours=1),
) as dag:
    BashOperator(
        task_id="run",
        bash_command="/opt/distcommit/bin/distcommit run --json /etc/distcommit/jobs/clicks.yaml",
        skip_on_exit_code=3,  # another run of the job is alive, and does the work
        retries=2,
        retry_delay=timedelta(minutes=1),
    )
