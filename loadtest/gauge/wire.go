package gauge

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

// Conn is a client connection. Every call is bounded by patience.
type Conn struct {
	net.Conn
	in, out []byte
}

const patience = 30 * time.Second

// Dial connects.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c}, nil
}

// Hangup closes the connection.
func (c *Conn) Hangup() { _ = c.Close() } // nothing is on its way any more

// Ask sends one command and returns its reply as it came, which is valid until the next call. An error reply is an error.
func (c *Conn) Ask(args ...string) ([]byte, error) {
	c.out = resp.AppendCommandString(c.out[:0], args...)
	if err := c.Send(c.out); err != nil {
		return nil, err
	}
	return c.Reply()
}

// Send sends what is made of commands already.
func (c *Conn) Send(raw []byte) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := c.Write(raw)
	return err
}

// Reply reads the one reply that is owed.
func (c *Conn) Reply() ([]byte, error) {
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

// Replies reads so many replies and looks at none of them, but that an error reply is an error, which for those inside of an array it is not.
func (c *Conn) Replies(n int) error {
	var scan resp.Scanner
	c.in = c.in[:0]
	at := 0
	for {
		size, err := scan.Next(c.in[at:])
		switch {
		case err != nil:
			return err
		case size > 0 && c.in[at] == '-':
			return errors.New(string(bytes.TrimSpace(c.in[at+1 : at+size])))
		case size > 0:
			at += size
			if n--; n == 0 {
				if at < len(c.in) {
					return fmt.Errorf("%d bytes behind the replies", len(c.in)-at)
				}
				return nil
			}
			continue
		}
		c.in = append(c.in[:0], c.in[at:]...)
		at = 0
		if cap(c.in)-len(c.in) < 64<<10 {
			c.in = append(make([]byte, 0, 2*cap(c.in)+128<<10), c.in...)
		}
		more, err := c.Read(c.in[len(c.in):cap(c.in)])
		if err != nil {
			return err
		}
		c.in = c.in[:len(c.in)+more]
	}
}

// Expect reads exactly the reply that is expected. It looks at it no more than to compare it, so that the client's own work stays small.
func (c *Conn) Expect(want []byte) error {
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
