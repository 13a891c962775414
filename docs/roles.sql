-- Two roles for Bottle: one that owns the database and changes its schema, and one that the program runs as, which can do what
-- it does every day and no more: it cannot change a table's shape, empty one, or touch an entry of a ledger once it is written.
--
-- Once, in Bottle's own database, as a superuser:
--     psql -d bottle -f docs/roles.sql
--     psql -d bottle -c '\password bottle_owner' -c '\password bottle_run'
-- Then, now and with every release, as the owner:
--     DATABASE_URL=postgres://bottle_owner:…@host/bottle  bottle migrate
--     psql postgres://bottle_owner:…@host/bottle -f docs/grants.sql
-- And the program itself:
--     DATABASE_URL=postgres://bottle_run:…@host/bottle    bottle serve

do $$ begin
    if to_regrole('bottle_owner') is null then create role bottle_owner login; end if;
    if to_regrole('bottle_run') is null then create role bottle_run login; end if;
    execute format('alter database %I owner to bottle_owner', current_database());
    execute format('revoke all on database %I from public', current_database());
    execute format('grant connect on database %I to bottle_run', current_database());
end $$;

-- A database that Bottle has been using as another role: what is there becomes the owner's.
do $$ declare thing record; begin
    for thing in select format('alter table %I.%I owner to bottle_owner', schemaname, tablename) as change
                 from pg_tables where schemaname = 'public' loop
        execute thing.change;
    end loop;
    if to_regprocedure('public.refuse_change()') is not null then
        alter function public.refuse_change() owner to bottle_owner;
    end if;
end $$;

revoke all on schema public from public;
grant usage, create on schema public to bottle_owner;
grant usage on schema public to bottle_run;

-- The Engine Room plays with tables of its own, in a schema of its own, where nothing is real. Without this line it is closed,
-- and says so; everything else works.
-- (One that another role made is made anew.)
do $$ begin
    if exists (select from pg_namespace where nspname = 'engine_room' and nspowner <> 'bottle_run'::regrole) then
        drop schema engine_room cascade;
    end if;
end $$;
create schema if not exists engine_room authorization bottle_run;

-- How old the oldest open transaction is, whoever opened it: `bottle doctor` looks at that. It shows no data.
grant pg_read_all_stats to bottle_run;
