//! What an invoice opens: asked of an arm whose Stripe answers just that invoice.

use bottle::domain::event::Source;
use bottle::domain::fact::{Fact, InvoiceState};
use bottle::domain::instant::Instant;
use bottle::domain::told::Said;
use bottle::providers::{Provider, StoredEvent};
use serde_json::{Value, json};

use crate::local_stripe::PRO;
use crate::support::till::{arm, event};

const BEGINS: i64 = 1_790_000_000;
const LATER: i64 = BEGINS + 864_000;

fn line(id: &str, price: &str, start: i64, proration: bool) -> Value {
    json!({
        "id": id, "period": {"start": start, "end": start + 2_592_000},
        "parent": {"type": "subscription_item_details", "subscription_item_details": {"proration": proration}},
        "pricing": {"type": "price_details", "price_details": {"price": price}},
    })
}

/// The plan an invoice paid for, and since when; none if it opens no period.
async fn opens(reason: &str, lines: &[Value]) -> Option<(String, i64)> {
    let invoice = json!({
        "id": "in_1", "object": "invoice", "status": "paid", "billing_reason": reason, "attempted": true, "currency": "usd",
        "created": BEGINS, "customer": "cus_1", "starting_balance": 0, "ending_balance": 0, "metadata": {},
        "status_transitions": {"finalized_at": BEGINS, "paid_at": BEGINS},
        "parent": {"type": "subscription_details", "subscription_details": {"subscription": "sub_1", "metadata": {}}},
        "lines": {"object": "list", "data": lines, "has_more": false},
        "payments": {"object": "list", "data": [], "has_more": false},
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(move || std::future::ready(axum::Json(invoice.clone())));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let providers = bottle::providers::Providers { kinde: None, stripe: Some(Provider::Stripe(arm(&url))) };
    let (body, now) = (event("evt_1", "invoice.paid", "in_1").to_string(), Instant::from_nanos(LATER * 1_000_000_000));
    let stored = StoredEvent {
        source: Source::Stripe,
        key: "evt_1",
        kind: "invoice.paid",
        body: Some(body.as_bytes()),
        occurred: None,
        received: now,
        asked: now,
    };
    let told = providers.resolve(stored, bottle::clock::Clock::At(now), &bottle::providers::round::Round::begin()).await.unwrap();
    let Said::Answered { facts, .. } = told.said else { panic!("{:?}", told.said) };
    let [Fact::Invoice { state: InvoiceState::Paid { opens }, .. }] = facts.as_slice() else { panic!("{facts:?}") };
    opens.clone().map(|(plan, from)| (plan, from.nanos() / 1_000_000_000))
}

#[tokio::test]
async fn a_first_and_a_renewing_invoice_open_the_period_of_the_plans_own_line() {
    let pro = || Some((PRO.to_owned(), BEGINS));
    for reason in ["subscription_create", "subscription_cycle"] {
        assert_eq!(opens(reason, &[line("il_1", PRO, BEGINS, false)]).await, pro(), "{reason}");
        let other = line("il_2", "price_extra", LATER, false);
        assert_eq!(opens(reason, &[other, line("il_1", PRO, BEGINS, false)]).await, pro(), "{reason}: beside something else");
    }
}

/// What was changed in mid-period is billed with the renewal, as lines of a proration beside the line of the new period. They may
/// begin later than it, and are about a period that is open already.
#[tokio::test]
async fn a_line_of_a_proration_opens_nothing_even_on_a_renewing_invoice() {
    let lines = [line("il_1", PRO, BEGINS, false), line("il_2", PRO, LATER, true), line("il_3", PRO, LATER, true)];
    assert_eq!(opens("subscription_cycle", &lines).await, Some((PRO.to_owned(), BEGINS)));
    assert_eq!(opens("subscription_cycle", &lines[1..]).await, None, "none of them alone");
}

/// A change that is billed at once, or an invoice made by hand, may have lines that call themselves no proration.
#[tokio::test]
async fn an_invoice_for_any_other_reason_opens_nothing_whatever_its_lines_say() {
    for reason in ["subscription_update", "subscription_threshold", "manual", "upcoming", "a_new_word"] {
        assert_eq!(opens(reason, &[line("il_1", PRO, BEGINS, false)]).await, None, "{reason}");
    }
}
