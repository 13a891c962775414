-- What was compared with the providers, when, and what came of it. Written by the room `reconcile` alone; read by the command
-- that shows it, the alerts and the operators' pages.
--
-- A run notes where it is after each page, so that whoever takes it up after a crash goes on there. One run a night, however
-- many processes there are: the night is its key.
create table reconcile_runs (
    id          bigint generated always as identity primary key,
    night       date        unique,                     -- the night it is for; null: somebody asked for it
    sources     text[]      not null,                   -- the providers that are asked
    since       timestamptz not null,                   -- money and events from then on; plans are always compared whole
    given_since timestamptz,                            -- as it was asked for, so that the same wish goes on with the same run
    until       timestamptz not null,                   -- what happened later is left to the next run: it may be on its way
    mode        text        not null check (mode in ('look', 'apply')),
    state       text        not null default 'running' check (state in ('running', 'finished', 'failed')),
    step        int         not null default 0,         -- how many steps are done
    cursor      text,                                   -- where the step under way goes on
    tallies     jsonb       not null default '{}',      -- {"customers": …, "events": …, "movements": …, …}
    totals      jsonb       not null default '[]',      -- [{"source", "currency", "ours_minor", "theirs_minor"}], once it is finished
    error       text,                                   -- why it stopped; it is tried again
    begun_at    timestamptz not null,
    touched_at  timestamptz not null,
    finished_at timestamptz,
    check ((state = 'finished') = (finished_at is not null))
);

-- Each difference that a run found. One row a difference: its subject says which, so that a page that is read again after a
-- crash finds nothing twice.
create table reconcile_findings (
    id         bigint generated always as identity primary key,
    run_id     bigint      not null references reconcile_runs (id),
    class      text        not null check (class in (
                   'event_missing', 'plan_stale', 'amount_differs', 'unknown_theirs', 'unknown_ours')),
    source     text        not null,
    subject    text        not null,                    -- evt_…, a movement's key, a customer's id: unique in its class
    account_id bigint references accounts (id),
    customer   text,                                    -- the provider's id of them
    ours       text        not null,                    -- what we have, in words
    theirs     text        not null,                    -- what they say
    done       text        not null,                    -- what was done about it
    state      text        not null check (state in ('suspected', 'open', 'asked', 'repaired')),
    event_id   bigint references inbox_events (id),     -- what was stored because of it, or what it is the fault of
    question   jsonb,                                   -- what is to be asked again while it is only suspected
    found_at   timestamptz not null,
    unique (run_id, class, source, subject)
);
-- A page of a run's findings, and those of them that are not settled.
create index reconcile_findings_page on reconcile_findings (run_id, id);
create index reconcile_findings_state on reconcile_findings (run_id, state, id);
create index reconcile_findings_event on reconcile_findings (event_id) where event_id is not null;

-- The provider's books as the run under way has copied them, page by page: so both sides can be compared in the database,
-- whatever their size. The rows of a run are deleted when it ends.
create table reconcile_books (
    run_id       bigint not null references reconcile_runs (id),
    source       text   not null,
    entry        text   not null,                       -- the provider's id of the row in its books
    movement_key text   not null,
    kind         text   not null,
    amount_minor bigint not null,
    currency     text   not null,
    customer     text,
    charge       text,                                  -- the charge it is about
    marked       boolean not null,                      -- it came of a checkout of ours
    primary key (run_id, source, entry)
);
create index reconcile_books_key on reconcile_books (run_id, movement_key);

-- Whose customers are looked for by account (src/accounts.rs).
create index customer_map_account on customer_map (account_id, source);
-- Movements are gone through in their order in time (src/money.rs).
create index money_ledger_occurred on money_ledger (occurred_at, id);
