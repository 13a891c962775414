-- Who is signed in. One row a session, written by the room `sessions` alone; read with every page of a person. Only the
-- SHA-256 of the cookie's value is here, so whoever reads this table cannot sign in with it. A row ends when it was not used
-- for a while, and in any case some time after the sign-in; ended rows are deleted in small batches.
create table sessions (
    key_hash   bytea       primary key,
    account_id bigint      not null references accounts (id),
    record     jsonb       not null,
    created_at timestamptz not null,
    seen_at    timestamptz not null,                    -- to within five minutes
    expires_at timestamptz not null                     -- the absolute limit
);
create index sessions_expires on sessions (expires_at);
create index sessions_seen on sessions (seen_at);
create index sessions_account on sessions (account_id);
