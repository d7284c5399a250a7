package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/localcluster"
)

// Guards P3 and P4 of a bounded write through a sidecar that dies right after its commit: the cache server that holds the old copy stands still
// then, so nothing has been done about that. Another sidecar reads the new row all the same, and deletes the copy when it can.
func TestABoundedWriteSurvivesItsSidecar(t *testing.T) {
	c := own(t, func(o *localcluster.Options) {
		o.Config = patient + "view_ttl: 5s\ninvalidation: off\nverify_rate: 0\n"
	})
	writer, other := c.Sidecars[0], dial(t, c.Sidecars[1].Redis)
	const key = "user:42"
	l := lookup(t, writer, key)
	var server *localcluster.Cache
	for _, x := range c.Caches {
		if x.Name == l.Cache {
			server = x
		}
	}
	old := other.do(t, "GET", key)
	db := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer db.Close()
	name := ""
	eventually(t, time.Minute, key+" is cached", func() bool {
		other.want(t, old, "GET", key)
		names, err := db.Keys(t.Context(), "rs:*:"+key).Result()
		if len(names) == 1 {
			name = names[0]
		}
		return err == nil && name != "" && strings.HasSuffix(db.Get(t.Context(), name).Val(), old)
	})
	conn := sql(t, c.shard(t, l.Shard).DSN())
	remembered := func() string {
		return query(t, conn, "select count(*)::text from ringside.outbox where key = $1::text::bytea", key)
	}

	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		w, err := open(writer.Redis)
		if err != nil {
			ended <- err.Error()
			return
		}
		defer w.close()
		v, err := w.ask([]string{"SET", key, `{"name":"written"}`})
		ended <- fmt.Sprint(v, err)
	}()
	eventually(t, time.Minute, "the write is committed and remembered", func() bool { return remembered() == "1" })
	if err := writer.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; !strings.Contains(got, "EOF") && !strings.Contains(got, "reset") {
		t.Fatalf("the write was answered: %s", got)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := db.Get(t.Context(), name).Val(); !strings.HasSuffix(got, old) {
		t.Logf("the old copy is gone already: %q", got)
	}
	eventually(t, time.Minute, "nothing is remembered any more", func() bool { return remembered() == "0" })
	for range 3 {
		other.want(t, "written", "HGET", key, "name")
	}
	if got := db.Get(t.Context(), name).Val(); strings.HasSuffix(got, old) {
		t.Error("the old copy is still there")
	}
}
