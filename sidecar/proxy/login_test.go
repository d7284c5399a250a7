package proxy

import (
	"strings"
	"testing"

	"ringside/internal/realredis"
	"ringside/sidecar/topology"
)

// A cache server's refusal of the sidecar's login is the cache server's failure, whatever the command and however its connection is
// shared: NOAUTH and WRONGPASS would tell the application that its own password is wrong.
func TestUpstreamUsers(t *testing.T) {
	s := realredis.T(t)
	id := runIDAt(t, s.Addr())
	direct := dial(t, s.Addr())
	for _, command := range []string{
		"ACL SETUSER limited on >secret ~* &* +@all -@dangerous +info",
		"ACL SETUSER blind on >secret ~* &* +@all -info",
		"ACL SETUSER asleep off >secret ~* &* +@all",
		"CONFIG SET requirepass pw",
	} {
		direct.want(command, "+OK\r\n")
	}
	direct.want("AUTH pw", "+OK\r\n")
	direct.want("SET k v", "+OK\r\n")
	for _, c := range []struct {
		name  string
		cred  Credentials
		want  string // of every command
		knows bool   // rows may be cached there
	}{
		{"ACL user", Credentials{Username: "limited", Password: "secret"}, "$1\r\nv\r\n", true},
		{"ACL user who may not ask for the run_id", Credentials{Username: "blind", Password: "secret"}, "-CACHEDOWN c1 INFO server refused: NOPERM ", false},
		{"wrong password", Credentials{Username: "limited", Password: "pw"}, "-CACHEDOWN c1 handshake refused: WRONGPASS ", false},
		{"no such user", Credentials{Username: "nobody", Password: "secret"}, "-CACHEDOWN c1 handshake refused: WRONGPASS ", false},
		{"disabled user", Credentials{Username: "asleep", Password: "secret"}, "-CACHEDOWN c1 handshake refused: WRONGPASS ", false},
		{"no password", Credentials{}, "-CACHEDOWN c1 handshake refused: NOAUTH ", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBefore(t, []topology.Cache{{Name: "c1", Addr: s.Addr(), Weight: 1, RunID: id}}, nil)
			b.credentials.Store(&c.cred)
			for _, proto := range []string{"2", "3"} {
				w := b.dial()
				w.do("HELLO " + proto)
				if got := w.do("GET k"); !strings.HasPrefix(got, c.want) {
					t.Errorf("RESP%s: GET: %q, want %q", proto, got, c.want)
				}
				if c.want[0] != '-' {
					continue
				}
				commands := []string{"MGET k l", "WATCH k", "BLPOP l 1"}
				if strings.Contains(c.want, "handshake") {
					commands = append(commands, "SUBSCRIBE ch") // messages may come from any process
				}
				for _, command := range commands {
					got := w.do(command)
					if !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
						t.Errorf("RESP%s: %s: %q", proto, command, got)
					}
				}
			}
			knows := false
			for len(b.metRuns) > 0 {
				if <-b.metRuns == [2]string{"c1", id} {
					knows = true
				}
			}
			if knows != c.knows {
				t.Errorf("the run_id is known: %v", knows)
			}
		})
	}
}
