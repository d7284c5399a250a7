-- On each shard. The schema is named: the role's own name is that of ringside's schema, which comes first in its search path.
create table public.users (id bigint primary key, name text, email text, visits bigint default 0, updated_at timestamptz default now());
