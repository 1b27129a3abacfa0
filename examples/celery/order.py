"""Orders two books, has them packed and shipped, and the customer reminded two seconds later."""

from tasks import pack, remind, ship

reminder = remind.apply_async(["ada"], countdown=2)
parcel = (pack.s("two books") | ship.s()).apply_async()
print(parcel.get(timeout=30))
print(reminder.get(timeout=30))
