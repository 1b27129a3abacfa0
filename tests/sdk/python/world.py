"""Shared parts of scenarios: their registry, a client, entities, and checks.

A scenario is written once, for the asynchronous client, and also runs against the synchronous
one: `Blocking` gives its handles the same interface, on a thread of their own."""

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
import urllib.parse
from pathlib import Path

import azure.servicebus
import azure.servicebus.aio
from broker import Broker

SCENARIOS = []
# Maximum duration of a scenario in seconds.
TIME_MAX = 60
# Maximum wait of a receive for an expected message, in seconds.
PATIENCE = 20


def scenario(*requirements, only=None):
    """Registers a scenario with the requirements that it proves; `only` for one flavour."""

    def register(function):
        SCENARIOS.append((function, requirements, only))
        return function

    return register


def check(value, expected, what=""):
    if value != expected:
        raise AssertionError(f"{what or 'value'} is {value!r}, not {expected!r}")


def that(condition, what):
    if not condition:
        raise AssertionError(what)


async def raises(kinds, action):
    """Asserts that an action is refused. Returns the error."""
    try:
        await action
    except kinds as error:
        return error
    raise AssertionError(f"nothing was raised, not {kinds}")


def text(message):
    """The body as text."""
    body = message.body
    if isinstance(body, bytes):
        return body.decode()
    if isinstance(body, str):
        return body
    return b"".join(bytes(part) for part in body).decode()


def texts(messages):
    return [text(message) for message in messages]


class Blocking:
    """A handle of the synchronous client with the interface of the asynchronous one."""

    MAKERS = {
        "get_queue_sender", "get_topic_sender", "get_queue_receiver", "get_subscription_receiver",
    }

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        value = getattr(self.inner, name)
        if name == "session":
            return Blocking(value)
        if name in self.MAKERS:
            return lambda *args, **kwargs: Blocking(value(*args, **kwargs))
        if not callable(value):
            return value

        async def call(*args, **kwargs):
            return value(*args, **kwargs)

        return call

    async def __aenter__(self):
        self.inner.__enter__()
        return self

    async def __aexit__(self, *error):
        self.inner.__exit__(*error)

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return next(self.inner)
        except StopIteration:
            raise StopAsyncIteration from None


def inner(handle):
    return handle.inner if isinstance(handle, Blocking) else handle


class World:
    """The environment of a scenario: one client, and its own entities on a shared broker."""

    def __init__(self, broker, flavour, name):
        self.broker, self.flavour = broker, flavour
        self.name = f"{name[:40]}-{flavour}"
        self.count = 0
        self.opened = []
        self.client = None

    def open(self, string=None, **options):
        """Creates a client, which is closed with the scenario."""
        client = self.client_by(string or self.broker.connection_string(), **options)
        self.opened.append(client)
        return client

    def client_by(self, string, **options):
        """Creates a client, which the caller must close in the loop that it runs in."""
        options.setdefault("retry_total", 2)
        options.setdefault("retry_backoff_factor", 0.2)
        module = azure.servicebus.aio if self.flavour == "async" else azure.servicebus
        client = module.ServiceBusClient.from_connection_string(string, **options)
        return client if self.flavour == "async" else Blocking(client)

    @contextlib.contextmanager
    def own(self, *arguments):
        """A broker of its own with a queue `q`, which the scenario may kill."""
        place = Path(tempfile.mkdtemp(prefix="peeklock-sdk-own-"))
        broker = Broker(self.broker.program, place / "broker", arguments)
        try:
            broker.ask("PUT", "queues/q", {})
            yield broker
        finally:
            broker.kill()
            shutil.rmtree(place)

    def renewer(self, **options):
        module = azure.servicebus.aio if self.flavour == "async" else azure.servicebus
        return module.AutoLockRenewer(**options)

    def register(self, renewer, receiver, what, **options):
        renewer.register(inner(receiver), inner(what), **options)

    async def ask(self, method, path, body=None):
        return await asyncio.to_thread(self.broker.ask, method, path, body)

    def unique(self):
        self.count += 1
        return f"{self.name}-{self.count}"

    async def queue(self, **properties):
        """Creates a queue for the scenario."""
        name = self.unique()
        await self.ask("PUT", f"queues/{name}", properties)
        return name

    async def topic(self, *subscriptions, **properties):
        """Creates a topic with subscriptions."""
        name = self.unique()
        await self.ask("PUT", f"topics/{name}", properties)
        for subscription in subscriptions:
            await self.ask("PUT", f"topics/{name}/subscriptions/{subscription}", {})
        return name

    async def runtime(self, queue):
        return (await self.ask("GET", f"queues/{queue}"))["runtime"]

    async def policy(self, owner, name, *rights):
        """Creates a policy. Returns its key."""
        path = f"queues/{owner}/policies/{name}" if owner else f"policies/{name}"
        await self.ask("PUT", path, {"rights": list(rights)})
        return (await self.ask("POST", f"{path}/keys"))["primaryKey"]

    def message(self, body, **properties):
        return azure.servicebus.ServiceBusMessage(body, **properties)

    async def send(self, queue, *bodies, **properties):
        """Sends messages, one after another."""
        async with self.client.get_queue_sender(queue) as sender:
            for body in bodies:
                await sender.send_messages(self.message(body, **properties))

    async def receive(self, receiver, count, patience=PATIENCE):
        """Receives `count` messages in any number of calls."""
        found, until = [], time.monotonic() + patience
        while len(found) < count and time.monotonic() < until:
            found += await receiver.receive_messages(
                max_message_count=count - len(found), max_wait_time=max(0.1, until - time.monotonic())
            )
        check(len(found), count, "number of messages received")
        return found

    async def nothing(self, receiver, wait=0.5):
        check(texts(await receiver.receive_messages(max_wait_time=wait)), [], "what was received")

    async def drain(self, queue, client=None, broker=None):
        """Receives and deletes all messages of a queue until the broker has none. Returns their bodies."""
        mode = azure.servicebus.ServiceBusReceiveMode.RECEIVE_AND_DELETE
        path, found = f"queues/{urllib.parse.quote(queue, safe='')}", []
        async with (client or self.client).get_queue_receiver(queue, receive_mode=mode) as receiver:
            while True:
                runtime = (await asyncio.to_thread((broker or self.broker).ask, "GET", path))["runtime"]
                left = runtime["activeMessageCount"]
                # Once the broker has none, the last ones may still be on their way.
                wait = 5 if left else 0.5
                some = await receiver.receive_messages(max_message_count=100, max_wait_time=wait)
                if not some and not left:
                    return found
                found += texts(some)

    async def until(self, condition, what, patience=PATIENCE):
        """Polls until a condition holds."""
        end = time.monotonic() + patience
        while not await condition():
            that(time.monotonic() < end, f"waited in vain: {what}")
            await asyncio.sleep(0.05)

    async def close(self):
        for client in self.opened:
            await client.close()


async def run(function, broker, flavour):
    """Runs one scenario. Returns its duration."""
    began = time.monotonic()
    world = World(broker, flavour, function.__name__)
    world.client = world.open()
    try:
        await asyncio.wait_for(function(world), TIME_MAX)
    finally:
        await world.close()
    return time.monotonic() - began


def quiet():
    """The SDK would log each expected refusal."""
    logging.getLogger("azure").setLevel(logging.CRITICAL)
