//! Objects as they are when new, every field that Stripe's own types demand, in the shape of the newest version.

use serde_json::{Value, json};

use super::form::Params;
use super::world::{World, fresh, random, text};

pub fn customer(world: &World, email: Option<&str>, name: Option<&str>) -> Value {
    json!({
        "id": fresh("cus", 14), "object": "customer", "address": null, "balance": 0, "created": world.now(), "currency": null,
        "default_source": null, "delinquent": false, "description": null, "discount": null, "email": email,
        "invoice_prefix": random(8).to_uppercase(),
        "invoice_settings": { "custom_fields": null, "default_payment_method": null, "footer": null, "rendering_options": null },
        "livemode": false, "metadata": {}, "name": name, "next_invoice_sequence": 1, "phone": null, "preferred_locales": [],
        "shipping": null, "tax_exempt": "none", "test_clock": null,
    })
}

/// How a payment is made. What a card pays is known at once; what a bank debit pays, days later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Card,
    SepaDebit,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::SepaDebit => "sepa_debit",
        }
    }

    pub fn of(payment_method: &Value) -> Self {
        if text(payment_method, "type") == Self::SepaDebit.name() { Self::SepaDebit } else { Self::Card }
    }
}

pub fn payment_method(world: &World, method: Method, customer: Option<&str>) -> Value {
    let mut made = json!({
        "id": fresh("pm_1", 23), "object": "payment_method", "billing_details": billing_details(), "created": world.now(),
        "customer": customer, "customer_account": null, "livemode": false, "metadata": {}, "type": method.name(),
    });
    made[method.name()] = match method {
        Method::Card => json!({
            "brand": "visa", "checks": null, "country": "US", "display_brand": "visa", "exp_month": 12, "exp_year": 2040,
            "fingerprint": random(16), "funding": "credit", "generated_from": null, "last4": "4242", "networks": null,
            "regulated_status": "unregulated", "three_d_secure_usage": null, "wallet": null,
        }),
        Method::SepaDebit => json!({
            "bank_code": "37040044", "branch_code": "", "country": "DE", "fingerprint": random(16), "generated_from": null,
            "last4": "3000",
        }),
    };
    made
}

fn billing_details() -> Value {
    json!({ "address": null, "email": null, "name": null, "phone": null, "tax_id": null })
}

pub fn payment_intent(world: &World, amount: i64, currency: &str, customer: Option<&str>, method: Option<&str>) -> Value {
    let id = fresh("pi_3", 23);
    with_nulls(
        "allowed_payment_method_types application application_fee_amount automatic_payment_methods canceled_at \
         cancellation_reason customer_account description excluded_payment_method_types last_payment_error \
         latest_charge managed_payments next_action on_behalf_of payment_method_configuration_details payment_record \
         processing receipt_email review setup_future_usage shipping source statement_descriptor \
         statement_descriptor_suffix transfer_data transfer_group",
        json!({
        "id": id, "object": "payment_intent", "amount": amount, "amount_capturable": 0,
        "amount_received": 0, "capture_method": "automatic_async",
        "client_secret": format!("{id}_secret_{}", random(25)), "confirmation_method": "automatic", "created": world.now(),
        "currency": currency, "customer": customer, "livemode": false,
        "metadata": {}, "payment_method": method,
        "payment_method_options": {}, "payment_method_types": ["card", "sepa_debit"],
        "status": "requires_payment_method", }),
    )
}

