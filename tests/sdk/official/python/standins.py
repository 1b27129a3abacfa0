"""A pytest plugin with stand-ins for unpublished modules that the tests of azure-servicebus
import, and for Azure's own services: the tools of its repository, and Azure's resource manager.
Entities are created with the administration client of the SDK. Writes one line for each result."""

import asyncio
import base64
import functools
import inspect
import itertools
import json
import os
import sys
import types
import urllib.request
from datetime import timedelta

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient

SUFFIX = ".servicebus.windows.net"
HOST = os.environ.get("SERVICEBUS_FULLY_QUALIFIED_NAMESPACE", "")
# Arguments that pytest itself passes to a test.
PARAMETERS = ("uamqp_transport", "socket_transport")
ALL_RIGHTS = ("manage", "send", "listen")
# Keys of policies that tests create.
KEY, OTHER_KEY = (base64.b64encode(bytes(range(first, first + 32))).decode() for first in (0, 32))
SECONDS = {"PT5S": 5, "PT10S": 10, "PT30S": 30, "PT55S": 55, "PT60S": 60, "PT5M": 300}
numbers = itertools.count(1)


def administration():
    return ServiceBusAdministrationClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STR"])


class Credential:
    """Requests a token from the identity provider, like a managed identity of Azure."""

    def get_token(self, *_, **__):
        request = urllib.request.Request(os.environ["IDENTITY_ENDPOINT"], headers={"X-IDENTITY-HEADER": "tests"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            told = json.load(answer)
        return AccessToken(told["access_token"], int(told["expires_on"]))

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class AsyncCredential:
    """The same for the asynchronous clients."""

    async def get_token(self, *_, **__):
        return await asyncio.to_thread(Credential().get_token)

    async def close(self):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass


def get_credential(is_async=False, **_):
    return AsyncCredential() if is_async else Credential()


class Resource:
    """An answer of the resource manager: the tests read only a name."""

    def __init__(self, name):
        self.name = name


class Preparer:
    """A decorator that creates a resource before a test and passes it by name. A cached one is
    created once for equal arguments."""

    parameter = ""
    cache = {}

    def __init__(self, name_prefix="", use_cache=False, parameter_name=None, **options):
        self.name_prefix = name_prefix
        self.use_cache = use_cache
        self.options = options
        self.parameter_name = parameter_name or self.parameter

    def make(self, name, given):
        """Creates the resource. Returns the arguments of the test."""
        raise NotImplementedError

    def remove(self, given, made):
        pass

    def prepared(self, given):
        key = (type(self), self.parameter_name, repr(sorted(self.options.items())), tuple(self.scope(given)))
        if self.use_cache and key in self.cache:
            return self.cache[key]
        made = self.make(f"{self.name_prefix}{type(self).__name__.lower()[:8]}{next(numbers)}", given)
        if self.use_cache:
            self.cache[key] = made
        return made

    def scope(self, given):
        """Names of the parents of this resource."""
        return ()

    def __call__(self, test):
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run(instance, **given):
                made = self.prepared(given)
                try:
                    return await test(instance, **accepted(test, {**given, **made}))
                finally:
                    if not self.use_cache:
                        self.remove(given, made)

        else:

            @functools.wraps(test)
            def run(instance, **given):
                made = self.prepared(given)
                try:
                    return test(instance, **accepted(test, {**given, **made}))
                finally:
                    if not self.use_cache:
                        self.remove(given, made)

        return with_parameters(run, test)


def accepted(test, given):
    """The arguments that the test accepts."""
    if hasattr(test, "is_prepared"):
        return given
    parameters = inspect.signature(test).parameters.values()
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        return given
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in given.items() if name in names}


def with_parameters(run, test):
    """Shows pytest only the arguments that it passes, without those of preparers."""
    names = [name for name in inspect.signature(test).parameters if name in PARAMETERS]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    run.is_prepared = True
    run.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in ["self", *names]])
    return run


class ResourceGroupPreparer(Preparer):
    parameter = "resource_group"

    def make(self, name, given):
        return {self.parameter_name: Resource("group"), "location": "here"}


class NamespacePreparer(Preparer):
    """The namespace is the broker itself, which exists."""

    parameter = "servicebus_namespace"

    def make(self, name, given):
        return {
            self.parameter_name: Resource(HOST.removesuffix(SUFFIX)),
            f"{self.parameter_name}_connection_string": os.environ["SERVICEBUS_CONNECTION_STR"],
            f"{self.parameter_name}_key_name": os.environ["SERVICEBUS_SAS_POLICY"],
            f"{self.parameter_name}_primary_key": os.environ["SERVICEBUS_SAS_KEY"],
        }


class QueuePreparer(Preparer):
    parameter = "servicebus_queue"

    def make(self, name, given):
        options = {name: value for name, value in self.options.items() if name in QUEUE_OPTIONS}
        lock = timedelta(seconds=SECONDS[self.options.get("lock_duration", "PT30S")])
        with administration() as client:
            client.create_queue(name, **{**options, "lock_duration": lock})
        return {self.parameter_name: Resource(name)}

    def remove(self, given, made):
        with administration() as client:
            client.delete_queue(made[self.parameter_name].name)


QUEUE_OPTIONS = (
    "requires_duplicate_detection",
    "dead_lettering_on_message_expiration",
    "requires_session",
    "enable_partitioning",
)


class TopicPreparer(Preparer):
    parameter = "servicebus_topic"

    def make(self, name, given):
        with administration() as client:
            client.create_topic(name)
        return {self.parameter_name: Resource(name)}

    def remove(self, given, made):
        with administration() as client:
            client.delete_topic(made[self.parameter_name].name)


