-- The first answer to each request that carries an idempotency key, written in the transaction of its effect.
create table idempotency_keys (
    scope       text not null,
    key         text not null,
    fingerprint bytea not null,
    status      smallint not null,
    location    text,
    body        jsonb not null,
    created_at  timestamptz not null default now(),
    constraint idempotency_keys_are_unique primary key (scope, key)
);
create index idempotency_keys_created on idempotency_keys using brin (created_at);
