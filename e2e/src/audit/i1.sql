with money as (
    select order_id, sum(amount) filter (where account = 'shop') as shop,
           count(*) filter (where account = 'shop' and effect = 'capture') as captures,
           count(*) filter (where account = 'shop' and effect = 'refund') as refunds
    from sandbox.ledger where account in ('customer', 'shop') group by order_id),
broken as (
    select o.id::text as "order", 'a shipped order is paid in full, a cancelled one not at all' as what
    from orders.orders o join orders.sagas s on s.order_id = o.id left join money m on m.order_id = o.id::text
    where s.state in ('completed', 'cancelled')
      and coalesce(m.shop, 0) <> case s.state when 'completed' then o.total_amount else 0 end
    union all
    select order_id, 'nobody is charged or refunded twice' from money where captures > 1 or refunds > 1)
select b."order", b.what, jsonb_build_object(
    'order', (select jsonb_build_object('total', o.total_amount, 'saga', s.state)
              from orders.orders o join orders.sagas s on s.order_id = o.id where o.id::text = b."order"),
    'ledger', (select jsonb_agg(jsonb_build_object('id', l.id, 'effect', l.effect, 'account', l.account,
                                                   'amount', l.amount) order by l.id)
               from sandbox.ledger l where l.order_id = b."order" and l.account in ('customer', 'shop'))) as rows
from broken b
union all
select null, 'the ledger sums to zero', jsonb_build_object('sum', sum(amount))
from sandbox.ledger where account in ('customer', 'shop') having coalesce(sum(amount), 0) <> 0
