"""External failures: a broker that is killed or stopped, entities that are deleted."""

import asyncio
import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from world import check, raises, scenario, text, texts

# Options with enough retries to survive a restart of the broker.
PATIENT = {"retry_total": 10, "retry_backoff_factor": 0.2, "retry_backoff_max": 1}
# Senders while a broker is killed, and the number of accepted messages before each kill and after
# the last one.
SENDERS, STEP = 4, 100


@scenario("AMQP-79", "SND-29")
async def acknowledged_messages_are_there_after_a_kill(w):
    with w.own() as broker:
        client = w.open(broker.connection_string(), **PATIENT)
        async with client.get_queue_sender("q") as sender:
            for number in range(20):
                await sender.send_messages(ServiceBusMessage(str(number)))
            broker.kill()
            broker.start()
            # The same sender continues.
            await sender.send_messages(ServiceBusMessage("20"))
        async with client.get_queue_receiver("q") as receiver:
            messages = await w.receive(receiver, 21)
            check(texts(messages), [str(number) for number in range(21)])
            for message in messages:
                await receiver.complete_message(message)


@scenario("AMQP-41", "FND-02")
async def nothing_accepted_is_missing_after_kills_in_the_middle(w):
    with w.own() as broker, ThreadPoolExecutor(SENDERS) as threads:
        accepted, is_over = [], threading.Event()

        async def send(number):
            client = w.client_by(broker.connection_string(), **PATIENT)
            async with client, client.get_queue_sender("q") as sender:
                for count in itertools.count():
                    if is_over.is_set():
                        return
                    body = f"{number}-{count}"
                    with contextlib.suppress(ServiceBusError):
                        await sender.send_messages(ServiceBusMessage(body))
                        accepted.append(body)

        async def go_on():
            goal = len(accepted) + STEP

            async def is_reached():
                return len(accepted) >= goal

            await w.until(is_reached, "further messages are accepted")

        # Each sender has its own thread and loop, since the synchronous client blocks its loop.
        loop = asyncio.get_running_loop()
        senders = [loop.run_in_executor(threads, asyncio.run, send(number)) for number in range(SENDERS)]
        try:
            for _ in range(2):
                await go_on()
                broker.kill()
                broker.start()
            await go_on()
        finally:
            is_over.set()
            await asyncio.gather(*senders)
        # A message without an answer may be absent, stored once, or stored twice.
        found = await w.drain("q", w.open(broker.connection_string()), broker)
        check(sorted(set(accepted) - set(found)), [], "what is missing")


@scenario("SET-21")
async def a_receiver_continues_after_a_kill(w):
    with w.own() as broker:
        client = w.open(broker.connection_string(), **PATIENT)
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages([ServiceBusMessage("done"), ServiceBusMessage("held")])
        async with client.get_queue_receiver("q") as receiver:
            done, _ = await w.receive(receiver, 2)
            await receiver.complete_message(done)
            broker.kill()
            broker.start()
            [message] = await w.receive(receiver, 1, patience=40)
            check(text(message), "held")
            await receiver.complete_message(message)


@scenario("AMQP-91")
async def a_stopping_broker_notifies_clients_and_they_reconnect(w):
    with w.own() as broker:
        client = w.open(broker.connection_string(), **PATIENT)
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("a"))
            await asyncio.to_thread(broker.stop)
            broker.start()
            await sender.send_messages(ServiceBusMessage("b"))
        async with client.get_queue_receiver("q") as receiver:
            check(texts(await w.receive(receiver, 2)), ["a", "b"])


@scenario("AMQP-79")
async def a_queue_that_is_deleted_takes_its_links_with_it(w):
    queue = await w.queue()
    client = w.open(retry_total=1)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        await w.ask("DELETE", f"queues/{queue}")
        await raises(ServiceBusAuthenticationError, sender.send_messages(ServiceBusMessage("y")))
        await w.ask("PUT", f"queues/{queue}", {})
        await sender.send_messages(ServiceBusMessage("z"))
    check(await w.drain(queue), ["z"])


@scenario("AMQP-79")
async def a_queue_that_is_disabled_for_a_while_is_used_again(w):
    queue = await w.queue()
    async with w.client.get_queue_receiver(queue) as receiver:
        await w.nothing(receiver, 0.2)
        await w.ask("PATCH", f"queues/{queue}", {"status": "ReceiveDisabled"})
        await w.send(queue, "x")
        await raises(ServiceBusError, receiver.receive_messages(max_wait_time=20))
        await w.ask("PATCH", f"queues/{queue}", {"status": "Active"})
        [message] = await w.receive(receiver, 1)
        await receiver.complete_message(message)
