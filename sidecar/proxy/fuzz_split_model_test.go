package proxy

import (
	"fmt"
	"slices"
	"strings"

	"ringside/resp"
)

// model is one Redis with a table, as simple as can be. It turns a fuzzer's program into commands and says what each must be answered.
type model struct {
	plain, rows map[string]string
	proto       int
	out         []byte
	want        []string // replies; an error by its first word only
	serial      int
}

// run takes operations, each a byte, with what they need behind them, until the program ends.
func (m *model) run(program []byte) {
	const most = 64
	next := func() byte {
		if len(program) == 0 {
			return 0
		}
		c := program[0]
		program = program[1:]
		return c
	}
	for len(program) > 0 && len(m.want) < most {
		op := next()
		name := []string{"GET", "SET", "MGET", "MSET", "DEL", "EXISTS", "UNLINK", "TOUCH", "APPEND", "PING"}[op&^inline%10]
		keys := make([]string, 1)
		switch name {
		case "MGET", "MSET", "DEL", "EXISTS", "UNLINK", "TOUCH":
			keys = make([]string, 1+next()%64)
		}
		for i := range keys {
			keys[i] = pool[int(next())%len(pool)]
		}
		args := []string{name}
		for _, key := range keys {
			args = append(args, key)
			if name == "SET" || name == "MSET" || name == "APPEND" {
				m.serial++
				args = append(args, fmt.Sprintf(`{"value":%d}`, m.serial))
			}
		}
		m.add(op&inline != 0, args)
		m.want = append(m.want, m.answer(name, keys, args[1:]))
	}
}

func (m *model) add(asLine bool, args []string) {
	if !asLine {
		m.out = resp.AppendCommandString(m.out, args...)
		return
	}
	for i, a := range args {
		if i > 0 {
			m.out = append(m.out, ' ')
		}
		m.out = fmt.Appendf(m.out, "%q", a)
	}
	m.out = append(m.out, "\r\n"...)
}

func (m *model) answer(name string, keys, args []string) string {
	if name == "PING" {
		return bulk(keys[0])
	}
	if word := m.refusal(name, keys); word != "" {
		return word
	}
	switch name {
	case "GET":
		return m.value(keys[0])
	case "SET", "MSET":
		for i := 0; i < len(args); i += 2 {
			if isRow(args[i]) {
				m.rows[args[i]] = args[i+1]
			} else {
				m.plain[args[i]] = args[i+1]
			}
		}
		return "+OK\r\n"
	case "APPEND":
		m.plain[keys[0]] += args[1]
		return fmt.Sprintf(":%d\r\n", len(m.plain[keys[0]]))
	case "MGET":
		out := fmt.Sprintf("*%d\r\n", len(keys))
		for _, key := range keys {
			out += m.value(key)
		}
		return out
	}
	n := 0
	for _, key := range keys {
		_, isPlain := m.plain[key]
		_, isRow := m.rows[key]
		if isPlain || isRow {
			n++
		}
		if name == "DEL" || name == "UNLINK" {
			delete(m.plain, key)
			delete(m.rows, key)
		}
	}
	return fmt.Sprintf(":%d\r\n", n)
}

func isRow(key string) bool { return strings.HasPrefix(key, "user:") && key != "user:x" }

// refusal is the first word of the error, "" for none. Of several reasons the first key's counts, and a row that cannot be asked for comes after
// all that can be seen in the command itself.
func (m *model) refusal(name string, keys []string) string {
	down := ""
	for _, key := range keys {
		switch {
		case strings.HasPrefix(key, "rs:"):
			return "-ERR"
		case key == "user:01", key == "user:":
			return "-BADKEY"
		case isRow(key) && (name == "MSET" || name == "APPEND"):
			return "-ERR"
		case key == "user:9" && !slices.Contains([]string{"SET", "DEL", "UNLINK"}, name):
			down = "-SHARDDOWN"
		}
	}
	return down
}

func (m *model) value(key string) string {
	v, ok := m.plain[key]
	if !ok {
		v, ok = m.rows[key]
	}
	switch {
	case ok:
		return bulk(v)
	case m.proto == 3:
		return "_\r\n"
	}
	return "$-1\r\n"
}
