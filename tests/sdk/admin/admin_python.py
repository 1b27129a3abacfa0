"""Scenarios for `ServiceBusAdministrationClient` of the package azure-servicebus, unchanged: over
https with a verified certificate, and over plain HTTP in emulator mode, with a transport of the
application."""

import datetime as dt
import time
import traceback
from datetime import timedelta

from isodate import parse_duration
from azure.core.pipeline.transport import RequestsTransport
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityAvailabilityStatus,
    EntityStatus,
    FalseRuleFilter,
    MessagingSku,
    NamespaceType,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

SCENARIOS = []


def scenario(function):
    SCENARIOS.append((function.__name__, function))
    return function


class PlainHttp(RequestsTransport):
    """HTTP without TLS, which this client never uses by itself, whichever connection string it
    has."""

    def send(self, request, **kwargs):
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **kwargs)


class World:
    """A broker and a client of one kind."""

    def __init__(self, broker, string, kind):
        self.broker, self.string, self.kind = broker, string, kind
        self.admin = self.client()
        self.count = 0

    def client(self, string=None, **more):
        if self.broker.is_secure:
            more["connection_verify"] = self.broker.authority
        else:
            more["transport"] = PlainHttp()
        return self.kind.from_connection_string(string or self.string, retry_total=0, **more)

    def messages(self, string=None):
        """A messaging client with the same connection string, over TLS if the broker has it."""
        more = {}
        if self.broker.is_secure:
            more["connection_verify"] = self.broker.authority
            # Otherwise this SDK connects to port 5671 and ignores the port in the string.
            more["custom_endpoint_address"] = f"sb://localhost:{self.broker.ports['amqp']}"
            more["transport_type"] = TransportType.Amqp
        return ServiceBusClient.from_connection_string(string or self.string, **more)

    def name(self):
        self.count += 1
        return f"n{self.count}"

    def queue(self, **properties):
        name = self.name()
        self.admin.create_queue(name, **properties)
        return name

    def topic(self, **properties):
        name = self.name()
        self.admin.create_topic(name, **properties)
        return name

    def subscription(self, **properties):
        topic = self.topic()
        self.admin.create_subscription(topic, "s", **properties)
        return topic


def refused(kind, call, status=None, said=""):
    try:
        call()
    except kind as error:
        assert status is None or error.status_code == status, error
        assert said in str(error), error
        return
    raise AssertionError(f"{kind.__name__} was expected")


# Every property of a queue, set at creation and by an update.
QUEUE = {
    "auto_delete_on_idle": timedelta(minutes=10),
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(days=3, minutes=2, milliseconds=500),
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "enable_batched_operations": False,
    "enable_express": True,
    "enable_partitioning": True,
    "lock_duration": timedelta(seconds=13),
    "max_delivery_count": 14,
    "max_size_in_megabytes": 3072,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "status": EntityStatus.RECEIVE_DISABLED,
    "user_metadata": "a <b> & 'c' \"é\"",
    "max_message_size_in_kilobytes": 4096,
}
TOPIC = {
    "auto_delete_on_idle": timedelta(minutes=10),
    "default_message_time_to_live": timedelta(days=3),
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "enable_batched_operations": False,
    "enable_express": True,
    "enable_partitioning": True,
    "max_size_in_megabytes": 3072,
    "requires_duplicate_detection": True,
    "status": EntityStatus.SEND_DISABLED,
    "support_ordering": False,
    "user_metadata": "mine",
    "max_message_size_in_kilobytes": 4096,
}
SUBSCRIPTION = {
    "auto_delete_on_idle": timedelta(minutes=10),
    "dead_lettering_on_filter_evaluation_exceptions": False,
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(days=3),
    "enable_batched_operations": False,
    "lock_duration": timedelta(seconds=13),
    "max_delivery_count": 14,
    "requires_session": True,
    "status": EntityStatus.RECEIVE_DISABLED,
    "user_metadata": "mine",
}
FIXED = {"enable_partitioning", "requires_session", "requires_duplicate_detection"}


def iso(text):
    """The client returns durations as ISO 8601 text unless it created them itself."""
    return text if isinstance(text, timedelta) else parse_duration(text)


def equal(properties, told):
    for name, value in properties.items():
        shown = getattr(told, name)
        if isinstance(value, timedelta):
            shown = iso(shown)
        assert shown == value, (name, value, shown)


