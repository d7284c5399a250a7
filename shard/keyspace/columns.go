package keyspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"ringside/shard"
)

// maxColumns is how many columns a PostgreSQL table can have.
const maxColumns = 1600

// Columns takes apart the JSON object given to SET on a row: its columns in the order written, each value as it was written. The
// result does not alias doc. The error is a *shard.BadRowError: doc is not exactly one JSON object, a column is given twice, or a
// string contains \u0000, which PostgreSQL cannot store. Whether the table has such columns is for the shard to say.
func Columns(doc []byte) ([]Column, error) {
	var columns []Column
	seen := map[string]bool{}
	s := scanner{b: bytes.Clone(doc)}
	err := s.object(func(name text) error {
		column := string(name.decoded())
		switch {
		case column == "":
			return &shard.BadRowError{Reason: "a column's name is empty"}
		case name.nul:
			return &shard.BadRowError{Column: column, Reason: `a column's name cannot contain \u0000`}
		case seen[column]:
			return &shard.BadRowError{Column: column, Reason: "is given twice"}
		case len(columns) == maxColumns:
			return &shard.BadRowError{Reason: fmt.Sprintf("a row has at most %d columns", maxColumns)}
		}
		seen[column] = true
		raw, nul, err := s.value(1)
		if err != nil {
			return err
		}
		if nul {
			return &shard.BadRowError{Column: column, Reason: `contains \u0000, which PostgreSQL cannot store`}
		}
		columns = append(columns, Column{Name: column, Value: raw[:len(raw):len(raw)]})
		return nil
	})
	if err != nil {
		return nil, asBadRow(err)
	}
	return columns, nil
}

// TextColumn makes a column of a text given as it is, by HSET or by SET on a keyspace of one column: a JSON string, which the
// column's type reads as it reads a literal. The error is a *shard.BadRowError: the text is not UTF-8 or contains NUL. The result
// does not alias value.
func TextColumn(name string, value []byte) (Column, error) {
	switch {
	case name == "":
		return Column{}, &shard.BadRowError{Reason: "a column's name is empty"}
	case strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name):
		return Column{}, &shard.BadRowError{Column: name, Reason: "a column's name is UTF-8 without NUL"}
	case bytes.IndexByte(value, 0) >= 0:
		return Column{}, &shard.BadRowError{Column: name, Reason: "contains a NUL byte, which PostgreSQL cannot store"}
	case !utf8.Valid(value):
		return Column{}, &shard.BadRowError{Column: name, Reason: "is not valid UTF-8"}
	}
	quoted, err := json.Marshal(string(value))
	if err != nil {
		return Column{}, &shard.BadRowError{Column: name, Reason: err.Error()}
	}
	return Column{Name: name, Value: quoted, Text: true}, nil
}

func asBadRow(err error) error {
	if broken, ok := errors.AsType[*brokenError](err); ok {
		return &shard.BadRowError{Reason: broken.Error()}
	}
	return err
}

// object takes a whole document that is one object. After each name it calls member, which takes the value.
func (s *scanner) object(member func(name text) error) error {
	s.space()
	if s.peek() != '{' {
		if _, _, err := s.value(1); err != nil {
			return err
		}
		if err := s.end(); err != nil {
			return err
		}
		return &shard.BadRowError{Reason: `the value of a row must be a JSON object, such as {"column":1}`}
	}
	s.i++
	s.space()
	if s.peek() == '}' {
		s.i++
		return s.end()
	}
	for {
		s.space()
		name, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':', "after the name"); err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			return s.end()
		default:
			return s.unexpected(`wanted a comma or '}'`)
		}
	}
}

func (s *scanner) end() error {
	s.space()
	if s.i < len(s.b) {
		return s.broken(fmt.Sprintf("found %q after the end of the value", s.b[s.i]))
	}
	return nil
}

// Cell is one column of a stored row as a Redis hash field.
type Cell struct {
	Name []byte
	Text []byte // a string's own text, else its JSON text without space
}

// Row takes apart a stored row (what row_to_json made of it) and appends its columns to cells in the table's order. A NULL is not
// among them, as an absent field of a hash. The cells may alias body. An error means that body is no row of ours; then the
// returned cells are those given.
func Row(cells []Cell, body []byte) ([]Cell, error) {
	given := len(cells)
	err := eachCell(body, func(name, text []byte) {
		cells = append(cells, Cell{name, text})
	})
	if err != nil {
		return cells[:given], err
	}
	return cells, nil
}

// RowColumn returns one column of a stored row, as Row does. Found is false if the column is NULL or unknown. The text may alias body.
func RowColumn(body []byte, column string) (text []byte, found bool, err error) {
	err = eachCell(body, func(name, t []byte) {
		if string(name) == column {
			text, found = t, true
		}
	})
	if err != nil {
		return nil, false, err
	}
	return text, found, nil
}

func eachCell(body []byte, visit func(name, text []byte)) error {
	s := scanner{b: body}
	err := s.object(func(name text) error {
		s.space()
		if s.peek() == '"' {
			t, err := s.str()
			if err == nil {
				visit(name.decoded(), t.decoded())
			}
			return err
		}
		raw, _, err := s.value(1)
		switch {
		case err != nil:
			return err
		case raw[0] == 'n': // null
			return nil
		case raw[0] == '{' || raw[0] == '[':
			raw = compact(raw)
		}
		visit(name.decoded(), raw)
		return nil
	})
	if err != nil {
		return fmt.Errorf("stored row: %w", err)
	}
	return nil
}

// compact returns valid JSON without the space between its tokens.
func compact(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	inString := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case inString && c == '\\':
			out = append(out, c)
			i++
			c = raw[i]
		case c == '"':
			inString = !inString
		case !inString && slices.Contains([]byte(" \t\r\n"), c):
			continue
		}
		out = append(out, c)
	}
	return out
}
