package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/localcluster"
)

// goRedis returns a client with default options and a context for its commands.
func goRedis(t *testing.T, addr string) (*redis.Client, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client, ctx
}

// is fails unless a reply is exactly that.
func is[T any](t *testing.T, what string, want T, got T, err error) {
	t.Helper()
	if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Errorf("%s: %.200q, %v; want %.200q", what, fmt.Sprint(got), err, fmt.Sprint(want))
	}
}

// fails fails unless a command was answered with an error that begins with that word.
func fails(t *testing.T, word string, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), word+" ") {
		t.Errorf("%v; want %s", err, word)
	}
}

func TestGoRedis(t *testing.T) {
	c := shared(t)
	client, ctx := goRedis(t, c.Sidecars[0].Redis)
	info, err := client.ClientInfo(ctx).Result()
	if err != nil || info.Resp != 3 || !strings.HasPrefix(info.LibName, "go-redis") {
		t.Errorf("CLIENT INFO: %+v, %v", info, err)
	}
	done := func(what, want string, s *redis.StatusCmd) {
		t.Helper()
		got, err := s.Result()
		is(t, what, want, got, err)
	}
	text := func(what, want string, s *redis.StringCmd) {
		t.Helper()
		got, err := s.Result()
		is(t, what, want, got, err)
	}
	number := func(what string, want int64, s *redis.IntCmd) {
		t.Helper()
		got, err := s.Result()
		is(t, what, want, got, err)
	}
	none := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, redis.Nil) {
			t.Errorf("%s: %v", what, err)
		}
	}

	done("SET", "OK", client.Set(ctx, "go:1", "x", time.Minute))
	text("GET", "x", client.Get(ctx, "go:1"))
	none("a missing key", client.Get(ctx, "go:none").Err())
	if ttl, err := client.TTL(ctx, "go:1").Result(); err != nil || ttl < 20*time.Second || ttl > time.Minute {
		t.Errorf("TTL: %v, %v", ttl, err)
	}
	done("MSET", "OK", client.MSet(ctx, "go:2", "b", "go:3", "c"))
	many, err := client.MGet(ctx, "go:3", "go:none", "go:2").Result()
	is(t, "MGET", []any{"c", nil, "b"}, many, err)
	number("DEL", 3, client.Del(ctx, "go:1", "go:2", "go:3", "go:none"))
	number("INCRBY", 42, client.IncrBy(ctx, "go:1", 42))
	number("DEL", 1, client.Del(ctx, "go:1"))
	number("HSET", 2, client.HSet(ctx, "go:h", "a", "1", "b", "zwei"))
	hash, err := client.HGetAll(ctx, "go:h").Result()
	is(t, "HGETALL", map[string]string{"a": "1", "b": "zwei"}, hash, err)
	number("DEL", 1, client.Del(ctx, "go:h"))
	number("ZADD", 1, client.ZAdd(ctx, "go:z", redis.Z{Score: 1.5, Member: "m"}))
	score, err := client.ZScore(ctx, "go:z", "m").Result()
	is(t, "ZSCORE", 1.5, score, err)
	number("DEL", 1, client.Del(ctx, "go:z"))

	var bytes strings.Builder
	for i := range 1024 {
		bytes.WriteByte(byte(i))
	}
	for _, value := range []string{bytes.String(), "Grüße, 世界 \x00\r\n", strings.Repeat("ring", 1<<18)} {
		done("SET", "OK", client.Set(ctx, "go:value", value, 0))
		text("GET", value, client.Get(ctx, "go:value"))
		number("DEL", 1, client.Del(ctx, "go:value"))
	}

	row, err := client.HGetAll(ctx, "user:3720").Result()
	if err != nil || row["email"] != "user3720@example.com" || row["id"] != "3720" {
		t.Errorf("%v, %v", row, err)
	}
	done("SET of a row", "OK", client.Set(ctx, "user:3720", `{"name":"by go-redis","email":null}`, 0))
	text("HGET", "by go-redis", client.HGet(ctx, "user:3720", "name"))
	none("a column that is NULL", client.HGet(ctx, "user:3720", "email").Err())
	number("HSET", 0, client.HSet(ctx, "user:3720", "visits", 7))
	body, err := client.Get(ctx, "user:3720").Bytes()
	var user struct{ Visits int }
	if err := errors.Join(err, json.Unmarshal(body, &user)); err != nil || user.Visits != 7 {
		t.Errorf("%s, %v", body, err)
	}
	number("DEL", 1, client.Del(ctx, "user:3720", "go:none"))
	none("a row that was deleted", client.Get(ctx, "user:3720").Err())

	fails(t, "BADKEY", client.Get(ctx, "user:03700").Err())
	fails(t, "BADROW", client.Set(ctx, "user:3721", `{"nope":1}`, 0).Err())
	fails(t, "CROSSSLOT", client.Rename(ctx, "go:a", "go:b").Err())
	done("SET", "OK", client.Set(ctx, "go:string", "x", time.Minute))
	fails(t, "WRONGTYPE", client.LPush(ctx, "go:string", "y").Err())
	fails(t, "ERR", client.Do(ctx, "NOSUCHCOMMAND").Err())
}

