-- One row for each saga, never deleted: a refusal and an undo without a do are outcomes too.
create table shipments (
    saga_id    uuid primary key,
    order_id   uuid not null,
    status     text not null constraint shipments_status_is_known check (status in ('created', 'rejected', 'cancelled')),
    service    text,
    reference  text,
    code       text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);
create index shipments_order on shipments (order_id);
