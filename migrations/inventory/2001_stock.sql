-- Stock of each product. The constraints make overselling impossible, whatever the code does.
create table stock (
    sku       text primary key,
    available bigint not null constraint stock_is_never_oversold check (available >= 0),
    reserved  bigint not null default 0 constraint stock_reserved_is_not_negative check (reserved >= 0),
    shipped   bigint not null default 0 constraint stock_shipped_is_not_negative check (shipped >= 0),
    received  bigint not null,
    constraint stock_is_conserved check (received = available + reserved + shipped)
);
insert into stock (sku, available, received) values
    ('KEYBOARD', 1000000, 1000000), ('MOUSE', 1000000, 1000000), ('MONITOR', 1000000, 1000000),
    ('HEADSET', 1000000, 1000000), ('LAST_ONE', 1, 1), ('UNICORN', 0, 0);
