"""Runs the scenarios against a broker of their own: `run.py PROGRAM FLAVOUR [PART OF A NAME]`.

The flavour is `sync` or `async`. Ends with a line `ok N scenarios`, or prints the failures."""

import asyncio
import importlib
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import world
from broker import Broker

# Scenarios that run at the same time.
WIDTH = 12
# Seconds after which a hanging thread is abandoned.
GIVE_UP = world.TIME_MAX + 15
TOPICS = sorted(path.stem for path in (Path(__file__).parent / "scenarios").glob("*.py"))


def main():
    program, flavour, *part = sys.argv[1:]
    world.quiet()
    for topic in TOPICS:
        importlib.import_module(f"scenarios.{topic}")
    chosen = [
        function
        for function, _, only in world.SCENARIOS
        if only in (None, flavour) and all(word in function.__name__ for word in part)
    ]
    place = Path(tempfile.mkdtemp(prefix="peeklock-sdk-"))
    broker = Broker(program, place / "broker")
    try:
        outcomes = asyncio.run(together(chosen, broker)) if flavour == "async" else in_threads(chosen, broker)
    finally:
        broker.kill()
    failed = [(name, told) for name, told, _ in outcomes if told]
    for name, told in failed:
        print(f"--- {name}\n{told}")
    log = (place / "broker/log").read_text()
    if "panicked" in log:
        failed.append(("log", log))
        print(f"--- the broker panicked\n{log}")
    slow = sorted(((took, name) for name, _, took in outcomes), reverse=True)[:5]
    print("slowest:", ", ".join(f"{name} {took:.1f} s" for took, name in slow))
    if failed:
        print(f"{len(failed)} of {len(outcomes)} scenarios failed; the broker's log is in {place}")
        # Hanging threads would keep the interpreter alive.
        sys.stdout.flush()
        os._exit(1)
    shutil.rmtree(place)
    print(f"ok {len(outcomes)} scenarios")


async def one(function, broker, flavour):
    """Returns the name, the failure and the duration."""
    began = time.monotonic()
    try:
        await world.run(function, broker, flavour)
        told = None
    except BaseException:  # pylint: disable=broad-except
        told = traceback.format_exc()
    return function.__name__, told, time.monotonic() - began


async def together(chosen, broker):
    places = asyncio.Semaphore(WIDTH)

    async def placed(function):
        async with places:
            return await one(function, broker, "async")

    return await asyncio.gather(*(placed(function) for function in chosen))


def in_threads(chosen, broker):
    waiting, outcomes = list(reversed(chosen)), []
    begun = {}

    def work():
        while waiting:
            function = waiting.pop()
            begun[function.__name__] = time.monotonic()
            outcomes.append(asyncio.run(one(function, broker, "sync")))
            del begun[function.__name__]

    threads = [threading.Thread(target=work, daemon=True) for _ in range(WIDTH)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        now = time.monotonic()
        for name, since in list(begun.items()):
            if now - since > GIVE_UP:
                return outcomes + [(name, "hangs", now - since)]
        time.sleep(0.05)
    return outcomes


if __name__ == "__main__":
    main()
