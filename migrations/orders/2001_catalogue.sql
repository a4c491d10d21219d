-- What the shop sells and for how much; a client names a product, never a price.
create table products (
    sku         text primary key,
    name        text not null,
    unit_amount bigint not null constraint products_cost_something check (unit_amount > 0),
    currency    text not null default 'EUR'
);
insert into products (sku, name, unit_amount) values
    ('KEYBOARD', 'Keyboard', 7900), ('MOUSE', 'Mouse', 2900), ('MONITOR', 'Monitor', 24900),
    ('HEADSET', 'Headset', 5900), ('LAST_ONE', 'The last one', 9900), ('UNICORN', 'Unicorn', 99900);
