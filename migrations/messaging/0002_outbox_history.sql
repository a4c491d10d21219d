-- What was published, kept for replay and for questions; dropped by whole days.
create table outbox_history (
    id              bigint not null,
    event_id        uuid not null,
    aggregate_type  text not null,
    aggregate_id    text not null,
    event_type      text not null,
    schema_version  smallint not null,
    saga_id         uuid,
    correlation_id  text not null,
    exchange        text not null,
    routing_key     text not null,
    mandatory       boolean not null,
    payload         jsonb not null,
    headers         jsonb not null,
    created_at      timestamptz not null,
    attempts        integer not null,
    last_error      text,
    published_at    timestamptz not null default now()
) partition by range (published_at);

-- A day that nobody made ahead must not stop the relay.
create table outbox_history_default partition of outbox_history default;
create index outbox_history_event on outbox_history (event_id);
create index outbox_history_saga on outbox_history (saga_id, id);

-- Both as one table, the form in which the pattern is mostly described.
create view outbox_log as
    select id, event_id, aggregate_type, aggregate_id, event_type, schema_version, saga_id, correlation_id, exchange,
           routing_key, mandatory, payload, headers, created_at, attempts, last_error, null::timestamptz as published_at
    from outbox
    union all
    select id, event_id, aggregate_type, aggregate_id, event_type, schema_version, saga_id, correlation_id, exchange,
           routing_key, mandatory, payload, headers, created_at, attempts, last_error, published_at
    from outbox_history;

-- Makes the partitions of the coming days and drops those that are older than the retention. Runs as the owner, so
-- that a service needs no right to change tables. Returns how many partitions were made and dropped.
create function maintain_outbox_history(retention interval, days_ahead integer, out made integer, out dropped integer)
    language plpgsql security definer set search_path from current
as $$
declare
    day  date;
    part text;
    old  record;
begin
    made := 0;
    dropped := 0;
    -- One service instance at a time; another one has just done it.
    if not pg_try_advisory_xact_lock(hashtext(current_schema() || '.outbox_history')) then
        return;
    end if;
    for day in select generate_series(current_date + 1, current_date + days_ahead, interval '1 day')::date loop
        part := 'outbox_history_' || to_char(day, 'YYYYMMDD');
        if to_regclass(part) is null then
            execute format('create table %I partition of outbox_history for values from (%L) to (%L)',
                           part, day::timestamptz, (day + 1)::timestamptz);
            made := made + 1;
        end if;
    end loop;
    for old in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'outbox_history'::regclass and c.relname ~ '^outbox_history_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 < now() - retention
    loop
        execute format('drop table %I', old.relname);
        dropped := dropped + 1;
    end loop;
    delete from outbox_history_default where published_at < now() - retention;
end
$$;
