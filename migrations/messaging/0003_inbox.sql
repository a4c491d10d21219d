-- What a consumer has seen: `done` is its memory of messages, every other status a message that is kept here, whole.
create table inbox (
    consumer        text not null,
    message_id      text not null,
    seq             bigint generated always as identity,
    key             text not null,
    message_type    text not null,
    correlation_id  text,
    status          text not null default 'done'
        constraint inbox_status_is_known check (status in ('done', 'waiting', 'retrying', 'parked', 'discarded')),
    attempts        integer not null default 0,
    -- Runs that began and never told how they ended: the message may kill its process.
    unfinished      integer not null default 0,
    next_attempt_at timestamptz,
    error_class     text,
    error_code      text,
    last_error      text,
    received_at     timestamptz not null default now(),
    finished_at     timestamptz,
    body            bytea,
    properties      jsonb,
    exchange        text,
    routing_key     text,
    constraint inbox_is_unique primary key (consumer, message_id),
    constraint inbox_keeps_open_messages check (status in ('done', 'discarded') or body is not null)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000);

-- What a saga has received, for its timeline.
create index inbox_key on inbox (key);
create index inbox_retrying on inbox (consumer, next_attempt_at) where status = 'retrying';
create index inbox_open on inbox (consumer, key, seq) where status in ('waiting', 'retrying', 'parked');
-- Rows come in the order of this column: a few blocks of index are enough to purge by age.
create index inbox_received on inbox using brin (received_at);
