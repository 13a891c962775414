//! The real program with settings that are unsafe where people are served: it does not start, and says why in one line.
//!
//! The whole table of settings is held in `src/config/production.rs`; here a few of each kind go all the way.

use crate::support::binary::Home;
use crate::support::db::fresh_db;

const KEY: &str = "hunter2/8Uq3vXr1WmZpK0sYb5nTgLhJdF7aCeR9";

#[tokio::test]
async fn an_unsafe_production_does_not_start_says_why_in_one_line_and_costs_no_database() {
    let home = Home::new();
    let kinde = [("KINDE_DOMAIN", "https://x.kinde.com"), ("KINDE_CLIENT_ID", "id")];
    let stripe = [("STRIPE_WEBHOOK_SECRET", "whsec_hunter2"), ("STRIPE_PRICE_PRO", "price_pro")];
    for (settings, words) in [
        (vec![("KINDE_DOMAIN", "http://localhost:3001")], ["KINDE_DOMAIN", "stand-in"]),
        ([&kinde[..], &[("KINDE_CLIENT_SECRET", "hunter2")]].concat(), ["BOTTLE_SESSION_KEY", "openssl rand"]),
        (
            [&kinde[..], &[("KINDE_CLIENT_SECRET", "<hunter2>"), ("BOTTLE_SESSION_KEY", KEY)]].concat(),
            ["KINDE_CLIENT_SECRET", "put in your own"],
        ),
        (vec![("BOTTLE_SESSION_KEY", "hunter2hunter2hunter2hunter2hunter2")], ["BOTTLE_SESSION_KEY", "openssl rand"]),
        ([&stripe[..], &[("STRIPE_SECRET_KEY", "sk_test_localhunter2")]].concat(), ["STRIPE_SECRET_KEY", "local Stripe"]),
        (
            vec![("ALERT_WEBHOOK_URL", "http://127.0.0.1:9/hunter2"), ("ALERT_WEBHOOK_SECRET", "whsec_hunter2")],
            ["ALERT_WEBHOOK_URL", "https"],
        ),
        (vec![("SMTP_URL", "smtp://u:hunter2@mail.example"), ("MAIL_FROM", "a@b.example")], ["SMTP_URL", "in the clear"]),
    ] {
        let settings = [&settings[..], &[("BOTTLE_URL", "https://bottle.example.com")]].concat();
        let said = home.run(&["serve"], &settings).await;
        let complaints = said.complaints();
        assert_eq!((said.code, complaints.len()), (Some(1), 1), "{said:?}");
        assert!(words.iter().all(|word| complaints[0].contains(word)) && !said.err.contains("hunter2"), "{words:?}: {said:?}");
    }
    let said = home.run(&["serve"], &[("BOTTLE_URL", "http://bottle.example.com")]).await;
    assert!(said.code == Some(1) && said.complaints()[0].contains("plain http for a public host"), "{said:?}");
    assert!(!home.path().join(".bottle/postgres").exists(), "it cost a database");
}

#[tokio::test]
async fn what_is_doubtful_in_production_is_warned_of_when_it_starts() {
    let (home, db) = (Home::new(), fresh_db().await);
    let url = db.url();
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("BOTTLE_URL", "https://bottle.example.com"),
        ("STRIPE_SECRET_KEY", "rk_test_hunter2"),
        ("STRIPE_WEBHOOK_SECRET", "whsec_hunter2"),
        ("STRIPE_PRICE_PRO", "price_pro"),
    ];
    // It ends at what a test's database lacks, and has said the rest by then.
    let said = home.run(&["worker"], &settings).await;
    let warned =
        said.err.lines().any(|line| line.contains("WARN") && line.contains("STRIPE_SECRET_KEY") && line.contains("test mode"));
    assert!(warned && !said.err.contains("hunter2"), "{said:?}");
}
