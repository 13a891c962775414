-- What the billing log reads by: a person's events newest first, those of them that are not finished, and an event's runs in
-- their order. No table is new. Events are written by the room `inbox` and runs by `billing`; the account page, the event
-- page and the live stream read them (src/billing/log.rs, src/billing/record.rs). An event that nobody owns is in no index here.
create index inbox_events_account on inbox_events (account_id, id desc) where account_id is not null;
create index inbox_events_account_open on inbox_events (account_id, status)
    where account_id is not null and status in ('received', 'processing', 'failed', 'parked', 'dead');

create index event_runs_event_order on event_runs (event_id, id);
drop index event_runs_event;

-- The entries that came of one event.
create index ledger_event on ledger (event_id) where event_id is not null;
