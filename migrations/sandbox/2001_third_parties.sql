-- What the payment provider and the carrier keep under an idempotency key. The first decision is final. The row is
-- there from the first try on: it is also the key's lock.
create table decisions (
    party      text not null constraint decisions_party_is_known check (party in ('provider', 'carrier')),
    key        text not null,
    -- How often the key was tried, for the faults that pass after a number of attempts.
    attempts   integer not null default 0,
    decision   text constraint decisions_are_known
        check (decision in ('taken', 'declined', 'given_back', 'cancelled')),
    order_id   text,
    amount     bigint not null default 0,
    currency   text,
    method     text,
    reference  text,
    code       text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint decisions_are_unique primary key (party, key)
);
create index decisions_order on decisions (order_id);

-- Every effect, once, and for money as double entry; nothing is ever changed here.
create table ledger (
    id       bigint generated always as identity primary key,
    at       timestamptz not null default now(),
    party    text not null,
    key      text not null,
    order_id text,
    effect   text not null constraint ledger_effect_is_known check (effect in ('capture', 'refund', 'ship', 'recall')),
    account  text not null constraint ledger_account_is_known check (account in ('customer', 'shop', 'parcel')),
    amount   bigint not null,
    currency text,
    constraint ledger_has_each_effect_once unique (party, key, effect, account)
);
create index ledger_order on ledger (order_id);

-- Requests that timed out and take effect later, unless the key is cancelled meanwhile.
create table late_effects (
    id       bigint generated always as identity primary key,
    party    text not null,
    key      text not null,
    request  jsonb not null,
    lands_at timestamptz not null
);
create index late_effects_due on late_effects (lands_at);

-- Faults that an operator switches on, for every request or for a share of them.
create table switches (
    name       text primary key,
    rate       double precision not null constraint switches_rate_is_a_share check (rate between 0 and 1),
    seed       bigint not null default 1,
    delay_ms   integer not null default 0,
    -- Requests that have met it: which of them it strikes is decided by this number and the seed.
    met        bigint not null default 0,
    updated_at timestamptz not null default now()
);
