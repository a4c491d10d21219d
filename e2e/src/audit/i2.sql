with held as (
    select l ->> 'sku' as sku, sum((l ->> 'quantity')::bigint) filter (where r.status = 'reserved') as reserved,
           sum((l ->> 'quantity')::bigint) filter (where r.status = 'committed') as shipped
    from inventory.reservations r, jsonb_array_elements(r.lines) l group by 1)
select null as "order", 'what is reserved and shipped is what the reservations say, and nothing is lost' as what,
       jsonb_build_object('stock', to_jsonb(s), 'reservations', to_jsonb(h)) as rows
from inventory.stock s left join held h using (sku)
where s.received <> s.available + s.reserved + s.shipped or least(s.available, s.reserved, s.shipped) < 0
   or s.reserved <> coalesce(h.reserved, 0) or s.shipped <> coalesce(h.shipped, 0)
union all
select s.order_id::text, 'nothing stays reserved for an order that has ended',
       jsonb_build_object('saga', s.state, 'reservation', to_jsonb(r))
from inventory.reservations r join orders.sagas s on s.id = r.saga_id
where r.status = 'reserved'
  -- Of a shipped order inventory hears a moment later.
  and (s.state = 'cancelled' or (s.state = 'completed' and $1))
