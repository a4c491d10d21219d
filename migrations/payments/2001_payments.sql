-- One row for each saga, never deleted: a refusal and an undo without a do are outcomes too.
create table payments (
    saga_id    uuid primary key,
    order_id   uuid not null,
    status     text not null constraint payments_status_is_known
        check (status in ('captured', 'declined', 'refunded', 'voided')),
    amount     bigint,
    currency   text,
    reference  text,
    code       text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint payments_captured_have_an_amount check (status <> 'captured' or amount is not null)
);
create index payments_order on payments (order_id);
