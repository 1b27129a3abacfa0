"""Scenarios of applications with Celery, each on a queue of its own where it must not see messages
of others."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import azure.core.exceptions
from azure.servicebus.management import ServiceBusAdministrationClient
from celery import chain, exceptions, group
from kombu import Connection, Consumer, Exchange, Queue

import place
import tasks
from broker import ROOT
from worker import RUNNING, Worker, until

EXAMPLE = Path(__file__).parents[3] / "examples/celery"
# Maximum seconds until a result, including retries and waits.
PATIENCE = 60
ALL = []
# Scenarios that stop the broker, which affects all others.
ALONE = []
SHARED = threading.Lock()


def scenario(function):
    ALL.append(function)
    return function


def alone(function):
    ALONE.append(function)
    return scenario(function)


def end():
    for worker in RUNNING:
        worker.kill()


def check(value, expected, what="value"):
    if value != expected:
        raise AssertionError(f"{what} is {value!r}, not {expected!r}")


def shared():
    """A worker with the default queue, shared by scenarios that do not disturb it."""
    with SHARED:
        if not any(worker.queue == "celery" for worker in RUNNING):
            Worker("celery")


def got(result):
    return result.get(timeout=PATIENCE, interval=0.05)


def administration(broker):
    string = f"Endpoint=sb://{place.HOST};SharedAccessKeyName={ROOT};SharedAccessKey={broker.key}"
    return ServiceBusAdministrationClient.from_connection_string(string)


def messages_in(broker, queue):
    return administration(broker).get_queue_runtime_properties(queue).total_message_count


@scenario
def a_task_is_run_and_its_result_returned(broker):
    shared()
    check(got(tasks.add.delay("once", 1, 2)), 3)
    check(len(tasks.runs("once")), 1, "runs")


@scenario
def each_of_many_tasks_is_run_once(broker):
    shared()
    results = [tasks.add.delay(f"many-{number}", number, number) for number in range(30)]
    check([got(result) for result in results], [2 * number for number in range(30)])
    check([len(tasks.runs(f"many-{number}")) for number in range(30)], [1] * 30, "runs")
    until(lambda: messages_in(broker, "celery") == 0, "all messages are completed")


@scenario
def a_task_is_retried_until_it_succeeds(broker):
    shared()
    check(got(tasks.shaky.delay("shaky", 2)), 2)
    check(len(tasks.runs("shaky")), 3, "runs")


@scenario
def a_task_failing_every_retry_returns_the_reason(broker):
    shared()
    result = tasks.shaky.delay("hopeless", 9)
    try:
        got(result)
    except RuntimeError as error:
        check(str(error), "not yet")
    check((result.state, len(tasks.runs("hopeless"))), ("FAILURE", 4))


@scenario
def a_task_with_a_countdown_is_run_no_sooner(broker):
    shared()
    asked = time.time()
    check(got(tasks.add.apply_async(("later", 3, 4), countdown=2)), 7)
    [ran] = tasks.runs("later")
    check(ran - asked >= 2, True, f"after {ran - asked} s: late enough")


@scenario
def a_task_past_its_expiry_is_not_run(broker):
    shared()
    result = tasks.add.apply_async(("expired", 1, 1), countdown=2, expires=0.5)
    try:
        got(result)
        raise AssertionError("it was run")
    except exceptions.TaskRevokedError:
        check(tasks.runs("expired"), [], "runs")


@scenario
def results_go_down_a_chain_and_together_in_a_group(broker):
    shared()
    check(got(chain(tasks.more.s(1, 2), tasks.more.s(3), tasks.more.s(4))()), 10)
    check(got(group(tasks.more.s(number, 1) for number in range(5))()), [1, 2, 3, 4, 5])


@scenario
def a_late_task_of_a_killed_worker_is_run_by_another(broker):
    # The lock of a killed worker lasts until it expires (SET-21).
    first = Worker("killed", CELERY_LOCK_SECONDS="10")
    result = tasks.held.apply_async(("killed", 6), queue="killed")
    until(lambda: len(tasks.runs("killed")) == 1, "the first worker has begun")
    # If it had been completed when the task began, that would be visible now.
    time.sleep(2)
    check(messages_in(broker, "killed"), 1, "messages")
    first.kill()
    with Worker("killed", CELERY_LOCK_SECONDS="10"):
        check(got(result), 2, "runs")
        until(lambda: messages_in(broker, "killed") == 0, "its message is completed")


@scenario
def a_late_task_whose_process_dies_is_run_again_when_its_lock_ends(broker):
    with Worker("deadly", CELERY_LOCK_SECONDS="2"):
        check(got(tasks.deadly.apply_async(("deadly",), queue="deadly")), 2, "runs")
        first, second = tasks.runs("deadly")
        check(second - first >= 1, True, f"after {second - first} s: the lock held it")


@scenario
def a_lock_is_renewed_as_long_as_a_task_takes(broker):
    with Worker("renewed", CELERY_LOCK_SECONDS="2", CELERY_RENEWS="1"):
        check(got(tasks.held.apply_async(("renewed", 6), queue="renewed")), 1, "runs")
        until(lambda: messages_in(broker, "renewed") == 0, "its message is completed")
    check(len(tasks.runs("renewed")), 1, "runs")


@scenario
def a_stopped_worker_ends_its_current_task(broker):
    worker = Worker("stopped")
    result = tasks.held.apply_async(("stopped", 2), queue="stopped")
    until(lambda: len(tasks.runs("stopped")) == 1, "the worker has begun")
    check(worker.stop(), 0, "exit code")
    check(got(result), 1, "runs")
    check(messages_in(broker, "stopped"), 0, "messages")


@alone
def tasks_and_workers_outlive_the_broker(broker):
    with Worker("outlived"):
        check(got(tasks.add.apply_async(("before", 1, 1), queue="outlived")), 2)
        tasks.add.apply_async(("kept", 1, 1), queue="kept")
        # A result can exist before its message is completed.
        until(lambda: messages_in(broker, "outlived") == 0, "its message is completed")
        broker.kill()
        broker.start()
        # The publisher's connection is closed as well; Celery opens another.
        check(got(tasks.add.apply_async(("after", 2, 2), queue="outlived")), 4)
    check(messages_in(broker, "kept"), 1, "messages")
    with Worker("kept"):
        until(lambda: len(tasks.runs("kept")) == 1, "what was sent before is run")
    check((len(tasks.runs("before")), len(tasks.runs("after"))), (1, 1), "runs")


@scenario
def a_queue_is_purged(broker):
    for number in range(12):
        tasks.add.apply_async((f"purged-{number}", 1, 1), queue="purged")
    with tasks.app.connection_for_write() as connection:
        channel = connection.default_channel
        check(channel.queue_declare("purged", passive=True).message_count, 12, "messages")
        check(channel.queue_purge("purged"), 12, "messages purged")
    check(messages_in(broker, "purged"), 0, "messages")


@scenario
def names_are_prefixed_and_queues_deleted(broker):
    options = {"queue_name_prefix": "shop-"}
    with Connection(tasks.app.conf.broker_url, transport_options=options) as connection:
        queue = Queue("parcels/today.urgent", Exchange("parcels"), channel=connection.default_channel)
        queue.declare()
        client = administration(broker)
        name = "shop-parcels_today.urgent"
        check(client.get_queue(name).lock_duration.total_seconds(), 60, "lock duration")
        queue.delete()
        try:
            client.get_queue(name)
            raise AssertionError("the queue is there")
        except azure.core.exceptions.ResourceNotFoundError:
            pass


@scenario
def a_consumer_without_acknowledgement_takes_for_good(broker):
    options = {"wait_time_seconds": 1}
    with Connection(tasks.app.conf.broker_url, transport_options=options) as connection:
        queue = Queue("plain", routing_key="plain")
        producer = connection.Producer()
        for number in range(3):
            producer.publish({"number": number}, routing_key="plain", declare=[queue])
        came = []
        with Consumer(connection, [queue], callbacks=[lambda body, _: came.append(body["number"])], no_ack=True):
            while len(came) < 3:
                connection.drain_events(timeout=PATIENCE)
        check(sorted(came), [0, 1, 2])
        check(messages_in(broker, "plain"), 0, "messages")


@scenario
def a_wrong_key_is_refused(broker):
    url = f"azureservicebus://{ROOT}:d3Jvbmc=@{place.NAMESPACE}"
    with Connection(url) as connection:
        try:
            connection.SimpleQueue("strange").put("unheard")
            raise AssertionError("it was sent")
        except azure.core.exceptions.ClientAuthenticationError:
            pass


@scenario
def the_example_behaves_as_documented(broker):
    with Worker("shop", EXAMPLE):
        ended = subprocess.run(
            [sys.executable, "order.py"], cwd=EXAMPLE, check=False, timeout=PATIENCE, text=True, capture_output=True
        )
    expected = "two books: packed, shipped by truck 2\nada is reminded\n"
    check((ended.returncode, ended.stdout), (0, expected), ended.stderr or "what it says")
