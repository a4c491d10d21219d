-- What a service has promised to publish: a row is here as long as the broker has not confirmed it.
create table outbox (
    id              bigint generated always as identity primary key,
    event_id        uuid not null constraint outbox_event_id_is_unique unique,
    aggregate_type  text not null,
    aggregate_id    text not null,
    event_type      text not null,
    schema_version  smallint not null default 1,
    saga_id         uuid,
    correlation_id  text not null,
    exchange        text not null,
    routing_key     text not null,
    mandatory       boolean not null,
    payload         jsonb not null,
    headers         jsonb not null default '{}',
    created_at      timestamptz not null default now(),
    attempts        integer not null default 0,
    next_attempt_at timestamptz not null default '-infinity',
    last_error      text
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000);

-- The relay reads in this order: fresh rows first, rows that wait for their time after them.
create index outbox_due on outbox (next_attempt_at, id);
-- The rows of an aggregate that wait behind a failed one move together.
create index outbox_held on outbox (aggregate_type, aggregate_id) where next_attempt_at > '-infinity';
