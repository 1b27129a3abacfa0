"""Ways to connect: AMQP over WebSocket, many clients, idle connections."""

import asyncio

from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError
from world import check, raises, scenario, text, texts, that

OVER_WEBSOCKET = TransportType.AmqpOverWebsocket


def over_websocket(w):
    # Without a port this SDK would connect to port 80.
    address = f"http://{w.broker.amqp}"
    return w.open(transport_type=OVER_WEBSOCKET, custom_endpoint_address=address)


@scenario("AMQP-17", "AMQP-18")
async def messages_pass_over_websocket(w):
    queue = await w.queue()
    client = over_websocket(w)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    async with client.get_queue_receiver(queue) as receiver:
        messages = await w.receive(receiver, 10)
        check(texts(messages), [str(number) for number in range(10)])
        for message in messages:
            await receiver.complete_message(message)
    check((await w.runtime(queue))["activeMessageCount"], 0)


@scenario("AMQP-17")
async def large_messages_pass_over_websocket(w):
    queue = await w.queue()
    body = bytes(range(256)) * 3_900
    client = over_websocket(w)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage(body))
    async with client.get_queue_receiver(queue) as receiver:
        [message] = await w.receive(receiver, 1)
        that(b"".join(message.body) == body, "the body differs")
        await receiver.complete_message(message)


async def is_trusted_by_its_authority(w, transport):
    """Messages pass over TLS only for clients that trust the authority of the broker."""
    with w.own("--tls") as broker:
        # Otherwise this SDK would connect to port 5671 or 443.
        options = {"transport_type": transport, "custom_endpoint_address": f"sb://{broker.amqp}"}
        client = w.open(broker.connection_string(), connection_verify=broker.authority, **options)
        large = bytes(range(256)) * 3_900
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
            await sender.send_messages(ServiceBusMessage(large))
        async with client.get_queue_receiver("q") as receiver:
            messages = await w.receive(receiver, 3)
            check(texts(messages[:2]), ["one", "two"])
            that(b"".join(messages[2].body) == large, "the body differs")
            for message in messages:
                await receiver.complete_message(message)
        stranger = w.open(broker.connection_string(), retry_total=0, **options)
        error = await raises(ServiceBusError, stranger.get_queue_sender("q").send_messages(ServiceBusMessage("x")))
        that("CERTIFICATE_VERIFY_FAILED" in str(error), error)
        check(broker.ask("GET", "queues/q")["runtime"]["totalMessageCount"], 0)


@scenario("AMQP-02")
async def messages_pass_over_tls(w):
    await is_trusted_by_its_authority(w, TransportType.Amqp)


@scenario("AMQP-02", "AMQP-17", "AMQP-18")
async def messages_pass_over_websocket_and_tls(w):
    await is_trusted_by_its_authority(w, OVER_WEBSOCKET)


@scenario("AMQP-22")
async def many_clients_at_the_same_time(w):
    queue = await w.queue()
    clients = [w.open() for _ in range(8)]
    for number, client in enumerate(clients):
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(str(number)))
    found = []
    for client in clients:
        async with client.get_queue_receiver(queue) as receiver:
            [message] = await w.receive(receiver, 1)
            found.append(text(message))
            await receiver.complete_message(message)
    check(sorted(found), [str(number) for number in range(8)])


@scenario("AMQP-07")
async def a_client_is_opened_and_closed_often(w):
    queue = await w.queue()
    for number in range(10):
        client = w.open()
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(str(number)))
        await client.close()
    check(len(await w.drain(queue)), 10)


@scenario("AMQP-06", "AMQP-53")
async def a_link_that_idled_is_used_again(w):
    queue = await w.queue()
    async with w.client.get_queue_sender(queue) as sender, w.client.get_queue_receiver(queue) as receiver:
        for body in "ab":
            await sender.send_messages(ServiceBusMessage(body))
            [message] = await w.receive(receiver, 1)
            check(text(message), body)
            await receiver.complete_message(message)
            await asyncio.sleep(3)
