"""Receiving: modes, credit, waiting, prefetch, competing receivers."""

import asyncio
import time

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from world import check, raises, scenario, text, texts, that

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


@scenario("AMQP-55", "RCV-02")
async def receive_and_delete_takes_for_good(w):
    queue = await w.queue()
    await w.send(queue, "one", "two")
    async with w.client.get_queue_receiver(queue, receive_mode=DELETE) as receiver:
        [message] = await receiver.receive_messages(max_wait_time=10)
        check(text(message), "one")
        check(message.lock_token, None)
        await raises(ValueError, receiver.complete_message(message))
    check((await w.runtime(queue))["activeMessageCount"], 1)


@scenario("AMQP-50", "AMQP-51")
async def a_receive_waits_no_longer_than_its_timeout(w):
    queue = await w.queue()
    async with w.client.get_queue_receiver(queue) as receiver:
        began = time.monotonic()
        check(await receiver.receive_messages(max_wait_time=1), [])
        that(0.9 < time.monotonic() - began < 6, f"it took {time.monotonic() - began} s")


@scenario("AMQP-53")
async def a_message_between_two_calls_is_received_by_the_next(w):
    queue = await w.queue()
    async with w.client.get_queue_receiver(queue) as receiver:
        await w.nothing(receiver, 0.2)
        await w.send(queue, "late")
        messages = await w.receive(receiver, 1)
        check(texts(messages), ["late"])
        check(messages[0].delivery_count, 0)
        await receiver.complete_message(messages[0])


@scenario("AMQP-58")
async def messages_come_in_the_order_in_which_they_were_sent(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(100)])
    async with w.client.get_queue_receiver(queue) as receiver:
        messages = await w.receive(receiver, 100)
        check(texts(messages), [str(number) for number in range(100)])
        numbers = [message.sequence_number for message in messages]
        check(numbers, sorted(numbers))
        for message in messages:
            await receiver.complete_message(message)
    check((await w.runtime(queue))["activeMessageCount"], 0)


@scenario("AMQP-50")
async def a_receive_returns_at_most_its_maximum(w):
    queue = await w.queue()
    await w.send(queue, *"abcdef")
    async with w.client.get_queue_receiver(queue) as receiver:
        first = await receiver.receive_messages(max_message_count=2, max_wait_time=5)
        that(1 <= len(first) <= 2, f"{len(first)} messages")
        # Another receiver gets the others.
        async with w.client.get_queue_receiver(queue) as other:
            messages = await w.receive(other, 6 - len(first))
            check(sorted(texts(first + messages)), list("abcdef"))


@scenario("AMQP-50", "AMQP-69")
async def prefetched_messages_come_back_when_the_receiver_closes(w):
    queue = await w.queue()
    await w.send(queue, *(str(number) for number in range(20)))
    async with w.client.get_queue_receiver(queue, prefetch_count=20) as receiver:
        [message] = await receiver.receive_messages(max_message_count=1, max_wait_time=10)
        await receiver.complete_message(message)
    mode = ServiceBusReceiveMode.PEEK_LOCK
    async with w.client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        messages = await w.receive(receiver, 19)
        check({message.delivery_count for message in messages}, {0})


@scenario("AMQP-50")
async def a_receiver_with_prefetch_gets_everything_once(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(200)])
    found = []
    async with w.client.get_queue_receiver(queue, prefetch_count=50) as receiver:
        while len(found) < 200:
            messages = await receiver.receive_messages(max_message_count=30, max_wait_time=10)
            that(messages, f"only {len(found)} came")
            for message in messages:
                await receiver.complete_message(message)
            found += texts(messages)
    check(sorted(found, key=int), [str(number) for number in range(200)])


@scenario("AMQP-50")
async def a_receiver_is_iterated_until_the_queue_is_empty(w):
    queue = await w.queue()
    await w.send(queue, *"abc")
    found = []
    async with w.client.get_queue_receiver(queue, max_wait_time=1) as receiver:
        async for message in receiver:
            found.append(text(message))
            await receiver.complete_message(message)
    check(found, list("abc"))


