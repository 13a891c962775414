-- What is looked for by other things than keys. Old receipts, by the pruning (src/inbox/prune.rs): without this each round reads
-- every receipt there is. Letters about one reminder that have not been sent, by whoever deletes it (src/outbox.rs).
create index receipts_received on receipts (received_at);
create index outbox_unsent_of on outbox (account_id) where sent_at is null;
