"""Settling: all outcomes, delivery counts, locks that end and are renewed."""

import asyncio
import time

from azure.servicebus import ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    ServiceBusError,
)
from world import check, raises, scenario, text, texts, that

DEAD = ServiceBusSubQueue.DEAD_LETTER


@scenario("AMQP-60", "AMQP-64")
async def an_abandoned_message_returns_with_a_higher_count(w):
    queue = await w.queue()
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        for count in range(4):
            [message] = await w.receive(receiver, 1)
            check(message.delivery_count, count)
            await receiver.abandon_message(message)


@scenario("RTY-11", "RTY-13", "RTY-17", "AMQP-64")
async def the_policy_of_a_queue_delays_an_abandoned_message(w):
    queue = await w.queue(retryPolicy={"kind": "fixed", "delay": "PT3S"})
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.delivery_count, 0)
        began = time.monotonic()
        await receiver.abandon_message(message)
        await w.nothing(receiver)
        runtime = await w.runtime(queue)
        check((runtime["activeMessageCount"], runtime["delayedMessageCount"]), (1, 1))
        [again] = await w.receive(receiver, 1)
        that(time.monotonic() - began >= 3, "it came too soon")
        # This client shows the count of failed deliveries unchanged, without this delivery.
        check((text(again), again.delivery_count), ("x", 1))
        await receiver.complete_message(again)
    check((await w.runtime(queue))["totalMessageCount"], 0)


@scenario("AMQP-64", "DLQ-12")
async def a_message_abandoned_too_often_is_dead_lettered(w):
    queue = await w.queue(maxDeliveryCount=2)
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        for _ in range(2):
            [message] = await w.receive(receiver, 1)
            await receiver.abandon_message(message)
        await w.nothing(receiver)
    async with w.client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.dead_letter_reason, "MaxDeliveryCountExceeded")
        that(message.dead_letter_error_description, "no description")
        await receiver.complete_message(message)


@scenario("AMQP-61")
async def a_message_is_dead_lettered_without_a_reason(w):
    queue = await w.queue()
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.dead_letter_message(message)
    async with w.client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.dead_letter_reason, None)
        await receiver.complete_message(message)
    check((await w.runtime(queue))["deadLetterMessageCount"], 0)


@scenario("DEF-01", "AMQP-84")
async def a_deferred_message_is_received_by_its_number(w):
    queue = await w.queue()
    await w.send(queue, "one", "two")
    async with w.client.get_queue_receiver(queue) as receiver:
        one, two = await w.receive(receiver, 2)
        await receiver.defer_message(one)
        await receiver.complete_message(two)
        await w.nothing(receiver)
        [message] = await receiver.receive_deferred_messages(one.sequence_number)
        check(text(message), "one")
        check(message.state.name, "DEFERRED")
        await receiver.complete_message(message)
        await raises(MessageNotFoundError, receiver.receive_deferred_messages(one.sequence_number))


@scenario("AMQP-84")
async def a_deferred_message_that_is_abandoned_stays_deferred(w):
    queue = await w.queue()
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.defer_message(message)
        [again] = await receiver.receive_deferred_messages([message.sequence_number])
        await receiver.abandon_message(again)
        await w.nothing(receiver)
        [again] = await receiver.receive_deferred_messages([message.sequence_number])
        # The deferral and the abandon (SET-33).
        check(again.delivery_count, 2)
        await receiver.dead_letter_message(again, reason="r")
    async with w.client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.dead_letter_reason, "r")


@scenario("DEF-05")
async def deferred_messages_are_received_and_deleted(w):
    queue = await w.queue()
    await w.send(queue, "a", "b")
    async with w.client.get_queue_receiver(queue) as receiver:
        messages = await w.receive(receiver, 2)
        for message in messages:
            await receiver.defer_message(message)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with w.client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        numbers = [message.sequence_number for message in messages]
        check(texts(await receiver.receive_deferred_messages(numbers)), ["a", "b"])
    check((await w.runtime(queue))["totalMessageCount"], 0)


@scenario("AMQP-62", "SET-14")
async def a_lock_that_has_ended_settles_nothing(w):
    queue = await w.queue(lockDuration="PT1S")
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        [again] = await w.receive(receiver, 1, patience=15)
        check(again.delivery_count, 1)
        await raises(MessageLockLostError, receiver.complete_message(message))
        await receiver.complete_message(again)