@scenario("AMQP-59")
async def two_receivers_share_a_queue(w):
    queue = await w.queue()
    async with w.client.get_queue_receiver(queue) as one, w.client.get_queue_receiver(queue) as two:
        await w.send(queue, "a", "b")
        first = await w.receive(one, 1)
        second = await w.receive(two, 1)
        check(sorted(texts(first + second)), ["a", "b"])
        await one.complete_message(first[0])
        await two.complete_message(second[0])


@scenario("AMQP-56")
async def a_delivery_has_the_properties_of_the_broker(w):
    queue = await w.queue()
    await w.send(queue, "x", partition_key="p")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        that(message.sequence_number > 0, message.sequence_number)
        check(message.enqueued_sequence_number, None)
        check(message.partition_key, "p")
        check(message.delivery_count, 0)
        check(message.state.name, "ACTIVE")
        that(abs(message.enqueued_time_utc.timestamp() - time.time()) < 30, message.enqueued_time_utc)
        that(message.locked_until_utc > message.enqueued_time_utc, message.locked_until_utc)
        check(message.dead_letter_source, None)
        await receiver.complete_message(message)


@scenario("AMQP-54")
async def the_lock_token_is_the_one_of_the_tag(w):
    queue = await w.queue()
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        # A renewal uses the token in another byte order.
        until = await receiver.renew_message_lock(message)
        check(until, message.locked_until_utc)
        await receiver.complete_message(message)


@scenario("AMQP-51")
async def closing_a_receiver_loses_no_message(w):
    queue = await w.queue()
    for _ in range(5):
        async with w.client.get_queue_receiver(queue) as receiver:
            await w.nothing(receiver, 0.3)
    await w.send(queue, *(str(number) for number in range(5)))
    check(await w.drain(queue), [str(number) for number in range(5)])


@scenario("AMQP-33", "DLQ-03")
async def the_dead_letter_queue_is_received_from(w):
    queue = await w.queue()
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.dead_letter_message(message, reason="why", error_description="because")
    dead = ServiceBusSubQueue.DEAD_LETTER
    async with w.client.get_queue_receiver(queue, sub_queue=dead) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.dead_letter_reason, "why")
        check(message.dead_letter_error_description, "because")
        await receiver.complete_message(message)
    async with w.client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER) as receiver:
        await w.nothing(receiver)


@scenario("DLQ-02")
async def a_subscription_has_a_dead_letter_queue(w):
    topic = await w.topic("s")
    async with w.client.get_topic_sender(topic) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    async with w.client.get_subscription_receiver(topic, "s") as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.dead_letter_message(message, reason="r")
    dead = ServiceBusSubQueue.DEAD_LETTER
    async with w.client.get_subscription_receiver(topic, "s", sub_queue=dead) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.dead_letter_reason, "r")
        await receiver.complete_message(message)


@scenario("AMQP-30")
async def one_connection_serves_many_receivers(w):
    queues = [await w.queue() for _ in range(6)]
    receivers = [w.client.get_queue_receiver(queue) for queue in queues]
    for number, queue in enumerate(queues):
        await w.send(queue, str(number))
    for number, receiver in enumerate(receivers):
        [message] = await w.receive(receiver, 1)
        check(text(message), str(number))
        await receiver.complete_message(message)
        await receiver.close()


@scenario("AMQP-50", only="async")
async def many_receivers_wait_at_the_same_time(w):
    queue = await w.queue()
    receivers = [w.client.get_queue_receiver(queue) for _ in range(8)]
    waiting = [asyncio.create_task(w.receive(receiver, 1)) for receiver in receivers]
    await asyncio.sleep(0.3)
    await w.send(queue, *(str(number) for number in range(8)))
    found = [text(message) for [message] in await asyncio.gather(*waiting)]
    check(sorted(found), [str(number) for number in range(8)])
