-- Moves of vnodes, and of single shard keys, between shards: part of the schema (schema.sql), installed with it. Every statement may be repeated.

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

-- Shard keys that are placed by an override, or are about to be, as far as this shard has to do with them. What a row here says counts, not what is said of the
-- key's vnode. The shard that owns a vnode has a row for each key of it that has an override, wherever that one's rows are, and for no other.
create table if not exists ringside.override (
	shard_key text collate "C" primary key,
	vnode     int not null check (vnode between 0 and 65535),
	state     text not null check (state in ('vnode', 'owned', 'incoming', 'moved')), -- vnode: it is its vnode's again if the move is called off
	move_id   bigint,
	moved_to  text
);
create index if not exists override_vnode on ringside.override (vnode);

-- Whether a vnode has rows there: only then anybody asks for the key.
alter table ringside.owner add column if not exists overrides boolean not null default false;

-- Who owns a vnode here, whether it is being moved or not.
create or replace view ringside.ownership as
select o.vnode, coalesce(p.state, o.state) as state, coalesce(p.capture, false) as capture, o.move_id,
	coalesce(case when p.side = 'source' then p.peer end, o.moved_to) as moved_to, o.overrides
from ringside.owner o left join ringside.part p on p.id = o.move_id;

-- Likewise for shard keys.
create or replace view ringside.key_ownership as
select k.shard_key, k.vnode, coalesce(p.state, k.state) as state, coalesce(p.capture, false) as capture, k.move_id,
	coalesce(case when p.side = 'source' then p.peer end, k.moved_to) as moved_to
from ringside.override k left join ringside.part p on p.id = k.move_id;

-- To which shard a vnode or a key is moving or has moved, for transactions whose snapshot is older than that. A table would show them what was; a large object
-- that is opened for writing shows every transaction what is committed now. It holds 65536 numbers of 2 bytes, big endian, 0: to none, then the names
-- of shards, each with a newline; the n-th has number n. After an empty line come keys, each in hexadecimal digits, with the name of a shard, up to
-- another empty line.
create table if not exists ringside.forwarding (
	one boolean primary key default true check (one),
	lo  oid not null
);
insert into ringside.forwarding (lo) select pg_catalog.lo_create(0) where not exists (select from ringside.forwarding);

drop function if exists ringside.forwarded(int); -- before version 5
create or replace function ringside.forwarded(vnode int, key text) returns text
language plpgsql volatile as $$
declare
	fd int := pg_catalog.lo_open((select f.lo from ringside.forwarding f), x'60000'::int); -- INV_READ | INV_WRITE
	at bytea;
	raw bytea;
	names text;
	of_key text;
begin
	perform pg_catalog.lo_lseek(fd, 2 * forwarded.vnode, 0);
	at := pg_catalog.loread(fd, 2);
	perform pg_catalog.lo_lseek(fd, 131072, 0);
	raw := pg_catalog.loread(fd, 8388608);
	perform pg_catalog.lo_close(fd);
	names := pg_catalog.convert_from(raw, 'UTF8');
	of_key := pg_catalog.split_part(pg_catalog.split_part(E'\n' || pg_catalog.split_part(names, E'\n\n', 2) || E'\n',
		E'\n' || pg_catalog.encode(pg_catalog.convert_to(key, 'UTF8'), 'hex') || ' ', 2), E'\n', 1);
	if of_key <> '' then
		return of_key;
	end if;
	if pg_catalog.length(at) < 2 or at = '\x0000' then
		return '';
	end if;
	return pg_catalog.split_part(names, E'\n', 256 * pg_catalog.get_byte(at, 0) + pg_catalog.get_byte(at, 1));
end $$;

-- forward() brings that large object in line with ownership. It is called at the end of a transaction that changes where vnodes or keys move to. Only vnodes that
-- do are gone through, with the gaps between them: writers may be waiting for the transaction.
create or replace function ringside.forward() returns void
language plpgsql volatile as $$
declare
	names text[];
	numbers text;
	keys text := (select string_agg(pg_catalog.encode(pg_catalog.convert_to(k.shard_key, 'UTF8'), 'hex') || ' ' || k.moved_to, E'\n')
		from ringside.key_ownership k where k.moved_to <> '');
begin
	with moved as materialized (
		select o.vnode, o.moved_to, o.vnode - pg_catalog.lag(o.vnode, 1, -1) over (order by o.vnode) - 1 as gap
		from ringside.ownership o where o.moved_to <> ''
	), name as (
		select n.moved_to, pg_catalog.row_number() over (order by n.moved_to) as number from (select distinct m.moved_to from moved m) n
	)
	select string_agg(pg_catalog.repeat('0000', m.gap) || pg_catalog.lpad(pg_catalog.to_hex(n.number), 4, '0'), '' order by m.vnode),
		(select array_agg(x.moved_to order by x.number) from name x)
		into numbers, names from moved m join name n using (moved_to);
	perform pg_catalog.lo_put((select f.lo from ringside.forwarding f), 0,
		pg_catalog.decode(pg_catalog.rpad(coalesce(numbers, ''), 4 * 65536, '0'), 'hex')
		|| pg_catalog.convert_to(coalesce(pg_catalog.array_to_string(names, E'\n'), '') || E'\n\n' || coalesce(keys, '') || E'\n\n', 'UTF8'));
end $$;

-- refuse(what, state, moved_to) raises why this shard takes no write of a vnode or a shard key; see ringside.fence.
drop function if exists ringside.refuse(int, text, text); -- before version 5
create or replace function ringside.refuse(what text, state text, moved_to text) returns void
language plpgsql volatile as $$
declare
	whither text := case when moved_to <> '' then ' to shard ' || moved_to else '' end;