@scenario
def a_queue_with_a_name_only_has_the_defaults(world):
    """ADM-38"""
    queue = world.admin.create_queue("plain")
    assert queue.name == "plain"
    equal({"lock_duration": timedelta(minutes=1), "max_size_in_megabytes": 1024, "max_delivery_count": 10}, queue)
    equal({"requires_session": False, "enable_batched_operations": True, "status": EntityStatus.ACTIVE}, queue)
    assert queue.forward_to is None and queue.user_metadata is None
    assert queue.availability_status == EntityAvailabilityStatus.AVAILABLE


@scenario
def a_queue_keeps_all_its_properties(world):
    """ADM-34"""
    name = world.queue(**QUEUE)
    equal(QUEUE, world.admin.get_queue(name))


@scenario
def a_queue_is_updated_in_all_its_properties(world):
    """ADM-31"""
    name = world.queue(**{key: QUEUE[key] for key in FIXED})
    queue = world.admin.get_queue(name)
    for key, value in QUEUE.items():
        if key not in FIXED:
            setattr(queue, key, value)
    world.admin.update_queue(queue)
    equal(QUEUE, world.admin.get_queue(name))


@scenario
def an_update_by_keywords_keeps_the_rest(world):
    """ENT-17"""
    name = world.queue(max_delivery_count=7, lock_duration=timedelta(seconds=33))
    world.admin.update_queue(world.admin.get_queue(name), max_delivery_count=8)
    equal({"max_delivery_count": 8, "lock_duration": timedelta(seconds=33)}, world.admin.get_queue(name))


@scenario
def metadata_and_destinations_of_topics_and_subscriptions_are_cleared(world):
    """ADM-31"""
    target = world.queue()
    topic = world.topic(user_metadata="mine")
    told = world.admin.get_topic(topic)
    assert told.user_metadata == "mine"
    told.user_metadata = None
    world.admin.update_topic(told)
    assert world.admin.get_topic(topic).user_metadata is None
    properties = {"forward_to": target, "forward_dead_lettered_messages_to": target, "user_metadata": "mine"}
    for at_creation in [True, False]:
        topic = world.subscription(**(properties if at_creation else {}))
        if not at_creation:
            world.admin.update_subscription(topic, world.admin.get_subscription(topic, "s"), **properties)
        told = world.admin.get_subscription(topic, "s")
        assert told.forward_to.endswith(f"/{target}") and told.user_metadata == "mine", told
        assert told.forward_dead_lettered_messages_to.endswith(f"/{target}"), told
        told.forward_to = told.forward_dead_lettered_messages_to = told.user_metadata = None
        world.admin.update_subscription(topic, told)
        told = world.admin.get_subscription(topic, "s")
        assert (told.forward_to, told.forward_dead_lettered_messages_to, told.user_metadata) == (None, None, None)


@scenario
def metadata_and_destinations_are_cleared(world):
    """ADM-31, ADM-36"""
    target = world.queue()
    name = world.queue(forward_to=target, forward_dead_lettered_messages_to=target, user_metadata="mine")
    queue = world.admin.get_queue(name)
    assert queue.forward_to.endswith(f"/{target}") and queue.forward_to.startswith("sb://localhost:")
    assert queue.forward_dead_lettered_messages_to.endswith(f"/{target}")
    queue.forward_to = queue.forward_dead_lettered_messages_to = queue.user_metadata = None
    world.admin.update_queue(queue)
    queue = world.admin.get_queue(name)
    assert (queue.forward_to, queue.forward_dead_lettered_messages_to, queue.user_metadata) == (None, None, None)


@scenario
def a_destination_survives_an_update_of_what_was_read(world):
    """ADM-36"""
    target = world.queue()
    name = world.queue(forward_to=target)
    queue = world.admin.get_queue(name)
    queue.max_delivery_count = 5
    world.admin.update_queue(queue)
    assert world.admin.get_queue(name).forward_to.endswith(f"/{target}")


@scenario
def a_queue_with_slashes_and_dots(world):
    """ADM-04"""
    world.admin.create_queue("eu/orders-1.a_b")
    assert world.admin.get_queue("eu/orders-1.a_b").name == "eu/orders-1.a_b"
    world.admin.delete_queue("eu/orders-1.a_b")


@scenario
def names_have_no_case(world):
    """ADM-04"""
    world.admin.create_queue("MixedCase")
    assert world.admin.get_queue("mixedcase").max_delivery_count == 10
    assert "MixedCase" in [queue.name for queue in world.admin.list_queues()]


