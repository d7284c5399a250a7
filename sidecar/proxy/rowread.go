package proxy

import (
	"ringside/resp"
	"ringside/shard/keyspace"
)

// rowRead is what a command wants to know of a row.
type rowRead uint8

const (
	readGet rowRead = iota
	readExists
	readStrlen
	readType
	readTTL
	readPTTL
	readHGetAll
	readHKeys
	readHVals
	readHLen
	readHGet
	readHMGet
	readHExists
)

// What TTL and PTTL say besides a time: as Redis for a missing key, and for a row that is not cached just now.
const (
	noSuchRow = -2
	notCached = -1
)

// appendTTL renders TTL and PTTL: the life of the cached copy, in seconds or milliseconds.
func appendTTL(dst []byte, read rowRead, found bool, ttl int64) []byte {
	switch {
	case !found:
		return resp.AppendInt(dst, noSuchRow)
	case ttl < 0: // it was filled between the two questions
		return resp.AppendInt(dst, notCached)
	case read == readTTL:
		return resp.AppendInt(dst, (ttl+500)/1000) // as Redis rounds
	}
	return resp.AppendInt(dst, ttl)
}

// renderRow appends the reply of a read command. body is the row as JSON, fields the command's further arguments.
func renderRow(dst []byte, proto int, read rowRead, ks *keyspace.Keyspace, fields [][]byte, found bool, body []byte) []byte {
	switch read {
	case readGet, readStrlen:
		text, ok, err := valueOf(ks, found, body)
		switch {
		case err != nil:
			return resp.AppendError(dst, "ERR "+err.Error())
		case read == readStrlen:
			return resp.AppendInt(dst, int64(len(text)))
		case !ok:
			return resp.AppendNull(dst, proto)
		}
		return resp.AppendBulk(dst, text)
	case readExists:
		return appendFlag(dst, found)
	case readType:
		if !found {
			return resp.AppendSimple(dst, "none")
		}
		return resp.AppendSimple(dst, "string")
	case readHGet, readHExists:
		text, ok, err := columnOf(found, body, fields[0])
		switch {
		case err != nil:
			return resp.AppendError(dst, "ERR "+err.Error())
		case read == readHExists:
			return appendFlag(dst, ok)
		case !ok:
			return resp.AppendNull(dst, proto)
		}
		return resp.AppendBulk(dst, text)
	}
	return renderCells(dst, proto, read, fields, found, body)
}

// renderCells renders what is about several columns. A column that is NULL is a field that does not exist.
func renderCells(dst []byte, proto int, read rowRead, fields [][]byte, found bool, body []byte) []byte {
	var cells []keyspace.Cell
	if found {
		var err error
		if cells, err = keyspace.Row(nil, body); err != nil {
			return resp.AppendError(dst, "ERR "+err.Error())
		}
	}
	switch read {
	case readHLen:
		return resp.AppendInt(dst, int64(len(cells)))
	case readHMGet:
		dst = resp.AppendArray(dst, len(fields))
		for _, f := range fields {
			dst = appendCell(dst, proto, cells, f)
		}
		return dst
	case readHGetAll:
		dst = resp.AppendMap(dst, proto, len(cells))
	default:
		dst = resp.AppendArray(dst, len(cells))
	}
	for _, cell := range cells {
		if read != readHVals {
			dst = resp.AppendBulk(dst, cell.Name)
		}
		if read != readHKeys {
			dst = resp.AppendBulk(dst, cell.Text)
		}
	}
	return dst
}

func appendCell(dst []byte, proto int, cells []keyspace.Cell, field []byte) []byte {
	for _, cell := range cells {
		if string(cell.Name) == string(field) {
			return resp.AppendBulk(dst, cell.Text)
		}
	}
	return resp.AppendNull(dst, proto)
}

// valueOf returns what GET shows of a row: its JSON, or the text of the keyspace's one column.
func valueOf(ks *keyspace.Keyspace, found bool, body []byte) (text []byte, ok bool, err error) {
	if !found || ks.Value == keyspace.WholeRow {
		return body, found, nil
	}
	return keyspace.RowColumn(body, ks.Value)
}

func columnOf(found bool, body, column []byte) (text []byte, ok bool, err error) {
	if !found {
		return nil, false, nil
	}
	return keyspace.RowColumn(body, string(column))
}

func appendFlag(dst []byte, b bool) []byte {
	if b {
		return resp.AppendInt(dst, 1)
	}
	return resp.AppendInt(dst, 0)
}
