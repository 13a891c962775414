//! A person's money on their account page, on the pages of its events, and as a file.

use bottle::providers::{Provider, Ware};
use serde_json::json;

use crate::local_stripe::{self, SECRET, Stripe};
use crate::support::app::{App, Setup, SignedIn, answer};
use crate::support::till::{arm, checkout_of, now_secs, signature};

struct Counter {
    app: App,
    stripe: Stripe,
}

impl Counter {
    async fn open() -> Self {
        let stripe = Stripe::begin(local_stripe::settings()).await;
        let setup = Setup { stripe: Some(Provider::Stripe(arm(&stripe.url()))), worker: true, ..Setup::default() };
        Self { app: setup.start().await, stripe }
    }

    async fn buys(&self, who: &SignedIn, ware: Ware) -> String {
        let provider = Provider::Stripe(arm(&self.stripe.url()));
        let session = checkout_of(&provider, &who.person.user, ware, None).await;
        let done = self.stripe.turn(&format!("checkout/{session}/complete"), json!({"way": "card"})).await;
        self.hears().await;
        match done["payment_intent"].as_str() {
            Some(intent) => {
                let intent = self.stripe.get(&format!("/v1/payment_intents/{intent}"), &[]).await;
                intent["latest_charge"].as_str().unwrap().to_owned()
            }
            None => String::new(),
        }
    }

    /// Everything Stripe ever told; what was told before is a copy.
    async fn hears(&self) {
        let news = self.stripe.get("/v1/events", &[("limit", "100")]).await;
        for event in news["data"].as_array().unwrap().iter().rev() {
            let body = event.to_string();
            let post = self.app.http.post(self.app.url("/webhooks/stripe"));
            let signed = post.header("stripe-signature", signature(SECRET, now_secs(), body.as_bytes()));
            assert_eq!(answer(signed.body(body)).await.status, 200);
        }
        self.app.worked_off().await;
    }

    async fn page(&self, who: &SignedIn, path: &str) -> String {
        let page = self.app.get_as(who, path).await;
        assert_eq!(page.status, 200, "{path}");
        page.text
    }
}

#[track_caller]
fn says(page: &str, words: &[&str]) {
    for word in words {
        assert!(page.contains(word), "the page does not say `{word}`:\n{page}");
    }
}

#[tokio::test]
async fn what_was_paid_and_given_back_stands_with_its_reason_and_a_refund_stamps_the_pack() {
    let counter = Counter::open().await;
    let (ada, bob) = (counter.app.sign_in("kp_ada").await, counter.app.sign_in("kp_bob").await);
    let (first, second) = (counter.buys(&ada, Ware::Pack).await, counter.buys(&ada, Ware::Pack).await);
    counter.buys(&ada, Ware::Pro).await;
    let page = counter.page(&ada, "/account").await;
    says(&page, &["<b>22.00 USD</b>", "You paid, ", "100 bottles, ", "+100 bottles for ", " · paid 5.00 USD"]);

    counter.stripe.turn(&format!("charges/{first}/refund"), json!({"amount": 120})).await;
    counter.stripe.turn(&format!("charges/{second}/refund"), json!({})).await;
    counter.hears().await;
    let page = counter.page(&ada, "/account").await;
    says(&page, &["<b>15.80 USD</b>", "paid 22.00 USD; given back 6.20 USD"]);
    says(
        &page,
        &["Refunded in part, 1.20 USD</span>", "Refunded</span>", "Given back to you, ", "-1.20 USD", "1.20 USD given back"],
    );
    says(&page, &["A refund gives money back; the bottles stay."]);
    assert!(!counter.page(&bob, "/account").await.contains("5.00 USD"), "it is Ada's");

    // The event's own page says which rows it brought.
    let refund: i64 = sqlx::query_scalar("select event_id from money_ledger where amount_minor = -120")
        .fetch_one(&counter.app.pool)
        .await
        .unwrap();
    says(&page, &[&format!("<a href=\"/account/events/{refund}\">why")]);
    let event = counter.page(&ada, &format!("/account/events/{refund}")).await;
    says(&event, &["Money it told of first", "-1.20 USD", "Stripe was asked for", "Money moved, by the provider’s answer"]);

    let dispute = counter.stripe.turn(&format!("charges/{first}/dispute"), json!({})).await;
    counter.hears().await;
    says(&counter.page(&ada, "/account").await, &["Disputed</span>", "Taken back by your bank, "]);
    counter.stripe.turn(&format!("disputes/{}/close", local_stripe::id(&dispute)), json!({"won": true})).await;
    counter.hears().await;
    says(&counter.page(&ada, "/account").await, &["Dispute won: the payment stands</span>", "Returned by your bank"]);
}

