"""The application of the scenarios. It writes each run of a task to a ledger, one line each."""

import os
import signal
import time
from pathlib import Path

from celery import Celery

PLACE = Path(os.environ["CELERY_PLACE"])
LEDGER = PLACE / "ledger"

app = Celery("tasks", broker=os.environ["CELERY_BROKER_URL"], backend=f"file://{PLACE}/results")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        # Duration of one receive, during which a worker with one thread does nothing else.
        "wait_time_seconds": 1,
        "peek_lock_seconds": int(os.environ.get("CELERY_LOCK_SECONDS", "60")),
        "use_lock_renewal": "CELERY_RENEWS" in os.environ,
        "queue_name_prefix": os.environ.get("CELERY_PREFIX", ""),
        "retry_total": 1,
    },
)


def ran(name):
    with open(LEDGER, "a", encoding="utf-8") as ledger:
        ledger.write(f"{name} {time.time()}\n")


def runs(name):
    """Times at which a task with this name ran."""
    if not LEDGER.exists():
        return []
    lines = [line.split() for line in LEDGER.read_text(encoding="utf-8").splitlines()]
    return [float(at) for who, at in lines if who == name]


@app.task
def add(name, one, other):
    ran(name)
    return one + other


@app.task
def more(number, by):
    return number + by


@app.task(bind=True, max_retries=3)
def shaky(self, name, failures):
    """Succeeds after `failures` failed attempts."""
    ran(name)
    if self.request.retries < failures:
        raise self.retry(countdown=0.1, exc=RuntimeError("not yet"))
    return self.request.retries


@app.task(acks_late=True)
def held(name, seconds):
    """Takes this long; its message is completed afterwards."""
    ran(name)
    time.sleep(seconds)
    return len(runs(name))


@app.task(acks_late=True, reject_on_worker_lost=True)
def deadly(name):
    """Kills its process on the first run."""
    ran(name)
    if len(runs(name)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(runs(name))
