-- What is under way, and will come to an end by itself: rows that are not published, messages that are not received or
-- wait for their next attempt, sagas before their end. What only a person can end is not: parked messages, and what
-- waits behind them. Neither is what goes on for too long: it is a violation.
with parked as (
    select key from orders.inbox where status = 'parked'
    union all select key from payments.inbox where status = 'parked'
    union all select key from inventory.inbox where status = 'parked'
    union all select key from shipping.inbox where status = 'parked'),
pending as (
    select event_type, saga_id, attempts, last_error from orders.outbox
    union all select event_type, saga_id, attempts, last_error from payments.outbox
    union all select event_type, saga_id, attempts, last_error from inventory.outbox
    union all select event_type, saga_id, attempts, last_error from shipping.outbox),
kept as (
    select consumer, message_type, key, attempts, last_error from orders.inbox where status in ('waiting', 'retrying')
    union all select consumer, message_type, key, attempts, last_error from payments.inbox where status in ('waiting', 'retrying')
    union all select consumer, message_type, key, attempts, last_error from inventory.inbox where status in ('waiting', 'retrying')
    union all select consumer, message_type, key, attempts, last_error from shipping.inbox where status in ('waiting', 'retrying')),
sent as (
    select event_id, event_type, exchange, routing_key, published_at, mandatory from orders.outbox_history
    union all select event_id, event_type, exchange, routing_key, published_at, mandatory from payments.outbox_history
    union all select event_id, event_type, exchange, routing_key, published_at, mandatory from inventory.outbox_history
    union all select event_id, event_type, exchange, routing_key, published_at, mandatory from shipping.outbox_history),
received as (
    select consumer, message_id from orders.inbox
    union all select consumer, message_id from payments.inbox
    union all select consumer, message_id from inventory.inbox
    union all select consumer, message_id from shipping.inbox)
select 'in the outbox' as what, concat_ws(', ', event_type, last_error) as which from pending where attempts < 5
union all
select 'in the inbox', concat_ws(', ', message_type || ' at ' || consumer, 'attempt ' || attempts, last_error)
from kept k where not exists (select from parked p where p.key = k.key)
union all
select 'on its way', s.event_type || ' to ' || r.queue
from sent s join jsonb_to_recordset($2) as r(exchange text, routing_key text, queue text) using (exchange, routing_key)
where s.mandatory and s.published_at > now() - interval '20 seconds'
  and not exists (select from received i where i.consumer = r.queue and i.message_id = s.event_id::text)
union all
select 'a saga', s.order_id || ' is ' || s.state || ' at ' || s.step
from orders.sagas s
where s.state in ('running', 'compensating')
  and not exists (select from parked p where p.key = s.id::text)
  and (exists (select from orders.saga_steps t where t.saga_id = s.id and t.status = 'asked'
                   and t.deadline > now() - interval '2 minutes')
       or exists (select from pending p where p.saga_id = s.id)
       or exists (select from kept k where k.key = s.id::text))
union all
select 'a late effect', party || ' of ' || key from sandbox.late_effects
limit 100
