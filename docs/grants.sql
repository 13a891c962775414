-- What the role that Bottle runs as may do to each table: just what the program does. As the owner, after every `bottle migrate`
-- (see docs/roles.sql). Running it again changes nothing. A test holds it against the statements in src.

revoke all on all tables in schema public from bottle_run;
revoke all on all tables in schema public from public;

grant select on all tables in schema public to bottle_run;

-- Written once and never changed.
grant insert on conflicts, replays, installation, customer_map, event_runs, ledger, money_ledger, event_notes, operator_actions
    to bottle_run;

-- An event's facts are replaced whole. Receipts are pruned after a while; the right to change their id, which nobody can, lets
-- the pruning lock them.
grant insert, delete on facts, receipts to bottle_run;
grant update (id) on receipts to bottle_run;

-- Rows that move from state to state and stay.
grant insert, update on inbox_events, accounts, purchases, reminders, outbox, alerts, alert_messages, provider_seen,
    bulk_replays, bulk_replay_results, reconcile_runs to bottle_run;

-- A reminder is the first of its series, so its number is drawn before it is written.
grant usage on sequence reminders_id_seq to bottle_run;

-- Rows that go when they are over.
grant insert, update, delete on sessions, calendar_feeds, checkouts, worker_pauses, reconcile_findings to bottle_run;
grant insert, delete on reconcile_books to bottle_run;