begin
	if state = 'frozen' then
		raise exception '% is frozen for a cut-over%', what, whither
			using errcode = 'RS003', detail = coalesce(moved_to, ''), hint = 'Try again in a moment.';
	end if;
	if state = 'closed' then
		raise exception '% is closed for a cut-over%', what, whither
			using errcode = 'RS004', detail = coalesce(moved_to, ''), hint = 'Try again on that shard.';
	end if;
	if state = 'moved' then
		raise exception '% has moved%', what, whither
			using errcode = 'RS002', detail = coalesce(moved_to, ''), hint = 'Its rows are written on that shard.';
	end if;
	raise exception '% is not owned here (%)', what, coalesce(state, 'never was')
		using errcode = 'RS002', detail = coalesce(moved_to, '');
end $$;

-- admit(vnode, key) is the fence for whoever changes rows without it: psql, other programs. It returns the part that the change is to be noted for, or null;
-- or, when key is null and the vnode's word is not enough, -1: it must be called again, with the shard key.
-- As in ringside.fence the locks come first. Under READ COMMITTED the statement after them has a younger snapshot. Under REPEATABLE READ and above it has not:
-- there FOR SHARE fails if the row was changed since, and who owns the vnode now is looked up past the snapshot. Whoever adds or takes away
-- a key's row changes its vnode's too.
drop function if exists ringside.admit(int); -- before version 5
create or replace function ringside.admit(vnode int, key text) returns bigint
language plpgsql volatile as $$
declare
	o record;
	k record;
	p record;
	whither text;
	what text := 'vnode ' || admit.vnode;
	snapshot boolean := pg_catalog.current_setting('transaction_isolation') not in ('read committed', 'read uncommitted');
	more boolean := snapshot; -- than the vnode's word
begin
	perform pg_catalog.pg_advisory_xact_lock_shared(x'52530001'::int, 0);
	perform pg_catalog.pg_advisory_xact_lock_shared(x'52530002'::int, admit.vnode % 64);
	if not snapshot then
		select x.state, x.capture, x.move_id, x.moved_to, x.overrides into o from ringside.ownership x where x.vnode = admit.vnode;
		more := o.overrides or o.state is distinct from 'owned';
	end if;
	if more then
		begin
			if snapshot then
				select x.state, false as capture, x.move_id, x.moved_to, x.overrides into o from ringside.owner x where x.vnode = admit.vnode for share;
			end if;
			if o.overrides or o.state is distinct from 'owned' then
				if key is null and exists (select from ringside.override x where x.vnode = admit.vnode) then
					return -1;
				end if;
				if snapshot then
					select x.state, false as capture, x.move_id, x.moved_to into k from ringside.override x where x.shard_key = key for share;
				else
					select x.state, x.capture, x.move_id, x.moved_to into k from ringside.key_ownership x where x.shard_key = key;
				end if;
				if found then
					o.state := k.state;
					o.capture := k.capture;
					o.move_id := k.move_id;
					o.moved_to := k.moved_to;
					what := 'shard key ' || pg_catalog.left(key, 100);
				end if;
			end if;
			if snapshot and o.move_id is not null then
				select x.state, x.capture, x.side, x.peer into strict p from ringside.part x where x.id = o.move_id for share;
				o.state := p.state;
				o.capture := p.capture;
				if p.side = 'source' then
					o.moved_to := p.peer;
				end if;
			end if;
		exception when serialization_failure then
			if key is null then
				return -1; -- where the key moves to is told with it
			end if;
			whither := ringside.forwarded(admit.vnode, key);
			if whither = '' then
				raise; -- it was moved here, or is not moved after all: a new transaction will see
			end if;
			raise exception 'shard key % moves to shard %, since this transaction has begun', pg_catalog.left(key, 100), whither
				using errcode = 'RS002', detail = whither, hint = 'Begin a new transaction.';
		end;
	end if;
	if o.state = 'owned' then
		return case when o.capture then o.move_id end;
	end if;
	perform ringside.refuse(what, o.state, o.moved_to);
	return null;
end $$;

-- shard_key(table, row) is the text by which a row is placed.
create or replace function ringside.shard_key(tbl regclass, r record) returns text
language plpgsql stable as $$
declare
	of_row text;
begin
	execute (select pg_catalog.format('select ($1).%I::text', k.attname)
		from pg_catalog.pg_attribute a
		join pg_catalog.pg_attrdef f on f.adrelid = a.attrelid and f.adnum = a.attnum
		join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_attrdef'::regclass and d.objid = f.oid
			and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid = a.attrelid and d.refobjsubid <> a.attnum
		join pg_catalog.pg_attribute k on k.attrelid = a.attrelid and k.attnum = d.refobjsubid
		where a.attrelid = tbl and a.attname = 'ringside_vnode') into of_row using r;
	return of_row;
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
	by_key boolean := false; -- the vnode's word was not enough
begin
	if tg_op <> 'INSERT' then
		was := old.ringside_vnode;
		part := ringside.admit(was, null);
		if part = -1 then
			by_key := true;
			part := ringside.admit(was, ringside.shard_key(tg_relid, old));
		end if;
		if part is not null then
			select format('select jsonb_build_array(%s)', string_agg(format('($1).%I', k), ', ')) into key_of from unnest(tg_argv) k;
			execute key_of into was_key using old;
			insert into ringside.change (part, tbl, vnode, key) values (part, tg_relid, was, was_key);
		end if;
	end if;
	if tg_op = 'DELETE' or new.ringside_vnode = was and part is null and not by_key then
		return null;
	end if;
	if new.ringside_vnode is distinct from was or by_key then
		part := ringside.admit(new.ringside_vnode, null);
		if part = -1 then
			part := ringside.admit(new.ringside_vnode, ringside.shard_key(tg_relid, new));
		end if;
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