#[tokio::test]
async fn the_money_is_turned_over_page_by_page_and_stays_where_it_is_while_more_comes() {
    let counter = Counter::open().await;
    let ada = counter.app.sign_in("kp_ada").await;
    counter.buys(&ada, Ware::Pack).await;
    fill(&counter.app, 45).await;
    let rows = |page: &str| page.split("id=\"money\"").nth(1).unwrap().matches("entry-key\">re_").count();
    let older = |page: &str| {
        let (before, _) = page.split_once("Older movements</a>")?;
        let address = before.rsplit_once("href=\"")?.1.split('"').next()?.replace("&amp;", "&");
        Some(address.split('#').next().unwrap().to_owned())
    };
    let first = counter.page(&ada, "/account").await;
    assert_eq!(rows(&first), 20);
    let address = older(&first).unwrap();
    let second = counter.page(&ada, &address).await;
    fill(&counter.app, 3).await;
    let again = counter.page(&ada, &address).await;
    let shown = |page: &str| {
        page.split("id=\"money\"")
            .nth(1)
            .unwrap()
            .split("entry-key\">")
            .skip(1)
            .map(|rest| rest.split('<').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(&second), shown(&again), "new rows push nothing onto this page");
    says(&second, &["Back to the newest</a>"]);
    let last = counter.page(&ada, &older(&second).unwrap()).await;
    assert_eq!((rows(&last), older(&last)), (5, None), "and the payment itself, which is the oldest");
    let odd = counter.app.get_as(&ada, "/account?money=x").await;
    assert_eq!(odd.status, 400);
    says(&odd.text, &["That page of the money is none"]);
}

#[tokio::test]
async fn the_file_has_every_row_of_ones_own_and_nothing_a_spreadsheet_would_run() {
    let counter = Counter::open().await;
    let (ada, bob) = (counter.app.sign_in("kp_ada").await, counter.app.sign_in("kp_bob").await);
    counter.buys(&ada, Ware::Pack).await;
    // More than are read at once, and among them one that a spreadsheet would take for a formula.
    fill(&counter.app, 1_205).await;
    let evil = "insert into money_ledger (account_id, kind, amount_minor, currency, provider_reference, movement_key, event_id, occurred_at, created_at)
                select account_id, 'refund', -450, 'jpy', '=HYPERLINK(\"http://evil.example\")', 'refund:evil', event_id, now(), now() from money_ledger limit 1";
    sqlx::query(evil).execute(&counter.app.pool).await.unwrap();
    let file = counter.app.get_as(&ada, "/account/money.csv").await;
    assert_eq!((file.status, file.headers["content-type"].to_str().unwrap()), (200, "text/csv; charset=utf-8; header=present"));
    assert_eq!(file.headers["content-disposition"], "attachment; filename=\"bottle-money.csv\"");
    assert_eq!(file.headers["x-content-type-options"], "nosniff");
    let rows: Vec<csv::StringRecord> = csv::Reader::from_reader(file.text.as_bytes()).records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 1_207);
    assert_eq!(file.text.matches("occurred,kind,amount").count(), 1, "one heading");
    let references: std::collections::BTreeSet<&str> = rows.iter().map(|row| &row[5]).collect();
    assert_eq!(references.len(), 1_207, "each once");
    assert_eq!((&rows[0][2], &rows[0][3], &rows[0][5]), ("-450", "JPY", "'=HYPERLINK(\"http://evil.example\")"));
    assert_eq!((&rows[1_206][1], &rows[1_206][2], &rows[1_206][3]), ("charge", "5.00", "USD"), "the oldest is last");

    let none = counter.app.get_as(&bob, "/account/money.csv").await;
    assert_eq!((none.status, none.text.as_str()), (200, "occurred,kind,amount,currency,amount_minor,reference,charge,event\n"));
    let nobody = answer(local_stripe::client().get(counter.app.url("/account/money.csv"))).await;
    assert_eq!(nobody.leads_to(), "/login?return_to=%2Faccount%2Fmoney.csv");
}

/// So many refunds of a cent, of whoever has the first row.
async fn fill(app: &App, count: i32) {
    let sql = "insert into money_ledger (account_id, kind, amount_minor, currency, provider_reference, movement_key, event_id, occurred_at, created_at)
               select f.account_id, 'refund', -1, 'usd', 're_' || u.k, 'refund:' || u.k, f.event_id, now(), now()
               from (select account_id, event_id from money_ledger order by id limit 1) f,
                    (select gen_random_uuid()::text as k from generate_series(1, $1)) u";
    sqlx::query(sql).bind(count).execute(&app.pool).await.unwrap();
}