@scenario
def a_queue_is_deleted(world):
    """ADM-21"""
    name = world.queue()
    world.admin.delete_queue(name)
    refused(ResourceNotFoundError, lambda: world.admin.get_queue(name))


@scenario
def an_existing_entity_is_not_created_again(world):
    """ADM-51"""
    name = world.queue()
    refused(ResourceExistsError, lambda: world.admin.create_queue(name), 409)


@scenario
def a_topic_cannot_have_the_name_of_a_queue(world):
    """ADM-21"""
    name = world.queue()
    refused(ResourceExistsError, lambda: world.admin.create_topic(name), 409)


@scenario
def an_absent_entity_is_not_found(world):
    """ADM-51"""
    refused(ResourceNotFoundError, lambda: world.admin.get_queue("absent"))
    refused(ResourceNotFoundError, lambda: world.admin.get_topic("absent"))
    refused(ResourceNotFoundError, lambda: world.admin.delete_queue("absent"))
    refused(ResourceNotFoundError, lambda: world.admin.get_queue_runtime_properties("absent"))


@scenario
def an_update_of_an_absent_entity_is_not_found(world):
    """ADM-21"""
    queue = world.admin.get_queue(world.queue())
    world.admin.delete_queue(queue.name)
    refused(ResourceNotFoundError, lambda: world.admin.update_queue(queue))


@scenario
def a_fixed_property_cannot_be_changed(world):
    """ADM-24"""
    queue = world.admin.get_queue(world.queue())
    queue.requires_session = True
    refused(HttpResponseError, lambda: world.admin.update_queue(queue), 400, "RequiresSession")


@scenario
def values_out_of_range_name_their_property(world):
    """ADM-38"""
    for name, value, said in [
        ("lock_duration", timedelta(minutes=6), "LockDuration"),
        ("max_delivery_count", 0, "MaxDeliveryCount"),
        ("max_size_in_megabytes", 10**9, "MaxSizeInMegabytes"),
        ("auto_delete_on_idle", timedelta(seconds=1), "AutoDeleteOnIdle"),
        ("user_metadata", "x" * 1025, "UserMetadata"),
    ]:
        refused(HttpResponseError, lambda: world.admin.create_queue("wrong", **{name: value}), 400, said)
    refused(ResourceNotFoundError, lambda: world.admin.get_queue("wrong"))


@scenario
def a_destination_that_is_absent_is_refused(world):
    """ADM-36"""
    refused(HttpResponseError, lambda: world.admin.create_queue("wrong", forward_to="absent"), 400)


@scenario
def a_queue_may_forward_to_itself(world):
    """FWD-03: accepted, as in the cloud; its messages stay in the transfer dead-letter queue."""
    queue = world.admin.get_queue(world.queue())
    world.admin.update_queue(queue, forward_to=queue.name)
    assert world.admin.get_queue(queue.name).forward_to.endswith(f"/{queue.name}")


@scenario
def sessions_cannot_be_forwarded(world):
    """ADM-36"""
    target = world.queue()
    refused(HttpResponseError, lambda: world.admin.create_queue("w", forward_to=target, requires_session=True), 400)


@scenario
def runtime_properties_of_a_queue(world):
    """ADM-35"""
    name = world.queue()
    with world.messages() as client:
        with client.get_queue_sender(name) as sender:
            sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
            later = dt.datetime.now(dt.timezone.utc) + timedelta(hours=1)
            sender.schedule_messages(ServiceBusMessage("c"), later)
        with client.get_queue_receiver(name, max_wait_time=10) as receiver:
            receiver.dead_letter_message(next(receiver), reason="r")
    counts = world.admin.get_queue_runtime_properties(name)
    assert counts.name == name
    told = (counts.active_message_count, counts.dead_letter_message_count, counts.scheduled_message_count)
    assert told == (1, 1, 1) and counts.total_message_count == 3, told
    assert counts.size_in_bytes > 0 and counts.transfer_message_count == 0
    assert counts.created_at_utc <= counts.updated_at_utc <= counts.accessed_at_utc


@scenario
def an_entity_works_as_soon_as_it_is_created(world):
    """ADM-20"""
    with world.messages() as client:
        for _ in range(5):
            name = world.queue()
            with client.get_queue_sender(name) as sender:
                sender.send_messages(ServiceBusMessage("a"))


