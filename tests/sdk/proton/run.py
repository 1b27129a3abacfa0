"""Qpid Proton for Python as a client of what the SDKs for Azure never do: `run.py PROGRAM [PART OF A NAME]`.

Ends with a line `ok N scenarios`, or tells what failed.
"""

import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python"))

import scenarios
from broker import ROOT, Broker
from client import PATIENCE, Client

# Scenarios that run at the same time.
WIDTH = 6


class World:
    """A scenario's surroundings: entities and connections of its own on a broker that it shares."""

    def __init__(self, broker, name):
        self.broker, self.ask = broker, broker.ask
        self.name, self.count_of_queues, self.opened = name[:50], 0, []

    def queue(self, **properties):
        self.count_of_queues += 1
        name = f"{self.name}-{self.count_of_queues}"
        self.ask("PUT", f"queues/{name}", properties)
        return name

    def count(self, queue):
        """Messages in a queue that are not dead."""
        return self.ask("GET", f"queues/{queue}")["runtime"]["activeMessageCount"]

    def policy(self, queue, name, *rights):
        """A policy of a queue; its key."""
        path = f"queues/{queue}/policies/{name}"
        self.ask("PUT", path, {"rights": list(rights)})
        return self.ask("POST", f"{path}/keys")["primaryKey"]

    def client(self, user=ROOT, password=None, **options):
        """One that may do everything, unless it says who it is."""
        client = Client(self.broker.amqp, user, password or self.broker.key, **options)
        self.opened.append(client)
        return client

    def until(self, condition, client):
        """Turns a client until something is so."""
        client.until(condition, "what was said arrives", PATIENCE)

    def close(self):
        for client in self.opened:
            client.drop()


def one(function, broker):
    """The name, what went wrong, and how long it took."""
    began = time.monotonic()
    world = World(broker, function.__name__)
    try:
        function(world)
        told = None
    except Exception:  # pylint: disable=broad-except
        told = traceback.format_exc()
    world.close()
    return function.__name__, told, time.monotonic() - began


def main():
    program, *part = sys.argv[1:]
    chosen = [function for function, _ in scenarios.SCENARIOS if all(word in function.__name__ for word in part)]
    directory = Path(tempfile.mkdtemp(prefix="peeklock-proton-"))
    settings = {"AMQP__LINK_COUNT_MAX": str(scenarios.LINKS_MAX)}
    broker = Broker(program, directory / "broker", settings=settings)
    try:
        with ThreadPoolExecutor(WIDTH) as threads:
            outcomes = list(threads.map(lambda function: one(function, broker), chosen))
    finally:
        broker.kill()
    failed = [(name, told) for name, told, _ in outcomes if told]
    log = (directory / "broker/log").read_text()
    if "panicked" in log:
        failed.append(("the broker panicked", log))
    for name, told in failed:
        print(f"--- {name}\n{told}")
    slow = sorted(((took, name) for name, _, took in outcomes), reverse=True)[:5]
    print("slowest:", ", ".join(f"{name} {took:.1f} s" for took, name in slow))
    if failed:
        print(f"{len(failed)} of {len(outcomes)} scenarios failed; the broker's log is in {directory}")
        sys.exit(1)
    shutil.rmtree(directory)
    print(f"ok {len(outcomes)} scenarios")


if __name__ == "__main__":
    main()
