"""Celery with kombu's transport for Azure Service Bus, both as published: `run.py PROGRAM [PART OF
A NAME]`.

First enters namespaces of its own. Ends with a line `ok N scenarios`, or prints the failures."""

import os
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python"))

import namespace
import place
from broker import ROOT, Broker

# Scenarios that run at the same time.
WIDTH = 4


def main():
    namespace.enter()
    program, *part = sys.argv[1:]
    directory = Path(tempfile.mkdtemp(prefix="peeklock-celery-"))
    (directory / "results").mkdir()
    place.furnish(program, directory)
    # With anonymous access the broker would answer only for its own host names.
    settings = {"SECURITY__ALLOW_ANONYMOUS": "false"}
    broker = Broker(program, directory, ["--tls"], settings, http=443, amqp=5671)
    url = f"azureservicebus://{ROOT}:{broker.key}@{place.NAMESPACE}"
    surroundings = place.environment(CELERY_BROKER_URL=url, CELERY_PLACE=str(directory))
    os.environ.clear()
    os.environ.update(surroundings)

    # Imported now, because the scenarios create their application from the environment.
    import scenarios

    chosen = [function for function in scenarios.ALL if all(word in function.__name__ for word in part)]
    together = [function for function in chosen if function not in scenarios.ALONE]
    failed = []

    def run(function):
        began = time.monotonic()
        try:
            function(broker)
        except Exception:  # pylint: disable=broad-except
            print(f"--- {function.__name__}\n{traceback.format_exc()}")
            failed.append(function.__name__)
        print(f"{function.__name__} {time.monotonic() - began:.1f} s")

    try:
        with ThreadPoolExecutor(WIDTH) as threads:
            list(threads.map(run, together))
        for function in chosen:
            if function not in together:
                run(function)
    finally:
        scenarios.end()
        broker.kill()
    log = (directory / "log").read_text()
    if "panicked" in log:
        print(f"--- the broker panicked\n{log}")
        failed.append("log")
    if failed:
        print(f"{len(failed)} of {len(chosen)} scenarios failed; logs of broker and workers are in {directory}")
        sys.exit(1)
    shutil.rmtree(directory)
    print(f"ok {len(chosen)} scenarios")


if __name__ == "__main__":
    main()
