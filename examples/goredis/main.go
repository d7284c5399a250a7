package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// user is a row of the demo's table users, behind the keys user:<id>.
type user struct {
	ID     int64   `json:"id"`
	Name   string  `json:"name"`
	Email  *string `json:"email"`
	Visits int64   `json:"visits"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cmp.Or(os.Getenv("RINGSIDE"), "127.0.0.1:16001")); err != nil {
		fmt.Fprintln(os.Stderr, "goredis:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sidecar string) error {
	client := redis.NewClient(&redis.Options{Addr: sidecar}) // nothing else: the sidecar is one Redis server
	defer client.Close()

	u, err := read(ctx, client, 1001)
	if err != nil {
		return err
	}
	fmt.Printf("user:1001 is %s, id %d\n", u.Name, u.ID)

	// An upsert of the columns given; the others stay. When it returns, no sidecar reads the older row any more.
	err = repeat(ctx, func() error { return client.Set(ctx, "user:1001", `{"name":"Ada","visits":41}`, 0).Err() })
	if err != nil {
		return err
	}
	// Counted up on the shard. Not repeated blindly: after some errors nobody knows whether it was done.
	visits, err := client.HIncrBy(ctx, "user:1001", "visits", 1).Result()
	if err != nil {
		return err
	}
	name, err := client.HGet(ctx, "user:1001", "name").Result()
	if err != nil {
		return err
	}
	fmt.Printf("now she is %s, with %d visits\n", name, visits)

	// Rows and plain keys, one trip.
	if err := client.Set(ctx, "session:abc", "1001", time.Minute).Err(); err != nil {
		return err
	}
	many, err := client.MGet(ctx, "session:abc", "user:1001", "user:999999999").Result()
	if err != nil {
		return err
	}
	fmt.Printf("MGET: session %v, a row of %d bytes, and %v for a row that does not exist\n", many[0], len(many[1].(string)), many[2])

	// What is wrong with a request, the error says; repeating it would not help.
	fmt.Println("an error:", client.Set(ctx, "user:1001", `{"shoe_size":38}`, 0).Err())
	return nil
}

// read returns a row, or redis.Nil if there is none.
func read(ctx context.Context, client *redis.Client, id int64) (user, error) {
	var text string
	err := repeat(ctx, func() (err error) {
		text, err = client.Get(ctx, fmt.Sprintf("user:%d", id)).Result()
		return err
	})
	if err != nil {
		return user{}, err
	}
	var u user
	err = json.Unmarshal([]byte(text), &u)
	return u, err
}

// repeat tries again, for a few seconds at most, what was refused for now: nothing was written then.
func repeat(ctx context.Context, do func() error) error {
	wait := 20 * time.Millisecond
	for {
		err := do()
		var said redis.Error
		if wait > 2*time.Second || !errors.As(err, &said) || !strings.HasPrefix(said.Error(), "TRYAGAIN ") && !strings.HasPrefix(said.Error(), "OVERLOADED ") {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait *= 2
	}
}
