//! A fact as a row of the table, and back. Most columns of a row are empty.

use crate::domain::fact::{Agreement, Dated, Fact, InvoiceState, LiveAgreement, PackState};
use crate::domain::ids::{AccountId, AgreementId, ChargeId, EventId, EventKey, InvoiceId, PurchaseId};
use crate::domain::instant::Instant;
use crate::domain::money::{Money, Movement};

pub struct Row {
    pub event: EventId,
    pub account: AccountId,
    pub source: String,
    pub key: EventKey,
    pub kind: String,
    pub agreement: Option<AgreementId>,
    pub plan_key: Option<String>,
    pub occurred_ns: i64,
    pub effective_ns: Option<i64>,
    pub object: Option<String>,
    pub began_ns: Option<i64>,
    pub bottles: Option<i64>,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
    pub word: Option<String>,
    pub reference: Option<String>,
    pub charge: Option<ChargeId>,
}

impl Row {
    pub fn live(self) -> Option<LiveAgreement> {
        self.agreement.zip(self.plan_key).map(|(agreement, plan_key)| LiveAgreement { agreement, plan_key })
    }

    /// None: the row is not as this program writes it.
    pub fn fact(self) -> Option<Fact> {
        let effective = self.effective_ns.map(Instant::from_nanos);
        let began = self.began_ns.map(Instant::from_nanos);
        let invoice =
            |state| Some(Fact::Invoice { invoice: InvoiceId(self.object.clone()?), agreement: self.agreement.clone(), state });
        let pack = |state| Some(Fact::Pack { purchase: PurchaseId(self.object.clone()?), state });
        let money = || Some(Money { minor: self.amount_minor?, currency: self.currency.as_ref()?.parse().ok()? });
        Some(match self.kind.as_str() {
            "start" => Fact::Start { agreement: self.agreement, plan_key: self.plan_key?, changed: false },
            "change" => Fact::Start { agreement: self.agreement, plan_key: self.plan_key?, changed: true },
            "end" => Fact::End { agreement: self.agreement, effective },
            "paid" => Fact::Paid { agreement: self.agreement },
            "payment_failed" => Fact::PaymentFailed { agreement: self.agreement },
            "overdue" => Fact::Overdue { agreement: self.agreement },
            "opened" => Fact::Opened,
            "snapshot" => Fact::Snapshot { live: self.live().into_iter().collect() },
            kind @ ("agreement" | "agreement_over") => Fact::Agreement(Agreement {
                over: kind == "agreement_over",
                agreement: self.agreement?,
                plan_key: self.plan_key?,
                began: began?,
                until: effective,
            }),
            "invoice_paid" => invoice(InvoiceState::Paid { opens: self.plan_key.clone().zip(effective) })?,
            "invoice_owed" => invoice(InvoiceState::Owed { since: began? })?,
            "invoice_settled" => invoice(InvoiceState::Settled)?,
            "pack_paid" => pack(PackState::Paid { at: effective?, bottles: self.bottles?, charge: self.charge.clone() })?,
            "pack_awaited" => pack(PackState::Awaited)?,
            "pack_failed" => pack(PackState::Failed)?,
            "dispute" => Fact::Dispute { money: money()?, dispute: self.object?, charge: self.charge?, status: self.word? },
            "moved" => Fact::Moved(Movement {
                money: money()?,
                kind: self.word?.parse().ok()?,
                key: self.object?,
                reference: self.reference?,
                charge: self.charge,
                occurred: effective?,
            }),
            _ => return None,
        })
    }
}

/// What is in the columns of one row; most are empty.
#[derive(Default)]
struct Cells<'a> {
    kind: &'static str,
    agreement: Option<&'a str>,
    plan_key: Option<&'a str>,
    effective: Option<Instant>,
    object: Option<&'a str>,
    began: Option<Instant>,
    bottles: Option<i64>,
    money: Option<&'a Money>,
    word: Option<&'a str>,
    reference: Option<&'a str>,
    charge: Option<&'a str>,
}

fn naming<'a>(kind: &'static str, agreement: Option<&'a AgreementId>) -> Cells<'a> {
    Cells { kind, agreement: agreement.map(AgreementId::as_str), ..Cells::default() }
}

