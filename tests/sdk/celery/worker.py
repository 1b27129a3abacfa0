"""A Celery worker in its own process group, started like `celery worker`."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
# Imports and joining other workers take time.
START_TIME_MAX = 60
RUNNING = []
NUMBERS = itertools.count()


class Worker:
    """Runs tasks of a queue until the scenario ends or the worker is killed."""

    def __init__(self, queue, application=HERE, **environment):
        self.queue = queue
        number = next(NUMBERS)
        self.log = Path(os.environ["CELERY_PLACE"]) / f"worker-{queue}-{number}.log"
        command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--loglevel", "INFO", "--concurrency", "2"]
        command += ["--queues", queue, "--hostname", f"{queue}-{number}@%h"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=application, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )
        RUNNING.append(self)
        until(lambda: " ready." in self.said() or self.process.poll() is not None, f"{queue} is ready", START_TIME_MAX)

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self):
        """Kills the worker and its children with SIGKILL."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self):
        """Sends SIGTERM: the worker finishes its tasks."""
        self.process.terminate()
        return self.process.wait(timeout=START_TIME_MAX)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.kill()


def until(condition, what, patience=30):
    """Polls until a condition holds."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.05)
