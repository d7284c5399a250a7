package keyspace

import "slices"

// step is one state of the automaton that reads a pattern: it takes one byte of a literal, one byte of a field, or any number of them.
type step struct {
	literal byte
	field   bool
	typ     Type
	repeats bool
}

// steps returns the automaton. Filled wants at least one byte in every field.
func (k *Keyspace) steps(filled bool) []step {
	var steps []step
	for i, literal := range k.literals {
		for j := range len(literal) {
			steps = append(steps, step{literal: literal[j]})
		}
		if i < len(k.Fields) {
			one := step{field: true, typ: k.Fields[i].Type}
			if filled {
				steps = append(steps, one)
			}
			one.repeats = true
			steps = append(steps, one)
		}
	}
	return steps
}

// takes reports whether a key that the keyspace claims may have c here. It is generous (it knows which bytes a field may have but
// not in what order), so that overlap may find an example that no keyspace would claim, but never misses one that both would.
func (s step) takes(c byte) bool {
	if !s.field {
		return s.literal == c
	}
	switch s.typ {
	case Int:
		return isIntChar(c)
	case UUID:
		return slices.Contains([]byte("0123456789abcdefABCDEF-{}urnidURNID:"), c)
	}
	return true
}

// overlap looks for a key that both keyspaces could claim, as a row or as a misspelt one (invariant I2). A key with all fields filled
// explains itself better than one without, so it is looked for first.
func overlap(a, b *Keyspace) (example string, found bool) {
	if example, found = intersect(a.steps(true), b.steps(true)); found {
		return example, true
	}
	return intersect(a.steps(false), b.steps(false))
}

// intersect searches the product of two automata, breadth first, for a text that both take.
func intersect(as, bs []step) (example string, found bool) {
	type state struct{ i, j int }
	type visit struct {
		state
		key string
	}
	seen := map[state]bool{}
	queue := []visit{{}}
	add := func(i, j int, key string) {
		if s := (state{i, j}); !seen[s] {
			seen[s] = true
			queue = append(queue, visit{s, key})
		}
	}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		if v.i == len(as) && v.j == len(bs) {
			return v.key, true
		}
		// What repeats may end at any time, without a byte.
		if v.i < len(as) && as[v.i].repeats {
			add(v.i+1, v.j, v.key)
		}
		if v.j < len(bs) && bs[v.j].repeats {
			add(v.i, v.j+1, v.key)
		}
		if v.i == len(as) || v.j == len(bs) {
			continue
		}
		sa, sb := as[v.i], bs[v.j]
		c, ok := common(sa, sb)
		if !ok {
			continue
		}
		next := v.key + string([]byte{c})
		i, j := v.i+1, v.j+1
		if sa.repeats {
			i = v.i
		}
		if sb.repeats {
			j = v.j
		}
		add(i, j, next)
	}
	return "", false
}

// common finds a byte that both steps take, a readable one if there is one.
func common(a, b step) (byte, bool) {
	for c := range 256 {
		c := byte(c + '0') // digits first; wraps around
		if a.takes(c) && b.takes(c) {
			return c, true
		}
	}
	return 0, false
}
