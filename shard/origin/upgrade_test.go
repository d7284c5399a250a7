package origin

import (
	"fmt"
	"testing"
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