fn cells(fact: &Fact) -> Vec<Cells<'_>> {
    match fact {
        Fact::Start { agreement, plan_key, changed } => {
            let kind = if *changed { "change" } else { "start" };
            vec![Cells { plan_key: Some(plan_key), ..naming(kind, agreement.as_ref()) }]
        }
        Fact::End { agreement, effective } => {
            vec![Cells { effective: *effective, ..naming("end", agreement.as_ref()) }]
        }
        Fact::Paid { agreement } => vec![naming("paid", agreement.as_ref())],
        Fact::PaymentFailed { agreement } => vec![naming("payment_failed", agreement.as_ref())],
        Fact::Overdue { agreement } => vec![naming("overdue", agreement.as_ref())],
        Fact::Opened => vec![naming("opened", None)],
        Fact::Snapshot { live } if live.is_empty() => vec![naming("snapshot", None)],
        Fact::Snapshot { live } => live
            .iter()
            .map(|item| Cells { plan_key: Some(&item.plan_key), ..naming("snapshot", Some(&item.agreement)) })
            .collect(),
        Fact::Agreement(one) => vec![Cells {
            kind: if one.over { "agreement_over" } else { "agreement" },
            agreement: Some(one.agreement.as_str()),
            plan_key: Some(&one.plan_key),
            began: Some(one.began),
            effective: one.until,
            ..Cells::default()
        }],
        Fact::Invoice { invoice, agreement, state } => {
            let agreement = agreement.as_ref().map(AgreementId::as_str);
            let row = Cells { agreement, object: Some(invoice.as_str()), ..Cells::default() };
            vec![match state {
                InvoiceState::Paid { opens: Some((plan_key, from)) } => {
                    Cells { kind: "invoice_paid", plan_key: Some(plan_key), effective: Some(*from), ..row }
                }
                InvoiceState::Paid { opens: None } => Cells { kind: "invoice_paid", ..row },
                InvoiceState::Owed { since } => Cells { kind: "invoice_owed", began: Some(*since), ..row },
                InvoiceState::Settled => Cells { kind: "invoice_settled", ..row },
            }]
        }
        Fact::Pack { purchase, state } => {
            let row = Cells { object: Some(purchase.as_str()), ..Cells::default() };
            vec![match state {
                PackState::Paid { at, bottles, charge } => Cells {
                    kind: "pack_paid",
                    effective: Some(*at),
                    bottles: Some(*bottles),
                    charge: charge.as_ref().map(ChargeId::as_str),
                    ..row
                },
                PackState::Awaited => Cells { kind: "pack_awaited", ..row },
                PackState::Failed => Cells { kind: "pack_failed", ..row },
            }]
        }
        Fact::Dispute { dispute, charge, money, status } => vec![Cells {
            kind: "dispute",
            object: Some(dispute),
            charge: Some(charge.as_str()),
            money: Some(money),
            word: Some(status),
            ..Cells::default()
        }],
        Fact::Moved(moved) => vec![Cells {
            kind: "moved",
            object: Some(&moved.key),
            word: Some(moved.kind.as_str()),
            money: Some(&moved.money),
            reference: Some(&moved.reference),
            charge: moved.charge.as_ref().map(ChargeId::as_str),
            effective: Some(moved.occurred),
            ..Cells::default()
        }],
    }
}

#[derive(Default)]
pub struct Columns<'a> {
    pub event: Vec<i64>,
    pub n: Vec<i32>,
    pub account: Vec<i64>,
    pub source: Vec<&'a str>,
    pub key: Vec<&'a str>,
    pub kind: Vec<&'a str>,
    pub agreement: Vec<Option<&'a str>>,
    pub plan_key: Vec<Option<&'a str>>,
    pub occurred: Vec<i64>,
    pub effective: Vec<Option<i64>>,
    pub object: Vec<Option<&'a str>>,
    pub began: Vec<Option<i64>>,
    pub bottles: Vec<Option<i64>>,
    pub amount: Vec<Option<i64>>,
    pub currency: Vec<Option<&'a str>>,
    pub word: Vec<Option<&'a str>>,
    pub reference: Vec<Option<&'a str>>,
    pub charge: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    pub fn of(facts: &'a [(AccountId, Dated)]) -> Self {
        let mut columns = Self::default();
        for (account, dated) in facts {
            for row in cells(&dated.fact) {
                columns.push(*account, dated, &row);
            }
        }
        columns
    }

    fn push(&mut self, account: AccountId, dated: &'a Dated, row: &Cells<'a>) {
        let n = self.event.iter().rev().take_while(|e| **e == dated.event.0).count();
        self.event.push(dated.event.0);
        self.n.push(i32::try_from(n).unwrap_or(i32::MAX));
        self.account.push(account.0);
        self.source.push(dated.source.as_str());
        self.key.push(dated.key.as_str());
        self.kind.push(row.kind);
        self.agreement.push(row.agreement);
        self.plan_key.push(row.plan_key);
        self.occurred.push(dated.at.nanos());
        self.effective.push(row.effective.map(Instant::nanos));
        self.object.push(row.object);
        self.began.push(row.began.map(Instant::nanos));
        self.bottles.push(row.bottles);
        self.amount.push(row.money.map(|m| m.minor));
        self.currency.push(row.money.map(|m| m.currency.as_str()));
        self.word.push(row.word);
        self.reference.push(row.reference);
        self.charge.push(row.charge);
    }
}
