-- Schema of ringside on a shard, version 5. Installed in one transaction under advisory lock (0x52530003, 0).
-- Every statement may be repeated. Functions name their schema, so that they work under any search_path.

create table if not exists ringside.schema_version (
	version      int primary key,
	installed_at timestamptz not null default now()
);

-- The view that governs this shard's rows. Its one row is the fence: it is changed only under the exclusive global advisory lock
-- (0x52530001, 0), which every writer holds shared.
create table if not exists ringside.view (
	one        boolean primary key default true check (one),
	shard      text not null,
	epoch      bigint not null check (epoch >= 0),
	phase      smallint not null check (phase between 1 and 3),
	previous   bigint not null default 0, -- the last epoch that the shard was at in phase done (3), before this one
	topology   bytea,
	changed_at timestamptz not null default now()
);

-- What this shard knows of each vnode it has or had to do with. A vnode without a row is not owned.
create table if not exists ringside.owner (
	vnode    int primary key check (vnode between 0 and 65535),
	state    text not null check (state in ('owned', 'incoming', 'frozen', 'closed', 'moved', 'cancelled')),
	epoch    bigint not null,
	move_id  bigint,
	token    bigint not null default 0,
	capture  boolean not null default false,
	moved_to text
);

-- vnode(text): the top 16 bits of murmur3 (x86, 32 bit, seed 0) over the UTF-8 bytes. Products are taken in two halves of 16 bits,
-- since 32 by 32 bits does not fit a signed bigint.
create or replace function ringside.vnode(value text) returns int
language plpgsql immutable strict parallel safe as $$
declare
	b bytea := pg_catalog.convert_to(value, 'UTF8');
	n int := pg_catalog.length(b);
	tail int := n & -4;
	i int := 0;
	h bigint := 0;
	k bigint;
