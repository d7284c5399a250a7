package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// position of a value in the file, both from 1.
type position struct{ line, col int }

// decoder walks the tree of YAML nodes against the struct tags of Config, and remembers where each value stood for the checks that
// come afterwards. (The library's own decoding prints values, secrets included, and forgets positions.) A path such as
// "caches[1].weight" names a value.
type decoder struct {
	file    string
	machine machine
	errs    Errors
	found   map[string]position
	failed  map[string]bool // values that have a fault already
}

// fault reports a fault of the value at path, or of the nearest value around it if it is missing. Only the first fault of a value
// counts: the second would follow from it.
func (d *decoder) fault(path, format string, args ...any) {
	if d.failed[path] {
		return
	}
	d.failed[path] = true
	d.faultAt(nearestPosition(d.found, path), format, args...)
}

// nearestPosition returns where the value at path stands, or what it would be part of.
func nearestPosition(found map[string]position, path string) position {
	for ; path != ""; path = parent(path) {
		if p, ok := found[path]; ok {
			return p
		}
	}
	return found[""]
}

func (d *decoder) faultAt(p position, format string, args ...any) {
	d.errs = append(d.errs, Error{File: d.file, Line: max(p.line, 1), Col: p.col, Msg: fmt.Sprintf(format, args...)})
}

func (d *decoder) has(path string) bool {
	_, ok := d.found[path]
	return ok
}

// parent returns the path of what a value is part of; "" is the document.
func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// relative makes a path of the file relative to the file's folder.
func (d *decoder) relative(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(d.file), path)
}

func (d *decoder) relativeTLS(t *TLS) {
	if t != nil {
		t.CA, t.Cert, t.Key = d.relative(t.CA), d.relative(t.Cert), d.relative(t.Key)
	}
}

// document decodes the only document of text into c. It returns false if there is nothing to check any further.
func (d *decoder) document(text []byte, c *Config) bool {
	stream := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := stream.Decode(&doc); {
	case errors.Is(err, io.EOF):
		d.faultAt(position{1, 1}, "the file is empty")
		return false
	case err != nil:
		d.syntax(err)
		return false
	}
	switch err := stream.Decode(&second); {
	case err == nil:
		d.faultAt(position{second.Line, second.Column}, "a second document: a configuration is one")
		return false
	case !errors.Is(err, io.EOF):
		d.syntax(err)
		return false
	}
	root := doc.Content[0]
	if isNull(root) {
		d.faultAt(position{root.Line, root.Column}, "the file is empty")
		return false
	}
	d.value(root, reflect.ValueOf(c).Elem(), "")
	return root.Kind == yaml.MappingNode
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntax reports an error of the YAML parser. Of the file it quotes nothing but the name of an unknown anchor, which is left out: a
// password that begins with * is taken for one.
func (d *decoder) syntax(err error) {
	line, reason := 1, err.Error()
	if m := yamlError.FindStringSubmatch(strings.SplitN(reason, "\n", 2)[0]); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		reason = m[2]
	}
	if strings.HasPrefix(reason, "unknown anchor") {
		reason = "aliases are not supported; text that begins with * must stand in quotes"
	}
	d.faultAt(position{line: line}, "this is not YAML: %s", reason)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// name returns how messages call a path.
func name(path string) string {
	if path == "" {
		return "the configuration"
	}
	return path
}

// value decodes n, which stands at path, into v.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	d.found[path] = position{n.Line, n.Column}
	switch {
	case n.Kind == yaml.AliasNode:
		d.fault(path, "%s: aliases are not supported, write the value out", name(path))
		return
	case isNull(n):
		d.fault(path, "%s has no value: give it one, or remove the key", name(path))
		return
	}
	switch target := v.Addr().Interface().(type) {
	case *time.Duration:
		if text, ok := d.text(n, path, "a duration, such as 10m"); ok {
			d.set(path, func() (err error) { *target, err = parseDuration(text); return err })
		}
		return
	case *Size:
		if text, ok := d.text(n, path, "a size, such as 64MiB"); ok {
			d.set(path, func() (err error) { *target, err = parseSize(text); return err })
		}
		return
	case *Secret:
		if text, ok := d.text(n, path, "text"); ok {
			d.set(path, func() error { s, err := d.resolve(text); *target = Secret(s); return err })
		}
		return
	case *DSN:
		if text, ok := d.text(n, path, "text"); ok {
			d.set(path, func() error { s, err := d.resolve(text); *target = DSN(s); return err })
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case reflect.String:
		if text, ok := d.text(n, path, "text"); ok {
			v.SetString(text)
		}
	case reflect.Int:
		d.integer(n, v, path)
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			d.fault(path, "%s must be true or false, not %s", path, kind(n))
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true")) // YAML also has True and TRUE
	default:
		panic("config: no decoding for " + v.Type().String())
	}
}

// set reports the error of a conversion; the error must not hold a secret.
func (d *decoder) set(path string, convert func() error) {
	if err := convert(); err != nil {
		d.fault(path, "%s %v", path, err)
	}
}

// text returns the text of a scalar. Numbers and words with a meaning of their own in YAML must stand in quotes where text is
// wanted: 0123 and yes would not stay what they are.
func (d *decoder) text(n *yaml.Node, path, wanted string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.fault(path, "%s must be %s, not %s", name(path), wanted, kind(n))
		return "", false
	}
	if n.ShortTag() != "!!str" && wanted == "text" {
		d.fault(path, "%s must be text, and this is %s: put it in quotes", path, kind(n))
		return "", false
	}
	return n.Value, true
}

var canonicalInt = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

func (d *decoder) integer(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		d.fault(path, "%s must be a whole number, not %s", path, kind(n))
		return
	}
	i, err := strconv.ParseInt(n.Value, 10, 0)
	switch {
	case !canonicalInt.MatchString(n.Value): // 010 would be eight
		d.fault(path, "%s must be a whole number in plain digits, without leading zero", path)
	case err != nil:
		d.fault(path, "%s is too large a number", path)
	default:
		v.SetInt(i)
	}
}

// kind describes a node without its value.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "text"
	case "!!int":
		return "a number"
	case "!!float":
		return "a number with a fraction"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	}
	return "a value with a tag"
}

// element is a list's element that has defaults of its own.
type element interface{ setDefaults() }

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.fault(path, "%s must be a list, not %s", path, kind(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		if e, ok := v.Index(i).Addr().Interface().(element); ok {
			e.setDefaults()
		}
		d.value(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fault(path, "%s must be a mapping of keys to values, not %s", name(path), kind(n))
		return
	}
	fields := map[string]reflect.Value{}
	var known []string
	for i := range v.NumField() {
		if key := v.Type().Field(i).Tag.Get("yaml"); key != "" {
			fields[key] = v.Field(i)
			known = append(known, key)
		}
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := position{key.Line, key.Column}
		field, ok := fields[key.Value]
		switch {
		case key.ShortTag() == "!!merge":
			d.faultAt(at, "merge keys are not supported, write the values out")
		case key.Kind != yaml.ScalarNode:
			d.faultAt(at, "a key must be text, not %s", kind(key))
		case !ok:
			d.faultAt(at, "%s", unknownKey(key.Value, isNull(value), path, known))
		case seen[key.Value] > 0:
			d.faultAt(at, "%s is given twice, first at line %d", join(path, key.Value), seen[key.Value])
		default:
			seen[key.Value] = key.Line
			d.value(value, field, join(path, key.Value))
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
