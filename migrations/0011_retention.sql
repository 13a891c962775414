-- What the pruning of old bodies looks for (src/inbox/prune.rs). The predicate there and this one are one thing: change both or none.
create index inbox_events_prunable on inbox_events (received_at)
    where body is not null and status in ('applied', 'ignored');
