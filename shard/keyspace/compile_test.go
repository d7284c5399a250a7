package keyspace

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func users() Spec {
	return Spec{Name: "user", Pattern: "user:{id:int}", Table: "users", TTL: time.Minute, NegativeTTL: time.Second}
}

func mustCompile(t testing.TB, s Spec) *Keyspace {
	t.Helper()
	k, err := Compile(s)
	if err != nil {
		t.Fatalf("Compile(%q): %v", s.Pattern, err)
	}
	return k
}

// pattern makes a keyspace of a pattern alone.
func pattern(t testing.TB, name, pattern, shardBy string) *Keyspace {
	t.Helper()
	s := users()
	s.Name, s.Pattern, s.ShardBy = name, pattern, shardBy
	return mustCompile(t, s)
}

func TestCompile(t *testing.T) {
	k := mustCompile(t, Spec{
		Name: "order", Pattern: "order:{tenant}:{id:int}/{ref:uuid}!", Table: "shop.orders", ShardBy: "id", TTL: time.Minute,
	})
	if got := strings.Join(k.literals, "|"); got != "order:|:|/|!" {
		t.Errorf("literals %q", got)
	}
	want := []Field{{"tenant", Text}, {"id", Int}, {"ref", UUID}}
	for i, f := range k.Fields {
		if f != want[i] {
			t.Errorf("field %d is %v, want %v", i, f, want[i])
		}
	}
	if k.shardBy != 1 || k.Value != WholeRow || k.NegativeTTL != 0 {
		t.Errorf("compiled to %+v", k)
	}
	if got := k.String(); got != "order (order:{tenant}:{id:int}/{ref:uuid}!)" {
		t.Errorf("String() = %q", got)
	}

	if k := pattern(t, "user", "user:{id:int}", ""); k.ShardBy != "id" {
		t.Errorf("shard_by defaults to %q, want the only field", k.ShardBy)
	}
	pattern(t, "explicit", "user:{name:text}.json", "name")
}

func TestCompileRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Spec)
		want   []string
	}{
		{"no name", func(s *Spec) { s.Name = "" }, []string{`name: is missing`}},
		{"no pattern", func(s *Spec) { s.Pattern = "" },
			[]string{`pattern: has no field: write the key's columns in braces, such as user:{id:int}`}},
		{"no field", func(s *Spec) { s.Pattern = "user:" },
			[]string{`pattern: has no field: write the key's columns in braces, such as user:{id:int}`}},
		{"begins with a field", func(s *Spec) { s.Pattern = "{id:int}:user" },
			[]string{`pattern: begins with a field and would match every key: write a prefix before it, such as "user:"`}},
		{"unclosed", func(s *Spec) { s.Pattern = "user:{id" },
			[]string{`pattern: has a { without a }: write {column} or {column:type}`}},
		{"unopened", func(s *Spec) { s.Pattern = "user:id}" }, []string{`pattern: has a } without a {`}},
		{"nested", func(s *Spec) { s.Pattern = "user:{{id}}" },
			[]string{`pattern: has the field {{id}: a name is made of letters, digits and _, and does not begin with a digit`}},
		{"no separator", func(s *Spec) { s.Pattern = "user:{a}{b:int}" },
			[]string{`pattern: has no text between {a} and {b:int}: write a separator, such as : or /`}},
		{"unnamed field", func(s *Spec) { s.Pattern = "user:{}" }, []string{`pattern: has the field {}: a name is missing`}},
		{"unknown type", func(s *Spec) { s.Pattern = "user:{id:bigint}" },
			[]string{`pattern: has the field {id:bigint} of an unknown type: text, int and uuid are known`}},
		{"twice", func(s *Spec) { s.Pattern = "user:{id:int}:{id}" }, []string{`pattern: has the field "id" twice`}},
		{"digit after int", func(s *Spec) { s.Pattern = "user:{id:int}0x" },
			[]string{`pattern: has "0" after {id:int}, whose values may contain it: write another separator, such as : or /`}},
		{"hyphen after uuid", func(s *Spec) { s.Pattern = "user:{id:uuid}-{n:int}" },
			[]string{`pattern: has "-" after {id:uuid}, whose values may contain it: write another separator, such as : or /`}},
		{"shard_by missing", func(s *Spec) { s.Pattern = "o:{a}:{b}" },
			[]string{`shard_by: is missing: the pattern has several fields, choose one of a, b`}},
		{"shard_by unknown", func(s *Spec) { s.ShardBy = "tenant" },
			[]string{`shard_by: "tenant" is not a field of the pattern: choose one of id`}},
		{"no table", func(s *Spec) { s.Table = "" }, []string{`table: is missing: write the table's name, or schema.table`}},
		{"three parts", func(s *Spec) { s.Table = "db.shop.users" },
			[]string{`table: "db.shop.users" is no table name: write table or schema.table`}},
		{"quoted", func(s *Spec) { s.Table = `"users"` },
			[]string{`table: "\"users\"" is no table name: a name is made of letters, digits and _, and does not begin with a digit`}},
		{"no schema", func(s *Spec) { s.Table = ".users" }, []string{`table: ".users" is no table name: a name is missing`}},
		{"long", func(s *Spec) { s.Table = strings.Repeat("t", 64) },
			[]string{`table: "` + strings.Repeat("t", 64) + `" is no table name: a name has at most 63 bytes`}},
		{"value", func(s *Spec) { s.Value = "a,b" },
			[]string{`value: "a,b" is neither "row" nor a column: a name is made of letters, digits and _, and does not begin with a digit`}},
		{"ttl", func(s *Spec) { s.TTL = 0 }, []string{`ttl: must be at least 1ms`}},
		{"ttl too fine", func(s *Spec) { s.TTL = time.Microsecond }, []string{`ttl: must be at least 1ms`}},
		{"negative ttl", func(s *Spec) { s.NegativeTTL = -time.Second },
			[]string{`negative_ttl: must be 0 (absences are not cached) or at least 1ms`}},
		{"all at once", func(s *Spec) { s.Pattern, s.Table, s.TTL = "user:{id", "1", 0 }, []string{
			`pattern: has a { without a }: write {column} or {column:type}`,
			`table: "1" is no table name: a name is made of letters, digits and _, and does not begin with a digit`,
			`ttl: must be at least 1ms`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := users()
			test.change(&s)
			_, err := Compile(s)
			if err == nil {
				t.Fatal("accepted")
			}
			if got, want := err.Error(), strings.Join(test.want, "\n"); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if _, ok := errors.AsType[*SpecError](err); !ok {
				t.Error("the error holds no *SpecError")
			}
		})
	}
}

func TestTypeString(t *testing.T) {
	if got := Type(9).String(); got != "type(9)" {
		t.Errorf("got %q", got)
	}
}