pub fn charge(world: &World, intent: &Value, method: Method) -> Value {
    let id = fresh("ch_3", 23);
    let mut details = json!({ "type": method.name() });
    details[method.name()] = match method {
        Method::Card => json!({
            "amount_authorized": intent["amount"], "authorization_code": null, "brand": "visa", "checks": null, "country": "US",
            "electronic_commerce_indicator": null, "exp_month": 12, "exp_year": 2040, "extended_authorization": { "status": "disabled" }, "fingerprint": null,
            "funding": "credit", "incremental_authorization": { "status": "unavailable" }, "installments": null, "last4": "4242",
            "mandate": null, "multicapture": { "status": "unavailable" }, "network": "visa", "network_token": { "used": false },
            "network_transaction_id": null, "overcapture": { "maximum_amount_capturable": intent["amount"], "status": "unavailable" },
            "regulated_status": "unregulated", "three_d_secure": null, "transaction_link_id": null, "wallet": null,
        }),
        Method::SepaDebit => json!({
            "bank_code": "37040044", "branch_code": "", "country": "DE", "fingerprint": null, "last4": "3000", "mandate": null,
        }),
    };
    with_nulls(
        "application application_fee application_fee_amount balance_transaction failure_balance_transaction \
         failure_code failure_message on_behalf_of outcome receipt_email receipt_number receipt_url review shipping \
         source source_transfer statement_descriptor statement_descriptor_suffix transfer_data transfer_group",
        json!({
        "id": id, "object": "charge", "amount": intent["amount"], "amount_captured": 0, "amount_refunded": 0, "billing_details": billing_details(),
        "calculated_statement_descriptor": "BOTTLE", "captured": false, "created": world.now(), "currency": intent["currency"],
        "customer": intent["customer"], "description": intent["description"], "disputed": false, "fraud_details": {}, "livemode": false, "metadata": intent["metadata"],
        "paid": false, "payment_intent": intent["id"],
        "payment_method": intent["payment_method"], "payment_method_details": details, "refunded": false, "status": "pending", }),
    )
}

pub fn refund(world: &World, charge: &Value, amount: i64, reason: Option<&str>) -> Value {
    json!({
        "id": fresh("re_3", 23), "object": "refund", "amount": amount, "balance_transaction": null, "charge": charge["id"],
        "created": world.now(), "currency": charge["currency"], "customer": charge["customer"], "customer_account": null,
        "destination_details": { "type": text(&charge["payment_method_details"], "type") }, "metadata": {},
        "payment_intent": charge["payment_intent"], "payment_method": charge["payment_method"], "reason": reason,
        "receipt_number": null, "source_transfer_reversal": null, "status": "pending", "transfer_reversal": null,
    })
}

pub fn dispute(world: &World, charge: &Value, amount: i64, reason: &str, status: &str) -> Value {
    let due = world.now() + 7 * 24 * 3600;
    json!({
        "id": fresh("du_1", 23), "object": "dispute", "amount": amount, "balance_transactions": [], "charge": charge["id"],
        "created": world.now(), "currency": charge["currency"], "enhanced_eligibility_types": [], "evidence": evidence(),
        "evidence_details": {
            "due_by": due, "enhanced_eligibility": {}, "has_evidence": false, "past_due": false, "submission_count": 0,
            "submission_method": "not_submitted",
        },
        "intended_submission_method": null, "is_charge_refundable": status.starts_with("warning"), "livemode": false, "metadata": {},
        "payment_intent": charge["payment_intent"], "reason": reason, "status": status,
    })
}

/// Every field of the evidence, and nothing in any.
fn evidence() -> Value {
    let names = "access_activity_log billing_address cancellation_policy cancellation_policy_disclosure cancellation_rebuttal \
                 customer_communication customer_email_address customer_name customer_purchase_ip customer_signature \
                 duplicate_charge_documentation duplicate_charge_explanation duplicate_charge_id product_description receipt \
                 refund_policy refund_policy_disclosure refund_refusal_explanation service_date service_documentation \
                 shipping_address shipping_carrier shipping_date shipping_documentation shipping_tracking_number \
                 uncategorized_file uncategorized_text";
    with_nulls(names, json!({ "enhanced_evidence": {} }))
}

