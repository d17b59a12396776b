"""Settings of spark-submit and spark-defaults.conf, which take precedence over the product's defaults."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

from distcommit.spark.session_settings import SparkSettings, is_submitted

logger = logging.getLogger(__name__)

MASTER = "spark.master"
_SEPARATOR = re.compile(r"\s*[=:\s]\s*")


def given_settings() -> dict[str, str]:
    if is_submitted():
        SparkContext._ensure_initialized()
        return dict(SparkConf(loadDefaults=True).getAll())
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (_SEPARATOR.split(line.strip(), maxsplit=1) for line in lines if not line.lstrip().startswith(("#", "!")))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].startswith("spark.")}


def master_of(settings: SparkSettings, options: Mapping[str, str]) -> str:
    """Return the first master that is set in: spark-submit, the job file, spark-defaults.conf; otherwise the
    default."""
    is_set, master = "master" in settings.model_fields_set, options.get(MASTER, settings.master)
    if not is_submitted():
        return settings.master if is_set else master
    if is_set and master != settings.master:
        logger.warning("spark.master %s of the job file is not used: spark-submit has %s", settings.master, master)
    return master


def report_overridden(conf: Mapping[str, str], options: Mapping[str, str]) -> None:
    names = sorted(name for name, value in conf.items() if options.get(name, value) != value)
    if names:
        origin = "spark-submit" if is_submitted() else "spark-defaults.conf"
        logger.warning("spark.conf of the job file replaces settings of %s: %s", origin, ", ".join(names))
