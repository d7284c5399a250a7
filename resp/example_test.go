package resp_test

import (
	"fmt"

	"ringside/resp"
)

// A connection gives the parser all that it has not consumed yet, as often as something has come in.
func ExampleParser() {
	var (
		p   resp.Parser
		buf []byte
		out []byte
	)
	for _, piece := range []string{"*2\r\n$3\r\nGET\r\n$1", "\r\nk\r\nCLIENT nosuch\r\n", "*1\r\n$x\r\n"} {
		buf = append(buf, piece...)
		for {
			cmd, n, err := p.Next(buf)
			if err != nil {
				fmt.Printf("%q, then close\n", resp.AppendError(out, "ERR "+err.Error()))
				return
			}
			if n == 0 {
				break // read on, until buf holds p.Want() bytes at least
			}
			buf = buf[n:]
			if len(cmd.Args) == 0 {
				continue
			}
			c, err := resp.Resolve(cmd.Args)
			if err != nil {
				fmt.Printf("%q\n", resp.AppendError(out, err.Error()))
				continue
			}
			keys, _ := c.Keys(cmd.Args, nil)
			fmt.Printf("%s with keys at %d\n", c.Name, keys)
		}
	}
	// Output:
	// get with keys at [1]
	// "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP.\r\n"
	// "-ERR Protocol error: invalid bulk length\r\n", then close
}

// The joined answer to a command that was split over servers is made of the elements of theirs.
func ExampleElementsOf() {
	values, _ := resp.ElementsOf([]byte("*2\r\n$1\r\na\r\n$-1\r\n"))
	for v, ok := values.Next(); ok; v, ok = values.Next() {
		fmt.Printf("%q null: %v\n", v, resp.IsNull(v))
	}
	// Output:
	// "$1\r\na\r\n" null: false
	// "$-1\r\n" null: true
}
