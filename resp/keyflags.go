package resp

// KeysWithFlags is Keys with what the command does with each key. Where that depends on the call, it is what this call does.
func (c *CommandInfo) KeysWithFlags(args [][]byte) (positions []int, flags []KeyFlags, err error) {
	if positions, err = c.Keys(args, nil); err != nil {
		return nil, nil, err
	}
	switch c.special {
	case specialSort, specialGeo: // a key, and perhaps one to store in
		flags = append(flags, KeyRO|KeyAccess, KeyOW|KeyUpdate)[:len(positions)]
		return positions, flags, nil
	case specialMigrate:
		for range positions {
			flags = append(flags, KeyRW|KeyAccess|KeyDelete)
		}
		return positions, flags, nil
	}
	for i := range c.KeySpecs {
		spec := &c.KeySpecs[i]
		if spec.Flags.Has(KeyNotKey) || spec.Begin == BeginUnknown {
			continue
		}
		first, last, _ := spec.place(args) // Keys has checked it
		for k := first; k <= last; k += spec.Step {
			flags = append(flags, c.flagsOf(spec, args))
		}
	}
	return positions, flags, nil
}

// flagsOf returns what a call does with the keys of a spec.
func (c *CommandInfo) flagsOf(spec *KeySpec, args [][]byte) KeyFlags {
	if !spec.Flags.Has(KeyVariableFlags) {
		return spec.Flags
	}
	switch c.Name {
	case "set":
		if findKeyword(args, 3, "GET") > 0 {
			return KeyRW | KeyAccess | KeyUpdate
		}
		return KeyOW | KeyUpdate
	case "bitfield":
		for i := 2; i < len(args); i++ {
			if isWord(args[i], "SET") || isWord(args[i], "INCRBY") {
				return KeyRW | KeyAccess | KeyUpdate
			}
		}
		return KeyRO | KeyAccess
	}
	return spec.Flags &^ KeyVariableFlags
}

// AppendKeyFlags writes the set of the flags' names.
func AppendKeyFlags(dst []byte, proto int, flags KeyFlags) []byte {
	return appendNames(dst, proto, uint32(flags), keyFlagNames[:])
}

// HasCategory reports whether the command is in the access control category of that name, without "@"; known is false when there is no
// such category.
func (c *CommandInfo) HasCategory(name string) (in, known bool) {
	for i, n := range categoryNames {
		if n[1:] == name {
			return c.Categories.Has(1 << i), true
		}
	}
	return false, false
}
