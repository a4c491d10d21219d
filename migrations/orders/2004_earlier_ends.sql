-- A do or undo that ends again (retried, settled by a person, answered after all) keeps how it ended before: attempt,
-- times, status, code.
alter table saga_steps add column earlier jsonb not null default '[]';
