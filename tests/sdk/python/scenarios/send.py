"""Sending: bodies, properties, lists, batches, sizes."""

import asyncio
import datetime
import uuid

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from world import check, raises, scenario, text, texts, that


@scenario("AMQP-40", "AMQP-41")
async def a_message_arrives_as_sent(w):
    queue = await w.queue()
    await w.send(queue, "two coffees")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        check(text(message), "two coffees")
        await receiver.complete_message(message)
    check(await w.drain(queue), [])


@scenario("AMQP-44", "AMQP-45")
async def broker_properties_are_kept(w):
    queue = await w.queue()
    sent = ServiceBusMessage(
        b"\x00\x01\xff",
        message_id="order-1",
        correlation_id="c-1",
        subject="tea",
        to="kitchen",
        reply_to="waiter",
        reply_to_session_id="table-7",
        content_type="application/octet-stream",
        time_to_live=datetime.timedelta(minutes=10),
    )
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages(sent)
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        check(b"".join(message.body), b"\x00\x01\xff")
        for name in ["message_id", "correlation_id", "subject", "to", "reply_to", "reply_to_session_id", "content_type"]:
            check(getattr(message, name), getattr(sent, name), name)
        check(message.time_to_live, datetime.timedelta(minutes=10))
        check(message.expires_at_utc - message.enqueued_time_utc, datetime.timedelta(minutes=10))
        await receiver.complete_message(message)


@scenario("AMQP-44", "AMQP-45")
async def a_received_message_is_sent_again(w):
    queue = await w.queue()
    sent = ServiceBusMessage("x", subject="tea", partition_key="p", application_properties={"n": 1})
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages(sent)
        async with w.client.get_queue_receiver(queue) as receiver:
            [message] = await w.receive(receiver, 1)
            await sender.send_messages(message)
            at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
            await sender.schedule_messages(message, at)
            await receiver.complete_message(message)
            [again] = await w.receive(receiver, 1)
            check((text(again), again.subject, again.partition_key), ("x", "tea", "p"))
            await receiver.complete_message(again)


@scenario("AMQP-45")
async def application_properties_keep_their_types(w):
    queue = await w.queue()
    identity = uuid.uuid4()
    now = datetime.datetime(2026, 5, 1, 12, 0, 0, tzinfo=datetime.timezone.utc)
    properties = {
        "text": "zwölf",
        "whole": 42,
        "negative": -7,
        "real": 1.5,
        "yes": True,
        "uuid": identity,
        "at": now,
        "nothing": None,
    }
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x", application_properties=properties))
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        found = {
            (key.decode() if isinstance(key, bytes) else key): value
            for key, value in message.application_properties.items()
        }
        await receiver.complete_message(message)
    check(found["text"].decode() if isinstance(found["text"], bytes) else found["text"], "zwölf")
    for name in ["whole", "negative", "real", "yes", "uuid", "nothing"]:
        check(found[name], properties[name], name)
    at = found["at"]
    check(at if isinstance(at, int) else int(at.timestamp() * 1000), int(now.timestamp() * 1000), "at")


@scenario("AMQP-44")
async def a_message_without_id_gets_one(w):
    queue = await w.queue()
    message = ServiceBusMessage("x")
    message.message_id = None
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages(message)
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        check(len(message.message_id), 32, "length of the id")
        await receiver.complete_message(message)


@scenario("AMQP-45")
async def a_body_of_several_parts_stays_in_parts(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages(AmqpAnnotatedMessage(data_body=[b"one", b"two", b"three"]))
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        check([bytes(part) for part in message.body], [b"one", b"two", b"three"])
        await receiver.complete_message(message)


@scenario("AMQP-45")
async def a_body_may_be_a_value_or_a_sequence(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages(AmqpAnnotatedMessage(value_body={b"a": 1}))
        await sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1, 2], [3]]))
    async with w.client.get_queue_receiver(queue) as receiver:
        value, sequence = await w.receive(receiver, 2)
        check(value.body_type, AmqpMessageBodyType.VALUE)
        check(value.body, {b"a": 1})
        check(sequence.body_type, AmqpMessageBodyType.SEQUENCE)
        check(list(sequence.body), [[1, 2], [3]])
        for message in (value, sequence):
            await receiver.complete_message(message)


@scenario("AMQP-45")
async def header_footer_and_annotations_of_the_application_are_kept(w):
    queue = await w.queue()
    sent = AmqpAnnotatedMessage(
        data_body=b"x",
        header={"priority": 7, "durable": True},
        footer={"end": "of it"},
        annotations={"x-mine": "kept"},
        properties={"message_id": "m", "group_sequence": 3, "user_id": b"me"},
    )
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages(sent)
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        raw = message.raw_amqp_message
        check(raw.annotations[b"x-mine"], b"kept")
        check(raw.footer, {b"end": b"of it"})
        check(raw.properties.user_id, b"me")
        check(raw.header.priority, 7)
        await receiver.complete_message(message)


