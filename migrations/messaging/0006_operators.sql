-- What operators do with messages. `skipped` is set aside: it holds nobody, is never purged, and can be taken up again.
alter table inbox drop constraint inbox_status_is_known;
alter table inbox add constraint inbox_status_is_known
    check (status in ('done', 'waiting', 'retrying', 'parked', 'skipped', 'discarded'));
-- Published once more: its age and latency count from then. When it was published first stays known.
alter table outbox add column replayed_at timestamptz, add column first_published_at timestamptz;
alter table outbox_history add column replayed_at timestamptz, add column first_published_at timestamptz;
-- For the timeline of a saga. An act on a message names the message as its target.
alter table operator_actions add column saga_id uuid;
create index operator_actions_saga on operator_actions (saga_id, id) where saga_id is not null;
update operator_actions set saga_id = target::uuid where target ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$';
