-- Where each saga stands, and its history: one row for every do and undo that was asked.
create table sagas (
    id                uuid primary key,
    order_id          uuid not null constraint sagas_have_one_order unique references orders (id),
    state             text not null constraint sagas_state_is_known
        check (state in ('running', 'compensating', 'needs_attention', 'completed', 'cancelled', 'settled')),
    step              text constraint sagas_step_is_known check (step in ('payment', 'inventory', 'shipping')),
    has_settled       boolean not null default false,
    reason_code       text,
    reason_error_type text constraint sagas_reason_type_is_known check (reason_error_type in ('Business', 'Technical')),
    created_at        timestamptz not null default now(),
    updated_at        timestamptz not null default now(),
    ended_at          timestamptz,
    constraint sagas_end_without_a_step check ((step is null) = (state in ('completed', 'cancelled', 'settled')))
);
create index sagas_open on sagas (state, id) where ended_at is null;

create table saga_steps (
    saga_id         uuid not null references sagas (id),
    step            text not null constraint saga_steps_step_is_known check (step in ('payment', 'inventory', 'shipping')),
    direction       text not null constraint saga_steps_direction_is_known check (direction in ('do', 'undo')),
    status          text not null constraint saga_steps_status_is_known
        check (status in ('asked', 'done', 'rejected', 'failed', 'overdue', 'abandoned', 'settled')),
    command_id      uuid not null,
    attempts        integer not null default 1,
    handler_attempts integer,
    asked_at        timestamptz not null default now(),
    deadline        timestamptz not null,
    answered_at     timestamptz,
    error_code      text,
    ignored_answer  text,
    ignored_kind    text constraint saga_steps_ignored_kind_is_known check (ignored_kind in ('late', 'repeated', 'stale')),
    ignored_at      timestamptz,
    ignored_count   integer not null default 0,
    constraint saga_steps_are_unique primary key (saga_id, step, direction)
);
create index saga_steps_due on saga_steps (deadline) where status = 'asked';
