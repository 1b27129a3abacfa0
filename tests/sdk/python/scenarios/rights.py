"""Access: keys, rights, tokens that expire, connection strings of entities."""

import asyncio
import time

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from broker import ROOT, sign
from world import check, raises, scenario, texts, that

REFUSED = (ServiceBusAuthorizationError, ServiceBusAuthenticationError)
WRONG = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@scenario("AMQP-21", "SEC-14")
async def a_wrong_key_is_refused(w):
    queue = await w.queue()
    client = w.open(w.broker.connection_string(key=WRONG), retry_total=0)
    sender = client.get_queue_sender(queue)
    error = await raises(REFUSED, sender.send_messages(ServiceBusMessage("x")))
    that(WRONG not in str(error), error)
    check((await w.runtime(queue))["totalMessageCount"], 0)


@scenario("AMQP-21")
async def a_policy_that_is_not_there_is_refused_alike(w):
    queue = await w.queue()
    client = w.open(w.broker.connection_string(policy="nobody"), retry_total=0)
    await raises(REFUSED, client.get_queue_sender(queue).send_messages(ServiceBusMessage("x")))


@scenario("AMQP-25", "SEC-05")
async def a_policy_that_may_listen_may_not_send(w):
    queue = await w.queue()
    key = await w.policy(queue, "ears", "Listen")
    await w.send(queue, "x")
    client = w.open(w.broker.connection_string("ears", key), retry_total=0)
    await raises(REFUSED, client.get_queue_sender(queue).send_messages(ServiceBusMessage("x")))
    async with client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        await receiver.complete_message(message)


@scenario("AMQP-25", "SEC-05")
async def a_policy_that_may_send_may_not_listen(w):
    queue = await w.queue()
    key = await w.policy(queue, "mouth", "Send")
    client = w.open(w.broker.connection_string("mouth", key), retry_total=0)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    receiver = client.get_queue_receiver(queue)
    await raises(REFUSED, receiver.receive_messages(max_wait_time=20))
    check(await w.drain(queue), ["x"])


@scenario("SEC-12", "SEC-13")
async def a_policy_of_one_queue_is_nothing_at_another(w):
    queue, other = await w.queue(), await w.queue()
    key = await w.policy(queue, "mine", "Send", "Listen")
    client = w.open(w.broker.connection_string("mine", key), retry_total=0)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    await raises(REFUSED, client.get_queue_sender(other).send_messages(ServiceBusMessage("x")))


@scenario("SEC-08")
async def a_client_without_rights_does_not_learn_of_entities(w):
    queue = await w.queue()
    key = await w.policy(queue, "mine", "Send", "Listen")
    client = w.open(w.broker.connection_string("mine", key), retry_total=0)
    await raises(REFUSED, client.get_queue_sender("nowhere").send_messages(ServiceBusMessage("x")))


@scenario("SEC-18", "SEC-20")
async def a_connection_string_may_be_of_one_queue(w):
    queue, other = await w.queue(), await w.queue()
    client = w.open(w.broker.connection_string(entity=queue))
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    try:
        client.get_queue_sender(other)
    except ValueError:
        return
    raise AssertionError("another queue is taken")


@scenario("SEC-10", "AMQP-23", "AMQP-24")
async def a_token_that_was_signed_before_lets_in(w):
    queue = await w.queue()
    token = sign(ROOT, w.broker.key, f"sb://{w.broker.amqp}/{queue}", 60)
    client = w.open(w.broker.token_string(token))
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    check(await w.drain(queue), ["x"])


@scenario("AMQP-24", "SEC-14")
async def a_token_that_has_ended_is_refused(w):
    queue = await w.queue()
    token = sign(ROOT, w.broker.key, f"sb://{w.broker.amqp}/{queue}", -5)
    client = w.open(w.broker.token_string(token), retry_total=0)
    await raises(REFUSED, client.get_queue_sender(queue).send_messages(ServiceBusMessage("x")))


@scenario("AMQP-26", "SEC-15")
async def a_link_ends_with_its_token(w):
    queue = await w.queue()
    token = sign(ROOT, w.broker.key, f"sb://{w.broker.amqp}/{queue}", 6)
    client = w.open(w.broker.token_string(token), retry_total=0)
    sender = client.get_queue_sender(queue)
    await sender.send_messages(ServiceBusMessage("in time"))
    await asyncio.sleep(8)
    await raises(ServiceBusError, sender.send_messages(ServiceBusMessage("late")))
    check(await w.drain(queue), ["in time"])


@scenario("SEC-09")
async def a_key_that_was_changed_is_worth_nothing(w):
    queue = await w.queue()
    key = await w.policy(queue, "mine", "Send", "Listen")
    client = w.open(w.broker.connection_string("mine", key), retry_total=0)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("before"))
        await w.ask("POST", f"queues/{queue}/policies/mine/regenerate", {"key": "primary"})
        await asyncio.sleep(1.2)
        await raises(ServiceBusError, sender.send_messages(ServiceBusMessage("after")))
    check(await w.drain(queue), ["before"])


@scenario()
async def a_good_key_does_not_wait_for_bad_ones(w):
    queue = await w.queue()
    for _ in range(3):
        bad = w.open(w.broker.connection_string(key=WRONG), retry_total=0)
        await raises(REFUSED, bad.get_queue_sender(queue).send_messages(ServiceBusMessage("x")))
    began = time.monotonic()
    await w.send(queue, "x")
    that(time.monotonic() - began < 10, f"it took {time.monotonic() - began} s")


@scenario("AMQP-24")
async def a_policy_of_a_topic_is_good_for_its_subscriptions(w):
    topic = await w.topic("s")
    path = f"topics/{topic}/policies/team"
    await w.ask("PUT", path, {"rights": ["Send", "Listen"]})
    key = (await w.ask("POST", f"{path}/keys"))["primaryKey"]
    client = w.open(w.broker.connection_string("team", key))
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    async with client.get_subscription_receiver(topic, "s") as receiver:
        messages = await w.receive(receiver, 1)
        check(texts(messages), ["x"])
        await receiver.complete_message(messages[0])
