package keyspace

// AppendKey appends to dst the key of the row whose fields have these texts, in the order of Fields: the inverse of Match. ok is false, and dst
// unchanged, when no key names such a row: a text is not the canonical one of its type (what PostgreSQL prints for a column that may stand
// behind the field always is), contains the separator that follows it, or makes the key too long. Allocates only when dst is too small.
func (k *Keyspace) AppendKey(dst []byte, values [][]byte) (key []byte, ok bool) {
	if len(values) != len(k.Fields) {
		return dst, false
	}
	size := 0
	for i, v := range values {
		if len(v) > MaxKeyLen || k.Fields[i].Type.check(v) != canonical {
			return dst, false
		}
		size += len(k.literals[i]) + len(v)
	}
	if size += len(k.literals[len(values)]); size > MaxKeyLen {
		return dst, false
	}
	start := len(dst)
	key = append(dst, k.literals[0]...)
	for i, v := range values {
		key = append(key, v...)
		key = append(key, k.literals[i+1]...)
	}
	// A text may contain the separator, or form one with what follows it. Then the key would be that of another row.
	at := start + len(k.literals[0])
	for i, v := range values {
		next := k.literals[i+1]
		if next != "" && indexString(key[at:], next) != len(v) {
			return dst, false
		}
		at += len(v) + len(next)
	}
	return key, true
}
