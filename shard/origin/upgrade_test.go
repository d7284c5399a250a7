package origin

import (
	"context"
	"fmt"
	"testing"

	"ringside/shard"
)

// A shard that an older ringside installed gets what is new, and keeps what it has.
func TestInstallUpgrades(t *testing.T) {
	f := newFixture(t, Config{}, usersTable)
	f.exec(`select ringside.attach('users', 'id')`)
	f.exec(`insert into users (id, name) values (1, 'kept')`)
	f.exec(`drop table ringside.cdc`)
	f.exec(`update ringside.schema_version set version = 1`)
	for range 2 { // the second time there is nothing to do
		if err := f.Install(t.Context(), "s1", at, nil, nil); err != nil {
			t.Fatal(err)
		}
		for sql, want := range map[string]string{
			`select count(*)::text from ringside.cdc`:                    "1",
			`select max(version)::text from ringside.schema_version`:     fmt.Sprint(schemaVersion),
			`select count(*)::text from ringside.schema_version`:         "2",
			`select epoch::text from ringside.view`:                      "7",
			`select count(*)::text from ringside.owner`:                  "65536",
			`select (ringside_vnode is not null)::text from users`:       "true",
			`select encode(topology, 'escape')::text from ringside.view`: "topology 7",
		} {
			if got := f.text(sql); got != want {
				t.Errorf("%s: %s, want %s", sql, got, want)
			}
		}
	}
}

// Sidecars of the version before go on writing beside newer ones, but for vnodes of which they do not know all: they do not say the key.
func TestOlderSidecarsPassTheFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	fence := func(vnode int, v shard.View) error {
		_, err := f.sql.Exec(context.Background(), `select ringside.fence($1, $2, $3)`, vnode, int64(v.Epoch), int(v.Phase))
		return err
	}
	const vnode = 4711
	if err := fence(vnode, at); err != nil {
		t.Errorf("owned: %v", err)
	}
	if err := fence(vnode, shard.View{Epoch: 6, Phase: shard.Done}); code(err) != codeStaleView {
		t.Errorf("at an old view: %v", err)
	}
	f.setOwner(vnode, "frozen")
	if err := fence(vnode, at); code(err) != codeFrozen {
		t.Errorf("frozen: %v", err)
	}
	f.setOwner(vnode, "owned")
	f.exec(`insert into ringside.override (shard_key, vnode, state, moved_to) values ('k', $1, 'moved', 's2')`, vnode)
	f.exec(`update ringside.owner set overrides = true where vnode = $1`, vnode)
	if err := fence(vnode, at); code(err) != codeNotOwner {
		t.Errorf("with an override: %v", err)
	}
}
