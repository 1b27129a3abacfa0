"""The asynchronous `ServiceBusAdministrationClient` of the package azure-servicebus behind the
interface of the synchronous one, so that both run the same scenarios: each call is awaited on
an event loop of its own, and a list is read to its end."""

import asyncio

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus.aio.management import ServiceBusAdministrationClient


class Awaited:
    def __init__(self, client):
        self.client, self.loop = client, asyncio.new_event_loop()

    @classmethod
    def from_connection_string(cls, string, **more):
        return cls(ServiceBusAdministrationClient.from_connection_string(string, **more))

    def __getattr__(self, name):
        method = getattr(self.client, name)
        return lambda *arguments, **named: self.loop.run_until_complete(whole(method(*arguments, **named)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self.loop.close()


async def whole(called):
    if isinstance(called, AsyncItemPaged):
        return [item async for item in called]
    return await called
