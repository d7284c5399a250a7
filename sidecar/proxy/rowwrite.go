package proxy

import (
	"bytes"
	"strconv"

	"ringside/resp"
	"ringside/shard/keyspace"
)

// setRow is SET on a row: an upsert of the columns given, or of the keyspace's one column.
func (w *worker) setRow(cl *client, c *command, cmd resp.Command) bool {
	op, err := setOp(w.key.Keyspace, cmd.Args)
	if err != nil {
		if err == errExpiry {
			err = w.doesNotApply("SET with an expiry", "expire")
		}
		cl.refuse(w, err)
		return true
	}
	return w.write(cl, c, op, func(dst []byte, proto int, out keyspace.Outcome) []byte {
		if !out.Applied {
			return resp.AppendNull(dst, proto)
		}
		return resp.AppendSimple(dst, "OK")
	})
}

const (
	errExpiry    = resp.Refusal("ERR a row does not expire")
	errSyntax    = resp.Refusal("ERR syntax error")
	errSetGet    = resp.Refusal("ERR SET with GET is not offered on rows: read the row first, or use HINCRBY to count")
	errNotNumber = resp.Refusal("ERR value is not an integer or out of range")
)

// setOp reads the arguments of SET.
func setOp(ks *keyspace.Keyspace, args [][]byte) (keyspace.Op, error) {
	var op keyspace.Op
	for _, option := range args[3:] {
		switch string(bytes.ToLower(option)) {
		case "nx":
			if op.Kind == keyspace.Update {
				return op, errSyntax
			}
			op.Kind = keyspace.Insert
		case "xx":
			if op.Kind == keyspace.Insert {
				return op, errSyntax
			}
			op.Kind = keyspace.Update
		case "get":
			return op, errSetGet
		case "ex", "px", "exat", "pxat", "keepttl":
			return op, errExpiry
		default:
			return op, errSyntax
		}
	}
	var err error
	if ks.Value == keyspace.WholeRow {
		op.Columns, err = keyspace.Columns(args[2])
		return op, err
	}
	column, err := keyspace.TextColumn(ks.Value, args[2])
	op.Columns = []keyspace.Column{column}
	return op, err
}

// hsetRow is HSET and HMSET on a row: an upsert of the columns given. The reply of HSET is the number of fields that are new.
func (w *worker) hsetRow(cl *client, c *command, cmd resp.Command) bool {
	pairs := cmd.Args[2:]
	if len(pairs)%2 != 0 {
		cl.refuse(w, resp.WrongArity(c.info.Name))
		return true
	}
	columns, err := pairColumns(pairs)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	withOK := c.info.Name == "hmset"
	return w.write(cl, c, keyspace.Op{Kind: keyspace.Upsert, Columns: columns}, func(dst []byte, _ int, out keyspace.Outcome) []byte {
		switch {
		case withOK:
			return resp.AppendSimple(dst, "OK")
		case out.Inserted:
			return resp.AppendInt(dst, int64(len(columns)))
		}
		return resp.AppendInt(dst, 0)
	})
}

// pairColumns reads field value pairs. Of a field given twice the last value counts, as in Redis.
func pairColumns(pairs [][]byte) ([]keyspace.Column, error) {
	at := map[string]int{}
	var columns []keyspace.Column
	for i := 0; i < len(pairs); i += 2 {
		name := string(pairs[i])
		column, err := keyspace.TextColumn(name, pairs[i+1])
		if err != nil {
			return nil, err
		}
		if j, ok := at[name]; ok {
			columns[j] = column
			continue
		}
		at[name] = len(columns)
		columns = append(columns, column)
	}
	return columns, nil
}

// incrementRow is HINCRBY on a row.
func (w *worker) incrementRow(cl *client, c *command, cmd resp.Command) bool {
	delta, err := strconv.ParseInt(string(cmd.Args[3]), 10, 64)
	if err != nil {
		cl.refuse(w, errNotNumber)
		return true
	}
	op := keyspace.Op{Kind: keyspace.Increment, Column: string(cmd.Args[2]), Delta: delta}
	return w.write(cl, c, op, func(dst []byte, _ int, out keyspace.Outcome) []byte {
		return resp.AppendInt(dst, out.Value)
	})
}
