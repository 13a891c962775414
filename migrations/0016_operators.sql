-- What the operators' pages read by and what operators leave behind. Their pages also read the inbox, its receipts, runs and
-- alerts, each by an index or within a bounded stretch of ids: an index for every filter would make each delivery dearer.
--
-- Plain `create index`, not `concurrently`: that waits for every older transaction, and a second process that starts at the
-- same time is one, since it waits for the migrations' own lock; the two would end each other. The price is that writes to
-- the table wait while the index is built: about a second for each million of events, since all are read and hardly any is
-- kept. Deliveries are answered 503 meanwhile and come again. An index of `failed` and `parked` alone costs an event that
-- simply goes through nothing at all.
--
-- `accounts` comes first, as it does for a handler, which writes an account and then its event: the other way round the two
-- would wait for one another, and the longer the index takes, the likelier the migration is the one that is ended.

-- Whose an address is.
create index accounts_email on accounts (lower(email)) where email is not null;
create index inbox_events_held on inbox_events (status, id) where status in ('failed', 'parked');

-- What an operator wrote down about an event. A note that acknowledges names the verdict it speaks of by its time: once the event
-- has another verdict it waits for somebody again. Written by the room `operators`, read by the operators' pages.
create table event_notes (
    id           bigint generated always as identity primary key,
    event_id     bigint      not null references inbox_events (id),
    note         text        not null,
    acknowledges timestamptz,
    written_by   text        not null,
    written_at   timestamptz not null,
    form_key     uuid        not null unique                -- a form that is sent twice writes once
);
create index event_notes_event on event_notes (event_id, id);
create trigger event_notes_append_only before update or delete on event_notes for each row execute function refuse_change();
create trigger event_notes_no_truncate before truncate on event_notes for each statement execute function refuse_change();

-- A replay of everything that matches a filter: asked for once, carried out by a worker a few events at a time, oldest first.
-- Where it stands is here whole, so whoever takes it up after a crash goes on where the last commit was. Written by the room
-- `replay`, read by the operators' pages.
create table bulk_replays (
    id           bigint generated always as identity primary key,
    form_key     uuid        not null unique,               -- a form that is sent twice asks once
    asked_by     text        not null,
    asked_at     timestamptz not null,
    filter       jsonb       not null,                      -- inbox/search.rs
    address      text        not null,                      -- the same, as the address of the page that lists them
    up_to        bigint      not null,                      -- the newest event that was meant
    cap          int         not null check (cap > 0),
    counted      int         not null,                      -- what matched when it was asked for, as far as that was counted
    counted_all  boolean     not null,
    status       text        not null default 'waiting' check (status in ('waiting', 'running', 'stopping', 'done', 'cancelled')),
    looked_to    bigint      not null default 0,            -- every event up to this one was looked at
    walked       boolean     not null default false,        -- none that matches is left, or the cap is reached
    requeued     int         not null default 0 check (requeued <= cap),
    passed_over  int         not null default 0,            -- they matched, and were on their way already
    in_flight    bigint[]    not null default '{}',         -- requeued, and without a verdict yet
    lease_token  uuid,
    leased_until timestamptz,
    started_at   timestamptz,
    finished_at  timestamptz,
    last_error   text
);
create index bulk_replays_open on bulk_replays (id) where status in ('waiting', 'running', 'stopping');

-- What became of its events, counted as each gets its verdict. Written by the room `replay`.
create table bulk_replay_results (
    bulk_replay_id bigint not null references bulk_replays (id),
    status         text   not null,
    reason         text   not null,                         -- without what differs from event to event
    events         int    not null,
    primary key (bulk_replay_id, status, reason)
);

-- Of which bulk replay a replay was a part.
alter table replays add column bulk_replay_id bigint references bulk_replays (id);

-- Everything an operator did, in the transaction that did it. Written by the room `operators`, read by the operators' pages.
create table operator_actions (
    id             bigint generated always as identity primary key,
    done_at        timestamptz not null,
    done_by        text        not null,
    action         text        not null check (action in ('replay', 'bulk_replay', 'cancel', 'acknowledge', 'note')),
    event_id       bigint references inbox_events (id),
    bulk_replay_id bigint references bulk_replays (id),
    detail         text                                     -- the filter, or the words
);
create trigger operator_actions_append_only before update or delete on operator_actions
    for each row execute function refuse_change();
create trigger operator_actions_no_truncate before truncate on operator_actions
    for each statement execute function refuse_change();
