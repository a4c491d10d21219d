with parked as (
    select key from orders.inbox where status = 'parked'
    union all select key from payments.inbox where status = 'parked'
    union all select key from inventory.inbox where status = 'parked'
    union all select key from shipping.inbox where status = 'parked'),
broken as (
    select coalesce(o.id, s.order_id) as id, 'each order has one saga, each saga its order' as what
    from orders.orders o full join orders.sagas s on s.order_id = o.id
    where o.id is null or s.id is null or o.saga_id <> s.id
    union all
    select r.order_id, 'each payment, reservation and shipment has a saga'
    from (select saga_id, order_id from payments.payments
          union all select saga_id, order_id from inventory.reservations
          union all select saga_id, order_id from shipping.shipments) r
    where not exists (select from orders.sagas s where s.id = r.saga_id)
    union all
    select s.order_id, 'the end of a saga agrees with payment, reservation and shipment'
    from orders.sagas s
    left join payments.payments p on p.saga_id = s.id
    left join inventory.reservations r on r.saga_id = s.id
    left join shipping.shipments t on t.saga_id = s.id
    where (s.state = 'completed' and (p.status = 'captured' and r.status in ('reserved', 'committed')
                                      and t.status = 'created') is not true)
       or (s.state = 'cancelled' and (p.status = 'captured' or r.status = 'committed' or t.status = 'created'))
    union all
    select s.order_id, 'an open saga waits for the answer to its step, one that has ended for nothing'
    from orders.sagas s
    where (s.state in ('running', 'compensating')) is distinct from exists (
        select from orders.saga_steps t where t.saga_id = s.id and t.status = 'asked')
    union all
    select s.order_id, 'a saga that waits for a person says why'
    from orders.sagas s
    where s.state = 'needs_attention' and (s.reason_code is null or not exists (
        select from orders.saga_steps t where t.saga_id = s.id and t.step = s.step and t.direction = 'undo'
        and t.status in ('failed', 'overdue')))
    union all
    select s.order_id, 'a saga that has not ended is younger than its deadline, or a message of it is parked'
    from orders.sagas s
    where $1 and s.state in ('running', 'compensating') and not exists (select from parked p where p.key = s.id::text)
      and exists (select from orders.saga_steps t where t.saga_id = s.id and t.status = 'asked'
                  and t.deadline < now() - interval '2 minutes'))
select b.id::text as "order", b.what, jsonb_build_object(
    'saga', (select to_jsonb(s) from orders.sagas s where s.order_id = b.id),
    'steps', (select jsonb_agg(jsonb_build_object('step', t.step, 'direction', t.direction, 'status', t.status,
                                                  'deadline', t.deadline) order by t.asked_at)
              from orders.saga_steps t join orders.sagas s on s.id = t.saga_id where s.order_id = b.id),
    'payment', (select p.status from payments.payments p where p.order_id = b.id limit 1),
    'reservation', (select r.status from inventory.reservations r where r.order_id = b.id limit 1),
    'shipment', (select t.status from shipping.shipments t where t.order_id = b.id limit 1)) as rows
from broken b
