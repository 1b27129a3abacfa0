"""The suites: their sources, how their tests are listed, and the short selection of each."""

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
AZSERVICEBUS = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"


@dataclass(frozen=True)
class Suite:
    """Tests of other authors, which run unchanged."""

    name: str
    # "go" or "python".
    language: str
    # Import path of the Go package, or files below the folder `tests` of the Python distribution.
    source: object
    # Folder below `go` of the module that pins the versions, and the compiled tests, as `setup`
    # creates them.
    module: str = "azure"
    binary: str = ""
    # Arguments of the test program.
    arguments: tuple = ()
    # 1: whole tests. 2: their immediate subtests, if one test runs a whole conformance suite.
    depth: int = 1
    # Number of tests for one broker process.
    chunk: int = 10
    # Name patterns of tests that may be in the short selection.
    short: tuple = ("*",)
    # Requirements of the suite in addition to a broker: "premium" or "nodes".
    needs: frozenset = field(default_factory=frozenset)


SUITES = (
    Suite(
        name="go-azservicebus",
        language="go",
        source=AZSERVICEBUS,
        binary="azservicebus.test",
    ),
    Suite(
        name="go-azservicebus-admin",
        language="go",
        source=f"{AZSERVICEBUS}/admin",
        binary="admin.test",
        needs=frozenset({"premium"}),
    ),
    # The version that Dapr ships.
    Suite(
        name="go-azservicebus-older",
        language="go",
        source=AZSERVICEBUS,
        module="older",
        binary="older/azservicebus.test",
        short=(),
    ),
    Suite(
        name="go-amqp",
        language="go",
        source="github.com/Azure/go-amqp",
        binary="go-amqp.test",
        chunk=200,
        # Tests that use a broker; the others depend on the speed of the machine.
        short=(
            "TestIntegration*",
            "TestMultiple*",
            "TestConcurrentSessionsOpenClose",
            "TestReceiverModeFirst",
            "TestSenderExactlyOnce",
            "TestReceivingLotsOfSettledMessages",
            "TestDrainingLink",
            "TestSenderNullValue",
        ),
        needs=frozenset({"nodes"}),
    ),
    Suite(
        name="gocloud-azuresb",
        language="go",
        source="gocloud.dev/pubsub/azuresb",
        module="cloud",
        binary="azuresb.test",
        arguments=("-record",),
        depth=2,
        chunk=1,
        short=(),
    ),
    Suite(
        name="python-sync",
        language="python",
        # The other files need no broker.
        source=tuple(
            f"test_{name}.py"
            for name in ("queues", "sessions", "subscriptions", "topic", "sb_client", "list_sessions", "message")
        ),
        chunk=5,
    ),
    Suite(
        name="python-async",
        language="python",
        source=("async_tests/test_*.py",),
        chunk=5,
    ),
    Suite(
        name="python-admin",
        language="python",
        source=("mgmt_tests/test_*.py", "mgmt_tests/async/test_*.py"),
    ),
)