@scenario("SND-09", "AMQP-42")
async def a_list_of_messages_is_sent_as_one(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(50)])
    check(await w.drain(queue), [str(number) for number in range(50)])


@scenario("AMQP-42", "AMQP-43", "AMQ-13")
async def a_batch_accepts_fitting_messages_and_is_stored_as_a_whole(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        batch = await sender.create_message_batch()
        count = 0
        try:
            while True:
                batch.add_message(ServiceBusMessage(b"x" * 10_000))
                count += 1
        except MessageSizeExceededError:
            pass
        that(90 < count < 106, f"{count} messages of 10,000 bytes fit into a batch")
        await sender.send_messages(batch)
        check((await w.runtime(queue))["activeMessageCount"], count)


@scenario("AMQP-42")
async def a_batch_keeps_the_properties_of_each(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        batch = await sender.create_message_batch(max_size_in_bytes=20_000)
        for number in range(3):
            batch.add_message(
                ServiceBusMessage(f"body {number}", message_id=f"m{number}", application_properties={"n": number})
            )
        await sender.send_messages(batch)
    async with w.client.get_queue_receiver(queue) as receiver:
        for number, message in enumerate(await w.receive(receiver, 3)):
            check(message.message_id, f"m{number}")
            check(text(message), f"body {number}")
            check(message.application_properties[b"n"], number)
            await receiver.complete_message(message)


@scenario("AMQP-43")
async def a_message_over_the_limit_is_refused_and_the_link_continues(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender:
        await raises(MessageSizeExceededError, sender.send_messages(ServiceBusMessage(b"x" * (1 << 20))))
        await sender.send_messages(ServiceBusMessage("small"))
    check(await w.drain(queue), ["small"])


@scenario("AMQP-43", "SND-30")
async def a_batch_over_the_limit_is_refused_as_a_whole_and_the_link_continues(w):
    queue = await w.queue(maxMessageSizeInKilobytes=102_400)
    large = [ServiceBusMessage(b"x" * 400_000) for _ in range(3)]
    async with w.client.get_queue_sender(queue) as sender:
        # The SDK has its own limit for batches, independent of the limit for messages.
        await raises(MessageSizeExceededError, sender.send_messages(large))
        batch = await sender.create_message_batch()
        batch._max_size_in_bytes = 2 << 20
        for message in large:
            batch.add_message(message)
        await raises(MessageSizeExceededError, sender.send_messages(batch))
        await sender.send_messages(ServiceBusMessage("small"))
    check(await w.drain(queue), ["small"])


@scenario("AMQP-31", "AMQP-43")
async def a_message_of_many_frames_arrives_whole(w):
    queue = await w.queue()
    body = bytes(range(256)) * 3_900
    async with w.client.get_queue_sender(queue) as sender:
        for _ in range(3):
            await sender.send_messages(ServiceBusMessage(body))
    async with w.client.get_queue_receiver(queue, prefetch_count=2) as receiver:
        for message in await w.receive(receiver, 3):
            that(b"".join(message.body) == body, "the body differs")
            await receiver.complete_message(message)


@scenario("AMQP-34", "AMQP-43")
async def a_message_of_100_megabytes_passes_where_its_queue_allows_it(w):
    queue = await w.queue(maxMessageSizeInKilobytes=102_400)
    body = bytes(range(256)) * ((100 << 20) // 256 - 4)
    # By default the library gives a connection up if a write takes 0.2 s. Only the sender's own
    # option changes that: each sender replaces the one of its client.
    async with w.client.get_queue_sender(queue, socket_timeout=10) as sender:
        await sender.send_messages(ServiceBusMessage(body))
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1, patience=50)
        that(b"".join(message.body) == body, "the body differs")
        await receiver.complete_message(message)
    check((await w.runtime(queue))["activeMessageCount"], 0)


@scenario("AMQP-90", "AMQP-36")
async def a_queue_that_is_not_there_is_named(w):
    sender = w.client.get_queue_sender("nowhere")
    # The SDK treats each answer at $cbs except 202 as wrong credentials, and drops the text.
    await raises(ServiceBusAuthenticationError, sender.send_messages(ServiceBusMessage("x")))
    receiver = w.client.get_queue_receiver("nowhere")
    await raises(ServiceBusAuthenticationError, receiver.receive_messages(max_wait_time=20))


@scenario("AMQP-46")
async def a_disabled_queue_refuses_and_takes_again_when_it_is_enabled(w):
    queue = await w.queue(status="SendDisabled")
    async with w.client.get_queue_receiver(queue):
        sender = w.client.get_queue_sender(queue)
        await raises(MessagingEntityDisabledError, sender.send_messages(ServiceBusMessage("x")))
        await w.ask("PATCH", f"queues/{queue}", {"status": "Active"})
        await sender.send_messages(ServiceBusMessage("x"))
        await sender.close()
    check(await w.drain(queue), ["x"])


@scenario("AMQP-46", "QUO-05")
async def a_full_queue_refuses(w):
    queue = await w.queue(maxSizeInMegabytes=1)
    async with w.client.get_queue_sender(queue) as sender:

        async def fill():
            for _ in range(8):
                await sender.send_messages(ServiceBusMessage(b"x" * 400_000))

        await raises(ServiceBusQuotaExceededError, fill())


@scenario("DUP-01")
async def a_duplicate_is_accepted_and_stored_once(w):
    queue = await w.queue(requiresDuplicateDetection=True)
    async with w.client.get_queue_sender(queue) as sender:
        for body in ["first", "second"]:
            await sender.send_messages(ServiceBusMessage(body, message_id="same"))
    check(await w.drain(queue), ["first"])


@scenario("TOP-01")
async def a_topic_gives_each_subscription_a_copy(w):
    topic = await w.topic("a", "b")
    async with w.client.get_topic_sender(topic) as sender:
        await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
    for subscription in ["a", "b"]:
        async with w.client.get_subscription_receiver(topic, subscription) as receiver:
            messages = await w.receive(receiver, 2)
            check(texts(messages), ["one", "two"])
            for message in messages:
                await receiver.complete_message(message)


@scenario("TOP-10", "SQL-01")
async def a_subscription_gets_messages_selected_by_its_rules(w):
    topic = await w.topic("all")
    await w.ask("PUT", f"topics/{topic}/subscriptions/eu", {})
    rules = f"topics/{topic}/subscriptions/eu/rules"
    await w.ask("DELETE", f"{rules}/$Default")
    await w.ask("PUT", f"{rules}/eu", {"filter": {"type": "sql", "sql": "region = 'eu' AND price > 100"}})
    async with w.client.get_topic_sender(topic) as sender:
        for region, price in [("eu", 700), ("eu", 7), ("us", 700)]:
            properties = {"region": region, "price": price}
            body = f"{region} {price}"
            await sender.send_messages(ServiceBusMessage(body, application_properties=properties))
    async with w.client.get_subscription_receiver(topic, "eu") as receiver:
        check(texts(await w.receive(receiver, 1)), ["eu 700"])
        await w.nothing(receiver)


@scenario("AMQP-33")
async def names_may_have_slashes_and_any_case(w):
    queue = await w.queue()
    await w.ask("PUT", f"queues/{queue}%2Fdeep%2FName", {})
    await w.send(f"{queue}/deep/name", "x")
    check(await w.drain(f"{queue.upper()}/DEEP/NAME"), ["x"])


@scenario("EXP-01")
async def an_expired_message_is_not_delivered(w):
    queue = await w.queue()
    # This SDK sends whole seconds only.
    await w.send(queue, "short", time_to_live=datetime.timedelta(seconds=1))
    await w.send(queue, "long")
    await asyncio.sleep(1.1)
    check(await w.drain(queue), ["long"])


@scenario("AMQP-41")
async def many_senders_of_one_client_send_at_the_same_time(w):
    queue = await w.queue()
    senders = [w.client.get_queue_sender(queue) for _ in range(5)]
    for number in range(20):
        for place, sender in enumerate(senders):
            await sender.send_messages(ServiceBusMessage(f"{place}-{number}"))
    for sender in senders:
        await sender.close()
    check(len(await w.drain(queue)), 100)


@scenario("AMQP-46")
async def a_message_without_session_is_refused_where_one_is_required(w):
    queue = await w.queue(requiresSession=True)
    async with w.client.get_queue_sender(queue) as sender:
        error = await raises(ServiceBusError, sender.send_messages(ServiceBusMessage("x")))
        that("session" in str(error).lower(), error)


@scenario("AMQP-13", "AMQP-45")
async def a_nested_value_arrives_unchanged(w):
    queue = await w.queue()
    value = {b"list": [1, [2, [3, b"deep"]]], b"map": {b"a": {b"b": None}}, b"true": True}
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages(AmqpAnnotatedMessage(value_body=value))
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.body, value)
        await receiver.complete_message(message)
