package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"ringside/resp"
)

// conn is a client connection. Every call is bounded by patience.
type conn struct {
	net.Conn
	in, out []byte
}

const patience = 30 * time.Second

func dial(ctx context.Context, addr string) (*conn, error) {
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

func (c *conn) close() { _ = c.Close() } // nothing is on its way any more

// ask sends one command and returns its reply as it came, which is valid until the next call. An error reply is an error.
func (c *conn) ask(args ...string) ([]byte, error) {
	if err := c.send(resp.AppendCommandString(c.out[:0], args...)); err != nil {
		return nil, err
	}
	return c.reply()
}

// send sends what is made of commands already.
func (c *conn) send(raw []byte) error {
	c.out = raw
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := c.Write(raw)
	return err
}

// reply reads the one reply that is owed.
func (c *conn) reply() ([]byte, error) {
	var scan resp.Scanner
	c.in = c.in[:0]
	for {
		n, err := scan.Next(c.in)
		switch {
		case err != nil:
			return nil, err
		case n > 0 && n < len(c.in):
			return nil, fmt.Errorf("%d bytes behind the reply", len(c.in)-n)
		case n > 0 && c.in[0] == '-':
			return nil, errors.New(string(bytes.TrimSpace(c.in[1:])))
		case n > 0:
			return c.in, nil
		}
		if cap(c.in)-len(c.in) < 64<<10 {
			c.in = append(make([]byte, 0, 2*cap(c.in)+128<<10), c.in...)
		}
		n, err = c.Read(c.in[len(c.in):cap(c.in)])
		if err != nil {
			return nil, err
		}
		c.in = c.in[:len(c.in)+n]
	}
}

// expect reads exactly the reply that is expected. It looks at it no more than to compare it, so that the client's own work stays small.
func (c *conn) expect(want []byte) error {
	if cap(c.in) < len(want) {
		c.in = make([]byte, 0, len(want))
	}
	got := c.in[:len(want)]
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		at := 0
		for got[at] == want[at] {
			at++
		}
		return fmt.Errorf("the reply goes on with %.80q at byte %d, expected was %.40q", got[at:], at, want[at:])
	}
	return nil
}

// fill writes a value under each key, some at a time.
func fill(ctx context.Context, addr string, value string, keys []string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.close()
	const atOnce = 100
	for len(keys) > 0 {
		n := min(atOnce, len(keys))
		raw := c.out[:0]
		for _, k := range keys[:n] {
			raw = resp.AppendCommandString(raw, "SET", k, value)
		}
		if err := c.send(raw); err != nil {
			return err
		}
		if err := c.expect(bytes.Repeat([]byte("+OK\r\n"), n)); err != nil {
			return fmt.Errorf("filling %s: %w", addr, err)
		}
		keys = keys[n:]
	}
	return nil
}
