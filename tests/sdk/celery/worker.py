"""A worker of Celery as a process group of its own, as `celery worker` starts it."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
# It imports much, and joins others for a while.
START_TIME_MAX = 60
RUNNING = []
NUMBERS = itertools.count()


class Worker:
    """Runs tasks of a queue until the scenario ends, or it is killed."""

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
        """SIGKILL for it and its children, who say goodbye to nobody."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self):
        """SIGTERM: it ends what it has begun."""
        self.process.terminate()
        return self.process.wait(timeout=START_TIME_MAX)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.kill()


def until(condition, what, patience=30):
    """Asks again until something is so."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.05)
