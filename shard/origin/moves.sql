-- Moves of vnodes between shards: part of the schema (schema.sql), installed with it. Every statement may be repeated.

-- The part of a move whose cut-over is under way: until it is over, the view stays as it is.
alter table ringside.view add column if not exists cutover bigint;

-- What this shard keeps of each part of a move that it is source or destination of. The state is that of its vnodes (ringside.owner.move_id) as long as
-- the part is not gone; see MoveRow of package shard.
create table if not exists ringside.part (
	id         bigint primary key,
	side       text not null check (side in ('source', 'destination')),
	state      text not null default '' check (state in ('', 'owned', 'incoming', 'frozen', 'closed', 'moved', 'cancelled', 'gone')),
	token      bigint not null default 0, -- of the driver that may act
	capture    boolean not null default false, -- source: changes are noted in ringside.change
	copied     boolean not null default false, -- destination: every row was copied
	peer       text not null,                  -- the other shard
	copying    jsonb,                          -- destination: how far copying is
	changed_at timestamptz not null default now()
);

-- Rows that were changed while their vnode is being moved away, by primary key: whoever applies them reads the row as it is then.
create table if not exists ringside.change (
	part  bigint not null,
	seq   bigint generated always as identity,
	tbl   regclass not null,
	vnode int not null,
	key   jsonb not null, -- array of the values of the primary key's columns
	primary key (part, seq)
);

-- Who owns a vnode here, whether it is being moved or not.
create or replace view ringside.ownership as
select o.vnode, coalesce(p.state, o.state) as state, coalesce(p.capture, false) as capture, o.move_id,
	coalesce(case when p.side = 'source' then p.peer end, o.moved_to) as moved_to
from ringside.owner o left join ringside.part p on p.id = o.move_id;

-- To which shard a vnode is moving or has moved, for transactions whose snapshot is older than that. A table would show them what was; a large object
-- that is opened for writing shows every transaction what is committed now. It holds 65536 numbers of 2 bytes, big endian, 0: to none, then the names
-- of shards, each with a newline; the n-th has number n.
create table if not exists ringside.forwarding (
	one boolean primary key default true check (one),
	lo  oid not null
);
insert into ringside.forwarding (lo) select pg_catalog.lo_create(0) where not exists (select from ringside.forwarding);

create or replace function ringside.forwarded(vnode int) returns text
language plpgsql volatile as $$
declare
	fd int := pg_catalog.lo_open((select f.lo from ringside.forwarding f), x'60000'::int); -- INV_READ | INV_WRITE
	at bytea;
	names bytea;
begin
	perform pg_catalog.lo_lseek(fd, 2 * forwarded.vnode, 0);
	at := pg_catalog.loread(fd, 2);
	perform pg_catalog.lo_lseek(fd, 131072, 0);
	names := pg_catalog.loread(fd, 1048576);
	perform pg_catalog.lo_close(fd);
	if pg_catalog.length(at) < 2 or at = '\x0000' then
		return '';
	end if;
	return pg_catalog.split_part(pg_catalog.convert_from(names, 'UTF8'), E'\n',
		256 * pg_catalog.get_byte(at, 0) + pg_catalog.get_byte(at, 1));
end $$;

-- forward() brings that large object in line with ownership. It is called at the end of a transaction that changes where vnodes move to.
create or replace function ringside.forward() returns void
language plpgsql volatile as $$
declare
	names text[] := array(select distinct o.moved_to from ringside.ownership o where o.moved_to <> '' order by 1);
	numbers bytea;
begin
	select pg_catalog.decode(string_agg(pg_catalog.lpad(pg_catalog.to_hex(coalesce(pg_catalog.array_position(names, o.moved_to), 0)), 4, '0'), '' order by v.n), 'hex')
		into numbers from pg_catalog.generate_series(0, 65535) v(n) left join ringside.ownership o on o.vnode = v.n;
	perform pg_catalog.lo_put((select f.lo from ringside.forwarding f), 0,
		numbers || pg_catalog.convert_to(pg_catalog.array_to_string(names, E'\n') || E'\n', 'UTF8'));
end $$;

-- refuse(vnode, state, moved_to) raises why this shard takes no write of a vnode; see ringside.fence.
create or replace function ringside.refuse(vnode int, state text, moved_to text) returns void
language plpgsql volatile as $$
declare
	whither text := case when moved_to <> '' then ' to shard ' || moved_to else '' end;
begin
	if state = 'frozen' then
		raise exception 'vnode % is frozen for a cut-over%', vnode, whither
			using errcode = 'RS003', detail = coalesce(moved_to, ''), hint = 'Try again in a moment.';
	end if;
	if state = 'closed' then
		raise exception 'vnode % is closed for a cut-over%', vnode, whither
			using errcode = 'RS004', detail = coalesce(moved_to, ''), hint = 'Try again on that shard.';
	end if;
	if state = 'moved' then
		raise exception 'vnode % has moved%', vnode, whither
			using errcode = 'RS002', detail = coalesce(moved_to, ''), hint = 'Its rows are written on that shard.';
	end if;
	raise exception 'vnode % is not owned here (%)', vnode, coalesce(state, 'never was')
		using errcode = 'RS002', detail = coalesce(moved_to, '');
