// Drives a local Stripe with Stripe's own Node client, as a program that knows only the real one would.
//
// node stripe_client.mjs <base URL> <secret key> <webhook secret>; exit code 1 at the first thing that is not so.

import assert from 'node:assert/strict';
import Stripe from 'stripe';

const [base, key, secret] = process.argv.slice(2);
const { hostname, port } = new URL(base);
const client = (apiKey, more = {}) => new Stripe(apiKey, { host: hostname, port, protocol: 'http', telemetry: false, ...more });
const stripe = client(key);
const local = async (path, body = {}) => {
  const answer = await fetch(`${base}/local/${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  assert.equal(answer.status, 200, `${path}: ${await answer.clone().text()}`);
  return answer.json();
};
const look = async (path) => (await fetch(`${base}/local/${path}`)).json();

// Customers.
const customer = await stripe.customers.create({ email: 'ada@example.com', metadata: { user: 'kp_1' } });
assert.equal(customer.email, 'ada@example.com');
assert.equal((await stripe.customers.retrieve(customer.id)).metadata.user, 'kp_1');

// Checkout of a subscription.
const price = 'price_1LocalProMonthUsd';
const session = await stripe.checkout.sessions.create({
  mode: 'subscription', customer: customer.id, client_reference_id: 'account-1', line_items: [{ price, quantity: 1 }],
  success_url: 'http://localhost:3000/done?session={CHECKOUT_SESSION_ID}', metadata: { purpose: 'pro' },
  subscription_data: { metadata: { account: '1' } },
});
assert.match(session.url, /^http:\/\/127\.0\.0\.1:\d+\/c\/pay\/cs_test_/);
assert.equal(session.payment_status, 'unpaid');
await local(`checkout/${session.id}/complete`);
const bought = await stripe.checkout.sessions.retrieve(session.id, { expand: ['line_items', 'subscription'] });
assert.deepEqual([bought.status, bought.payment_status, bought.url], ['complete', 'paid', null]);
assert.equal(bought.line_items.data[0].price.id, price);
assert.equal(bought.subscription.status, 'active');
assert.equal(bought.subscription.metadata.account, '1');
assert.equal(bought.subscription.current_period_end, undefined);
assert.ok(bought.subscription.items.data[0].current_period_end > bought.created);

// From the invoice to its payment and back.
const invoice = await stripe.invoices.retrieve(bought.invoice, { expand: ['payments'] });
assert.deepEqual([invoice.status, invoice.billing_reason, invoice.amount_paid], ['paid', 'subscription_create', 1200]);
assert.equal(invoice.parent.subscription_details.subscription, bought.subscription.id);
const intent = invoice.payments.data[0].payment.payment_intent;
const payments = await stripe.invoicePayments.list({ payment: { type: 'payment_intent', payment_intent: intent } });
assert.equal(payments.data[0].invoice, invoice.id);

// The portal.
const portal = await stripe.billingPortal.sessions.create({ customer: customer.id, return_url: 'http://localhost:3000/account' });
assert.equal((await fetch(portal.url)).status, 200);

// Refunds, and the balance.
const { latest_charge: charge } = await stripe.paymentIntents.retrieve(intent);
const refund = await stripe.refunds.create({ charge, amount: 500 }, { idempotencyKey: 'refund-1' });
assert.deepEqual([refund.status, refund.amount], ['succeeded', 500]);
const again = await stripe.refunds.create({ charge, amount: 500 }, { idempotencyKey: 'refund-1' });
assert.equal(again.id, refund.id);
assert.equal(again.lastResponse.headers['idempotent-replayed'], 'true');
await assert.rejects(stripe.refunds.create({ charge, amount: 400 }, { idempotencyKey: 'refund-1' }), Stripe.errors.StripeIdempotencyError);
const charged = await stripe.charges.retrieve(charge, { expand: ['balance_transaction', 'refunds'] });
assert.deepEqual([charged.amount_refunded, charged.refunded, charged.refunds.data.length], [500, false, 1]);
assert.equal(charged.balance_transaction.net, charged.balance_transaction.amount - charged.balance_transaction.fee);
const rows = await stripe.balanceTransactions.list({ limit: 100, created: { gte: session.created }, expand: ['data.source'] });
assert.deepEqual(rows.data.map((row) => row.reporting_category).sort(), ['charge', 'refund']);

// Errors as the client's own classes.
await assert.rejects(client('sk_test_wrong').customers.retrieve(customer.id), Stripe.errors.StripeAuthenticationError);
await assert.rejects(stripe.customers.retrieve('cus_nobody'), (error) => error.code === 'resource_missing' && error.statusCode === 404 && !!error.requestId);
await local('faults', { times: 1, status: 429 });
await assert.rejects(client(key, { maxNetworkRetries: 0 }).customers.retrieve(customer.id), Stripe.errors.StripeRateLimitError);
// The client tries a 500 again by itself, under one key; the kept 500 comes back.
await local('calls/reset');
await local('faults', { times: 1, status: 500, path: '/v1/customers' });
await assert.rejects(client(key, { maxNetworkRetries: 2 }).customers.create({ email: 'ben@example.com' }), Stripe.errors.StripeAPIError);
assert.equal((await look('calls')).paths['POST /v1/customers'], 3);

// Every event, page by page.
const ids = [];
for await (const event of stripe.events.list({ limit: 3 })) ids.push(event.id);
assert.equal(new Set(ids).size, ids.length);
const whole = await stripe.events.list({ limit: 100 });
assert.deepEqual(whole.data.map((event) => event.id), ids);
const named = await stripe.events.list({ types: ['invoice.paid', 'charge.refunded'] });
assert.deepEqual(named.data.map((event) => event.type).sort(), ['charge.refunded', 'invoice.paid']);
const deleted = await stripe.customers.del(customer.id);
assert.equal(deleted.deleted, true);
assert.equal((await stripe.customers.retrieve(customer.id)).deleted, true);

// What was delivered is genuine, and what was changed on its way is not.
let delivery;
for (let n = 0; n < 100 && !delivery; n++) {
  delivery = (await look('deliveries')).data.find((one) => one.state === 'delivered' && one.event_type === 'checkout.session.completed');
  if (!delivery) await new Promise((resolve) => setTimeout(resolve, 50));
}
assert.ok(delivery, 'no delivery of checkout.session.completed');
const { signature } = delivery.attempts.at(-1);
const event = stripe.webhooks.constructEvent(delivery.body, signature, secret);
assert.deepEqual([event.type, event.data.object.id], ['checkout.session.completed', session.id]);
assert.throws(() => stripe.webhooks.constructEvent(`${delivery.body} `, signature, secret), Stripe.errors.StripeSignatureVerificationError);
assert.throws(() => stripe.webhooks.constructEvent(delivery.body, signature, 'whsec_other'), Stripe.errors.StripeSignatureVerificationError);
console.log('all as with the real one');
// The client's idle connections would keep the program for another 80 seconds.
process.exit();