@scenario("AMQP-62")
async def an_ended_lock_is_reported_by_the_client(w):
    queue = await w.queue(lockDuration="PT1S")
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await asyncio.sleep(1.3)
        await raises(MessageLockLostError, receiver.renew_message_lock(message))


@scenario("SET-18", "AMQP-82")
async def a_renewed_lock_lasts_longer(w):
    queue = await w.queue(lockDuration="PT6S")
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        before = message.locked_until_utc
        for _ in range(2):
            await asyncio.sleep(3.5)
            await receiver.renew_message_lock(message)
        that(message.locked_until_utc > before, message.locked_until_utc)
        await receiver.complete_message(message)
    check((await w.runtime(queue))["activeMessageCount"], 0)


@scenario("SET-18")
async def a_renewer_holds_a_lock_over_several_durations(w):
    queue = await w.queue(lockDuration="PT5S")
    await w.send(queue, "x")
    renewer = w.renewer()
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        w.register(renewer, receiver, message, max_lock_renewal_duration=30)
        # Longer than three lock durations, after each of which another receiver would have got it.
        await asyncio.sleep(17)
        await receiver.complete_message(message)
    closing = renewer.close()
    if closing is not None:
        await closing
    check((await w.runtime(queue))["activeMessageCount"], 0)


@scenario("AMQP-60")
async def a_message_is_settled_once(w):
    queue = await w.queue()
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.complete_message(message)
        for action in [receiver.complete_message, receiver.abandon_message, receiver.defer_message]:
            await raises(MessageAlreadySettled, action(message))


@scenario("AMQP-39", "SET-21")
async def locks_outlive_the_receiver_that_closes_in_order(w):
    queue = await w.queue(lockDuration="PT8S")
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        await w.receive(receiver, 1)
    async with w.client.get_queue_receiver(queue) as receiver:
        await w.nothing(receiver)
        [again] = await w.receive(receiver, 1)
        check(again.delivery_count, 1)
        await receiver.complete_message(again)


@scenario("AMQP-60")
async def a_hundred_deliveries_are_settled_in_any_order(w):
    queue = await w.queue()
    await w.send(queue, *(str(number) for number in range(100)))
    async with w.client.get_queue_receiver(queue) as receiver:
        messages = await w.receive(receiver, 100)
        for message in messages[::-2]:
            await receiver.complete_message(message)
        for message in messages[::2]:
            await receiver.abandon_message(message)
        again = await w.receive(receiver, 50)
        check(texts(again), [str(number) for number in range(0, 100, 2)])
        for message in again:
            await receiver.complete_message(message)
    check((await w.runtime(queue))["totalMessageCount"], 0)


@scenario("EXP-20", "DLQ-12")
async def an_expired_message_is_dead_lettered_if_configured(w):
    queue = await w.queue(deadLetteringOnMessageExpiration=True, defaultMessageTimeToLive="PT1S")
    await w.send(queue, "x")
    await asyncio.sleep(1.1)
    # A receive detects the expiry (EXP-35).
    check(await w.drain(queue), [])
    async with w.client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.dead_letter_reason, "TTLExpiredException")
        await receiver.complete_message(message)


@scenario("FWD-01", "FWD-26")
async def dead_letters_are_forwarded_with_their_source(w):
    grave = await w.queue()
    queue = await w.queue(forwardDeadLetteredMessagesTo=grave)
    await w.send(queue, "x")
    async with w.client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.dead_letter_message(message, reason="r")
    async with w.client.get_queue_receiver(grave) as receiver:
        [message] = await w.receive(receiver, 1)
        check(message.dead_letter_source.lower(), queue.lower())
        check(message.dead_letter_reason, "r")
        await receiver.complete_message(message)


@scenario("FWD-03")
async def a_forwarding_queue_refuses_receivers(w):
    target = await w.queue()
    queue = await w.queue(forwardTo=target)
    await w.send(queue, "x")
    check(await w.drain(target), ["x"])
    receiver = w.client.get_queue_receiver(queue)
    await raises(ServiceBusError, receiver.receive_messages(max_wait_time=20))
