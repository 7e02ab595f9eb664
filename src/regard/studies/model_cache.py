"""Models that studies train, kept from one time to the next."""

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec

from regard.config import to_toml
from regard.runs.environment import ExecutionEnvironment
from regard.runs.run import Run
from regard.training.loop import ExecutionOptions
from regard.training.plan import Plan


def cached_run(plan: Plan) -> Run:
    """The plan's run, trained the first time that it is asked for.

    Its folder is named by recipe and data, whatever path the plan has; a training that was
    stopped goes on. Always in float32, so that numbers are the same on every machine.
    """
    folder = cache_folder() / _key(plan)
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        run = replace(plan.run, path=partial)
        options = ExecutionOptions(
            environment=ExecutionEnvironment.choose("auto", "float32"), quiet=True
        )
        replace(plan, run=run).execute(options, resume=True)
        shutil.rmtree(partial / "checkpoints", ignore_errors=True)
        partial.rename(folder)
    return Run.load(folder)


def cache_folder() -> Path:
    """Where they are kept: $REGARD_CACHE, else regard in the user's folder of caches."""
    if chosen := os.environ.get("REGARD_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard" / "studies"


def _key(plan: Plan) -> str:
    """Tells runs apart that differ in recipe, data or version."""
    run = plan.run
    made_by = [to_toml(run.recipe), run.tokenizer.fingerprint, plan.title, run.origin]
    digest = hashlib.sha256(msgspec.json.encode(made_by)).hexdigest()[:16]
    return f"{run.origin.get('stage', 'run')}-{digest}"
