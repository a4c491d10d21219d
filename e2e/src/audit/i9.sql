-- Of those that went out once, at the first attempt: one that was refused waits while others, which were on the wire, arrive.
with sent as (
    select 'order' as service, id, event_type, aggregate_type, aggregate_id, exchange, routing_key, published_at, attempts, mandatory, replayed_at from orders.outbox_history
    union all select 'payment', id, event_type, aggregate_type, aggregate_id, exchange, routing_key, published_at, attempts, mandatory, replayed_at from payments.outbox_history
    union all select 'inventory', id, event_type, aggregate_type, aggregate_id, exchange, routing_key, published_at, attempts, mandatory, replayed_at from inventory.outbox_history
    union all select 'shipping', id, event_type, aggregate_type, aggregate_id, exchange, routing_key, published_at, attempts, mandatory, replayed_at from shipping.outbox_history),
followed as (
    select s.*, r.queue, lead(id) over next as next_id, lead(event_type) over next as next_type,
           lead(published_at) over next as next_published_at
    from sent s join jsonb_to_recordset($2) as r(exchange text, routing_key text, queue text) using (exchange, routing_key)
    where mandatory and attempts = 0 and replayed_at is null
    window next as (partition by service, aggregate_type, aggregate_id, r.queue order by id))
select aggregate_id as "order", 'the messages of an order to one queue are published in the order of their ids' as what,
       jsonb_build_object('outbox', service, 'queue', queue, 'id', id, 'type', event_type, 'publishedAt', published_at,
                          'nextId', next_id, 'nextType', next_type, 'nextPublishedAt', next_published_at) as rows
from followed where next_published_at < published_at
