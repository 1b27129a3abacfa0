"""The application of the scenarios: what it does it writes into a ledger, a line for each run."""

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
        # How long one receive waits, during which a worker of one thread looks at nothing else.
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
    """When a task with this name ran, each time."""
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
    """Succeeds once it has failed so often."""
    ran(name)
    if self.request.retries < failures:
        raise self.retry(countdown=0.1, exc=RuntimeError("not yet"))
    return self.request.retries


@app.task(acks_late=True)
def held(name, seconds):
    """Takes its time, and its message is completed behind it."""
    ran(name)
    time.sleep(seconds)
    return len(runs(name))


@app.task(acks_late=True, reject_on_worker_lost=True)
def deadly(name):
    """Takes its process down the first time."""
    ran(name)
    if len(runs(name)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(runs(name))