class SubscriptionPreparer(Preparer):
    parameter = "servicebus_subscription"

    def scope(self, given):
        return (given["servicebus_topic"].name,)

    def make(self, name, given):
        lock = timedelta(seconds=SECONDS[self.options.get("lock_duration", "PT60S")])
        requires_session = self.options.get("requires_session", False)
        with administration() as client:
            client.create_subscription(
                given["servicebus_topic"].name, name, requires_session=requires_session, lock_duration=lock
            )
        return {self.parameter_name: Resource(name)}


class PolicyPreparer(Preparer):
    """Policies of the namespace, for which there is no administration client: policies with a few
    rights exist, and this returns their connection string."""

    parameter = "servicebus_authorization_rule"

    def make(self, name, given):
        rights = frozenset(right.lower() for right in self.options.get("access_rights", ALL_RIGHTS))
        policy = {frozenset({"send"}): "SENDONLY", frozenset({"listen"}): "LISTENONLY"}.get(rights, "ROOT")
        string = os.environ[f"OFFICIAL_{policy}"]
        return {self.parameter_name: Resource(policy), f"{self.parameter_name}_connection_string": string}


class QueuePolicyPreparer(Preparer):
    parameter = "servicebus_queue_authorization_rule"

    def make(self, name, given):
        rights = [right.title() for right in self.options.get("access_rights", ALL_RIGHTS)]
        queue = given["servicebus_queue"].name
        with administration() as client:
            description = client.get_queue(queue)
            rule = AuthorizationRule(
                type="SharedAccessAuthorizationRule", rights=rights, key_name=name, claim_type="SharedAccessKey",
                claim_value="None", primary_key=KEY, secondary_key=OTHER_KEY,
            )
            description.authorization_rules = [rule]
            client.update_queue(description)
        string = f"Endpoint=sb://{HOST}/;SharedAccessKeyName={name};SharedAccessKey={KEY};EntityPath={queue}"
        return {self.parameter_name: Resource(name), f"{self.parameter_name}_connection_string": string}


class EnvironmentPreparer(Preparer):
    """Arguments from environment variables of the same names."""

    def __init__(self, _directory, **names):
        super().__init__()
        self.names = names

    def make(self, name, given):
        return {name: os.environ.get(name.upper(), value) for name, value in self.names.items()}


def cached(preparer):
    return functools.partial(preparer, use_cache=True)


def module(name, **contents):
    """Defines the module that `import NAME` returns."""
    made = types.ModuleType(name)
    vars(made).update(contents)
    sys.modules[name] = made
    package, _, child = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], child, made)


def nothing(*_, **__):
    """Accepts any arguments and does nothing."""


class RecordedTestCase:
    """Tests are never recorded here."""

    is_live = True

    @staticmethod
    def await_prepared_test(test):
        return test


class AccessRights:
    manage, send, listen = ALL_RIGHTS


def unchanged(test):
    return test


module(
    "devtools_testutils",
    __path__=[],
    AzureMgmtRecordedTestCase=RecordedTestCase,
    AzureRecordedTestCase=RecordedTestCase,
    CachedResourceGroupPreparer=cached(ResourceGroupPreparer),
    RandomNameResourceGroupPreparer=ResourceGroupPreparer,
    PowerShellPreparer=EnvironmentPreparer,
    get_credential=get_credential,
    recorded_by_proxy=unchanged,
    set_custom_default_matcher=nothing,
)
module("devtools_testutils.aio", recorded_by_proxy_async=unchanged)
module(
    "devtools_testutils.sanitizers",
    add_remove_header_sanitizer=nothing,
    add_general_regex_sanitizer=nothing,
    add_oauth_response_sanitizer=nothing,
)
module("azure.mgmt", __path__=[])
module("azure.mgmt.servicebus", __path__=[])
module("azure.mgmt.servicebus.models", AccessRights=AccessRights)
# The module of that name in the distribution uses the resource manager.
module(
    "servicebus_preparer",
    SERVICEBUS_ENDPOINT_SUFFIX=SUFFIX,
    ServiceBusResourceGroupPreparer=ResourceGroupPreparer,
    ServiceBusNamespacePreparer=NamespacePreparer,
    ServiceBusQueuePreparer=QueuePreparer,
    ServiceBusTopicPreparer=TopicPreparer,
    ServiceBusSubscriptionPreparer=SubscriptionPreparer,
    ServiceBusNamespaceAuthorizationRulePreparer=PolicyPreparer,
    ServiceBusQueueAuthorizationRulePreparer=QueuePolicyPreparer,
    CachedServiceBusResourceGroupPreparer=cached(ResourceGroupPreparer),
    CachedServiceBusNamespacePreparer=cached(NamespacePreparer),
    CachedServiceBusQueuePreparer=cached(QueuePreparer),
    CachedServiceBusTopicPreparer=cached(TopicPreparer),
    CachedServiceBusSubscriptionPreparer=cached(SubscriptionPreparer),
)


class Report:
    """Records the outcome of each test after all its phases."""

    def __init__(self, path):
        self.path = path
        self.phases = {}

    def pytest_runtest_logreport(self, report):
        phases = self.phases.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when != "teardown":
            return
        outcomes = {phase.outcome for phase in phases}
        outcome = next((name for name in ("failed", "skipped") if name in outcomes), "passed")
        text = "\n".join(str(phase.longrepr) for phase in phases if phase.longrepr)
        line = {
            "name": report.nodeid,
            "outcome": outcome,
            "seconds": sum(phase.duration for phase in phases),
            "text": text[-4000:],
        }
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="session")
def test_proxy():
    """The recorder of requests, which is absent."""


def pytest_configure(config):
    config.addinivalue_line("markers", "live_test_only: runs against a broker only")
    if path := os.environ.get("OFFICIAL_RESULTS"):
        config.pluginmanager.register(Report(path))
