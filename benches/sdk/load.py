"""One load with the Python SDK (its synchronous client): `load.py CONNECTION_STRING LOAD COUNT`.

Says `ready` when everything is warm, waits for a line, carries out the load, and says how many seconds that took.
"""

import logging
import sys
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage

QUEUE = "load"
BODY = b"x" * 1024
# How many messages a list has.
LIST = 100
# How many messages go before, so that links are attached and code is compiled.
WARM = 200
# A receive that gets nothing for so long has failed.
PATIENCE = 20


def single(sender, count):
    """One after the other, each awaited."""
    for _ in range(count):
        sender.send_messages(ServiceBusMessage(BODY))


def batch(sender, count):
    """In lists, each awaited."""
    for _ in range(count // LIST):
        sender.send_messages([ServiceBusMessage(BODY) for _ in range(LIST)])


def receive(receiver, count):
    """In lists, and each message completed, one by one, as there is no other way."""
    left = count
    while left > 0:
        messages = receiver.receive_messages(max_message_count=min(LIST, left), max_wait_time=PATIENCE)
        if not messages:
            raise RuntimeError(f"nothing came, and {left} messages are due")
        for message in messages:
            receiver.complete_message(message)
        left -= len(messages)


def measured(load, handle, count):
    load(handle, WARM)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    load(handle, count)
    print(time.perf_counter() - began, flush=True)
    sys.stdin.readline()


def main():
    string, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    with ServiceBusClient.from_connection_string(string) as client:
        if name == "receive":
            with client.get_queue_sender(QUEUE) as sender:
                batch(sender, WARM + count)
            with client.get_queue_receiver(QUEUE) as receiver:
                measured(receive, receiver, count)
        else:
            with client.get_queue_sender(QUEUE) as sender:
                measured({"single": single, "batch": batch}[name], sender, count)


main()
