with pending as (
    select 'order' as service, * from orders.outbox
    union all select 'payment', * from payments.outbox
    union all select 'inventory', * from inventory.outbox
    union all select 'shipping', * from shipping.outbox),
sent as (
    select 'order' as service, event_id, event_type, aggregate_id, exchange, routing_key, published_at, mandatory from orders.outbox_history
    union all select 'payment', event_id, event_type, aggregate_id, exchange, routing_key, published_at, mandatory from payments.outbox_history
    union all select 'inventory', event_id, event_type, aggregate_id, exchange, routing_key, published_at, mandatory from inventory.outbox_history
    union all select 'shipping', event_id, event_type, aggregate_id, exchange, routing_key, published_at, mandatory from shipping.outbox_history),
received as (
    select consumer, message_id from orders.inbox
    union all select consumer, message_id from payments.inbox
    union all select consumer, message_id from inventory.inbox
    union all select consumer, message_id from shipping.inbox)
select p.aggregate_id as "order", 'no message is refused again and again' as what,
       jsonb_build_object('outbox', p.service, 'eventId', p.event_id, 'type', p.event_type, 'attempts', p.attempts,
                          'error', p.last_error) as rows
from pending p where p.attempts >= 5
union all
select s.aggregate_id, 'a message that was published is not pending any more',
       jsonb_build_object('outbox', s.service, 'eventId', s.event_id, 'type', s.event_type)
from sent s join pending p on p.event_id = s.event_id
union all
select s.aggregate_id, 'each message that was published has been received by whom it is for',
       jsonb_build_object('outbox', s.service, 'eventId', s.event_id, 'type', s.event_type,
                          'publishedAt', s.published_at, 'queue', r.queue)
from sent s
left join jsonb_to_recordset($2) as r(exchange text, routing_key text, queue text) using (exchange, routing_key)
where $1 and s.mandatory
  and not exists (select from received i where i.consumer = r.queue and i.message_id = s.event_id::text)
