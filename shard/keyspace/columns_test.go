package keyspace

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ringside/shard"
)

func TestColumns(t *testing.T) {
	for _, test := range []struct{ doc, want string }{
		{`{}`, ``},
		{" {\t} \r\n", ``},
		{`{"visits":7}`, `visits=7`},
		{`{"b":1,"a":2}`, `b=1 a=2`},
		{` { "n" : null , "t" : true,"f":false } `, `n=null t=true f=false`},
		{`{"big":9007199254740993,"exact":1.10,"e":-1e+400,"zero":-0}`, `big=9007199254740993 exact=1.10 e=-1e+400 zero=-0`},
		{`{"j":{"a": [1, 2],"a":{}},"l":[]}`, `j={"a": [1, 2],"a":{}} l=[]`},
		{`{"s":"a\"\\\n\u00fc😀","\u00e4":"\ud83d\ude00"}`, `s="a\"\\\n\u00fc😀" ä="\ud83d\ude00"`},
		{`{"esc\\u0000":"\\u0000"}`, `esc\u0000="\\u0000"`}, // a backslash and five characters, no NUL
	} {
		doc := []byte(test.doc)
		columns, err := Columns(doc)
		if err != nil {
			t.Errorf("%s: %v", test.doc, err)
			continue
		}
		for i := range doc {
			doc[i] = '#'
		}
		var got []string
		for _, c := range columns {
			got = append(got, c.Name+"="+string(c.Value))
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestColumnsRefuses(t *testing.T) {
	const notObject = `the value of a row must be a JSON object, such as {"column":1}`
	many := make([]string, maxColumns+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"c%d":0`, i)
	}
	for _, test := range []struct{ doc, want string }{
		{``, `JSON is broken at byte 0: it ends too early, wanted a value`},
		{`  `, `JSON is broken at byte 2: it ends too early, wanted a value`},
		{`hello`, `JSON is broken at byte 0: found 'h', wanted a value`},
		{`7`, notObject}, {`null`, notObject}, {`"x"`, notObject}, {`[{"a":1}]`, notObject},
		{`7 8`, `JSON is broken at byte 2: found '8' after the end of the value`},
		{`{"a":1}x`, `JSON is broken at byte 7: found 'x' after the end of the value`},
		{`{"a":1}{"a":1}`, `JSON is broken at byte 7: found '{' after the end of the value`},
		{`{`, `JSON is broken at byte 1: it ends too early, wanted a string in double quotes`},
		{`{"a"`, `JSON is broken at byte 4: it ends too early, wanted ':' after the name`},
		{`{"a":`, `JSON is broken at byte 5: it ends too early, wanted a value`},
		{`{"a":1`, `JSON is broken at byte 6: it ends too early, wanted a comma or '}'`},
		{`{"a":1,}`, `JSON is broken at byte 7: found '}', wanted a string in double quotes`},
		{`{a:1}`, `JSON is broken at byte 1: found 'a', wanted a string in double quotes`},
		{`{"a" 1}`, `JSON is broken at byte 5: found '1', wanted ':' after the name`},
		{`{"a":1 "b":2}`, `JSON is broken at byte 7: found '"', wanted a comma or '}'`},
		{`{"a":01}`, `JSON is broken at byte 6: found '1', wanted a comma or '}'`},
		{`{"a":-}`, `JSON is broken at byte 6: found '}', wanted a digit`},
		{`{"a":1.}`, `JSON is broken at byte 7: found '}', wanted a digit`},
		{`{"a":1e}`, `JSON is broken at byte 7: found '}', wanted a digit`},
		{`{"a":NaN}`, `JSON is broken at byte 5: found 'N', wanted a value`},
		{`{"a":nul}`, `JSON is broken at byte 8: found '}', wanted null`},
		{`{"a":[1,]}`, `JSON is broken at byte 8: found ']', wanted another value after the comma`},
		{`{"a":[1}`, `JSON is broken at byte 7: found '}', wanted a comma or ']'`},
		{`{"a":{"b"}}`, `JSON is broken at byte 9: found '}', wanted ':' after the name`},
		{`{"a":{1:2}}`, `JSON is broken at byte 6: found '1', wanted a string in double quotes`},
		{`{"a":"b`, `JSON is broken at byte 7: it ends too early, wanted the end of a string`},
		{`{"a":"b\`, `JSON is broken at byte 8: it ends too early, wanted the end of an escape sequence`},
		{`{"a":"\x"}`, `JSON is broken at byte 6: found the unknown escape sequence \x`},
		{`{"a":"\u12g4"}`, `JSON is broken at byte 6: wanted four hexadecimal digits after \u`},
		{`{"a":"\ud83d"}`, `JSON is broken at byte 6: found half of a surrogate pair`},
		{`{"a":"\ud83d\u0041"}`, `JSON is broken at byte 6: found half of a surrogate pair`},
		{`{"a":"\ude00"}`, `JSON is broken at byte 6: found half of a surrogate pair`},
		{"{\"a\":\"\xff\"}", `JSON is broken at byte 6: it is not valid UTF-8`},
		{"{\"a\":\"\n\"}", `JSON is broken at byte 6: found the control character '\n' in a string, escape it`},
		{"{\"a\":\x00}", `JSON is broken at byte 5: found '\x00', wanted a value`},
		{`{"":1}`, `a column's name is empty`},
		{`{"a":1,"b":2,"\u0061":3}`, `column "a": is given twice`},
		{`{"a":1,"b":"x\u0000y"}`, `column "b": contains \u0000, which PostgreSQL cannot store`},
		{`{"a":1,"b":[{"c":["\u0000"]}]}`, `column "b": contains \u0000, which PostgreSQL cannot store`},
		{`{"b":{"\u0000":1}}`, `column "b": contains \u0000, which PostgreSQL cannot store`},
		{`{"b\u0000":1}`, `column "b\x00": a column's name cannot contain \u0000`},
		{`{"a":` + strings.Repeat("[", 2000), `JSON is broken at byte 1004: it is nested deeper than 1000`},
		{`{` + strings.Join(many, ",") + `}`, `a row has at most 1600 columns`},
	} {
		columns, err := Columns([]byte(test.doc))
		if _, ok := errors.AsType[*shard.BadRowError](err); !ok || columns != nil {
			t.Errorf("%.60s: got %v, %v", test.doc, columns, err)
			continue
		}
		if err.Error() != test.want {
			t.Errorf("%.60s:\ngot  %v\nwant %s", test.doc, err, test.want)
		}
	}
}

func TestTextColumn(t *testing.T) {
	for _, test := range []struct{ name, value, want, err string }{
		{"name", "Ada", `"Ada"`, ""},
		{"name", "", `""`, ""},
		{"visits", "8", `"8"`, ""},
		{"name", "a\"b\\c\n<é>", `"a\"b\\c\n\u003cé\u003e"`, ""},
		{"", "x", "", `a column's name is empty`},
		{"a\xff", "x", "", `column "a\xff": a column's name is UTF-8 without NUL`},
		{"name", "a\x00b", "", `column "name": contains a NUL byte, which PostgreSQL cannot store`},
		{"name", "a\xffb", "", `column "name": is not valid UTF-8`},
	} {
		c, err := TextColumn(test.name, []byte(test.value))
		switch {
		case test.err != "":
			if _, ok := errors.AsType[*shard.BadRowError](err); !ok || err.Error() != test.err {
				t.Errorf("%q: got %v, want %s", test.value, err, test.err)
			}
		case err != nil || c.Name != test.name || string(c.Value) != test.want:
			t.Errorf("%q: got %s=%s, %v", test.value, c.Name, c.Value, err)
		}
	}
}

func TestRow(t *testing.T) {
	const body = `{"id":42,"name":"A\u0001\"ä","big":12345678901234567890.120,"ok":true,"no":false,"gone":null,` +
		`"at":"2024-01-02T03:04:05.678+00:00","j":{"a": [1, "x y\" z"], "b" : {}},"l":[1,2],"":""}`
	const want = `id=42|name=A` + "\x01" + `"ä|big=12345678901234567890.120|ok=true|no=false|` +
		`at=2024-01-02T03:04:05.678+00:00|j={"a":[1,"x y\" z"],"b":{}}|l=[1,2]|=`
	cells, err := Row(make([]Cell, 0, 8), []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cells {
		got = append(got, string(c.Name)+"="+string(c.Text))
		text, found, err := RowColumn([]byte(body), string(c.Name))
		if err != nil || !found || string(text) != string(c.Text) {
			t.Errorf("RowColumn(%q) = %q, %t, %v; Row has %q", c.Name, text, found, err, c.Text)
		}
	}
	if got := strings.Join(got, "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, absent := range []string{"gone", "unknown", "ID"} {
		if text, found, err := RowColumn([]byte(body), absent); found || err != nil || text != nil {
			t.Errorf("RowColumn(%q) = %q, %t, %v", absent, text, found, err)
		}
	}
}

func TestRowRefuses(t *testing.T) {
	for _, body := range []string{``, `null`, `[]`, `{"a":1`, `{"a":1}}`, `{"a":}`, `{"a":"\ud800"}`, `{"a" "b"}`} {
		given := []Cell{{Name: []byte("kept")}}
		cells, err := Row(given, []byte(body))
		if err == nil || len(cells) != 1 || !strings.HasPrefix(err.Error(), "stored row: ") {
			t.Errorf("Row(%s) = %v, %v", body, cells, err)
		}
		if _, found, err := RowColumn([]byte(body), "a"); found || err == nil {
			t.Errorf("RowColumn(%s) = %t, %v", body, found, err)
		}
	}
}

func BenchmarkRow(b *testing.B) {
	body := []byte(`{"id":42,"name":"Ada Lovelace","email":"ada@example.com","visits":7,"updated_at":"2024-01-02T03:04:05.678901+00:00"}`)
	b.Run("all", func(b *testing.B) {
		var cells []Cell
		b.ReportAllocs()
		for b.Loop() {
			var err error
			if cells, err = Row(cells[:0], body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := RowColumn(body, "visits"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
