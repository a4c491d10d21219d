select null as "order", 'no session is left in a transaction' as what,
       jsonb_build_object('pid', pid, 'role', usename, 'application', application_name, 'state', state,
                          'since', state_change, 'query', left(query, 200)) as rows
from pg_stat_activity
where datname = current_database() and state like 'idle in transaction%'
  and clock_timestamp() - state_change > interval '2 seconds'
union all
select null, 'nobody waits for a lock',
       jsonb_build_object('pid', pid, 'role', usename, 'application', application_name, 'since', query_start,
                          'behind', to_jsonb(pg_blocking_pids(pid)), 'query', left(query, 200))
from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '2 seconds'
union all
select null, 'the only advisory locks that stay are those of the relays',
       jsonb_build_object('pid', l.pid, 'role', a.usename, 'application', a.application_name, 'key', l.classid,
                          'key2', l.objid)
from pg_locks l left join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.granted and l.database = (select oid from pg_database where datname = current_database())
  and not (l.objsubid = 2 and l.classid::bigint = hashtext('relay')::bigint & 4294967295
           and l.objid::bigint in (select hashtext(s)::bigint & 4294967295
                                   from unnest(array['orders', 'payments', 'inventory', 'shipping']) s))
  and clock_timestamp() - a.state_change > interval '2 seconds'
