with commands as (
    select consumer, message_id, key, message_type from payments.inbox where consumer = 'payment.commands' and status = 'done'
    union all
    select consumer, message_id, key, message_type from inventory.inbox where consumer = 'inventory.commands' and status = 'done'
    union all
    select consumer, message_id, key, message_type from shipping.inbox where consumer = 'shipping.commands' and status = 'done'),
answers as (
    select 'payment.commands' as consumer, event_id, event_type, saga_id, headers ->> 'causation-id' as cause from payments.outbox_log
    union all
    select 'inventory.commands', event_id, event_type, saga_id, headers ->> 'causation-id' from inventory.outbox_log
    union all
    select 'shipping.commands', event_id, event_type, saga_id, headers ->> 'causation-id' from shipping.outbox_log),
records as (
    select 'payment.commands' as consumer, saga_id, status from payments.payments
    union all select 'inventory.commands', saga_id, status from inventory.reservations
    union all select 'shipping.commands', saga_id, status from shipping.shipments
    union all select 'order.replies', saga_id, step || ' ' || direction || ' ' || status from orders.saga_steps
              where answered_at is not null),
received as (
    select distinct consumer, key from commands
    union select consumer, key from orders.inbox where consumer = 'order.replies' and status = 'done'),
broken as (
    select c.key, 'each command that was done has one answer' as what,
           jsonb_build_object('inbox', to_jsonb(c), 'answers', count(a.event_id)) as rows
    from commands c left join answers a on a.consumer = c.consumer and a.cause = c.message_id
    group by c.consumer, c.message_id, c.key, c.message_type, c.* having count(a.event_id) <> 1
    union all
    select a.saga_id::text, 'each answer has its command', jsonb_build_object('answer', to_jsonb(a))
    from answers a left join commands c on c.consumer = a.consumer and c.message_id = a.cause where c.message_id is null
    union all
    select r.saga_id::text, 'each effect has its message', jsonb_build_object('record', to_jsonb(r))
    from records r left join received i on i.consumer = r.consumer and i.key = r.saga_id::text where i.key is null)
select (select s.order_id::text from orders.sagas s where s.id::text = b.key) as "order", b.what, b.rows from broken b
