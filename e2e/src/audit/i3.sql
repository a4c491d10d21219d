with parcels as (
    select order_id, sum(case effect when 'ship' then 1 when 'recall' then -1 else 0 end) as parcels,
           count(*) filter (where effect = 'ship') as ships, count(*) filter (where effect = 'recall') as recalls
    from sandbox.ledger where account = 'parcel' group by order_id),
broken as (
    select o.id::text as "order", 'a shipped order has one parcel, a cancelled one none' as what
    from orders.orders o join orders.sagas s on s.order_id = o.id left join parcels p on p.order_id = o.id::text
    where s.state in ('completed', 'cancelled')
      and coalesce(p.parcels, 0) <> case s.state when 'completed' then 1 else 0 end
    union all
    select order_id, 'nothing is sent or called back twice' from parcels where ships > 1 or recalls > 1
    union all
    select s.order_id::text, 'what was paid back has not been sent'
    from orders.sagas s join payments.payments p on p.saga_id = s.id
    left join shipping.shipments t on t.saga_id = s.id left join parcels l on l.order_id = s.order_id::text
    -- What a person has settled may stay as it is.
    where p.status = 'refunded' and not s.has_settled and s.state <> 'cancelled'
      and (t.status = 'created' or coalesce(l.parcels, 0) <> 0))
select b."order", b.what, jsonb_build_object(
    'saga', (select s.state from orders.sagas s where s.order_id::text = b."order"),
    'shipment', (select to_jsonb(t) from shipping.shipments t where t.order_id::text = b."order"),
    'ledger', (select jsonb_agg(jsonb_build_object('id', l.id, 'effect', l.effect, 'amount', l.amount) order by l.id)
               from sandbox.ledger l where l.order_id = b."order" and l.account = 'parcel')) as rows
from broken b
