select null as "order", 'there are orders: an audit over nothing proves nothing' as what, '{}'::jsonb as rows
where not exists (select from orders.orders)