@scenario
def runtime_properties_without_messages(world):
    """CNT-09"""
    counts = world.admin.get_queue_runtime_properties(world.queue())
    assert counts.accessed_at_utc.year == 1 and counts.total_message_count == 0


@scenario
def queues_are_listed_in_pages(world):
    """ADM-23"""
    names = [f"page{number:04}" for number in range(1000)]
    for name in names:
        world.admin.create_queue(name)
    told = [queue.name for queue in world.admin.list_queues()]
    assert [name for name in told if name.startswith("page")] == names
    runtime = [queue.name for queue in world.admin.list_queues_runtime_properties()]
    assert runtime == told
    for name in names:
        world.admin.delete_queue(name)


@scenario
def a_topic_keeps_all_its_properties(world):
    """ADM-34"""
    name = world.topic(**TOPIC)
    equal(TOPIC, world.admin.get_topic(name))


@scenario
def a_topic_is_updated_in_all_its_properties(world):
    """ADM-31"""
    name = world.topic(**{key: TOPIC[key] for key in FIXED if key in TOPIC})
    topic = world.admin.get_topic(name)
    for key, value in TOPIC.items():
        if key not in FIXED:
            setattr(topic, key, value)
    world.admin.update_topic(topic)
    equal(TOPIC, world.admin.get_topic(name))


@scenario
def topics_are_listed(world):
    """ADM-23"""
    names = {world.topic() for _ in range(3)}
    assert names <= {topic.name for topic in world.admin.list_topics()}
    assert names <= {topic.name for topic in world.admin.list_topics_runtime_properties()}


@scenario
def runtime_properties_of_a_topic(world):
    """CNT-04"""
    topic = world.subscription()
    counts = world.admin.get_topic_runtime_properties(topic)
    assert (counts.name, counts.subscription_count, counts.scheduled_message_count) == (topic, 1, 0)


@scenario
def a_deleted_topic_takes_its_subscriptions(world):
    """ADM-22"""
    topic = world.subscription()
    world.admin.delete_topic(topic)
    refused(ResourceNotFoundError, lambda: world.admin.get_subscription(topic, "s"))


@scenario
def a_subscription_has_the_defaults(world):
    """ADM-38"""
    told = world.admin.get_subscription(world.subscription(), "s")
    equal({"lock_duration": timedelta(minutes=1), "max_delivery_count": 10, "requires_session": False}, told)
    assert told.name == "s" and told.dead_lettering_on_filter_evaluation_exceptions


@scenario
def a_subscription_keeps_all_its_properties(world):
    """ADM-34"""
    equal(SUBSCRIPTION, world.admin.get_subscription(world.subscription(**SUBSCRIPTION), "s"))


@scenario
def a_subscription_is_updated_in_all_its_properties(world):
    """ADM-31"""
    topic = world.subscription(requires_session=True)
    told = world.admin.get_subscription(topic, "s")
    for key, value in SUBSCRIPTION.items():
        if key not in FIXED:
            setattr(told, key, value)
    world.admin.update_subscription(topic, told)
    equal(SUBSCRIPTION, world.admin.get_subscription(topic, "s"))


@scenario
def subscriptions_are_listed(world):
    """ADM-23"""
    topic = world.subscription()
    for number in range(4):
        world.admin.create_subscription(topic, f"a{number}")
    expected = ["a0", "a1", "a2", "a3", "s"]
    assert [it.name for it in world.admin.list_subscriptions(topic)] == expected
    assert [it.name for it in world.admin.list_subscriptions_runtime_properties(topic)] == expected


@scenario
def a_subscription_of_an_absent_topic(world):
    """ADM-21"""
    refused(ResourceNotFoundError, lambda: world.admin.create_subscription("absent", "s"), 404)


@scenario
def runtime_properties_of_a_subscription(world):
    """ADM-35"""
    topic = world.subscription()
    with world.messages() as client:
        with client.get_topic_sender(topic) as sender:
            sender.send_messages(ServiceBusMessage("a"))
    counts = world.admin.get_subscription_runtime_properties(topic, "s")
    assert (counts.name, counts.active_message_count, counts.total_message_count) == ("s", 1, 1)


@scenario
def a_subscription_forwards_and_is_deleted(world):
    """ADM-36"""
    target = world.queue()
    topic = world.subscription(forward_to=target)
    assert world.admin.get_subscription(topic, "s").forward_to.endswith(f"/{target}")
    world.admin.delete_subscription(topic, "s")
    refused(ResourceNotFoundError, lambda: world.admin.get_subscription(topic, "s"))


