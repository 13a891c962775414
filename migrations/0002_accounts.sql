-- One row a person: (tenant, Kinde user id). Written by the room `accounts`. The plan here is what the fold of the account's
-- facts gave when an event was last applied; `upcoming` holds the changes that are already known, so a reader derives the
-- plan of this moment without anybody having to be there when a change falls due.
create table accounts (
    id              bigint generated always as identity primary key,
    tenant          text        not null,
    kinde_user_id   text        not null,
    plan            text        not null default 'free' check (plan in ('free', 'pro')),
    plan_changed_at timestamptz,
    plan_changed_ns bigint,
    upcoming        jsonb       not null default '[]',  -- [{"at_ns": …, "plan": "free"}], soonest first
    past_due_since  timestamptz,
    created_at      timestamptz not null,
    unique (tenant, kinde_user_id)
) with (fillfactor = 80);

alter table inbox_events add constraint inbox_events_account foreign key (account_id) references accounts (id);

-- The tenant whose user ids name the accounts here. Written once, by the first process that works on this database (room
-- `accounts`); a process with another tenant does not start, or it would give events to people of its own.
create table installation (
    one    boolean primary key default true check (one),
    tenant text    not null
);

-- Which account a provider's customer id belongs to: learned from events that carry both, from sign-in, from checkout.
create table customer_map (
    source      text        not null check (source in ('kinde', 'stripe')),
    customer_id text        not null,
    account_id  bigint      not null references accounts (id),
    learned_at  timestamptz not null,
    primary key (source, customer_id)
);
