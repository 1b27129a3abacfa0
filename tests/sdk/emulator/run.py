"""The Python SDK with the emulator's connection string and sample configuration: `run.py PROGRAM
[PART OF A NAME]`.

First enters namespaces of its own, since the string contains no port. Ends with a line `ok N
scenarios`, or prints the failures."""

import os
import subprocess
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python"))

import namespace
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusAuthenticationError

# The unchanged file of the emulator: github.com/Azure/azure-service-bus-emulator-installer.
SAMPLE = Path(__file__).parents[2] / "data/emulator-installer/Config.json"
# The connection string in its documentation.
STRING = (
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
    "UseDevelopmentEmulator=true;"
)
SUBSCRIPTIONS = [f"subscription.{number}" for number in range(1, 5)]
PATIENCE = 20
ALL = []


def scenario(function):
    ALL.append(function)
    return function


def check(value, expected, what="value"):
    if value != expected:
        raise AssertionError(f"{what} is {value!r}, not {expected!r}")


def one(receiver):
    [message] = receiver.receive_messages(max_wait_time=PATIENCE)
    return message


class Topic:
    """The topic, and receivers of its subscriptions. Each has a connection of its own."""

    def __init__(self, client):
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        self.sender = client.get_topic_sender("topic.1")
        self.receivers = {
            name: client.get_subscription_receiver("topic.1", name, receive_mode=mode) for name in SUBSCRIPTIONS
        }
        # Opens the links, so that waits for messages do not include it.
        for receiver in self.receivers.values():
            receiver.__enter__()

    def got(self, **properties):
        """The messages that each subscription gets for one publish, which is stored in all
        subscriptions at the same time."""
        self.sender.send_messages(ServiceBusMessage("x", **properties))
        with ThreadPoolExecutor(len(SUBSCRIPTIONS)) as threads:
            def receive(receiver):
                return receiver.receive_messages(max_message_count=10, max_wait_time=1)

            received = threads.map(receive, self.receivers.values())
            return {name: messages for name, messages in zip(SUBSCRIPTIONS, received) if messages}


@scenario
def the_queue_has_the_sent_message(client, _):
    with client.get_queue_sender("queue.1") as sender:
        sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
    with client.get_queue_receiver("queue.1") as receiver:
        for body in ["one", "two"]:
            message = one(receiver)
            check(str(message), body)
            receiver.complete_message(message)


@scenario
def the_queue_gives_up_after_three_deliveries(client, _):
    with client.get_queue_sender("queue.1") as sender:
        sender.send_messages(ServiceBusMessage("tried"))
    with client.get_queue_receiver("queue.1") as receiver:
        for count in range(3):
            message = one(receiver)
            check(message.delivery_count, count)
            receiver.abandon_message(message)
    with client.get_queue_receiver("queue.1", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = one(receiver)
        check(message.dead_letter_reason, "MaxDeliveryCountExceeded")
        receiver.complete_message(message)


@scenario
def a_subscription_without_filters_gets_everything(_, topic):
    check(list(topic.got()), ["subscription.3"])


@scenario
def a_property_of_the_broker_is_asked_for(_, topic):
    check(list(topic.got(content_type="application/json")), ["subscription.1", "subscription.3"])
    check(list(topic.got(content_type="application/text")), ["subscription.3"])


@scenario
def a_property_of_the_application_is_asked_for(_, topic):
    check(list(topic.got(application_properties={"prop1": "value1"})), ["subscription.2", "subscription.3"])
    check(list(topic.got(application_properties={"prop1": "value2"})), ["subscription.3"])


@scenario
def a_filter_in_sql_selects_and_its_action_changes_the_copy(_, topic):
    found = topic.got(message_id="123456", application_properties={"userProp1": "value1"})
    check(list(found), ["subscription.3", "subscription.4"])
    check([message.to for message in found["subscription.4"]], ["Entity"])
    check([message.to for message in found["subscription.3"]], [None])
    check(list(topic.got(message_id="123457", application_properties={"userProp1": "value1"})), ["subscription.3"])


@scenario
def no_other_key_is_known(*_):
    with ServiceBusClient.from_connection_string(STRING.replace("SAS_KEY", "SAS_KEYS"), retry_total=0) as stranger:
        try:
            with stranger.get_queue_sender("queue.1") as sender:
                sender.send_messages(ServiceBusMessage("x"))
        except ServiceBusAuthenticationError:
            return
    raise AssertionError("nothing was refused")


def start(program, directory):
    """The process, once it serves at the emulator's ports."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("PEEKLOCK")}
    command = [program, "serve", "--emulator", "--emulator-config", str(SAMPLE)]
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=log)
    if not any(line.split()[:1] == [b"amqp"] for line in process.stdout):
        raise RuntimeError((directory / "log").read_text())
    return process


def main():
    namespace.enter()
    program, *part = sys.argv[1:]
    failed = []
    chosen = [function for function in ALL if all(word in function.__name__ for word in part)]
    with tempfile.TemporaryDirectory(prefix="peeklock-emulator-") as place:
        process = start(program, Path(place))
        try:
            with ServiceBusClient.from_connection_string(STRING) as client:
                topic = Topic(client)
                # Each scenario has the broker to itself.
                for function in chosen:
                    try:
                        function(client, topic)
                    except Exception:  # pylint: disable=broad-except
                        failed.append(function.__name__)
                        print(f"--- {function.__name__}\n{traceback.format_exc()}")
        finally:
            process.kill()
            process.wait()
        log = (Path(place) / "log").read_text()
    # The log mentions the file only if the broker cannot use a part.
    for word in ["panicked", str(SAMPLE), "UserConfig"]:
        if word in log:
            failed.append("log")
            print(f"--- {word} in the log\n{log}")
    if failed:
        print(f"{len(failed)} of {len(chosen)} scenarios failed")
        sys.exit(1)
    print(f"ok {len(chosen)} scenarios")


if __name__ == "__main__":
    main()