@scenario
def a_new_subscription_has_the_default_rule(world):
    """ADM-42"""
    (rule,) = world.admin.list_rules(world.subscription(), "s")
    assert rule.name == "$Default" and isinstance(rule.filter, TrueRuleFilter) and rule.action is None


@scenario
def a_rule_in_sql_with_parameters(world):
    """ADM-41"""
    topic = world.subscription()
    values = {
        "@text": "red",
        "@int": 7,
        "@long": 2**40,
        "@bool": True,
        "@float": 1.5,
        "@instant": dt.datetime(2026, 5, 1, 12, tzinfo=dt.timezone.utc),
        "@span": timedelta(days=1, hours=2),
    }
    filter_ = SqlRuleFilter("colour = @text AND size > @int", parameters=values)
    action = SqlRuleAction("SET x = @a", parameters={"@a": 3})
    world.admin.create_rule(topic, "s", "r", filter=filter_, action=action)
    rule = world.admin.get_rule(topic, "s", "r")
    assert rule.filter.sql_expression == "colour = @text AND size > @int"
    assert rule.filter.parameters == values, rule.filter.parameters
    assert rule.action.sql_expression == "SET x = @a" and rule.action.parameters == {"@a": 3}
    assert rule.created_at_utc.year >= 2026


@scenario
def a_rule_by_correlation(world):
    """ADM-40"""
    topic = world.subscription()
    texts = {
        "correlation_id": "c",
        "message_id": "m",
        "to": "t",
        "reply_to": "r",
        "label": "l",
        "session_id": "s",
        "reply_to_session_id": "z",
        "content_type": "text/plain",
    }
    properties = {"colour": "red", "size": 7, "old": False, "share": 0.5, "at": dt.datetime(2026, 5, 1, tzinfo=dt.timezone.utc)}
    world.admin.create_rule(topic, "s", "r", filter=CorrelationRuleFilter(properties=properties, **texts))
    told = world.admin.get_rule(topic, "s", "r").filter
    assert {name: getattr(told, name) for name in texts} == texts
    assert told.properties == properties, told.properties


@scenario
def rules_that_select_all_and_nothing(world):
    """ADM-40"""
    topic = world.subscription()
    world.admin.create_rule(topic, "s", "all", filter=TrueRuleFilter())
    world.admin.create_rule(topic, "s", "none", filter=FalseRuleFilter())
    assert isinstance(world.admin.get_rule(topic, "s", "all").filter, TrueRuleFilter)
    assert isinstance(world.admin.get_rule(topic, "s", "none").filter, FalseRuleFilter)


@scenario
def a_rule_is_updated(world):
    """TOP-24"""
    topic = world.subscription()
    world.admin.create_rule(topic, "s", "r", filter=SqlRuleFilter("a = 1"), action=SqlRuleAction("SET b = 2"))
    rule = world.admin.get_rule(topic, "s", "r")
    rule.filter, rule.action = CorrelationRuleFilter(label="x"), None
    world.admin.update_rule(topic, "s", rule)
    rule = world.admin.get_rule(topic, "s", "r")
    assert rule.filter.label == "x" and rule.action is None


@scenario
def a_rule_is_deleted(world):
    """ADM-21"""
    topic = world.subscription()
    world.admin.delete_rule(topic, "s", "$Default")
    assert list(world.admin.list_rules(topic, "s")) == []
    refused(ResourceNotFoundError, lambda: world.admin.get_rule(topic, "s", "$Default"))
    refused(ResourceNotFoundError, lambda: world.admin.delete_rule(topic, "s", "absent"))


@scenario
def rules_are_listed_by_name(world):
    """ADM-23"""
    topic = world.subscription()
    for name in ["b", "C", "a"]:
        world.admin.create_rule(topic, "s", name, filter=SqlRuleFilter("1=1"))
    assert [rule.name for rule in world.admin.list_rules(topic, "s")] == ["$Default", "a", "b", "C"]


@scenario
def a_rule_that_means_nothing_is_refused(world):
    """ADM-43"""
    topic = world.subscription()
    refused(
        HttpResponseError, lambda: world.admin.create_rule(topic, "s", "r", filter=SqlRuleFilter("a = = 1")), 400, "column 5"
    )


@scenario
def a_rule_that_exists_is_not_created_again(world):
    """ADM-43"""
    topic = world.subscription()
    refused(ResourceExistsError, lambda: world.admin.create_rule(topic, "s", "$default", filter=TrueRuleFilter()), 409)


