"""Drives a local Stripe with Stripe's own Python client, and lets it verify what was delivered.

python stripe_client.py <base URL> <secret key> <webhook secret>; ends badly at the first thing that is not so.
"""

import json
import sys
import urllib.request

import stripe

base, key, secret = sys.argv[1:4]
client = stripe.StripeClient(key, base_addresses={"api": base})

customer = client.v1.customers.create({"email": "olga@example.com"})
assert client.v1.customers.retrieve(customer.id).email == "olga@example.com"
seen = [event.id for event in client.v1.events.list({"limit": 2}).auto_paging_iter()]
assert len(seen) == len(set(seen)) > 2, seen

with urllib.request.urlopen(f"{base}/local/deliveries") as answer:
    deliveries = json.load(answer)["data"]
delivered = [one for one in deliveries if one["state"] == "delivered"]
assert delivered, "nothing was delivered"
for one in delivered:
    for attempt in one["attempts"]:
        event = stripe.Webhook.construct_event(one["body"], attempt["signature"], secret)
        assert event.id == one["event"]
try:
    stripe.Webhook.construct_event(delivered[0]["body"] + " ", delivered[0]["attempts"][-1]["signature"], secret)
    raise SystemExit("a changed body was taken for genuine")
except stripe.SignatureVerificationError:
    print("all as with the real one")