/// An invoice of a subscription, without lines or sums yet.
pub fn invoice(world: &World, subscription: &Value, reason: &str) -> Value {
    let id = fresh("in_1", 23);
    let customer = world.copy(text(subscription, "customer"));
    with_zeros(
        "amount_due amount_overpaid amount_paid amount_remaining amount_shipping attempt_count post_payment_credit_notes_amount \
 pre_payment_credit_notes_amount starting_balance subtotal subtotal_excluding_tax total total_excluding_tax",
        with_nulls(
            "account_tax_ids application automatically_finalizes_at custom_fields customer_account customer_address \
         customer_phone customer_shipping default_payment_method default_source description due_date effective_at \
         ending_balance footer from_invoice hosted_invoice_url invoice_pdf last_finalization_error latest_revision \
         next_payment_attempt number on_behalf_of receipt_number rendering shipping_cost shipping_details \
         statement_descriptor test_clock webhooks_delivered_at",
            json!({
        "id": id, "object": "invoice", "account_country": "US", "account_name": "Local Stripe", "attempted": false, "auto_advance": true, "automatic_tax": automatic_tax(),
        "billing_reason": reason, "collection_method": "charge_automatically",
        "created": world.now(), "currency": subscription["currency"], "customer": subscription["customer"],
        "customer_email": customer["email"], "customer_name": customer["name"],
        "customer_tax_exempt": "none", "customer_tax_ids": [],
        "default_tax_rates": [], "discounts": [],
        "issuer": { "type": "self" }, "lines": list_of(Vec::new(), &format!("/v1/invoices/{id}/lines")), "livemode": false,
        "metadata": {}, "parent": {
            "quote_details": null,
            "subscription_details": { "metadata": subscription["metadata"], "subscription": subscription["id"] },
            "type": "subscription_details",
        },
        "payment_settings": { "default_mandate": null, "payment_method_options": null, "payment_method_types": null },
        "period_end": world.now(), "period_start": world.now(), "status": "draft",
        "status_transitions": { "finalized_at": null, "marked_uncollectible_at": null, "paid_at": null, "voided_at": null },
        "total_discount_amounts": [],
        "total_pretax_credit_amounts": [], "total_taxes": [], }),
        ),
    )
}

fn automatic_tax() -> Value {
    json!({ "disabled_reason": null, "enabled": false, "liability": null, "provider": null, "status": null })
}

/// Ties a payment to its invoice: since basil neither names the other.
pub fn invoice_payment(world: &World, invoice: &Value, intent: &str) -> Value {
    json!({
        "id": fresh("inpay_1", 23), "object": "invoice_payment", "amount_paid": null, "amount_requested": invoice["amount_due"],
        "created": world.now(), "currency": invoice["currency"], "invoice": invoice["id"], "is_default": true, "livemode": false,
        "payment": { "payment_intent": intent, "type": "payment_intent" }, "status": "open",
        "status_transitions": { "canceled_at": null, "paid_at": null },
    })
}

pub fn subscription(world: &World, customer: &str, currency: &str, method: Option<&str>) -> Value {
    let (id, now) = (fresh("sub_1", 23), world.now());
    with_nulls(
        "application application_fee_percent billing_cycle_anchor_config billing_thresholds cancel_at canceled_at \
         customer_account days_until_due default_source description ended_at latest_invoice managed_payments \
         next_pending_invoice_item_invoice on_behalf_of pause_collection pending_invoice_item_interval \
         pending_setup_intent pending_update schedule test_clock transfer_data trial_end trial_start",
        json!({
        "id": id, "object": "subscription", "automatic_tax": { "disabled_reason": null, "enabled": false, "liability": null }, "billing_cycle_anchor": now,
        "billing_mode": { "flexible": null, "type": "classic" }, "billing_schedules": [],
        "cancel_at_period_end": false, "cancellation_details": { "comment": null, "feedback": null, "feedback_option": null, "reason": null }, "collection_method": "charge_automatically",
        "created": now, "currency": currency, "customer": customer, "default_payment_method": method, "default_tax_rates": [], "discounts": [],
        "invoice_settings": { "account_tax_ids": null, "custom_fields": null, "description": null, "footer": null, "issuer": { "type": "self" } },
        "items": list_of(Vec::new(), &format!("/v1/subscription_items?subscription={id}")), "livemode": false, "metadata": {}, "payment_settings": { "payment_method_options": null, "payment_method_types": null, "save_default_payment_method": "off" },
        "start_date": now, "status": "incomplete", "trial_settings": { "end_behavior": { "billing_cycle_anchor": null, "missing_payment_method": "create_invoice" } }, }),
    )
}