@scenario
def a_rule_decides_what_is_received(world):
    """TOP-01"""
    topic = world.subscription()
    world.admin.delete_rule(topic, "s", "$Default")
    world.admin.create_rule(topic, "s", "red", filter=CorrelationRuleFilter(properties={"colour": "red"}))
    with world.messages() as client:
        with client.get_topic_sender(topic) as sender:
            for colour in ["blue", "red"]:
                sender.send_messages(ServiceBusMessage(colour, application_properties={"colour": colour}))
    assert world.admin.get_subscription_runtime_properties(topic, "s").active_message_count == 1


@scenario
def the_namespace_has_properties(world):
    """ADM-45"""
    namespace = world.admin.get_namespace_properties()
    assert namespace.messaging_sku == MessagingSku.PREMIUM and namespace.namespace_type == NamespaceType.MESSAGING
    assert namespace.name == "peeklock" and namespace.messaging_units == 1


@scenario
def authorization_rules_are_kept(world):
    """ADM-39"""
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="sender",
        primary_key="AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        secondary_key="AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        rights=[AccessRights.SEND],
    )
    name = world.queue(authorization_rules=[rule])
    (told,) = world.admin.get_queue(name).authorization_rules
    assert (told.key_name, told.primary_key, told.rights) == ("sender", rule.primary_key, [AccessRights.SEND])
    assert (told.claim_type, told.claim_value) == (rule.claim_type, rule.claim_value)
    string = world.broker.connection_string("sender", rule.primary_key)
    with world.messages(string) as client:
        with client.get_queue_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("a"))
    # The description is sent back unchanged.
    world.admin.update_queue(world.admin.get_queue(name), max_delivery_count=3)
    assert len(world.admin.get_queue(name).authorization_rules) == 1


@scenario
def more_authorization_rules_than_there_may_be_are_refused(world):
    """ADM-51"""
    rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            key_name=f"p{number}",
            primary_key="AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            secondary_key="AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            rights=[AccessRights.SEND],
        )
        for number in range(13)
    ]
    refused(HttpResponseError, lambda: world.queue(authorization_rules=rules), 403)
    assert len(world.admin.get_queue(world.queue(authorization_rules=rules[:12])).authorization_rules) == 12


@scenario
def a_wrong_key_is_refused(world):
    """ADM-11"""
    string = world.string.replace("SharedAccessKey=", "SharedAccessKey=x")
    with world.client(string) as client:
        refused(ClientAuthenticationError, lambda: client.get_queue("any"), 401)


@scenario
def a_policy_without_manage_is_refused(world):
    """ADM-11"""
    world.broker.ask("PUT", "policies/listener", {"rights": ["Listen"]})
    key = world.broker.ask("POST", "policies/listener/keys")["primaryKey"]
    string = world.string.split(";SharedAccessKeyName")[0] + f";SharedAccessKeyName=listener;SharedAccessKey={key}"
    with world.client(string) as client:
        refused(ClientAuthenticationError, lambda: client.get_queue("plain"), 401)


@scenario
def one_string_is_for_messages_and_administration(world):
    """LIS-01, LIS-05, ADM-02"""
    queue = world.queue()
    with world.messages() as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("two books"))
        assert world.admin.get_queue_runtime_properties(queue).active_message_count == 1
        with client.get_queue_receiver(queue) as receiver:
            [message] = receiver.receive_messages(max_wait_time=20)
            receiver.complete_message(message)
    assert str(message) == "two books"
    assert world.admin.get_queue_runtime_properties(queue).total_message_count == 0


@scenario
def an_older_version_of_the_api(world):
    """ADM-03"""
    with world.client(api_version="2017-04") as client:
        name = world.name()
        client.create_queue(name)
        assert client.get_queue(name).name == name
        client.delete_queue(name)


def run(broker, string, kind):
    world = World(broker, string, kind)
    with world.admin:
        return run_in(world)


def run_in(world):
    failed = 0
    for name, function in SCENARIOS:
        began = time.monotonic()
        try:
            function(world)
        except Exception:
            failed += 1
            print(f"--- {name} after {time.monotonic() - began:.1f} s\n{traceback.format_exc()}")
    if failed:
        print(f"{failed} of {len(SCENARIOS)} scenarios failed")
        return 1
    print(f"ok {len(SCENARIOS)} scenarios")
    return 0