end $$;

-- admit(vnode) is the fence for whoever changes rows without it: psql, other programs. It returns the part that the change is to be noted for, or null.
-- As in ringside.fence the locks come first. Under READ COMMITTED the statement after them has a younger snapshot. Under REPEATABLE READ and above it has not:
-- there FOR SHARE fails if the row was changed since, and who owns the vnode now is looked up past the snapshot.
create or replace function ringside.admit(vnode int) returns bigint
language plpgsql volatile as $$
declare
	o record;
	p record;
	whither text;
begin
	perform pg_catalog.pg_advisory_xact_lock_shared(x'52530001'::int, 0);
	perform pg_catalog.pg_advisory_xact_lock_shared(x'52530002'::int, admit.vnode % 64);
	if pg_catalog.current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
		select x.state, x.capture, x.move_id, x.moved_to into o from ringside.ownership x where x.vnode = admit.vnode;
	else
		begin
			select x.state, false as capture, x.move_id, x.moved_to into o from ringside.owner x where x.vnode = admit.vnode for share;
			if o.move_id is not null then
				select x.state, x.capture, x.side, x.peer into strict p from ringside.part x where x.id = o.move_id for share;
				o.state := p.state;
				o.capture := p.capture;
				if p.side = 'source' then
					o.moved_to := p.peer;
				end if;
			end if;
		exception when serialization_failure then
			whither := ringside.forwarded(admit.vnode);
			if whither = '' then
				raise; -- it was moved here, or is not moved after all: a new transaction will see
			end if;
			raise exception 'vnode % moves to shard %, since this transaction has begun', admit.vnode, whither
				using errcode = 'RS002', detail = whither, hint = 'Begin a new transaction.';
		end;
	end if;
	if o.state = 'owned' then
		return case when o.capture then o.move_id end;
	end if;
	perform ringside.refuse(admit.vnode, o.state, o.moved_to);
	return null;
end $$;

-- guard() is the trigger of every attached table; its arguments are the columns of the primary key. What the mover does passes it by: its transactions say so,
-- and hold the row of the part instead.
create or replace function ringside.guard() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
	part bigint;
	was int;
	was_key jsonb;
	is_key jsonb;
	key_of text;
begin
	if tg_op <> 'INSERT' then
		was := old.ringside_vnode;
		part := ringside.admit(was);
		if part is not null then
			select format('select jsonb_build_array(%s)', string_agg(format('($1).%I', k), ', ')) into key_of from unnest(tg_argv) k;
			execute key_of into was_key using old;
			insert into ringside.change (part, tbl, vnode, key) values (part, tg_relid, was, was_key);
		end if;
	end if;
	if tg_op = 'DELETE' or new.ringside_vnode = was and part is null then
		return null;
	end if;
	if new.ringside_vnode is distinct from was then
		part := ringside.admit(new.ringside_vnode);
	end if;
	if part is not null then
		select format('select jsonb_build_array(%s)', string_agg(format('($1).%I', k), ', ')) into key_of from unnest(tg_argv) k;
		execute key_of into is_key using new;
		if is_key is distinct from was_key or new.ringside_vnode is distinct from was then
			insert into ringside.change (part, tbl, vnode, key) values (part, tg_relid, new.ringside_vnode, is_key);
		end if;
	end if;
	return null;
end $$;

-- guard_truncate() refuses what no row tells of.
create or replace function ringside.guard_truncate() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
	perform pg_advisory_xact_lock_shared(x'52530001'::int, 0);
	if exists (select from ringside.part p where p.state in ('owned', 'incoming', 'frozen', 'closed')) then
		raise exception 'rows of table % are being moved between shards: it cannot be truncated now', tg_relid::regclass
			using errcode = 'RS003', hint = 'Wait until the move is done, or cancel it.';
	end if;
	return null;
end $$;

-- guarded(table, keys) puts both triggers on a table, so that they work whoever writes.
create or replace function ringside.guarded(tbl regclass, keys text[]) returns void
language plpgsql volatile as $$
declare
	arguments text := (select string_agg(pg_catalog.quote_literal(k), ', ') from pg_catalog.unnest(keys) k);
	now_there text := (select pg_catalog.pg_get_triggerdef(t.oid) from pg_catalog.pg_trigger t where t.tgrelid = tbl and t.tgname = 'ringside_guard');
begin
	if now_there is null or pg_catalog.strpos(now_there, pg_catalog.format('ringside.guard(%s)', arguments)) = 0 then
		execute pg_catalog.format('create or replace trigger ringside_guard after insert or update or delete on %s
			for each row when (pg_catalog.current_setting(''ringside.mover'', true) is distinct from ''on'') execute function ringside.guard(%s)', tbl, arguments);
		execute pg_catalog.format('create or replace trigger ringside_guard_truncate before truncate on %s
			for each statement execute function ringside.guard_truncate()', tbl);
		execute pg_catalog.format('alter table %s enable always trigger ringside_guard, enable always trigger ringside_guard_truncate', tbl);
	end if;
end $$;