func TestGoRedisPipelines(t *testing.T) {
	c := shared(t)
	client, ctx := goRedis(t, c.Sidecars[1].Redis)
	pipe := client.Pipeline()
	var replies []*redis.StringCmd
	for i := range 200 {
		pipe.Set(ctx, fmt.Sprintf("go:p:%d", i), i, 0)
		replies = append(replies, pipe.Get(ctx, fmt.Sprintf("go:p:%d", i)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for i, r := range replies {
		if r.Val() != fmt.Sprint(i) {
			t.Errorf("reply %d of the pipeline is %q", i, r.Val())
		}
	}
	var found []string
	for it := client.Scan(ctx, 0, "go:p:*", 50).Iterator(); it.Next(ctx); {
		found = append(found, it.Val())
	}
	if slices.Sort(found); len(slices.Compact(found)) != 200 {
		t.Errorf("SCAN found %d of 200 keys", len(found))
	}

	if err := client.Del(ctx, "{go:t}a").Err(); err != nil {
		t.Fatal(err)
	}
	tx := client.TxPipeline()
	tx.Set(ctx, "{go:t}a", 1, 0)
	sum := tx.Incr(ctx, "{go:t}a")
	if _, err := tx.Exec(ctx); err != nil || sum.Val() != 2 {
		t.Errorf("MULTI: %d, %v", sum.Val(), err)
	}
	err := client.Watch(ctx, func(watching *redis.Tx) error {
		if err := client.Set(ctx, "{go:t}a", "changed", 0).Err(); err != nil {
			return err
		}
		_, err := watching.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "{go:t}a", "never", 0).Err() })
		return err
	}, "{go:t}a")
	if !errors.Is(err, redis.TxFailedErr) {
		t.Errorf("WATCH: %v", err)
	}
}

func TestGoRedisWaits(t *testing.T) {
	c := shared(t)
	client, ctx := goRedis(t, c.Sidecars[0].Redis)
	popped := client.BLPop(ctx, time.Second, "go:none")
	if !errors.Is(popped.Err(), redis.Nil) {
		t.Errorf("BLPOP of nothing: %v", popped.Err())
	}
	result := make(chan *redis.StringSliceCmd, 1)
	go func() { result <- client.BLPop(ctx, 10*time.Second, "go:q") }()
	if err := client.RPush(ctx, "go:q", "item").Err(); err != nil {
		t.Error(err)
	}
	got, err := (<-result).Result()
	is(t, "BLPOP", []string{"go:q", "item"}, got, err)

	listener := client.Subscribe(ctx, "go:news")
	defer listener.Close()
	if _, err := listener.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	other, _ := goRedis(t, c.Sidecars[1].Redis)
	if err := other.Publish(ctx, "go:news", "by the other sidecar").Err(); err != nil {
		t.Error(err)
	}
	message, err := listener.ReceiveMessage(ctx)
	if err != nil || message.Payload != "by the other sidecar" {
		t.Errorf("%v, %v", message, err)
	}
}

// sixth starts a sidecar that a test may restart.
func sixth(t *testing.T, c *cluster) *localcluster.Sidecar {
	t.Helper()
	s := c.NewSidecar("a6", 6)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// restart ends a sidecar in the way that is asked for, and starts it again.
func restart(ctx context.Context, s *localcluster.Sidecar, how string) error {
	end := map[string]func() error{"stop": s.Stop, "kill": s.Kill}[how]
	if end == nil {
		return fmt.Errorf("a sidecar is to be ended by %q; allowed are stop and kill", how)
	}
	if err := end(); err != nil {
		return err
	}
	return s.Start(ctx)
}

func TestGoRedisComesBack(t *testing.T) {
	c := shared(t)
	s := sixth(t, c)
	client, ctx := goRedis(t, s.Redis)
	listener := client.Subscribe(ctx, "go:after")
	defer listener.Close()
	messages := listener.Channel()
	for _, how := range []string{"stop", "kill"} {
		if err := client.Set(ctx, "go:back", how, 0).Err(); err != nil {
			t.Error(err)
		}
		if err := restart(ctx, s, how); err != nil {
			t.Fatal(err)
		}
		got, err := client.Get(ctx, "go:back").Result()
		is(t, "GET after "+how, how, got, err)
		name, err := client.HGet(ctx, "user:3722", "name").Result()
		is(t, "HGET after "+how, "user 3722", name, err)
		eventually(t, time.Minute, "go-redis has subscribed again after "+how, func() bool { return client.Publish(ctx, "go:after", how).Val() == 1 })
		select {
		case m := <-messages:
			is(t, "message after "+how, how, m.Payload, nil)
		case <-ctx.Done():
			t.Fatalf("no message after %s", how)
		}
	}
}
