-- One row for each saga, never deleted: a refusal and a release without a reservation are outcomes too.
create table reservations (
    saga_id    uuid primary key,
    order_id   uuid not null,
    status     text not null constraint reservations_status_is_known
        check (status in ('reserved', 'committed', 'rejected', 'released')),
    lines      jsonb not null default '[]',
    code       text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);
create index reservations_order on reservations (order_id);
