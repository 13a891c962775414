-- The bottles of each account and period: append-only, and its sum is the balance. Written by the room `ledger`.
-- The entry key says which business fact an entry is for, so writing it twice writes it once.
create table ledger (
    id         bigint generated always as identity primary key,
    account_id bigint      not null references accounts (id),
    period     text        not null check (period ~ '^[0-9]{4}-[0-9]{2}$'),
    delta      bigint      not null check (delta between -1000000000 and 1000000000),
    reason     text        not null,
    entry_key  text        not null unique,
    event_id   bigint references inbox_events (id),
    created_at timestamptz not null
);
create index ledger_account on ledger (account_id, period);
-- What an event may have granted already, without reading years of spends.
create index ledger_allowances on ledger (account_id) where reason in ('free', 'pro');

create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'the table % is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
create trigger ledger_append_only before update or delete on ledger for each row execute function refuse_change();
create trigger ledger_no_truncate before truncate on ledger for each statement execute function refuse_change();
