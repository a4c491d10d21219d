-- Every act of an operator, with its reason: who did what to which row.
create table operator_actions (
    id      bigint generated always as identity primary key,
    at      timestamptz not null default now(),
    actor   text not null,
    verb    text not null,
    target  text not null,
    reason  text not null constraint operator_actions_have_a_reason check (reason <> ''),
    outcome jsonb not null default '{}'
);
