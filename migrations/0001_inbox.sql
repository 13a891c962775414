-- Stored events, which are also the queue. Written by the room `inbox` alone (src/inbox/queue.rs); read by the worker, the
-- billing log, replay and the operators' pages. A row is never deleted: its key is what makes a copy of next year a copy.
create table inbox_events (
    id            bigint generated always as identity primary key,
    source        text        not null check (source in ('kinde', 'stripe', 'bottle')),
    dedupe_key    text        not null,                 -- the provider's event id, from inside the signature
    webhook_id    text,                                 -- the header of the first delivery, outside the signature
    type          text        not null,
    digest        bytea       not null,                 -- SHA-256 of what was said, to tell a copy from a conflict
    occurred_at   timestamptz,                          -- their clock, for people
    occurred_ns   bigint,                               -- their clock, for comparing
    received_at   timestamptz not null,                 -- our clock
    status        text        not null default 'received'
                  check (status in ('received', 'processing', 'applied', 'ignored', 'failed', 'parked', 'dead')),
    reason        text,
    attempts      int         not null default 0,       -- failures that were charged
    claims        int         not null default 0,       -- claims since the last verdict
    due_at        timestamptz not null,                 -- when an open row may be claimed: new, retry or the lease's end
    lease_token   uuid,
    waits_for     text,                                 -- what a row waits for: customer:…, plan_key:…
    last_error    text,
    processed_at  timestamptz,
    seen_count    int         not null default 1,
    account_id    bigint,
    replayed_by   text,                                 -- who asked for the run that is due, if it is a replay
    body          bytea,                                -- the exact bytes received; null once pruned
    unique (source, dedupe_key)
) with (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);

-- The claim's predicate, its sort order and this index are one thing: change all three or none.
create index inbox_events_due on inbox_events (due_at, id)
    where status in ('received', 'processing', 'failed', 'parked');

-- Rows are looked up by what they wait for, whether it holds them up or only made them smaller than they could be.
create index inbox_events_waits_for on inbox_events (waits_for) where waits_for is not null;

-- One row a delivery, copies included. Written with the event, in the same statement.
create table receipts (
    id          bigint generated always as identity primary key,
    event_id    bigint      not null references inbox_events (id),
    webhook_id  text,
    sent_at     timestamptz,                            -- the signed time of sending, so that its age is known; nothing is refused for it
    received_at timestamptz not null,
    copy        boolean     not null
);
create index receipts_event on receipts (event_id);

-- A genuine delivery under a known id that says something else. The first stands; this is kept for a person to judge.
create table conflicts (
    id          bigint generated always as identity primary key,
    event_id    bigint      not null references inbox_events (id),
    webhook_id  text,
    digest      bytea       not null,
    body        bytea       not null,
    received_at timestamptz not null,
    unique (event_id, digest)
);

-- Who asked for a stored event to run again, and when. Written by the room `replay`; read by the billing log.
create table replays (
    id           bigint generated always as identity primary key,
    event_id     bigint      not null references inbox_events (id),
    requested_by text        not null,
    requested_at timestamptz not null
);
create index replays_event on replays (event_id);
