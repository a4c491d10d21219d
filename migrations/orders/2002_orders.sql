-- Orders as the customer placed them; they never change afterwards, their progress is the saga's.
create table orders (
    id             uuid primary key,
    saga_id        uuid not null constraint orders_have_one_saga unique,
    customer_id    text not null,
    correlation_id text not null,
    -- Where the order was placed: deadlines and undos continue this trace.
    trace          jsonb not null default '{}',
    total_amount   bigint not null constraint orders_cost_something check (total_amount > 0),
    currency       text not null,
    payment_method text not null,
    shipping       jsonb not null,
    lines          jsonb not null,
    created_at     timestamptz not null default now()
);
create index orders_correlation on orders (correlation_id, id);
