"""Sessions: by name and next available, state, locks, order."""

import asyncio
import datetime
import time

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from world import check, raises, scenario, text, texts, that


async def sessions(w, **properties):
    return await w.queue(requiresSession=True, **properties)


@scenario("AMQP-70", "AMQP-71", "AMQP-75")
async def a_session_is_received_by_its_name(w):
    queue = await sessions(w)
    await w.send(queue, "a1", "a2", session_id="a")
    await w.send(queue, "b1", session_id="b")
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        check(receiver.session.session_id, "a")
        messages = await w.receive(receiver, 2)
        check(texts(messages), ["a1", "a2"])
        check({message.session_id for message in messages}, {"a"})
        for message in messages:
            await receiver.complete_message(message)
        await w.nothing(receiver)


@scenario("AMQP-73")
async def the_next_session_that_has_messages_is_given(w):
    queue = await sessions(w)
    await w.send(queue, "b1", session_id="b")
    async with w.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        check(receiver.session.session_id, "b")
        [message] = await w.receive(receiver, 1)
        await receiver.complete_message(message)


@scenario("AMQP-73")
async def without_a_session_accepting_times_out(w):
    queue = await sessions(w)
    receiver = w.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)
    began = time.monotonic()
    await raises(OperationTimeoutError, receiver.receive_messages())
    that(time.monotonic() - began < 30, "it takes too long")


@scenario("AMQP-73", only="async")
async def a_session_is_given_to_a_waiting_receiver(w):
    queue = await sessions(w)
    receiver = w.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20)
    waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=20))
    await asyncio.sleep(0.5)
    await w.send(queue, "x", session_id="late")
    [message] = await waiting
    check(receiver.session.session_id, "late")
    await receiver.complete_message(message)
    await receiver.close()


@scenario("AMQP-72")
async def a_session_has_one_receiver(w):
    queue = await sessions(w)
    other = w.open(retry_total=0)
    async with w.client.get_queue_receiver(queue, session_id="a"):
        receiver = other.get_queue_receiver(queue, session_id="a")
        await raises(SessionCannotBeLockedError, receiver.receive_messages(max_wait_time=20))
    async with other.get_queue_receiver(queue, session_id="a") as receiver:
        check(receiver.session.session_id, "a")


@scenario("AMQP-39", "SES-31")
async def unsettled_messages_return_when_the_session_is_closed(w):
    queue = await sessions(w)
    await w.send(queue, "1", "2", "3", session_id="a")
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        messages = await w.receive(receiver, 2)
        await receiver.complete_message(messages[0])
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        messages = await w.receive(receiver, 2)
        check(texts(messages), ["2", "3"])
        check([message.delivery_count for message in messages], [0, 0])
        for message in messages:
            await receiver.complete_message(message)


@scenario("SES-24", "AMQP-82")
async def a_session_has_a_state(w):
    queue = await sessions(w)
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        check(await receiver.session.get_state(), None)
        await receiver.session.set_state(b"half way")
        check(await receiver.session.get_state(), b"half way")
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        check(await receiver.session.get_state(), b"half way")
        await receiver.session.set_state(None)
        check(await receiver.session.get_state(), None)


@scenario("SES-12", "AMQP-82")
async def a_session_lock_is_renewed(w):
    queue = await sessions(w, lockDuration="PT6S")
    await w.send(queue, "x", session_id="a")
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        [message] = await w.receive(receiver, 1)
        before = receiver.session.locked_until_utc
        for _ in range(2):
            await asyncio.sleep(3.5)
            until = await receiver.session.renew_lock()
        that(until > before, until)
        check(receiver.session.locked_until_utc, until)
        await receiver.complete_message(message)


@scenario("SES-12")
async def a_renewer_holds_a_session_over_several_durations(w):
    queue = await sessions(w, lockDuration="PT5S")
    await w.send(queue, "x", session_id="a")
    renewer = w.renewer()
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        w.register(renewer, receiver, receiver.session, max_lock_renewal_duration=30)
        [message] = await w.receive(receiver, 1)
        await asyncio.sleep(11)
        await receiver.complete_message(message)
    closing = renewer.close()
    if closing is not None:
        await closing


@scenario("AMQP-74")
async def a_session_lock_that_ends_takes_settlement_with_it(w):
    queue = await sessions(w, lockDuration="PT1S")
    await w.send(queue, "x", session_id="a")
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        [message] = await w.receive(receiver, 1)
        await asyncio.sleep(2)
        await raises(SessionLockLostError, receiver.complete_message(message))
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        [again] = await w.receive(receiver, 1)
        check(again.delivery_count, 1)
        await receiver.complete_message(again)


@scenario("AMQP-70")
async def a_receiver_without_session_is_refused_where_one_is_required(w):
    queue = await sessions(w)
    receiver = w.open(retry_total=0).get_queue_receiver(queue)
    error = await raises(ServiceBusError, receiver.receive_messages(max_wait_time=20))
    that("session" in str(error).lower(), error)


@scenario("AMQP-70")
async def a_session_is_refused_where_there_are_none(w):
    queue = await w.queue()
    receiver = w.open(retry_total=0).get_queue_receiver(queue, session_id="a")
    await raises(ServiceBusError, receiver.receive_messages(max_wait_time=20))


@scenario("DEF-01", "SES-20")
async def a_message_of_a_session_is_deferred(w):
    queue = await sessions(w)
    await w.send(queue, "x", session_id="a")
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.defer_message(message)
        [again] = await receiver.receive_deferred_messages(message.sequence_number)
        check(text(again), "x")
        await receiver.complete_message(again)
    check((await w.runtime(queue))["totalMessageCount"], 0)


@scenario("PEK-05")
async def a_session_is_peeked_into(w):
    queue = await sessions(w)
    await w.send(queue, "a1", "a2", session_id="a")
    await w.send(queue, "b1", session_id="b")
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        check(texts(await receiver.peek_messages(max_message_count=10)), ["a1", "a2"])


@scenario("SES-03")
async def a_batch_may_be_of_one_session(w):
    queue = await sessions(w)
    async with w.client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number), session_id="a") for number in range(20)])
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        messages = await w.receive(receiver, 20)
        check(texts(messages), [str(number) for number in range(20)])
        for message in messages:
            await receiver.complete_message(message)


@scenario("SES-25")
async def a_subscription_has_sessions(w):
    topic = await w.topic()
    await w.ask("PUT", f"topics/{topic}/subscriptions/s", {"requiresSession": True})
    async with w.client.get_topic_sender(topic) as sender:
        await sender.send_messages(ServiceBusMessage("x", session_id="a"))
    async with w.client.get_subscription_receiver(topic, "s", session_id=NEXT_AVAILABLE_SESSION) as receiver:
        check(receiver.session.session_id, "a")
        [message] = await w.receive(receiver, 1)
        await receiver.complete_message(message)


@scenario("SCH-01", "SES-03")
async def a_message_is_scheduled_into_a_session(w):
    queue = await sessions(w)
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
    async with w.client.get_queue_sender(queue) as sender:
        await sender.schedule_messages(ServiceBusMessage("x", session_id="a"), at)
    async with w.client.get_queue_receiver(queue, session_id="a") as receiver:
        [message] = await w.receive(receiver, 1)
        that(message.enqueued_time_utc >= at - datetime.timedelta(milliseconds=1), message.enqueued_time_utc)
        await receiver.complete_message(message)
