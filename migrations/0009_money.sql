-- What money moved for each account: one row a movement, in minor units, never changed and never deleted. Written by the room
-- `money` with the event that told of it; read by the account page, its export and by reconciling with the provider's books.
-- The movement key says which movement a row is (`charge:ch_…`, `refund:re_…`), so whoever tells of it again writes nothing.
create table money_ledger (
    id                 bigint generated always as identity primary key,
    account_id         bigint      not null references accounts (id),
    kind               text        not null check (kind in ('charge', 'refund', 'refund_failed', 'credit', 'dispute', 'dispute_reversal')),
    amount_minor       bigint      not null check (amount_minor between -1000000000000 and 1000000000000),
    currency           text        not null check (currency ~ '^[a-z]{3}$'),
    provider_reference text        not null,            -- the charge, refund, dispute or invoice at the provider
    charge             text,                            -- the charge it is about, where there is one
    movement_key       text        not null unique,
    event_id           bigint      not null references inbox_events (id),
    occurred_at        timestamptz not null,            -- at the provider
    created_at         timestamptz not null
);
create index money_ledger_account on money_ledger (account_id, id);
create index money_ledger_reference on money_ledger (provider_reference);

create trigger money_ledger_append_only before update or delete on money_ledger for each row execute function refuse_change();
create trigger money_ledger_no_truncate before truncate on money_ledger for each statement execute function refuse_change();

-- Packs of bottles that were bought once, one row a checkout. Written by the room `money`. A refund or a dispute stamps its
-- row and never deletes it: the row is what agrees with the provider's own records.
create table purchases (
    purchase_id    text        primary key,             -- the checkout session
    account_id     bigint      not null references accounts (id),
    bottles        bigint      not null,
    charge         text,                                -- null: there was nothing to pay
    paid_at        timestamptz not null,
    refunded_minor bigint      not null default 0,      -- so far, less what came back
    disputed       text,                                -- how the dispute about it stands, in the provider's word
    event_id       bigint      not null references inbox_events (id)
);
create index purchases_account on purchases (account_id);

-- A provider that is asked answers about agreements, bills, purchases and money. Each answer is a fact.
alter table facts drop constraint facts_kind_check;
alter table facts add constraint facts_kind_check check (kind in (
    'start', 'change', 'end', 'paid', 'payment_failed', 'overdue', 'snapshot', 'opened',
    'agreement', 'agreement_over', 'invoice_paid', 'invoice_owed', 'invoice_settled', 'pack_paid', 'pack_awaited', 'pack_failed',
    'dispute', 'moved'));
alter table facts
    add column object       text,                       -- the bill, the purchase, the dispute or the movement's key
    add column began_ns     bigint,                     -- since when: an agreement is had, a bill is owed
    add column bottles      bigint,
    add column amount_minor bigint,
    add column currency     text,
    add column word         text,                       -- the kind of a movement, the provider's word for a dispute's state
    add column reference    text,
    add column charge       text;

-- Packs are looked for with the allowances.
drop index ledger_allowances;
create index ledger_grants on ledger (account_id) where reason in ('free', 'pro', 'pack');

-- Disputes are few, and looked at often, to tell a person in time.
create index facts_disputes on facts (object, occurred_ns) where kind = 'dispute';
