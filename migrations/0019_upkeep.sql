-- How often the tables that change all the time are looked after. No table is new. PostgreSQL's own rule, a fifth of a table, means
-- ever rarer visits as a table grows, and after years each visit is long; these are a fiftieth, so visits stay short and statistics
-- true. The inbox and the reminders have had theirs since they were made. Tables that are only added to are visited so that their
-- rows are frozen and marked as seen by all a few at a time, not in one night when the database has to.
alter table accounts set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.02);
alter table outbox set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.02);
alter table sessions set (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.05);
alter table facts set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.02);
alter table receipts set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = 5000, autovacuum_analyze_scale_factor = 0.02);
alter table event_runs set (
    autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = 5000, autovacuum_analyze_scale_factor = 0.02);
alter table ledger set (
    autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = 5000, autovacuum_analyze_scale_factor = 0.02);
