-- What a person on call must know. A row is one spell of one condition: raised once, cleared once. Written by the room
-- `alerts`, read by the operators' pages.
create table alerts (
    id         bigint generated always as identity primary key,
    condition  text        not null,                    -- dead, parked, overdue, silent:kinde, …
    sentence   text        not null,
    event_ids  bigint[]    not null,                    -- some of the events it is about, newest first
    raised_at  timestamptz not null,
    cleared_at timestamptz
);
-- Each condition once until it clears, whoever looks.
create unique index alerts_open on alerts (condition) where cleared_at is null;

-- Messages about alerts that are to go out, written in the transaction that raises or clears one, so that a restart loses none.
-- Written by the room `alerts`.
create table alert_messages (
    id         bigint generated always as identity primary key,
    alert_id   bigint      not null references alerts (id),
    about      text        not null check (about in ('raised', 'cleared')),
    channel    text        not null check (channel in ('webhook', 'email')),
    due_at     timestamptz not null,                    -- the next try; never (infinity) once it was given up
    attempts   int         not null default 0,
    last_error text,
    sent_at    timestamptz,
    unique (alert_id, about, channel)
);
create index alert_messages_due on alert_messages (due_at) where sent_at is null;

-- When each configured provider was last heard of, and how far the inbox was read to know it. Written by the room `alerts`.
create table provider_seen (
    source   text        primary key,
    up_to    bigint      not null,
    heard_at timestamptz not null
);

-- What an alert looks for is few rows of many.
create index inbox_events_dead on inbox_events (id) where status = 'dead';
create index inbox_events_parked on inbox_events (received_at) where status = 'parked';
create index conflicts_received on conflicts (received_at);
