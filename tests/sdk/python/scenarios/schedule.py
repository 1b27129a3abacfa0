"""Scheduling, cancelling, peeking."""

import datetime

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from world import check, raises, scenario, texts, that


def soon(seconds):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)


@scenario("SCH-01", "AMQP-82")
async def a_scheduled_message_arrives_at_its_time(w):
    queue = await w.queue()
    at = soon(3)
    async with w.client.get_queue_sender(queue) as sender:
        [number] = await sender.schedule_messages(ServiceBusMessage("x"), at)
        that(number > 0, number)
    check((await w.runtime(queue))["scheduledMessageCount"], 1)
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        that(message.enqueued_time_utc >= at - datetime.timedelta(milliseconds=1), message.enqueued_time_utc)
        await receiver.complete_message(message)


@scenario("SCH-01")
async def several_messages_are_scheduled_at_once(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        numbers = await sender.schedule_messages([ServiceBusMessage(body) for body in "abc"], soon(0.8))
        check(len(set(numbers)), 3)
        check(numbers, sorted(numbers))
    async with w.client.get_queue_receiver(queue) as receiver:
        messages = await w.receive(receiver, 3)
        check(texts(messages), list("abc"))
        for message in messages:
            await receiver.complete_message(message)


@scenario("SCH-01", "AMQP-103")
async def a_message_of_several_megabytes_is_scheduled(w):
    queue = await w.queue(maxMessageSizeInKilobytes=102_400)
    async with w.client.get_queue_sender(queue) as sender:
        await sender.schedule_messages(ServiceBusMessage(b"x" * (5 << 20)), soon(0.5))
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        check(len(b"".join(message.body)), 5 << 20)
        await receiver.complete_message(message)


@scenario("SCH-05", "AMQP-82")
async def a_scheduled_message_is_cancelled(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        one, two = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], soon(3600))
        await sender.cancel_scheduled_messages(one)
        check((await w.runtime(queue))["scheduledMessageCount"], 1)
        await sender.cancel_scheduled_messages([two])
        await raises(ServiceBusError, sender.cancel_scheduled_messages(two))
    check((await w.runtime(queue))["totalMessageCount"], 0)


@scenario("SCH-02", "AMQP-44")
async def a_message_may_name_its_time_itself(w):
    queue = await w.queue()
    at = soon(1)
    await w.send(queue, "x", scheduled_enqueue_time_utc=at)
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        that(message.enqueued_time_utc >= at - datetime.timedelta(milliseconds=1), message.enqueued_time_utc)
        check(int(message.scheduled_enqueue_time_utc.timestamp() * 1000), int(at.timestamp() * 1000))
        await receiver.complete_message(message)


@scenario("SCH-03")
async def a_time_in_the_past_is_now(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        await sender.schedule_messages(ServiceBusMessage("x"), soon(-100))
    check(await w.drain(queue), ["x"])


@scenario("SCH-01", "TOP-09")
async def a_topic_takes_scheduled_messages(w):
    topic = await w.topic("s")
    async with w.client.get_topic_sender(topic) as sender:
        [number] = await sender.schedule_messages(ServiceBusMessage("late"), soon(3600))
        await sender.schedule_messages(ServiceBusMessage("soon"), soon(0.5))
        await sender.cancel_scheduled_messages(number)
    async with w.client.get_subscription_receiver(topic, "s") as receiver:
        messages = await w.receive(receiver, 1)
        check(texts(messages), ["soon"])
        await receiver.complete_message(messages[0])


@scenario("PEK-01", "AMQP-83")
async def a_peek_removes_nothing(w):
    queue = await w.queue()
    await w.send(queue, *"abc")
    async with w.client.get_queue_receiver(queue) as receiver:
        for _ in range(2):
            seen = await receiver.peek_messages(max_message_count=10, sequence_number=1)
            check(texts(seen), list("abc"))
        check({message.delivery_count for message in seen}, {0})
        from_two = await receiver.peek_messages(max_message_count=10, sequence_number=seen[1].sequence_number)
        check(texts(from_two), ["b", "c"])
        messages = await w.receive(receiver, 3)
        check(len(await receiver.peek_messages(max_message_count=10, sequence_number=1)), 3, "locked ones are seen")
        for message in messages:
            await receiver.complete_message(message)
        check(await receiver.peek_messages(sequence_number=1), [])


@scenario("PEK-01")
async def a_peek_continues_at_its_position(w):
    queue = await w.queue()
    await w.send(queue, *"abcd")
    async with w.client.get_queue_receiver(queue) as receiver:
        found = []
        while seen := await receiver.peek_messages(max_message_count=2):
            found += texts(seen)
        check(found, list("abcd"))


@scenario("AMQP-56", "PEK-02")
async def a_peek_sees_scheduled_and_deferred_messages(w):
    queue = await w.queue()
    await w.send(queue, "deferred")
    async with w.client.get_queue_sender(queue) as sender:
        await sender.schedule_messages(ServiceBusMessage("scheduled"), soon(3600))
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.defer_message(message)
        await w.send(queue, "active")
        seen = await receiver.peek_messages(max_message_count=10, sequence_number=1)
        check({message.state.name for message in seen}, {"ACTIVE", "DEFERRED", "SCHEDULED"})


@scenario("PEK-01", "DLQ-03")
async def a_peek_sees_dead_letters(w):
    queue = await w.queue()
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.dead_letter_message(message, reason="r")
    dead = ServiceBusSubQueue.DEAD_LETTER
    async with w.client.get_queue_receiver(queue, sub_queue=dead) as receiver:
        [seen] = await receiver.peek_messages()
        check(seen.dead_letter_reason, "r")


@scenario("PEK-01", "AMQP-83")
async def large_messages_are_looked_at_in_several_steps(w):
    queue = await w.queue()
    await w.send(queue, *[b"x" * 600_000] * 4)
    async with w.client.get_queue_receiver(queue) as receiver:
        count = 0
        while seen := await receiver.peek_messages(max_message_count=10):
            count += len(seen)
        check(count, 4)
