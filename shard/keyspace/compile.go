package keyspace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Spec is a keyspace as configured.
type Spec struct {
	Name        string
	Pattern     string        // literal text and {column} or {column:type} fields
	Table       string        // "table" or "schema.table", unquoted, exactly as PostgreSQL stores the name
	Value       string        // "row", or a column; empty means "row"
	ShardBy     string        // a field of Pattern; may be empty if Pattern has one field
	TTL         time.Duration // at least a millisecond
	NegativeTTL time.Duration // 0, or at least a millisecond
}

// SpecError is one fault of a Spec. Field is the faulty field by its name in the configuration ("pattern", "shard_by", ...), so
// that whoever read the configuration can point at it.
type SpecError struct {
	Field  string
	Reason string
}

func (e *SpecError) Error() string { return e.Field + ": " + e.Reason }

// WholeRow is the Value of a keyspace whose GET and SET speak of the row as a JSON object.
const WholeRow = "row"

// minTTL is the resolution of an expiry in Redis.
const minTTL = time.Millisecond

// Compile checks a Spec and makes a Keyspace of it. The error joins one *SpecError for each fault.
func Compile(s Spec) (*Keyspace, error) {
	k := &Keyspace{
		Name: s.Name, Pattern: s.Pattern, Table: s.Table, Value: s.Value, ShardBy: s.ShardBy,
		TTL: s.TTL, NegativeTTL: s.NegativeTTL,
	}
	if k.Value == "" {
		k.Value = WholeRow
	}
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, &SpecError{field, fmt.Sprintf(format, args...)})
	}

	if s.Name == "" {
		fault("name", "is missing")
	}
	if err := k.parsePattern(); err != nil {
		fault("pattern", "%v", err)
	} else if err := k.chooseShardBy(); err != nil {
		fault("shard_by", "%v", err)
	}
	if err := checkTable(s.Table); err != nil {
		fault("table", "%v", err)
	}
	if err := checkIdentifier(k.Value); err != nil {
		fault("value", "%q is neither \"row\" nor a column: %v", k.Value, err)
	}
	if s.TTL < minTTL {
		fault("ttl", "must be at least %v", minTTL)
	}
	if s.NegativeTTL != 0 && s.NegativeTTL < minTTL {
		fault("negative_ttl", "must be 0 (absences are not cached) or at least %v", minTTL)
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	return k, nil
}

func (k *Keyspace) chooseShardBy() error {
	names := make([]string, len(k.Fields))
	for i, f := range k.Fields {
		names[i] = f.Name
	}
	if k.ShardBy == "" {
		if len(names) > 1 {
			return fmt.Errorf("is missing: the pattern has several fields, choose one of %s", strings.Join(names, ", "))
		}
		k.ShardBy = names[0]
	}
	k.shardBy = slices.Index(names, k.ShardBy)
	if k.shardBy < 0 {
		return fmt.Errorf("%q is not a field of the pattern: choose one of %s", k.ShardBy, strings.Join(names, ", "))
	}
	return nil
}

// parsePattern fills Fields and literals.
func (k *Keyspace) parsePattern() error {
	rest := k.Pattern
	for {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			k.literals = append(k.literals, rest)
			break
		}
		if rest[open] == '}' {
			return fmt.Errorf("has a } without a {")
		}
		literal := rest[:open]
		text, after, closed := strings.Cut(rest[open+1:], "}")
		switch {
		case !closed:
			return fmt.Errorf("has a { without a }: write {column} or {column:type}")
		case literal == "" && len(k.Fields) == 0:
			return fmt.Errorf("begins with a field and would match every key: write a prefix before it, such as %q", "user:")
		case literal == "":
			return fmt.Errorf("has no text between {%s} and {%s}: write a separator, such as : or /", k.Fields[len(k.Fields)-1].Name, text)
		}
		f, err := parseField(text)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(k.Fields, func(g Field) bool { return g.Name == f.Name }) {
			return fmt.Errorf("has the field %q twice", f.Name)
		}
		k.literals = append(k.literals, literal)
		k.Fields = append(k.Fields, f)
		rest = after
	}
	if len(k.Fields) == 0 {
		return fmt.Errorf("has no field: write the key's columns in braces, such as user:{id:int}")
	}
	for i, f := range k.Fields {
		if next := k.literals[i+1]; next != "" && f.Type.mayContain(next[0]) {
			return fmt.Errorf("has %q after {%s:%s}, whose values may contain it: write another separator, such as : or /", next[:1], f.Name, f.Type)
		}
	}
	return nil
}

func parseField(text string) (Field, error) {
	name, typ, typed := strings.Cut(text, ":")
	if err := checkIdentifier(name); err != nil {
		return Field{}, fmt.Errorf("has the field {%s}: %w", text, err)
	}
	f := Field{Name: name}
	switch {
	case !typed || typ == "text":
		f.Type = Text
	case typ == "int":
		f.Type = Int
	case typ == "uuid":
		f.Type = UUID
	default:
		return f, fmt.Errorf("has the field {%s} of an unknown type: text, int and uuid are known", text)
	}
	return f, nil
}

// mayContain reports whether a canonical value of a typed field may contain c, so that a separator that begins with c would cut
// good values in two. A text value simply may not contain what follows it.
func (t Type) mayContain(c byte) bool {
	switch t {
	case Int:
		return c == '-' || isDigit(c)
	case UUID:
		return c == '-' || isLowerHex(c)
	}
	return false
}

func (t Type) String() string {
	switch t {
	case Text:
		return "text"
	case Int:
		return "int"
	case UUID:
		return "uuid"
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

func checkTable(table string) error {
	if table == "" {
		return errors.New("is missing: write the table's name, or schema.table")
	}
	parts := strings.Split(table, ".")
	if len(parts) > 2 {
		return fmt.Errorf("%q is no table name: write table or schema.table", table)
	}
	for _, part := range parts {
		if err := checkIdentifier(part); err != nil {
			return fmt.Errorf("%q is no table name: %w", table, err)
		}
	}
	return nil
}

// checkIdentifier allows what can be quoted as an SQL identifier without surprises. PostgreSQL would silently cut a longer one.
func checkIdentifier(name string) error {
	const maxLen = 63
	switch {
	case name == "":
		return errors.New("a name is missing")
	case len(name) > maxLen:
		return fmt.Errorf("a name has at most %d bytes", maxLen)
	}
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || !isDigit(c)) {
			return errors.New("a name is made of letters, digits and _, and does not begin with a digit")
		}
	}
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLowerHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' }

// String returns the keyspace's name and pattern, for messages.
func (k *Keyspace) String() string { return k.Name + " (" + k.Pattern + ")" }
