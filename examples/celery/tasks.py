"""The work of a shop in the background, with Celery's transport for Azure Service Bus as it is published."""

import os
import tempfile

from celery import Celery

# Where the broker is comes from the environment; results are files that worker and application both see.
results = os.environ.get("SHOP_RESULTS", tempfile.gettempdir())
app = Celery("shop", broker=os.environ["CELERY_BROKER_URL"], backend=f"file://{results}")
app.conf.task_default_queue = "shop"


# Its message is completed behind it: if the worker dies meanwhile, another one packs.
@app.task(acks_late=True)
def pack(order):
    return f"{order}: packed"


# What is retried is sent anew, to be run a second later; the first truck is always full.
@app.task(bind=True, max_retries=3)
def ship(self, parcel):
    truck = self.request.retries + 1
    if truck == 1:
        raise self.retry(countdown=1)
    return f"{parcel}, shipped by truck {truck}"


@app.task
def remind(customer):
    return f"{customer} is reminded"
