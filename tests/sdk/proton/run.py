"""Qpid Proton for Python with features that the Azure SDKs never use: `run.py PROGRAM [PART OF A
NAME]`.

Ends with a line `ok N scenarios`, or prints the failures."""

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
    """The environment of a scenario: its own entities and connections on a shared broker."""

    def __init__(self, broker, name):
        self.broker, self.ask = broker, broker.ask
        self.name, self.count_of_queues, self.opened = name[:50], 0, []

    def queue(self, **properties):
        self.count_of_queues += 1
        name = f"{self.name}-{self.count_of_queues}"
        self.ask("PUT", f"queues/{name}", properties)
        return name

    def count(self, queue):
        """Number of messages in a queue without dead letters."""
        return self.ask("GET", f"queues/{queue}")["runtime"]["activeMessageCount"]

    def policy(self, queue, name, *rights):
        """Creates a policy of a queue. Returns its key."""
        path = f"queues/{queue}/policies/{name}"
        self.ask("PUT", path, {"rights": list(rights)})
        return self.ask("POST", f"{path}/keys")["primaryKey"]

    def client(self, user=ROOT, password=None, **options):
        """A client with all rights, unless a user is given."""
        client = Client(self.broker.amqp, user, password or self.broker.key, **options)
        self.opened.append(client)
        return client

    def until(self, condition, client):
        """Runs a client until a condition holds."""
        client.until(condition, "what was said arrives", PATIENCE)

    def close(self):
        for client in self.opened:
            client.drop()


def one(function, broker):
    """Returns the name, the failure and the duration."""
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
