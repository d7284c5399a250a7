package resp

// AppendInfo writes the entry of c in the answer to COMMAND or COMMAND INFO, as Redis does.
func (c *CommandInfo) AppendInfo(dst []byte, proto int) []byte {
	dst = AppendArray(dst, 10)
	dst = AppendBulk(dst, c.Name)
	dst = AppendInt(dst, int64(c.Arity))
	dst = appendNames(dst, proto, uint32(c.Flags), flagNames[:])
	dst = AppendInt(dst, int64(c.First))
	dst = AppendInt(dst, int64(c.Last))
	dst = AppendInt(dst, int64(c.Step))
	dst = appendNames(dst, proto, uint32(c.Categories), categoryNames[:])
	dst = AppendSet(dst, proto, len(c.Tips))
	for _, tip := range c.Tips {
		dst = AppendBulk(dst, tip)
	}
	dst = AppendSet(dst, proto, len(c.KeySpecs))
	for i := range c.KeySpecs {
		dst = c.KeySpecs[i].append(dst, proto)
	}
	if c.Subcommands == nil {
		return AppendSet(dst, proto, 0)
	}
	dst = AppendArray(dst, len(c.Subcommands))
	for i := range c.Subcommands {
		dst = c.Subcommands[i].AppendInfo(dst, proto)
	}
	return dst
}

func (s *KeySpec) append(dst []byte, proto int) []byte {
	if s.Notes != "" {
		dst = AppendMap(dst, proto, 4)
		dst = appendText(dst, "notes", s.Notes)
	} else {
		dst = AppendMap(dst, proto, 3)
	}
	dst = AppendBulk(dst, "flags")
	dst = appendNames(dst, proto, uint32(s.Flags), keyFlagNames[:])

	dst = AppendBulk(dst, "begin_search")
	dst = AppendMap(dst, proto, 2)
	switch s.Begin {
	case BeginIndex:
		dst = appendSpec(dst, proto, "index", 1)
		dst = appendNumber(dst, "index", s.Index)
	case BeginKeyword:
		dst = appendSpec(dst, proto, "keyword", 2)
		dst = appendText(dst, "keyword", s.Keyword)
		dst = appendNumber(dst, "startfrom", s.StartFrom)
	default:
		dst = appendSpec(dst, proto, "unknown", 0)
	}

	dst = AppendBulk(dst, "find_keys")
	dst = AppendMap(dst, proto, 2)
	switch s.Find {
	case FindRange:
		dst = appendSpec(dst, proto, "range", 3)
		dst = appendNumber(dst, "lastkey", s.Last)
		dst = appendNumber(dst, "keystep", s.Step)
		dst = appendNumber(dst, "limit", s.Limit)
	case FindKeyNum:
		dst = appendSpec(dst, proto, "keynum", 3)
		dst = appendNumber(dst, "keynumidx", s.Num)
		dst = appendNumber(dst, "firstkey", s.First)
		dst = appendNumber(dst, "keystep", s.Step)
	default:
		dst = appendSpec(dst, proto, "unknown", 0)
	}
	return dst
}

func appendSpec(dst []byte, proto int, kind string, fields int) []byte {
	dst = appendText(dst, "type", kind)
	dst = AppendBulk(dst, "spec")
	return AppendMap(dst, proto, fields)
}

func appendText(dst []byte, name, text string) []byte {
	return AppendBulk(AppendBulk(dst, name), text)
}

func appendNumber(dst []byte, name string, n int) []byte {
	return AppendInt(AppendBulk(dst, name), int64(n))
}

// appendNames writes the set of names whose bits are set.
func appendNames(dst []byte, proto int, bits uint32, names []string) []byte {
	n := 0
	for b := bits; b != 0; b &= b - 1 {
		n++
	}
	dst = AppendSet(dst, proto, n)
	for i, name := range names {
		if bits&(1<<i) != 0 {
			dst = AppendSimple(dst, name)
		}
	}
	return dst
}
