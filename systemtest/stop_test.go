package systemtest

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/childproc"
	"ringside/internal/localcluster"
)

// stopping is a sidecar of the shared cluster with a write under way that waits for a row lock.
type stopping struct {
	*localcluster.Sidecar
	c       *cluster
	process *childproc.Process
	lock    *pgx.Conn
	reply   chan string
	idle    *wire
}

func newStopping(t *testing.T, i, id int) *stopping {
	t.Helper()
	c := shared(t)
	s := &stopping{Sidecar: c.NewSidecar(fmt.Sprintf("a%d", i), i), c: c, reply: make(chan string, 1)}
	// A process of our own, so that its end can be seen.
	s.process = start(t, "serve", "-c", configFile(t, s.Config()))
	eventually(t, time.Minute, s.Name+" is ready", func() bool {
		_, err := tryGet(s.Sidecar, "/readyz")
		return err == nil
	})
	eventually(t, time.Minute, "a1 knows "+s.Name, func() bool { return state(c.Sidecars[0], s.Name) == "alive" })
	key := fmt.Sprintf("user:%d", id)
	s.lock = sql(t, c.shard(t, lookup(t, c.Sidecars[0], key).Shard).DSN())
	execute(t, s.lock, "begin")
	execute(t, s.lock, "select from users where id = $1 for update", id)
	s.idle = dial(t, s.Redis)
	s.idle.want(t, "PONG", "PING")
	w := dial(t, s.Redis)
	go func() {
		v, err := w.ask([]string{"SET", key, `{"name":"written while stopping"}`})
		if err != nil {
			s.reply <- "no reply: " + err.Error()
			return
		}
		s.reply <- show(v[0])
	}()
	eventually(t, time.Minute, "the write waits for the lock", func() bool {
		return query(t, s.lock, "select count(*)::text from pg_stat_activity where application_name = 'ringside' and wait_event_type = 'Lock'") != "0"
	})
	return s
}

// A sidecar that is asked to end takes no new clients, answers what is under way, says goodbye to the others, and exits with 0.
func TestAGracefulStopFinishesWhatIsUnderWay(t *testing.T) {
	s := newStopping(t, 4, 3600)
	begun := time.Now()
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	refused := eventually(t, time.Minute, "new connections are refused", func() bool {
		conn, err := net.DialTimeout("tcp", s.Redis, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	time.Sleep(300 * time.Millisecond)
	select {
	case reply := <-s.reply:
		t.Fatalf("the write waits for a lock and was answered: %s", reply)
	case <-s.process.Done():
		t.Fatalf("it ended with a write under way: %s", s.process.Output())
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), askLimit)
	defer cancel()
	if _, err := s.lock.Exec(ctx, "commit"); err != nil {
		t.Fatal(err)
	}
	released, m := time.Now(), watchMachine(t, s.process.PID())
	if reply := <-s.reply; reply != "OK" {
		t.Errorf("the write under way was answered with %s", reply)
	}
	code := exit(t, s.process, time.Minute)
	ended := time.Since(released)
	if code != 0 {
		t.Errorf("exit %d; it printed %s", code, s.process.Output())
	}
	for _, other := range s.c.Sidecars {
		eventually(t, time.Minute, other.Name+" knows that it has left", func() bool { return state(other, s.Name) == "left" })
	}
	t.Logf("clients refused after %v; ended %v after the last reply, %v after the signal; known to all %v after that", refused, ended, released.Add(ended).Sub(begun), time.Since(released.Add(ended)))
	if ended > 8*time.Second && !m.overworked(released, time.Now()) { // it waits 10 s at most, for what is under way
		t.Errorf("it took %v to end with nothing under way", ended)
	}
	if got := query(t, s.lock, "select name from users where id = 3600"); got != "written while stopping" {
		t.Errorf("the row is %q", got)
	}
	dial(t, s.c.Sidecars[0].Redis).want(t, "written while stopping", "HGET", "user:3600", "name")
}

// A second signal ends it at once, whatever is under way.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	s := newStopping(t, 5, 3601)
	for range 2 {
		if err := s.process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	begun := time.Now()
	if code := exit(t, s.process, 8*time.Second); code == 0 { // it would wait 10 s
		t.Errorf("exit 0 with a write under way: %s", s.process.Output())
	}
	t.Logf("ended %v after the second signal", time.Since(begun))
	ctx, cancel := context.WithTimeout(t.Context(), askLimit)
	defer cancel()
	if _, err := s.lock.Exec(ctx, "rollback"); err != nil {
		t.Fatal(err)
	}
	<-s.reply
	// Nothing of it is in the way of the others.
	dial(t, s.c.Sidecars[0].Redis).want(t, ":0", "HSET", "user:3601", "name", "after it")
	dial(t, s.c.Sidecars[1].Redis).want(t, "after it", "HGET", "user:3601", "name")
}
