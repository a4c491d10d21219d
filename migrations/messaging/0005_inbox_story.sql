-- For whoever asks what became of a message: how its last 20 attempts failed, and how often it came again.
alter table inbox
    add column failures    jsonb,
    add column repeats     integer not null default 0,
    add column repeated_at timestamptz;
-- Whoever asks why asks when much is waiting.
create index outbox_saga on outbox (saga_id, id) where saga_id is not null;
