-- What each event says about billing. Written by the room `billing`: an event's facts are replaced whole when it is applied.
-- Kept for good, with the provider's plan key as given, so that a fold needs no body and no provider.
create table facts (
    event_id     bigint not null references inbox_events (id),
    n            int    not null,                       -- a snapshot of several agreements is several rows
    account_id   bigint not null references accounts (id),
    source       text   not null,
    event_key    text   not null,                       -- the provider's event id, which breaks ties of time
    kind         text   not null check (kind in ('start', 'change', 'end', 'paid', 'payment_failed', 'overdue', 'snapshot', 'opened')),
    agreement    text,
    plan_key     text,
    occurred_ns  bigint not null,
    effective_ns bigint,
    primary key (event_id, n)
);
create index facts_account on facts (account_id);

-- Each run of an event: its sentence, what it changed, who asked for it. A replay adds a row and replaces none.
create table event_runs (
    id           bigint generated always as identity primary key,
    event_id     bigint      not null references inbox_events (id),
    ran_at       timestamptz not null,
    status       text        not null,
    sentence     text        not null,
    effects      jsonb       not null,                  -- {"plan": {"before": …, "after": …}, "entries": [{"key", "period", "delta"}], "newer": …}
    requested_by text                                   -- null: it ran because it arrived
);
create index event_runs_event on event_runs (event_id);
