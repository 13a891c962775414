-- Letters that are to leave the house. A row is written in the transaction of what it tells of (room `outbox`, called by
-- `reminders`), and sent, at least once, by the room `courier`: claimed for a lease, sent, marked. The message id is the same
-- with every attempt, so a receiver can tell a letter that came twice. Sent and dead rows stay.
create table outbox (
    id           bigint generated always as identity primary key,
    message_key  text        not null unique,             -- what it tells of: writing it twice writes it once
    message_id   uuid        not null default gen_random_uuid(),
    account_id   bigint      references accounts (id),
    kind         text        not null check (kind in ('reminder')),
    recipient    text        not null,
    payload      jsonb       not null,                    -- {"subject": …, "text": …, "reminder": its id}
    created_at   timestamptz not null,
    due_at       timestamptz not null,                    -- when it may be claimed: new, next attempt or the lease's end
    lease_token  uuid,
    attempts     int         not null default 0,          -- failures that were charged
    last_error   text,
    sent_at      timestamptz,
    dead_at      timestamptz,
    check (sent_at is null or dead_at is null)
) with (fillfactor = 80);
create index outbox_due on outbox (due_at, id) where sent_at is null and dead_at is null;