begin
	while i < tail loop
		k := pg_catalog.get_byte(b, i)::bigint | (pg_catalog.get_byte(b, i + 1)::bigint << 8)
			| (pg_catalog.get_byte(b, i + 2)::bigint << 16) | (pg_catalog.get_byte(b, i + 3)::bigint << 24);
		k := ((k & 65535) * 3432918353 + ((((k >> 16) * 3432918353) & 65535) << 16)) & 4294967295;
		k := ((k << 15) | (k >> 17)) & 4294967295;
		h := h # (((k & 65535) * 461845907 + ((((k >> 16) * 461845907) & 65535) << 16)) & 4294967295);
		h := ((h << 13) | (h >> 19)) & 4294967295;
		h := (h * 5 + 3864292196) & 4294967295;
		i := i + 4;
	end loop;
	if n > tail then
		k := pg_catalog.get_byte(b, tail);
		if n > tail + 1 then
			k := k | (pg_catalog.get_byte(b, tail + 1)::bigint << 8);
		end if;
		if n > tail + 2 then
			k := k | (pg_catalog.get_byte(b, tail + 2)::bigint << 16);
		end if;
		k := ((k & 65535) * 3432918353 + ((((k >> 16) * 3432918353) & 65535) << 16)) & 4294967295;
		k := ((k << 15) | (k >> 17)) & 4294967295;
		h := h # (((k & 65535) * 461845907 + ((((k >> 16) * 461845907) & 65535) << 16)) & 4294967295);
	end if;
	h := h # n;
	h := h # (h >> 16);
	h := ((h & 65535) * 2246822507 + ((((h >> 16) * 2246822507) & 65535) << 16)) & 4294967295;
	h := h # (h >> 13);
	h := ((h & 65535) * 3266489909 + ((((h >> 16) * 3266489909) & 65535) << 16)) & 4294967295;
	return ((h # (h >> 16)) >> 16)::int;
end $$;

-- fence(vnode, key, epoch, phase) lets a writer's transaction go on, or raises why not; key is the shard key. The locks come first; then a separate statement
-- reads, with a snapshot of its own that is younger than the locks. In one statement the snapshot would be older, and a
-- writer that waited behind a mover would still see the former owner. For the same reason the transaction must be READ COMMITTED.
-- Single keys are asked about only where the vnode's word is not enough: it has overrides, or is not owned.
--   RS001  the caller's view is not this shard's; DETAIL is the shard's, as epoch/phase/previous
--   RS002  this shard does not own the vnode, or the key; DETAIL is where it moved to, if known
--   RS003  it is frozen for a cut-over; DETAIL is where it moves to
--   RS004  it is closed for a cut-over; likewise
create or replace function ringside.fence(vnode int, key text, epoch bigint, phase int) returns void
language plpgsql volatile as $$
declare
	seen record;
	own record;
begin
	if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'ringside.fence needs READ COMMITTED, the transaction is %',
			pg_catalog.current_setting('transaction_isolation') using errcode = '25001';
	end if;
	perform pg_catalog.pg_advisory_xact_lock_shared(x'52530001'::int, 0);
	perform pg_catalog.pg_advisory_xact_lock_shared(x'52530002'::int, fence.vnode % 64);

	select v.epoch, v.phase, v.previous, o.state, o.moved_to, o.overrides into seen
		from ringside.view v left join ringside.ownership o on o.vnode = fence.vnode;
	if not found then
		raise exception 'the shard has no view yet' using errcode = 'RS001', detail = '0/0/0';
	end if;
	if seen.epoch <> fence.epoch or seen.phase <> fence.phase then
		raise exception 'the shard is at view %/%, not %/%', seen.epoch, seen.phase, fence.epoch, fence.phase
			using errcode = 'RS001', detail = seen.epoch || '/' || seen.phase || '/' || seen.previous;
	end if;
	if seen.state = 'owned' and not seen.overrides then
		return;
	end if;
	select k.state, k.moved_to into own from ringside.key_ownership k where k.shard_key = fence.key;
	if found then
		if own.state is distinct from 'owned' then
			perform ringside.refuse('shard key ' || pg_catalog.left(fence.key, 100), own.state, own.moved_to);
		end if;
	elsif seen.state is distinct from 'owned' then
		perform ringside.refuse('vnode ' || fence.vnode, seen.state, seen.moved_to);
	end if;
end $$;

-- The fence of sidecars before version 5, which go on writing while newer ones are rolled out. They do not say the key, so vnodes are refused to them of which
-- keys have overrides.
create or replace function ringside.fence(vnode int, epoch bigint, phase int) returns void
language plpgsql volatile as $$
begin
	perform ringside.fence(fence.vnode, null, fence.epoch, fence.phase);
	if exists (select from ringside.override k where k.vnode = fence.vnode) then
		raise exception 'keys of vnode % have overrides, of which this sidecar''s version does not know', fence.vnode using errcode = 'RS002';
	end if;
end $$;

-- attach(table, shard_by) gives a table its vnode: a stored generated column ringside_vnode of the shard key's text, and an index on
-- (ringside_vnode, primary key) by which rows are found and moved. Rewrites the table. Triggers then refuse every write of a vnode that this shard does
-- not own, whoever it comes from, and note what is changed while it is moved away. May be repeated.
create or replace function ringside.attach(tbl regclass, shard_by name) returns void
language plpgsql volatile as $$
declare
	key_num int;
	gen_num int;
	keys text;
	key_names text[];
begin
	select a.attnum into key_num from pg_catalog.pg_attribute a
		where a.attrelid = tbl and a.attname = shard_by and a.attnum > 0 and not a.attisdropped;
	if not found then
		raise exception 'table % has no column %', tbl, shard_by using errcode = '42703';
	end if;
	select string_agg(pg_catalog.quote_ident(a.attname), ', ' order by k.i), array_agg(a.attname::text order by k.i) into keys, key_names
		from pg_catalog.pg_index x
		cross join lateral pg_catalog.unnest(x.indkey::smallint[]) with ordinality as k(num, i)
		join pg_catalog.pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.num
		where x.indrelid = tbl and x.indisprimary and k.i <= x.indnkeyatts;
	if keys is null then
		raise exception 'table % has no primary key', tbl using errcode = '42704';
	end if;

	select a.attnum into gen_num from pg_catalog.pg_attribute a
		where a.attrelid = tbl and a.attname = 'ringside_vnode' and not a.attisdropped;
	if not found then
		execute pg_catalog.format(
			'alter table %s add column ringside_vnode int generated always as (ringside.vnode(%I::text)) stored', tbl, shard_by);
	elsif not exists (
		select from pg_catalog.pg_attrdef d
		join pg_catalog.pg_depend fn on fn.classid = 'pg_catalog.pg_attrdef'::regclass and fn.objid = d.oid
			and fn.refclassid = 'pg_catalog.pg_proc'::regclass and fn.refobjid = 'ringside.vnode(text)'::regprocedure
		join pg_catalog.pg_depend col on col.classid = 'pg_catalog.pg_attrdef'::regclass and col.objid = d.oid
			and col.refclassid = 'pg_catalog.pg_class'::regclass and col.refobjid = tbl and col.refobjsubid = key_num
		where d.adrelid = tbl and d.adnum = gen_num
	) then
		raise exception 'column ringside_vnode of table % is not ringside.vnode(%::text)', tbl, shard_by using errcode = '42P16';
	end if;

	if not exists (
		select from pg_catalog.pg_index x
		join pg_catalog.pg_attribute a on a.attrelid = x.indrelid and a.attnum = x.indkey[0]
		where x.indrelid = tbl and a.attname = 'ringside_vnode' and x.indisvalid and x.indpred is null
	) then
		execute pg_catalog.format('create index on %s (ringside_vnode, %s)', tbl, keys);
	end if;
	perform ringside.guarded(tbl, key_names);
end $$;

-- How changes made by others are followed from the write-ahead log (package cdc); one row. The follower writes it, everybody reads it.
create table if not exists ringside.cdc (
	one       boolean primary key default true check (one),
	slot      text not null default '',   -- the replication slot that is followed; '': none ever was
	system_id text not null default '',   -- of the server that it is on
	timeline  bigint not null default 0,  -- likewise
	follower  text not null default '',   -- the sidecar that follows
	keyspaces text[] not null default '{}', -- those that it knows
	beat      timestamptz,                -- all changes that were visible then have been handed out
	lsn       pg_lsn,                     -- up to where the log was acknowledged then
	flush_due text[] not null default '{}', -- keyspaces to be flushed because changes may have been missed; '*': all
	flush_why text not null default '',
	flush_seq bigint not null default 0   -- rises whenever flush_due is added to
) with (fillfactor = 50);
insert into ringside.cdc default values on conflict do nothing;

-- Rows whose cached copies a committed write could not put out of reach: they are still to be deleted. While a row stands here, readers keep away
-- from the cached copies of its vnode.
create table if not exists ringside.outbox (
	id    bigserial primary key, -- another one after each write of the row
	key   bytea not null,  -- the row's key, as text
	vnode int not null check (vnode between 0 and 65535), -- its cache vnode
	shard_vnode int not null, -- a vnode does not move to another shard while one of its rows stands here
	at    timestamptz not null default clock_timestamp() -- of the first of those writes
) with (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
create index if not exists outbox_key on ringside.outbox (key);