pub fn subscription_item(world: &World, subscription: &str, price: &Value, quantity: i64, period: (i64, i64)) -> Value {
    let recurring = &price["recurring"];
    with_nulls(
        "billing_thresholds current_trial",
        json!({
            "id": fresh("si", 14), "object": "subscription_item", "created": world.now(),
            "current_period_end": period.1, "current_period_start": period.0, "discounts": [], "metadata": {},
            "plan": {
                "id": price["id"], "object": "plan", "active": true, "amount": price["unit_amount"],
                "amount_decimal": price["unit_amount_decimal"], "billing_scheme": "per_unit", "created": price["created"],
                "currency": price["currency"], "interval": recurring["interval"], "interval_count": recurring["interval_count"],
                "livemode": false, "metadata": {}, "meter": null, "nickname": null, "product": price["product"], "tiers_mode": null,
                "transform_usage": null, "trial_period_days": null, "usage_type": "licensed",
            },
            "price": price, "quantity": quantity, "subscription": subscription, "tax_rates": [],
        }),
    )
}

pub fn checkout_session(world: &World, url: &str, form: &Params) -> Value {
    let id = format!("cs_test_{}", random(58));
    let mode = form.text("mode").unwrap_or_default();
    let field = |name: &str| form.text(name);
    with_nulls(
        "after_expiration allow_promotion_codes allowed_payment_method_types billing_address_collection client_secret \
         collected_information consent consent_collection currency currency_conversion customer_account \
         customer_details integration_identifier invoice invoice_creation managed_payments origin_context \
         payment_intent payment_link payment_method_configuration_details permissions recovered_from \
         saved_payment_method_options setup_intent shipping_address_collection shipping_cost submit_type subscription \
         wallet_options",
        json!({
        "id": id, "object": "checkout.session", "adaptive_pricing": { "enabled": false }, "amount_subtotal": 0, "amount_total": 0,
        "automatic_tax": { "enabled": false, "liability": null, "provider": null, "status": null },
        "cancel_url": field("cancel_url"), "client_reference_id": field("client_reference_id"),
        "created": world.now(),
        "custom_fields": [],
        "custom_text": { "after_submit": null, "shipping_address": null, "submit": null, "terms_of_service_acceptance": null },
        "customer": field("customer"), "customer_creation": if mode == "payment" { Some(field("customer_creation").unwrap_or("if_required")) } else { None },
        "customer_email": field("customer_email"), "discounts": [],
        "expires_at": world.now() + 24 * 3600, "livemode": false, "locale": field("locale"), "metadata": {}, "mode": mode,
        "payment_method_collection": if mode == "subscription" { "always" } else { "if_required" },
        "payment_method_options": {}, "payment_method_types": ["card", "sepa_debit"],
        "payment_status": "unpaid", "phone_number_collection": { "enabled": false }, "shipping_options": [], "status": "open", "success_url": field("success_url"),
        "total_details": { "amount_discount": 0, "amount_shipping": 0, "amount_tax": 0 }, "ui_mode": "hosted_page",
        "url": format!("{url}/c/pay/{id}"), }),
    )
}

pub fn list_of(data: Vec<Value>, url: &str) -> Value {
    let mut list = json!({ "object": "list", "has_more": false, "url": url });
    list["data"] = Value::Array(data);
    list
}

/// Stripe leaves no field out that has nothing in it.
fn with_nulls(names: &str, value: Value) -> Value {
    with(names, &Value::Null, value)
}

fn with_zeros(names: &str, value: Value) -> Value {
    with(names, &json!(0), value)
}

fn with(names: &str, same: &Value, mut value: Value) -> Value {
    for name in names.split_whitespace() {
        value[name] = same.clone();
    }
    value
}
