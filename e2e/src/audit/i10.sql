with keys as (select k.*, k.body ->> 'orderId' as order_id from orders.idempotency_keys k),
broken as (
    select k.order_id as "order", 'the answer that is kept under a key is that of an order which exists' as what
    from keys k left join orders.orders o on o.id::text = k.order_id
    where o.id is null or k.status <> 202
       or (k.body ->> 'sagaId', k.body ->> 'correlationId', (k.body -> 'total' ->> 'amount')::bigint,
           k.body -> 'total' ->> 'currency')
          is distinct from (o.saga_id::text, o.correlation_id, o.total_amount, o.currency)
    union all
    select order_id, 'no two keys have the same order' from keys where order_id is not null
    group by order_id having count(*) > 1)
select b."order", b.what, jsonb_build_object(
    'order', (select jsonb_build_object('sagaId', o.saga_id, 'correlationId', o.correlation_id,
                                        'total', o.total_amount, 'currency', o.currency)
              from orders.orders o where o.id::text = b."order"),
    'keys', (select jsonb_agg(jsonb_build_object('scope', k.scope, 'key', k.key, 'status', k.status, 'body', k.body))
             from keys k where k.order_id is not distinct from b."order")) as rows
from broken b
