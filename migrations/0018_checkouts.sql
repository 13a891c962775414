-- What people set out to buy at a provider's checkout, one row a click. Written by the room `checkouts` before and after the
-- provider is asked for its page; read when somebody clicks again, so that one wish is one checkout, and by the page they come
-- back to. It says what was wanted and never what was paid: that, events alone tell, and nothing here changes a plan or a bottle.
create table checkouts (
    id         uuid        primary key,              -- ours: in the address of the page they come back to, and the call's key
    account_id bigint      not null references accounts (id),
    source     text        not null check (source in ('kinde', 'stripe')),
    ware       text        not null check (ware in ('pro', 'pack')),
    intent     uuid        not null,                 -- the form's key: the same for the same click
    reference  text,                                 -- what the provider calls it; null while it is being made
    begun_at   timestamptz not null,
    ended_at   timestamptz                           -- it can no longer be paid, or was never made
);
create index checkouts_account on checkouts (account_id, begun_at desc);
create index checkouts_begun on checkouts (begun_at);
create index checkouts_ended on checkouts (ended_at) where ended_at is not null;
create unique index checkouts_intent on checkouts (intent) where ended_at is null;

-- The money that moved because of one event.
create index money_ledger_event on money_ledger (event_id);

-- What became of a charge is read off by it, whoever's account its refunds are at.
create index money_ledger_charge on money_ledger (charge) where charge is not null;
create index purchases_charge on purchases (charge) where charge is not null;
